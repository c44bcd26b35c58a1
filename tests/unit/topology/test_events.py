"""Where a topology says that events hold user, column and time, and which events count."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventveil.model.topology import Condition, NameMap
from eventveil.topology.fingerprints import fingerprint_fields
from tests.unit.topology.examples import BASE, ROOT, changed, load_text, problems_of

FILTER = "/time\n      filter: {/a: b}\n"
SHOP = (ROOT / "topologies" / "web-shop.yaml").read_text(encoding="utf-8")


def test_the_web_shop_says_where_its_events_hold_what(tmp_path: Path) -> None:
    views, orders = load_text(tmp_path, SHOP).streams
    assert views.source.user == '["/data/user/id","/data/session"]'
    assert views.source.column == '["/data/page","/data/country"]'
    assert views.source.filter == (
        Condition("/type", "in", ("com.example.shop.viewed",)),
        Condition("/data/bot", "absent"),
        Condition("$headers/env", "not-in", ("test", "staging")),
    )
    prefixes = (
        ("/shoes/", "shoes"), ("/shoes/kids/", "kids"), ("/kids/", "kids"), ("/help/", "help"),
        ("/account/", "account"),
    )  # fmt: skip
    assert views.source.maps == (NameMap("/data/page", (("/", "home"),), prefixes, "rest"),)
    assert len(views.counts.labels) == 6 * 3 + 1
    assert views.counts.labels[:4] == ("home|AT", "home|CH", "home|DE", "shoes|AT")
    assert (views.counts.unknown, views.counts.unknown_column) == ("column", 18)
    assert (orders.source.user, orders.source.time_zone) == ("$key", "Europe/Berlin")
    assert views.source.looked_at == {
        "/data/user/id", "/data/session", "/data/page", "/data/country", "/time", "/type", "/data/bot",
        "$headers/env",
    }  # fmt: skip


def test_combinations_may_be_listed_and_values_have_their_types(tmp_path: Path) -> None:
    listed = changed(("column: /dest", "column: [/dest, $headers/air]"), ("[ATL, BOS]", "[ATL|UA, BOS|UA]"))
    (one,) = load_text(tmp_path, listed).streams
    assert one.counts.labels == ("ATL|UA", "BOS|UA")
    conditions = '/time\n      filter: {/a: [1, "1", true, no], /b: {present: true}, $key: {not: x}}\n'
    (one,) = load_text(tmp_path, changed(("/time\n", conditions))).streams
    assert one.source.filter == (
        Condition("/a", "in", (1, "1", True, "no")),
        Condition("/b", "present"),
        Condition("$key", "not-in", ("x",)),
    )


def test_state_remembers_rules_by_their_text_or_if_that_is_long_by_its_digest(tmp_path: Path) -> None:
    def remembered(values: int) -> object:
        condition = f"/time\n      filter: {{/a: [{', '.join(map(str, range(values)))}]}}\n"
        (one,) = load_text(tmp_path, changed(("/time\n", condition))).streams
        return fingerprint_fields(one, 1, 1)["source.filter"]

    assert remembered(2) == '[{"field":"/a","test":"in","values":[0,1]}]'
    assert str(remembered(1000)).startswith("sha256 ")
    assert remembered(1000) != remembered(1001)


LOCAL = """\
version: 1
name: museum
streams:
  stays:
    source: {topic: reports, user: [/device, $key], report: /report, time: /at, filter: {$headers/app: guide}}
    timeline: {interval: 1h, origin: 2026-01-01T00:00:00Z}
    values: {maximum: 600}
    mechanism: {kind: topl, epsilon: 1}
    sink: {topic: sums}
"""


def test_local_reports_can_be_filtered_and_need_no_maps(tmp_path: Path) -> None:
    (one,) = load_text(tmp_path, LOCAL).streams
    assert one.source.filter == (Condition("$headers/app", "in", ("guide",)),)
    for mistake, message in [
        ("maps: {/report: {otherwise: a}}", "every report is a column of its own and needs no other name"),
        ("report: [/a, /b]", "streams.stays.source.report: found a list"),
    ]:
        name = mistake.partition(":")[0]
        text = LOCAL.replace("report: /report, ", "" if name == "report" else "report: /report, ")
        (problem,) = problems_of(tmp_path, text.replace("time: /at", f"time: /at, {mistake}"))
        assert message in problem.message


VALUES = """\
version: 1
name: air
streams:
  minutes:
    source: {topic: landed, value: $value}
    values: {maximum: 600}
    mechanism: {kind: tops, epsilon: 1}
    sink: {topic: readings}
"""


def test_a_value_may_be_the_whole_record_and_cannot_be_left_out(tmp_path: Path) -> None:
    assert load_text(tmp_path, VALUES).readings[0].source.value == "$value"
    (problem,) = problems_of(tmp_path, VALUES.replace("$value", "$value, filter: {/a: b}"))
    assert "gives every event a reading in its place, so none can be left out" in problem.message
    (problem,) = problems_of(tmp_path, VALUES.replace("$value", "$key"))
    assert "found '$key', expected a JSON pointer, or $value" in problem.message


@pytest.mark.parametrize("private", ["single", "announced"])
def test_the_state_of_a_pan_private_stream_shows_nothing_of_a_filter(tmp_path: Path, private: str) -> None:
    contributions = ("[ATL, BOS]", "[ATL, BOS]\n      contributions: trusted")
    protected = ("window: 120", f"window: 120\n      adjacency: substitute\n      pan_private: {private}")
    assert load_text(tmp_path, changed(contributions, protected))
    problems = problems_of(tmp_path, changed(contributions, protected, ("/time\n", FILTER)))
    assert "the state of a pan-private stream would show which events passed" in problems[0].message
    assert len(problems) == 1


def test_a_name_of_a_map_may_be_that_of_the_column_for_all_others(tmp_path: Path) -> None:
    maps = ("/time\n", "/time\n      maps: {/dest: {values: {x: rest}}}\n")
    assert problems_of(tmp_path, changed(maps))
    assert load_text(tmp_path, changed(maps, ("[ATL, BOS]", "[ATL, rest]\n      unknown: rest")))
    assert "filter" not in BASE
