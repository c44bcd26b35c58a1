"""The suites that privacy rests on, against one version of Apache Kafka after the other; a Markdown table.

``python -m tests.kafka.versions 3.6.0 4.3.1`` prints a row a version as soon as it is there, on
standard error what pytest says where anything failed, and exits with 1 then. Without versions: the first and
the last patch of each minor version from 3.6 to the newest. The jars come from Maven; see ``jars.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import click

ROOT = Path(__file__).parents[2]
SUITES = {
    "protocol": "test_protocol",
    "fencing": "test_fenced",
    "worker": "test_worker",
    "ledger": "test_ledger",
    "repartition": "test_repartition",
}
#: The first and the last patch on Maven Central of each minor version, oldest first.
VERSIONS = (
    *("3.6.0", "3.6.2", "3.7.0", "3.7.2", "3.8.0", "3.8.1", "3.9.0", "3.9.2"),
    *("4.0.0", "4.0.2", "4.1.0", "4.1.2", "4.2.0", "4.2.1", "4.3.0", "4.3.1"),
)


@dataclass
class Tally:
    """What became of the tests of a suite."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{self.passed} passed"] if self.passed else []
        parts += [f"{self.skipped} skipped"] if self.skipped else []
        parts += [f"**{len(self.failed)} failed**"] if self.failed else []
        return ", ".join(parts) or "**did not run**"


def tallies(report: str) -> dict[str, Tally]:
    """The tallies of all suites in a JUnit report of pytest. A test that cannot even start has failed."""
    found = {suite: Tally() for suite in SUITES}
    suites = {module: suite for suite, module in SUITES.items()}
    for case in ElementTree.fromstring(report).iter("testcase"):
        # A module that cannot be imported is a case with the module's name and no class.
        place = case.get("classname") or case.get("name", "")
        suite = suites.get(place.rpartition(".")[2])
        if suite is not None:
            _add(found[suite], case)
    return found


def _add(tally: Tally, case: ElementTree.Element) -> None:
    outcomes = {child.tag for child in case}
    if outcomes & {"failure", "error"}:
        name = case.get("name", "")
        # A test that fails and then cannot clean up is there twice.
        tally.failed += [name] * (name not in tally.failed)
    elif "skipped" in outcomes:
        tally.skipped += 1
    else:
        tally.passed += 1


def run_suites(version: str, arguments: Sequence[str] = ()) -> tuple[dict[str, Tally], str]:
    """Run all suites against a version; the tallies, and the output of pytest."""
    environment = {**os.environ, "KAFKA": "local", "KAFKA_VERSION": version}
    files = [f"tests/integration/{module}.py" for module in SUITES.values()]
    with tempfile.TemporaryDirectory(prefix="eventveil-versions-") as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments, *files],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        text = report.read_text(encoding="utf-8") if report.exists() else "<none/>"
    return tallies(text), done.stdout


def revision() -> str:
    """The commit of this code, with a mark where it was changed since; "unknown" outside of a clone."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return told.stdout.strip() or "unknown"


def row(version: str, found: dict[str, Tally], seconds: float, commit: str) -> str:
    """A row of the table."""
    cells = [version, *(str(found[suite]) for suite in SUITES), f"{seconds:.0f} s", commit]
    return f"| {' | '.join(cells)} |"


def head() -> Iterator[str]:
    """The head of the table."""
    yield f"| Apache Kafka | {' | '.join(SUITES)} | took | commit |"
    yield "| --- " * (len(SUITES) + 3) + "|"


def complete(found: dict[str, Tally]) -> bool:
    """Whether every suite ran and nothing failed."""
    return all(tally.passed and not tally.failed for tally in found.values())


@click.command()
@click.argument("versions", nargs=-1)
def main(versions: Sequence[str]) -> None:
    """Run the suites against VERSIONS, one after the other."""
    print("\n".join(head()), flush=True)
    failed = False
    for version in versions or VERSIONS:
        begun = time.monotonic()
        found, output = run_suites(version)
        print(row(version, found, time.monotonic() - begun, revision()), flush=True)
        if not complete(found):
            failed = True
            print(f"\n{version}:\n{output}", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
