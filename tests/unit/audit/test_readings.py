"""The audit of value streams: silent about what a worker writes, and it names whatever else it finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from eventveil.audit.findings import ReadingsReport
from eventveil.audit.readings import ReadingsAudit
from eventveil.audit.records import FoundRecord
from eventveil.formats.reading import terms_of
from eventveil.model.records import TopicPartition
from tests.unit.values.streams import event, perturber, readings

STREAM = readings()
KEY = b"minutes"


class Story:
    """The ledger and the sink of partition 1 of a stream, as a worker leaves them; tests spoil them."""

    def __init__(self) -> None:
        self.entries: list[FoundRecord] = []
        self.records: list[FoundRecord] = []
        self.kept: Any = "everything"
        one = perturber(STREAM)
        self.units = one.units
        for start in range(0, 50, 5):
            one.step(range(start, start + 5), [event(i) for i in range(start, start + 5)], start + 5)
            for entry in one.entries():
                self.entries.append(
                    FoundRecord.read(TopicPartition("ledger", 3), len(self.entries), KEY, entry)
                )
            for record in one.records():
                self.records.append(
                    FoundRecord.read(TopicPartition("sink", 1), len(self.records), KEY, record)
                )
            one.published()

    def report(self) -> ReadingsReport:
        audit = ReadingsAudit("minutes", terms_of(STREAM), STREAM.step_text, self.units, 3)
        audit.ledger_begins("ledger", 3, 0)
        for entry in self.entries:
            audit.entry(entry)
        for record in self.records:
            audit.record(record)
        (report,) = audit.reports(self.kept)
        return report

    def aborted(self, found: FoundRecord, **changes: Any) -> FoundRecord:
        return replace(other(found, **changes), committed=False)


def other(found: FoundRecord, **changes: Any) -> FoundRecord:
    """The same record with other fields."""
    value = orjson.dumps({**(found.fields or {}), **changes})
    return FoundRecord.read((found.topic, found.partition), found.offset, found.key, value, found.committed)


def test_what_a_worker_writes_is_clean() -> None:
    story = Story()
    report = story.report()
    assert report.findings == ()
    assert (report.readings, report.held, report.spans) == (40, 10, 4)
    assert [(json.loads(orjson.dumps(one.fields))["start"]) for one in story.entries] == [0, 10, 26, 42]
    assert (report.repeated, report.aborted, report.undecided, report.foreign) == (0, 0, 0, 0)


def test_identical_copies_are_counted_and_not_blamed() -> None:
    story = Story()
    story.records += [
        story.records[3],
        story.aborted(story.records[4]),
        story.aborted(story.records[49], position=50),
    ]
    story.entries += [story.aborted(story.entries[2])]
    story.records += [replace(story.records[0], fields={"stream": "other"})]
    report = story.report()
    assert report.findings == ()
    assert (report.repeated, report.aborted, report.undecided, report.foreign) == (1, 2, 1, 1)


def test_what_retention_removed_is_not_missed() -> None:
    story = Story()
    del story.records[:30]
    story.kept = "newest"
    assert (story.report().violations, story.report().matched_from) == (0, {1: 30})
    story.kept = "everything"
    assert story.report().violations == 1


def test_a_value_held_back_may_not_be_charged_yet() -> None:
    story = Story()
    story.entries.clear()
    del story.records[9:]
    assert story.report().violations == 0
    assert story.report().held == 9


def spoil(name: str, at: int, **changes: Any) -> Callable[[Story], None]:
    def spoiled(story: Story) -> None:
        found = getattr(story, name)
        found[at] = other(found[at], **changes)

    return spoiled


def add(name: str, at: int, *, aborted: bool = False, **changes: Any) -> Callable[[Story], None]:
    def added(story: Story) -> None:
        found = getattr(story, name)
        one = other(found[at], **changes)
        found.append(replace(one, committed=False) if aborted else one)

    return added


def drop(name: str, at: int) -> Callable[[Story], None]:
    return lambda story: getattr(story, name).pop(at) and None


VIOLATIONS: list[tuple[str, Callable[[Story], None], str]] = [
    ("I1", add("records", 20, reading=7), "different records were visible for this position: 20"),
    ("I1", add("records", 20, aborted=True, reading=7), "different records were visible"),
    (
        "I1",
        add("entries", 2, aborted=True, stop=43),
        "it charged different positions than the committed entry",
    ),
    ("I7", add("entries", 1), "positions were charged a second time"),
    ("I2", spoil("records", 5, reading=3), "a value that a threshold was estimated from has a reading"),
    ("I2", drop("entries", 3), "no span of the ledger holds this position"),
    ("I2", spoil("records", 20, reading=1.5), "this is not a reading"),
    ("I2", spoil("records", 20, seeded=True), "this is not a reading"),
    ("I2", spoil("records", 20, position=-1), "this is not a reading"),
    ("I7", spoil("records", 20, reading=None), "a value of a chunk has no reading"),
    ("I7", drop("records", 20), "readings do not follow each other: 21 comes after 19"),
    ("I7", lambda story: story.records.__delitem__(slice(40, None)), "but their records are not in the sink"),
    ("I7", spoil("records", 20, epsilon="2"), "epsilon is not that of the topology"),
    ("I7", spoil("records", 20, step="1"), "step is not that of the topology"),
    ("I7", spoil("records", 20, partition=0), "it is of another partition of the source"),
    ("I7", spoil("entries", 2, start=25), "positions were charged a second time: from 25, up to 26"),
    ("I7", spoil("entries", 2, start=27), "positions before this span were never charged: 26 to 26"),
    ("I7", spoil("entries", 2, spent=99), "a value paid more than epsilon, or nothing"),
    ("I7", spoil("entries", 2, spent=0), "a value paid more than epsilon, or nothing"),
    ("I7", spoil("entries", 2, units=99), "units is not that of the topology"),
    ("I7", spoil("entries", 2, mechanism="pak"), "mechanism is not that of the topology"),
    ("I7", spoil("entries", 2, instance="f" * 32), "another instance of the stream"),
    ("I7", spoil("entries", 2, purpose="dinner"), "this is not a ledger entry of a value stream"),
    ("I7", add("entries", 3, start=42, stop=59), "positions were charged a second time"),
]


@pytest.mark.parametrize(("invariant", "spoiled", "message"), VIOLATIONS, ids=[one[2] for one in VIOLATIONS])
def test_a_violation_is_named(invariant: str, spoiled: Callable[[Story], None], message: str) -> None:
    story = Story()
    spoiled(story)
    report = story.report()
    assert report.violations
    assert any(one.invariant == invariant and message in one.what for one in report.findings), report.findings


def test_a_key_or_ledger_partition_that_is_not_the_streams_is_named() -> None:
    story = Story()
    story.records[20] = replace(story.records[20], key=b"x")
    story.entries[1] = replace(story.entries[1], partition=2)
    what = {one.what for one in story.report().findings}
    assert what == {"its key is not the name of the stream", "the ledger of this stream is in partition 3"}
