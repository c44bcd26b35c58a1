"""What docs/migrations.md says of every field is what the program does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from eventveil.topology.changes import REFUSED, SOUND, as_written, changed, reason, remedy

DOCUMENT = (Path(__file__).parents[3] / "docs" / "migrations.md").read_text(encoding="utf-8")


def test_the_tables_of_the_documentation_are_those_of_the_program() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", DOCUMENT, re.MULTILINE)
    assert dict(rows) == {**SOUND, **REFUSED}


def test_a_field_that_nobody_has_thought_of_is_refused() -> None:
    assert reason("mechanism.unheard-of") == "it is not known what it would change"
    assert "new name" in remedy("mechanism.unheard-of")


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("timeline.lateness", 300_000, "5m"),
        ("timeline.lateness", 0, "0s"),
        ("timeline.origin", 1_767_225_600_000, "2026-01-01T00:00:00Z"),
        ("mechanism.epsilon", "1/2", "0.5"),
        ("mechanism.epsilon", "1/3", "1/3"),
        ("mechanism.delta", "1/1000000000", "1e-09"),
        ("mechanism.kind", "seasonal", "'seasonal'"),
        ("mechanism.window", 24, "24"),
        ("mechanism.noise", None, "not set"),
        ("counts.columns", 3, "3"),
        ("counts.columns.digest", "25a8192985d250d675868ce37241644902dc018f", "25a8192985d2..."),
        (
            "source.filter",
            '[{"field":"/type","test":"in","values":["seen",7,true]},{"field":"/bot","test":"absent","values":[]}]',
            "\"/type is 'seen' or 7 or true; /bot is not there\"",
        ),
        ("source.filter", "sha256 25a8192985d250d675868ce3", "'sha256 25a8192985d250d675868ce3'"),
        ("sink.topic", "counts", "'counts'"),
        ("a.setting.of.another.version", 7, "7"),
    ],
)
def test_a_setting_is_told_as_the_file_has_it(field: str, value: str | int | None, text: str) -> None:
    assert as_written(field, value) == text


def kept(*conditions: tuple[str, str, list[object]]) -> str:
    return json.dumps([dict(zip(("field", "test", "values"), one, strict=True)) for one in conditions])


THERE, NOT_THERE = ("/name", "present", []), ("/name", "absent", [])
VIEWS, BEATS = ("/kind", "in", ["view"]), ("/kind", "not-in", ["heartbeat", 7])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (kept(THERE, VIEWS), kept(THERE, BEATS), "/kind was 'view' and is not 'heartbeat' or 7 now"),
        (kept(THERE), kept(NOT_THERE), "/name was there and is not there now"),
        (kept(THERE, VIEWS), kept(THERE), "the condition \"/kind is 'view'\" was removed"),
        (kept(THERE), kept(THERE, VIEWS), "the condition \"/kind is 'view'\" was added"),
        (kept(THERE, VIEWS), kept(VIEWS, THERE), "the order of its conditions differs"),
    ],
)
def test_of_a_filter_the_conditions_that_differ_are_told(old: str, new: str, told: str) -> None:
    assert changed("source.filter", old, new) == f"source.filter: {told}"


def test_a_new_filter_is_told_in_quotes() -> None:
    told = changed("source.filter", None, kept(THERE, VIEWS))
    assert told == "source.filter was not set and is \"/name is there; /kind is 'view'\" now"


@pytest.mark.parametrize("field", ["timeline.lateness", "timeline.max_ahead"])
def test_what_boundaries_keep_from_changing_is_not_sent_to_a_migration(field: str) -> None:
    assert "eventveil migrate" in remedy(field)
    assert "migrate" not in remedy(field, by_boundary=True)
    assert remedy(field, by_boundary=True).startswith("With append_time: boundary it cannot change")
