"""What ``check`` and ``topics --print`` say of the shipped topologies, and of one with every kind of stream.

The files in ``shipped/`` were written by these two commands, run in the root of the repository without
variables in the environment. Where their words are to change, they are written so again.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.cli.commands import made
from tests.unit.topology.examples import ROOT, TOPOLOGIES

KEPT = Path(__file__).parent / "shipped"
FILES = [*TOPOLOGIES, KEPT / "every-kind.yaml"]
VARIABLES = ("KAFKA_BOOTSTRAP", "KAFKA_REPLICATION", "KAFKA_MIN_INSYNC")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("command", ["check", "topics"])
def test_a_topology_is_told_of_as_it_was(command: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    arguments = [path.relative_to(ROOT).as_posix(), *["--print"] * (command == "topics")]
    told = CliRunner().invoke(made(command), arguments, env=dict.fromkeys(VARIABLES))
    assert told.exit_code == 0, told.output
    assert told.stdout == (KEPT / f"{path.stem}.{command}").read_text(encoding="utf-8")


def test_what_is_as_wide_as_a_source_is_printed_with_the_source_that_it_follows() -> None:
    guess = ": if a source exists with another number than above, correct this one\n"
    printed = (KEPT / "web-shop.topics").read_text(encoding="utf-8")
    assert printed.count("# source; if it exists, leave this out\n") == 2
    assert f"# re-keyed events; as many partitions as shop.events has{guess}" in printed
    assert f"# re-keying changelog; one per partition of shop.events{guess}" in printed
    assert f"# counting changelog; one per partition of the sources{guess}" in printed
    readings = (KEPT / "air-time.topics").read_text(encoding="utf-8")
    assert f"# sink; one per partition of flights.landed{guess}" in readings


def test_the_file_with_every_kind_has_streams_of_each() -> None:
    text = (KEPT / "every-kind.yaml").read_text(encoding="utf-8")
    for what in (
        "kind: topl",
        "kind: tops",
        "pan_private: single",
        "pan_private: announced",
        "counts: trusted",
    ):
        assert what in text
