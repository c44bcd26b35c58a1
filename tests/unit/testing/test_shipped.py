"""The shipped topologies have tests, which pass, and which a changed topology makes fail."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.testing.document import load_tests
from eventveil.testing.running import run
from tests.fuzz.ways import WAYS, read_by
from tests.unit.topology.examples import ROOT, TOPOLOGIES

SHIPPED = ROOT / "topologies"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_the_tests_of_a_shipped_topology_pass(path: Path, way: str) -> None:
    with read_by(way):
        tried = CliRunner().invoke(main, ["test", str(path)])
    assert tried.exit_code == 0, tried.output


def test_every_stream_of_the_shipped_topologies_is_tested() -> None:
    for path in TOPOLOGIES:
        file = load_tests(str(path.with_name(f"{path.stem}_test.yaml")), {})
        streams = {one.name for one in (*file.topology.streams, *file.topology.readings)}
        assert {case.stream.name for case in file.cases} == streams, path.name


#: The file of tests is refused, for it names timestamps or columns that are none any more.
REFUSED = "refused"
#: Topology, a change of it, and the test that notices.
MUTANTS = [
    ("flights", "contributions: 1 ", "contributions: 2 ", "counts once an hour"),
    ("flights", "lateness: 10m", "lateness: 11m", "an event is late"),
    ("flights", "max_ahead: 1h", "max_ahead: 2h", "more than an hour ahead"),
    ("flights", "partitioner: murmur2", "partitioner: crc32", "Java producers"),
    ("flights", "unknown: dead-letter", "unknown: ignore", "a dead letter"),
    ("flights", "kind: seasonal ", "kind: uniform ", "large against the noise"),
    ("hospital-visits", "origin: 2026-01-01T00:00:00+01:00", "origin: 2026-01-01T00:00:00Z", REFUSED),
    ("hospital-visits", "interval: 1d", "interval: 12h", "once a day"),
    ("hospital-visits", "user: /patient", "user: /region", "once a day"),
    ("hospital-visits", "window: 30", "window: 25", "the first month"),
    ("hospital-visits", "epsilon: 0.5", "epsilon: 0.25", "the first month"),
    ("hospital-visits", "kind: seasonal ", "kind: sample ", "the first month"),
    ("page-views", "contributions: 3 ", "contributions: 4 ", "first three views"),
    ("page-views", "user_type: integer", "user_type: string", "whole numbers"),
    ("page-views", "column: /page/section", "column: /page", "first three views"),
    ("page-views", "lateness: 2m", "lateness: 3m", "two minutes"),
    ("page-views", "unknown: other          #", "unknown: dead-letter          #", "not listed"),
    ("web-shop", "user_type: either ", "user_type: integer ", "are one user"),
    ("web-shop", "user: [/data/user/id, /data/session]", "user: /data/session", "are one user"),
    ("web-shop", "contributions: 3", "contributions: 2", "are one user"),
    ("web-shop", "/shoes/kids/: kids, ", "", "longest prefix"),
    ("web-shop", "/data/bot: {present: false}", "/data/bot: {present: true}", "left out"),
    ("web-shop", "[test, staging]", "[test]", "left out"),
    ("web-shop", "user: $key ", "user: /payment ", "customer that is their key"),
    ("web-shop", "Europe/Berlin ", "UTC ", "clocks of Berlin"),
    (
        "web-shop",
        "$headers/ce_type: com.example.shop.ordered",
        "/payment: {present: true}",
        "clocks of Berlin",
    ),
    ("air-time", "held: 4096 ", "held: 4097 ", "first 4096"),
    ("air-time", "value: /minutes", "value: /flight", "without a number"),
    ("engine", "watermark: /complete_until", "", "last number before the watermark"),
    ("engine", "column: /page", "column: /start", "last number before the watermark"),
    ("engine", "interval: 1h", "interval: 2h", REFUSED),
    ("orders", "/state: PLACED", "/state: CANCELLED", "cancelled does not count"),
    ("orders", "column: /customer/country", "column: /state", "once an hour"),
    ("orders", "unknown: elsewhere", "unknown: dead-letter", "counts as elsewhere"),
    ("orders", "user_type: integer", "user_type: string", "an integer"),
    ("museum", "maximum: 600", "maximum: 500", REFUSED),
    ("museum", "estimate_after: 10000", "estimate_after: 10001", "choose the threshold"),
]


@pytest.mark.parametrize(
    ("name", "old", "new", "noticed"), MUTANTS, ids=[f"{row[0]} {row[2]}" for row in MUTANTS]
)
def test_a_change_of_a_shipped_topology_fails_its_tests(
    tmp_path: Path, name: str, old: str, new: str, noticed: str
) -> None:
    for path in (*SHIPPED.glob("*.txt"), SHIPPED / f"{name}_test.yaml"):
        shutil.copy(path, tmp_path)
    text = (SHIPPED / f"{name}.yaml").read_text()
    assert text.count(old) >= 1
    (tmp_path / f"{name}.yaml").write_text(text.replace(old, new))
    chosen = [] if noticed == REFUSED else ["-k", noticed]
    tried = CliRunner().invoke(main, ["test", str(tmp_path), *chosen])
    if noticed == REFUSED:
        assert tried.exit_code == 2, tried.output
        assert re.search(f"{name}_test.yaml:[0-9]+:[0-9]+: .* is not (where|a column)", tried.output)
    else:
        assert tried.exit_code == 1, tried.output
        assert tried.output.startswith("FAILED"), tried.output


def test_a_result_keeps_what_became_of_events() -> None:
    file = load_tests(str(SHIPPED / "flights_test.yaml"), {})
    result = run(file, next(case for case in file.cases if "an event is late" in case.name))
    assert result.passed
    assert result.played is not None
    assert result.played.dead_letters == {(2, "late"): 1}
