"""Which versions of Eventveil have decided a ledger: their timestamps, times, and entries that name none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.audit.records import Entry, FoundRecord
from eventveil.audit.versions import StreamVersions, Versions, VersionSpan
from eventveil.formats.reading import span_entry
from eventveil.formats.span import Span
from eventveil.model.records import TopicPartition
from eventveil.values.ledger import Charge
from tests.unit.audit.story import FIRST, NAME, TIMELINE, Item, Story
from tests.unit.values.streams import readings

PLACE = TopicPartition("ledger", 1)


def found(item: Item) -> FoundRecord:
    return FoundRecord.read(PLACE, 0, item.key, item.value, item.committed)


def ledger(named: Sequence[str | None]) -> list[Item]:
    """A ledger whose entries name these versions, None for none."""
    entries = Story.clean(timestamps=len(named)).ledger
    for entry, version in zip(entries, named, strict=True):
        if version is not None:
            entry.edit(eventveil=version)
    return entries


def told(items: Sequence[Item]) -> StreamVersions:
    versions = Versions({NAME: TIMELINE, "other": None})
    for item in items:
        versions.see(found(item))
    first, other = versions.streams()
    assert other == StreamVersions("other", (), 0)
    return first


def test_each_version_has_its_outer_timestamps_and_their_times() -> None:
    spans = told(ledger([None, None, "0.2.0", "0.2.0", "0.3.0"])).versions
    assert spans == (
        VersionSpan(None, 2, FIRST, FIRST + 1, "1970-01-01T00:00:16Z", "1970-01-01T00:00:18Z"),
        VersionSpan("0.2.0", 2, FIRST + 2, FIRST + 3, "1970-01-01T00:00:18Z", "1970-01-01T00:00:20Z"),
        VersionSpan("0.3.0", 1, FIRST + 4, FIRST + 4, "1970-01-01T00:00:20Z", "1970-01-01T00:00:21Z"),
    )


@given(st.lists(st.sampled_from([None, "0.1.0", "0.2.0"]), max_size=9))
def test_entries_without_a_version_count_where_others_before_and_after_have_one(
    named: list[str | None],
) -> None:
    given_at = [at for at, one in enumerate(named) if one is not None]
    between = named[given_at[0] : given_at[-1]] if given_at else []
    result = told(ledger(named))
    assert result.unnamed == between.count(None)
    assert {one.version: one.entries for one in result.versions} == {one: named.count(one) for one in named}
    assert [one.version for one in result.versions] == [*dict.fromkeys(named)]


def test_what_was_aborted_and_what_is_no_entry_are_passed_over() -> None:
    good, aborted, broken, other = ledger(["0.1.0"] * 4)
    aborted.committed = False
    broken.edit(digest="no digest")
    other.edit(stream="somebody")
    assert told([good, aborted, broken, other]) == told([good])


def test_spans_of_a_value_stream_have_a_version_and_no_time() -> None:
    stream = readings()
    versions = Versions({stream.name: None})
    charge = Charge("tree", 0, 4, 2)
    for version in ("", "0.1.0", "0.1.0"):
        value = span_entry(stream, 0, charge, 4, "instance", version)
        versions.see(FoundRecord.read(PLACE, 0, stream.name.encode(), value))
    (one,) = versions.streams()
    assert one.versions == (
        VersionSpan(None, 1, None, None, None, None),
        VersionSpan("0.1.0", 2, None, None, None, None),
    )


@pytest.mark.parametrize("version", [None, 1, "", "0.1.0\n", "<b>0.1.0</b>", "1" * 41, ["0.1.0"]])
def test_what_cannot_be_a_version_makes_no_entry(version: Any) -> None:
    (entry,) = ledger(["0.1.0"])
    read = Entry.read(found(entry))
    assert read is not None
    assert read.version == "0.1.0"
    entry.edit(eventveil=version)
    assert Entry.read(found(entry)) is None
    fields = orjson.loads(span_entry(readings(), 0, Charge("tree", 0, 4, 2), 4, "instance", "0.1.0"))
    assert Span.read(fields) is not None
    assert Span.read({**fields, "eventveil": version}) is None
