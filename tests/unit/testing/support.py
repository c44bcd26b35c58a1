"""Files of tests over a small topology, and what running them gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eventveil.testing.document import load_tests
from eventveil.testing.running import Result, run
from tests.unit.topology.examples import replaced

TOPOLOGY = """\
version: 1
name: small
kafka: {bootstrap: "${KAFKA_BOOTSTRAP:localhost:9092}"}
streams:
  views:
    source: {topic: views, user: /user, column: /page, time: /at}
    timeline: {interval: 1h, origin: 2026-01-01T00:00:00Z, lateness: 5m}
    counts: {columns: [home, news, other], unknown: other}
    mechanism: {kind: uniform, epsilon: 1, window: 4}
    sink: {topic: views.sanitized}
"""


def changed(changes: Mapping[str, str]) -> str:
    """The topology with texts replaced, each of which is there once."""
    return replaced(TOPOLOGY, *changes.items())


def write(folder: Path, test: str, changes: Mapping[str, str] | None = None, head: str = "") -> str:
    """A topology and a file with one test, without its name, beside it; the path of the latter."""
    (folder / "small.yaml").write_text(changed(changes or {}))
    body = "\n".join(f"    {line}" if line.strip() else "" for line in test.strip("\n").splitlines())
    path = folder / "small_test.yaml"
    path.write_text(f"{head}tests:\n  - name: it\n{body}\n")
    return str(path)


def outcome(folder: Path, test: str, changes: Mapping[str, str] | None = None) -> Result:
    """What a test of the topology comes to."""
    file = load_tests(write(folder, test, changes), {})
    (case,) = file.cases
    return run(file, case)


def passes(folder: Path, test: str, changes: Mapping[str, str] | None = None) -> None:
    """Assert that it passes."""
    result = outcome(folder, test, changes)
    assert result.passed, "\n".join(result.lines())
