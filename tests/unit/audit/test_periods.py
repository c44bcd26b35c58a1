"""The life of a ledger: rows by year and terms, charges in terms of epsilon, digests to recompute."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import orjson

from eventveil.audit.periods import ChargedPeriod, ChargedPeriods
from eventveil.audit.records import FoundRecord
from eventveil.formats.change import Change, Difference
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Timeline
from tests.unit.audit.story import FIRST, INSTANCE, LAST, NAME, SETTINGS, Item, Story, terms_of

PLACE = TopicPartition("ledger", 1)
DAY = 86_400_000
#: Timestamp 17, the first of a story, is the 31st of December 2025.
DAILY = Timeline(interval=DAY, origin=1_767_139_200_000 - (FIRST - 1) * DAY)


def found(items: Iterable[Item]) -> list[FoundRecord]:
    return [
        FoundRecord.read(PLACE, at, item.key, item.value, item.committed) for at, item in enumerate(items)
    ]


def life_of(records: Iterable[FoundRecord], timeline: Timeline | None = DAILY) -> tuple[ChargedPeriod, ...]:
    life = ChargedPeriods({NAME: timeline})
    for record in records:
        life.see(record)
    return life.periods()


def digest_of(items: Iterable[Item]) -> str:
    values = [item.value or b"" for item in items]
    return hashlib.sha256(b"".join(hashlib.sha256(value).digest() for value in values)).hexdigest()


def test_a_year_that_is_over_has_the_same_row_however_long_the_ledger_goes_on() -> None:
    story = Story.clean()
    short, long = life_of(found(story.ledger[:5])), life_of(found(story.ledger))
    assert [one.year for one in long] == ["2025", "2026"]
    assert short[0] == long[0]
    assert (long[0].begin, long[0].end) == ("2025-12-31T00:00:00Z", "2026-01-01T00:00:00Z")
    assert (long[0].entries, long[1].entries) == (1, LAST - FIRST)
    assert (long[0].digest, long[1].digest) == (digest_of(story.ledger[:1]), digest_of(story.ledger))
    assert short[1].digest == digest_of(story.ledger[:5]) != long[1].digest


def test_a_changed_entry_changes_every_digest_after_it_and_none_before() -> None:
    story = Story.clean()
    before = life_of(found(story.ledger))
    story.ledger[4].edit(digest="00" * 32)
    after = life_of(found(story.ledger))
    assert after[0] == before[0]
    assert after[1].digest != before[1].digest


def test_what_was_charged_is_the_sum_of_all_spends_in_terms_of_epsilon() -> None:
    story = Story.clean()
    spent = sum(sum(item.fields["spent"].values()) for item in story.ledger)
    rows = life_of(found(story.ledger))
    units = story.ledger[0].fields["units"]
    charged = [one.charged for one in rows if one.charged is not None]
    assert sum(charged) == Fraction(SETTINGS.epsilon) * spent / units > 0
    assert sum(one.fresh for one in rows) == sum(item.fields["fresh"] for item in story.ledger)


def change(kind: str, start: int) -> Item:
    terms = terms_of(SETTINGS)
    other = replace(SETTINGS, epsilon=Fraction(2))
    fields = {"mechanism.epsilon": Difference("1", "2")}
    made = Change(
        NAME,
        "reset" if kind == "reset" else "migration",
        start,
        fields,
        terms,
        terms_of(other),
        "b" * 32,
        INSTANCE,
    )
    return Item(made.encode())


def test_a_change_of_terms_and_a_reset_begin_rows_of_their_own() -> None:
    story = Story.clean()
    first, second = story.ledger[1:4], story.ledger[4:7]
    for item in second:
        item.edit(epsilon="2", instance="b" * 32)
    migrated = life_of(found([*first, change("migration", FIRST + 4), *second]))
    assert [(one.generation, one.epsilon, one.entries) for one in migrated] == [(1, "1.0", 3), (1, "2", 3)]
    # The record of the change is part of the digest, and belongs to the row before it.
    assert [one.records for one in migrated] == [4, 7]
    again = life_of(found([*first, change("reset", FIRST + 1), *first]))
    assert [(one.generation, one.begin) for one in again] == [
        (1, "2026-01-01T00:00:00Z"), (2, "2026-01-01T00:00:00Z"),
    ]  # fmt: skip


def test_aborted_records_and_those_of_other_streams_are_no_part_of_it() -> None:
    story = Story.clean()
    clean = life_of(found(story.ledger))
    others = replace(story.ledger[3], key=b"other")
    others.edit(stream="other")
    aborted = replace(story.ledger[3], committed=False)
    assert life_of(found([*story.ledger[:2], others, aborted, *story.ledger[2:]])) == clean


def test_spans_of_a_value_stream_have_no_time_and_no_sum() -> None:
    span = {
        "stream": NAME, "partition": 0, "purpose": "tree", "start": 0, "stop": 8, "spent": 3, "units": 3,
        "instance": INSTANCE, "mechanism": "tops", "epsilon": "1",
    }  # fmt: skip
    (row,) = life_of(
        found([Item(orjson.dumps(span)), Item(orjson.dumps({**span, "start": 8, "stop": 16}))]), None
    )
    assert (row.entries, row.year, row.begin, row.charged, row.mechanism) == (2, None, None, None, "tops")


def test_what_is_no_entry_counts_for_the_digest_alone() -> None:
    story = Story.clean()
    odd = Item(b"no entry")
    rows = life_of(found([*story.ledger, odd]))
    assert rows[-1].entries == LAST - FIRST
    assert rows[-1].digest == digest_of([*story.ledger, odd])
