from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eventveil.advise.writing import TopologyPlan, rules_of
from eventveil.cli.files import write_topology
from eventveil.model.topology import Condition
from eventveil.topology.loading import load
from tests.unit.topology.examples import ROOT

PLAN = TopologyPlan(
    "shop", "views", "shop.views", "/user", "/column", "/time", 3_600_000, 0, ("a",), "seasonal", "0.5", 24
)
STRANGE = (
    "yes", "null", "1e3", "07", "a b", 'say "no"', "back\\slash", "${HOME}", "$", "$$", "tab\there",
    "café", "\u2028", "\U0001f600", "# no comment", " led by a space", "0x1f", "~", "-", "line\nfeed", "on",
)  # fmt: skip


@pytest.mark.parametrize("columns", [("home", "search"), STRANGE, tuple(f"c-{n}" for n in range(5_000))])
def test_whatever_columns_are_called_the_file_is_valid_and_has_them(
    tmp_path: Path, columns: tuple[str, ...]
) -> None:
    path = tmp_path / "t.yaml"
    files = write_topology(str(path), replace(PLAN, columns=columns))
    (stream,) = load(str(path), {}).streams
    assert stream.counts.labels == columns
    assert stream.counts.column_type == "string"
    assert len(files) == (2 if len(columns) > 1_000 else 1)


def test_integers_stay_integers_in_a_list_and_in_a_file(tmp_path: Path) -> None:
    for number in (3, 3_000):
        path = tmp_path / "t.yaml"
        columns = tuple(map(str, range(number)))
        plan = replace(PLAN, columns=columns, column_type="integer", user_type="integer")
        write_topology(str(path), plan)
        (stream,) = load(str(path), {}).streams
        assert (stream.counts.labels, stream.counts.column_type) == (columns, "integer")
        assert stream.source.user_type == "integer"


def test_the_rules_of_the_source_are_in_the_file(tmp_path: Path) -> None:
    (shop, _) = load(str(ROOT / "topologies" / "web-shop.yaml"), {}).streams
    filters = (Condition("/${a}", "not-in", (1, "1", "$x", True)), Condition("$headers/b", "absent"))
    source = replace(
        shop.source, format="json-schema", time_unit="us", time_zone="Asia/Tokyo", filter=filters, raw=None
    )
    labels = ("home|DE", "rest|DE", "other")
    places = {"user": source.user, "column": source.column, "time": source.time, "user_type": "either"}
    rules = rules_of(source, labels, "other")
    path = tmp_path / "t.yaml"
    write_topology(str(path), replace(PLAN, columns=labels, unknown="other", rules=rules, **places))  # type: ignore[arg-type]
    (written,) = load(str(path), {}).streams
    assert written.source.filter == filters
    assert written.source.format == "json-schema"
    assert (written.source.time_unit, written.source.time_zone) == ("us", "Asia/Tokyo")
    assert (written.source.user, written.source.column) == (source.user, source.column)
    # Sections that are no columns any more count in the column for all others.
    (names,) = written.source.maps
    assert (names.values, names.otherwise) == ((("/", "home"),), "rest")
    assert {name for _, name in names.prefixes} == {"other"}


def test_all_of_the_plan_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    plan = replace(
        PLAN, columns=("a", "other"), unknown="other", contributions=3, options={"periods": "[]"},
        user="/who is it/a~1b", remarks=("First.", "Second."), partitioner="crc32",
    )  # fmt: skip
    write_topology(str(path), plan)
    topology = load(str(path), {})
    (stream,) = topology.streams
    assert (topology.name, stream.name, stream.sink.topic) == ("shop", "views", "shop.views.sanitized")
    assert (stream.source.user, stream.source.partitioner) == ("/who is it/a~1b", "crc32")
    assert (stream.timeline.interval, stream.timeline.origin) == (3_600_000, 0)
    assert (stream.counts.contributions, stream.counts.unknown_column) == (3, 1)
    assert stream.mechanism.kind == "seasonal"
    assert (stream.mechanism.epsilon_text, stream.mechanism.window) == ("0.5", 24)
    assert stream.mechanism.options.get("periods") in (None, "")
    assert path.read_text().startswith("# First.\n# Second.\nversion: 1\n")
