"""The audit finds each violation, and nothing where there is none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import cycle
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.mechanisms import KINDS, build
from operators.privacy.audit import Found, Kept, Report, StreamAudit, WindowSums, stranger
from operators.release import ledger_entry, release_record
from operators.topology.model import Counts, MechanismSettings, Sink, Source, Stream, Timeline
from tests.contract.noises import ForcedNoise

NAME, FIRST, RELEASES, WINDOW, PARTITION = "visits", 17, 12, 4, 1
LAST = FIRST + RELEASES - 1
INSTANCE = "9f8e"
SETTINGS = MechanismSettings("budget-distribution", Fraction(1), "1.0", WINDOW)
UNITS = 2 * WINDOW * 2**20

Names = set[tuple[str, int | None]]


OBJECT = Sink("sink", "object")


def stream_of(settings: MechanismSettings = SETTINGS, sink: Sink = OBJECT) -> Stream:
    return Stream(
        name=NAME,
        source=Source("raw", "/u", "/c", "/t"),
        timeline=Timeline(interval=1000, origin=0),
        counts=Counts(("a", "b")),
        mechanism=settings,
        sink=sink,
        dead_letter="dead",
    )


def releases(stream: Stream, timestamps: int = RELEASES) -> Iterator[bytes]:
    """Real release records; every third decision is to publish, and the counts differ at each timestamp."""
    noise = ForcedNoise(cycle([False, True, False]))
    mechanism = build(stream.mechanism, 2, 1, noise)
    for timestamp in range(FIRST, FIRST + timestamps):
        release = mechanism.step(np.array([timestamp, 2 * timestamp]))
        yield release_record(stream, timestamp, release, mechanism.units)


@dataclass
class Item:
    """A record of the story; ``committed`` and the place can be rewritten."""

    value: bytes | None
    committed: bool = True
    partition: int = 0
    key: bytes | None = NAME.encode()
    newer: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        assert self.value is not None
        return dict(orjson.loads(self.value))

    def edit(self, **changes: Any) -> None:
        self.value = orjson.dumps({**self.fields, **changes})


@dataclass
class Story:
    """What ledger and sink of a run hold: the records of timestamp FIRST + i at index i."""

    ledger: list[Item] = field(default_factory=list)
    sink: list[Item] = field(default_factory=list)
    ledger_start: int = 0

    @classmethod
    def clean(cls, stream: Stream | None = None, timestamps: int = RELEASES) -> Story:
        records = list(releases(stream or stream_of(), timestamps))
        entries = [Item(ledger_entry(record, INSTANCE), partition=PARTITION) for record in records]
        return cls(entries, [Item(record) for record in records])

    def charge(self, index: int, **changes: Any) -> None:
        """Change what entry and record of a timestamp say of its charge, as a faulty worker would."""
        self.sink[index].edit(**changes)
        value = self.sink[index].value
        assert value is not None
        self.ledger[index].value = ledger_entry(value, INSTANCE)

    def audit(self, settings: MechanismSettings = SETTINGS, kept: Kept = "everything") -> Report:
        audit = StreamAudit(NAME, settings, UNITS, PARTITION)
        audit.ledger_begins("ledger", PARTITION, self.ledger_start)
        for found, _ in _found("ledger", self.ledger):
            audit.entry(found)
        for found, newer in _found("sink", self.sink):
            audit.record(found, newer=newer)
        return audit.report(kept)


def _found(topic: str, items: list[Item]) -> Iterator[tuple[Found, bool]]:
    for offset, item in enumerate(items):
        place = (topic, item.partition)
        yield Found.read(place, offset, item.key, item.value, item.committed), item.newer


def other_draw(item: Item, **changes: Any) -> Item:
    """A record of the same timestamp with other noise."""
    other = replace(item, **changes)
    other.edit(counts={"a": -1, "b": -1})
    return other


def entry_of(record: Item, **changes: Any) -> Item:
    assert record.value is not None
    return Item(ledger_entry(record.value, INSTANCE), partition=PARTITION, **changes)


def named(report: Report) -> Names:
    return {(finding.invariant, finding.timestamp) for finding in report.findings}


# A clean run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sink", [Sink("sink", "object"), Sink("sink", "array")], ids=["object", "array"])
def test_a_real_run_of_every_mechanism_is_clean(kind: str, sink: Sink) -> None:
    settings = replace(SETTINGS, kind=kind)
    report = Story.clean(stream_of(settings, sink)).audit(settings)
    assert report.findings == ()
    assert (report.releases, report.first, report.windows) == (RELEASES, FIRST, RELEASES - WINDOW + 1)
    assert 0 < report.largest <= report.units == UNITS
    assert report.matched_from == FIRST
    assert (report.repeated, report.aborted, report.undecided, report.foreign) == (0, 0, 0, 0)


def test_the_largest_window_is_the_largest_that_any_entry_says() -> None:
    story = Story.clean()
    assert story.audit().largest == max(item.fields["window_spent"] for item in story.ledger)


def test_a_stream_that_has_released_nothing_is_clean() -> None:
    report = Story().audit()
    assert (report.releases, report.windows, report.violations, report.matched_from) == (0, 0, 0, None)


def test_fewer_releases_than_a_window_are_one_window() -> None:
    report = Story.clean(timestamps=WINDOW - 1).audit()
    assert (report.releases, report.windows, report.violations) == (WINDOW - 1, 1, 0)


# One violation each


def second_draw(story: Story) -> None:
    story.sink.append(other_draw(story.sink[5]))


def second_draw_before_the_first(story: Story) -> None:
    story.sink.insert(5, other_draw(story.sink[5]))


def second_draw_aborted(story: Story) -> None:
    story.sink.insert(5, other_draw(story.sink[5], committed=False))


def charged_draw_aborted_and_another_committed(story: Story) -> None:
    story.sink.insert(5, other_draw(story.sink[5]))
    story.sink[6].committed = False


def gap_in_the_ledger_shown_by_an_aborted_record(story: Story) -> None:
    entry_and_record_missing(story)
    story.sink.append(replace(story.sink[-3], committed=False))
    story.sink[-1].edit(timestamp=LAST - 3)


def second_entry_with_another_release(story: Story) -> None:
    story.ledger.append(entry_of(other_draw(story.sink[5])))


def aborted_entry_with_another_release(story: Story) -> None:
    story.ledger.insert(5, entry_of(other_draw(story.sink[5]), committed=False))


def two_draws_of_an_undecided_timestamp(story: Story) -> None:
    last = story.sink.pop()
    story.ledger.pop()
    story.sink += [replace(last, committed=False), other_draw(last, committed=False)]


def undecided_draw_in_the_ledger_and_another_in_the_sink(story: Story) -> None:
    last = story.sink.pop()
    story.ledger[-1] = replace(story.ledger[-1], committed=False)
    story.sink.append(other_draw(last, committed=False))


def record_replaced(story: Story) -> None:
    story.sink[5] = other_draw(story.sink[5])


def record_without_entry_at_the_end(story: Story) -> None:
    story.ledger.pop()


def record_before_the_first_entry(story: Story) -> None:
    story.sink.insert(0, replace(story.sink[0]))
    story.sink[0].edit(timestamp=FIRST - 1)


def record_in_white_space(story: Story) -> None:
    story.sink[5].value = (story.sink[5].value or b"") + b" "


def tombstone_in_the_sink(story: Story) -> None:
    story.sink.append(Item(None))


def garbage_in_the_sink(story: Story) -> None:
    story.sink.append(Item(b"{"))


def record_without_counts(story: Story) -> None:
    story.sink.append(replace(story.sink[5]))
    story.sink[-1].edit(counts=None)


def record_missing(story: Story) -> None:
    del story.sink[5]


def last_record_missing(story: Story) -> None:
    story.sink.pop()


def record_only_aborted(story: Story) -> None:
    story.sink[5].committed = False


def entry_and_record_missing(story: Story) -> None:
    del story.ledger[-4], story.sink[-4]
    # What follows has forgotten the missing spend, or it would be caught by that as well.
    for index in range(-3, 0):
        spent = sum(
            sum(item.fields["spent"].values())
            for item in story.ledger[: index or None]
            if item.fields["timestamp"] > story.ledger[index].fields["timestamp"] - WINDOW
        )
        own = sum(story.ledger[index].fields["spent"].values())
        story.charge(index, window_spent=spent + own)


def entries_swapped(story: Story) -> None:
    ledger = story.ledger
    ledger[-1], ledger[-2] = ledger[-2], ledger[-1]


def window_above_epsilon(story: Story) -> None:
    before = story.ledger[-1].fields
    more = UNITS - before["window_spent"] + 1
    spent = {**before["spent"], "publish": before["spent"]["publish"] + more}
    story.charge(-1, spent=spent, window_spent=UNITS + 1)


def window_above_epsilon_in_denial(story: Story) -> None:
    window_above_epsilon(story)
    story.charge(-1, window_spent=UNITS)


def window_spent_too_small(story: Story) -> None:
    story.charge(5, window_spent=story.ledger[5].fields["window_spent"] - 1)


def negative_spend(story: Story) -> None:
    story.charge(5, spent={"test": -5, "publish": 5})


def spend_as_text(story: Story) -> None:
    story.ledger[5].edit(spent={"test": "0", "publish": 0})


def entry_with_a_short_digest(story: Story) -> None:
    story.ledger[5].edit(digest="00")


def another_mechanism(story: Story) -> None:
    story.charge(5, mechanism="uniform")


def another_window(story: Story) -> None:
    story.charge(5, window=WINDOW + 1)


def other_units(story: Story) -> None:
    story.charge(5, units=UNITS + 1)


def another_epsilon(story: Story) -> None:
    story.charge(5, epsilon="1.01")


def epsilon_that_is_none(story: Story) -> None:
    story.charge(5, epsilon="1e999999999")


def another_instance(story: Story) -> None:
    story.ledger[5].edit(instance="other")


def entry_that_understates_its_record(story: Story) -> None:
    story.ledger[-1].edit(spent={"test": 0, "publish": 0}, window_spent=_window_sum(story, -1, own=0))


def entry_repeated_with_another_charge(story: Story) -> None:
    story.ledger.append(replace(story.ledger[5]))
    story.ledger[-1].edit(fresh=not story.ledger[5].fields["fresh"])


def fresh_but_not_charged(story: Story) -> None:
    assert not story.sink[5].fields["fresh"]
    story.charge(5, fresh=True)


def not_fresh_but_changed(story: Story) -> None:
    assert not story.sink[5].fields["fresh"]
    story.charge(5, counts={"a": 1, "b": 2})
    # The next fresh release hides it from the timestamps that follow.
    story.charge(6, counts={"a": 1, "b": 2})


def first_release_not_fresh_but_not_zero(story: Story) -> None:
    assert not story.sink[0].fields["fresh"]
    story.charge(0, counts={"a": 0, "b": 1})


def entry_in_another_partition(story: Story) -> None:
    story.ledger[5].partition = PARTITION + 1


def garbage_in_the_ledger(story: Story) -> None:
    story.ledger.append(Item(b"?", partition=PARTITION))


def beginning_of_the_ledger_removed(story: Story) -> None:
    story.ledger_start = 40


def _window_sum(story: Story, index: int, own: int) -> int:
    items = story.ledger[index - WINDOW + 1 : index]
    return own + sum(sum(item.fields["spent"].values()) for item in items)


AT = FIRST + 5
VIOLATIONS: list[tuple[Callable[[Story], None], Names]] = [
    (second_draw, {("I1", AT), ("I2", AT)}),
    (second_draw_before_the_first, {("I1", AT), ("I2", AT)}),
    (second_draw_aborted, {("I1", AT), ("I2", AT)}),
    (charged_draw_aborted_and_another_committed, {("I1", AT), ("I2", AT), ("I7", AT)}),
    (gap_in_the_ledger_shown_by_an_aborted_record, {("I2", LAST - 3), ("I7", LAST - 2)}),
    (second_entry_with_another_release, {("I1", AT)}),
    (aborted_entry_with_another_release, {("I1", AT)}),
    (two_draws_of_an_undecided_timestamp, {("I1", LAST)}),
    (undecided_draw_in_the_ledger_and_another_in_the_sink, {("I1", LAST)}),
    (record_replaced, {("I2", AT), ("I7", AT)}),
    (record_without_entry_at_the_end, {("I2", LAST)}),
    (record_before_the_first_entry, {("I2", FIRST - 1)}),
    (record_in_white_space, {("I2", AT), ("I7", AT)}),
    (tombstone_in_the_sink, {("I2", None)}),
    (garbage_in_the_sink, {("I2", None)}),
    (record_without_counts, {("I2", AT)}),
    (record_missing, {("I7", AT)}),
    (last_record_missing, {("I7", LAST)}),
    (record_only_aborted, {("I7", AT)}),
    (entry_and_record_missing, {("I7", LAST - 2)}),
    (entries_swapped, {("I7", LAST), ("I7", LAST - 1)}),
    (window_above_epsilon, {("I7", LAST)}),
    (window_above_epsilon_in_denial, {("I7", LAST)}),
    (window_spent_too_small, {("I7", AT)}),
    (negative_spend, {("I7", AT), ("I7", AT + 1), ("I2", AT)}),
    (spend_as_text, {("I7", AT), ("I7", AT + 1), ("I2", AT)}),
    (entry_with_a_short_digest, {("I7", AT), ("I7", AT + 1), ("I2", AT)}),
    (another_mechanism, {("I7", AT)}),
    (another_window, {("I7", AT)}),
    (other_units, {("I7", AT)}),
    (another_epsilon, {("I7", AT)}),
    (epsilon_that_is_none, {("I7", AT)}),
    (another_instance, {("I7", AT)}),
    (entry_that_understates_its_record, {("I7", LAST)}),
    (entry_repeated_with_another_charge, {("I7", AT)}),
    (fresh_but_not_charged, {("I7", AT)}),
    (not_fresh_but_changed, {("I7", AT)}),
    (first_release_not_fresh_but_not_zero, {("I7", FIRST)}),
    (entry_in_another_partition, {("I7", AT)}),
    (garbage_in_the_ledger, {("I7", None)}),
    (beginning_of_the_ledger_removed, {("I7", None)}),
]


@pytest.mark.parametrize(("mutate", "expected"), VIOLATIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_each_violation_is_found_and_named(mutate: Callable[[Story], None], expected: Names) -> None:
    story = Story.clean()
    mutate(story)
    report = story.audit()
    assert expected <= named(report), report.findings
    # What follows from it may be named too, where it shows: the windows that hold the timestamp.
    others = {
        finding.what for finding in report.findings if (finding.invariant, finding.timestamp) not in expected
    }
    assert all(what.startswith("window_spent is not the sum") for what in others), report.findings
    assert report.violations == len(report.findings)


def test_a_finding_names_invariant_stream_timestamp_place_and_fault() -> None:
    story = Story.clean()
    second_draw_aborted(story)
    assert [str(finding) for finding in story.audit().findings] == [
        f"I2 visits, timestamp {AT}, sink, partition 0, offset 5 (aborted): "
        "no ledger entry has the digest of this record: it was published without a charge",
        f"I1 visits, timestamp {AT}, sink, partition 0, offset 6: "
        "records that differ were to be seen for this timestamp",
    ]


def test_several_other_draws_of_a_timestamp_are_one_violation_of_one_draw_and_each_is_uncharged() -> None:
    story = Story.clean()
    for count in (-1, -2, -3):
        story.sink.append(replace(story.sink[5]))
        story.sink[-1].edit(counts={"a": count, "b": 0})
    assert [finding.invariant for finding in story.audit().findings] == ["I2", "I1", "I2", "I2"]


def test_the_windows_of_an_entry_out_of_order_are_not_judged() -> None:
    story = Story.clean()
    ledger = story.ledger
    ledger[3], ledger[4] = ledger[4], ledger[3]
    ordered = {finding.timestamp for finding in story.audit().findings if "not consecutive" in finding.what}
    summed = {finding.timestamp for finding in story.audit().findings if "window_spent" in finding.what}
    assert ordered == {FIRST + 3, FIRST + 4}
    # The windows that lack the spend of the entry that came too late, but not that entry's own.
    assert summed == {FIRST + 4, FIRST + 5, FIRST + 6}


def test_no_finding_tells_a_count() -> None:
    secret = 987654321
    story = Story.clean()
    story.sink.append(other_draw(story.sink[3]))
    for index in (2, 5, 6):
        story.sink[index].edit(counts={"a": secret, "b": secret})
    story.sink[8].edit(counts=secret)
    report = story.audit()
    assert report.violations > 4
    assert not any(str(secret) in str(finding) for finding in report.findings)


def test_terms_of_another_topology_are_found_for_every_entry_but_listed_ten_times() -> None:
    report = Story.clean().audit(replace(SETTINGS, epsilon=Fraction(2), epsilon_text="2"))
    assert report.violations == RELEASES
    assert len(report.findings) == 10
    assert report.findings[0].what == "epsilon is not that of the topology: '1.0', not '2'"


def test_epsilon_may_be_written_differently() -> None:
    assert Story.clean().audit(replace(SETTINGS, epsilon_text="1")).violations == 0


# What is no violation


def test_identical_records_and_entries_are_counted() -> None:
    story = Story.clean()
    story.sink.append(story.sink[5])
    story.ledger.append(story.ledger[5])
    report = story.audit()
    assert (report.violations, report.repeated) == (0, 2)


def test_an_aborted_publication_that_was_repeated_with_the_same_bytes_is_counted() -> None:
    story = Story.clean()
    story.sink.insert(5, replace(story.sink[5], committed=False))
    story.ledger.insert(5, replace(story.ledger[5], committed=False))
    report = story.audit()
    assert (report.violations, report.aborted, report.undecided) == (0, 2, 0)


def test_an_aborted_publication_whose_repetition_is_still_to_come_is_undecided() -> None:
    story = Story.clean()
    story.ledger[-1].committed = story.sink[-1].committed = False
    report = story.audit()
    assert (report.violations, report.undecided, report.releases) == (0, 2, RELEASES - 1)


def test_a_record_that_may_be_newer_than_the_ledger_is_undecided_only_beyond_its_last_timestamp() -> None:
    story = Story.clean()
    story.ledger.pop()
    story.sink[-1].newer = True
    report = story.audit()
    assert (report.violations, report.undecided) == (0, 1)
    story.sink.append(other_draw(story.sink[5], newer=True))
    assert named(story.audit()) == {("I1", AT), ("I2", AT)}


def test_an_aborted_record_of_the_ledger_that_is_no_entry_is_passed_over() -> None:
    story = Story.clean()
    story.ledger.append(Item(b"?", committed=False, partition=PARTITION))
    assert story.audit().violations == 0


def test_where_other_partitions_of_the_ledger_begin_does_not_matter() -> None:
    audit = StreamAudit(NAME, SETTINGS, UNITS, PARTITION)
    audit.ledger_begins("ledger", PARTITION + 1, 40)
    assert audit.report().violations == 0


def test_records_of_somebody_else_in_the_sink_are_counted() -> None:
    story = Story.clean()
    story.sink += [Item(b"hello", key=None), Item(b'{"stream": "others"}'), Item(None, key=b"others")]
    report = story.audit()
    assert (report.violations, report.foreign) == (0, 3)


def test_records_that_retention_removed_are_not_missed_but_later_ones_are() -> None:
    story = Story.clean()
    del story.sink[:6]
    report = story.audit(kept="newest")
    assert (report.violations, report.matched_from) == (0, AT + 1)
    del story.sink[1]
    report = story.audit(kept="newest")
    assert named(report) == {("I7", AT + 2)}


def test_what_retention_left_begins_with_the_first_charged_record_in_the_log() -> None:
    story = Story.clean()
    del story.sink[:6]
    story.sink.append(Story.clean().sink[2])  # an old record repeated late does not bring the others back
    story.sink.insert(0, replace(story.sink[0]))
    story.sink[0].edit(timestamp=FIRST - 1)
    report = story.audit(kept="newest")
    assert (named(report), report.matched_from) == ({("I2", FIRST - 1)}, AT + 1)


def test_without_retention_the_same_records_are_missed() -> None:
    story = Story.clean()
    del story.sink[:6]
    assert named(story.audit()) == {("I7", timestamp) for timestamp in range(FIRST, AT + 1)}


def test_a_sink_whose_records_all_went_is_matched_with_nothing() -> None:
    story = Story.clean()
    story.sink.clear()
    report = story.audit(kept="newest")
    assert (report.violations, report.matched_from) == (0, None)


def test_a_compacted_sink_must_still_have_the_last_record() -> None:
    story = Story.clean()
    del story.sink[:-1]
    assert story.audit(kept="last").violations == 0
    story.sink.clear()
    assert named(story.audit(kept="last")) == {("I7", LAST)}


def test_the_form_of_the_counts_may_change_between_repetitions() -> None:
    story = Story.clean()
    arrays = Story.clean(stream_of(sink=Sink("sink", "array")))
    story.ledger[5:], story.sink[5:] = arrays.ledger[5:], arrays.sink[5:]
    assert not story.sink[5].fields["fresh"]
    assert story.audit().violations == 0


# Records of the ledger that are of no stream of the file


def test_an_entry_of_another_stream_is_no_violation_but_garbage_is() -> None:
    entry = Story.clean().ledger[0]
    other = Found.read(("ledger", 0), 7, b"x", entry.value)
    assert stranger(other) is None
    garbage = Found.read(("ledger", 0), 7, b"\xff", b"[]")
    finding = stranger(garbage)
    assert finding is not None
    assert (finding.invariant, finding.place) == ("I7", "ledger, partition 0, offset 7")
    assert stranger(replace(garbage, committed=False)) is None


def test_a_record_is_of_the_stream_that_its_value_names_else_its_key() -> None:
    place = ("topic", 0)
    assert Found.read(place, 0, b"key", b'{"stream":"value"}').stream == "value"
    assert Found.read(place, 0, b"key", b'{"stream":1}').stream == "key"
    assert Found.read(place, 0, b"key", None).stream == "key"
    assert Found.read(place, 0, None, b"[1]").stream == ""
    assert Found.read(place, 0, None, b"[1]").digest == hashlib.sha256(b"[1]").digest()


# Window sums


@given(
    window=st.integers(1, 6),
    steps=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 50)), max_size=40),
)
def test_window_sums_are_those_of_brute_force(window: int, steps: list[tuple[int, int]]) -> None:
    sums, spends, timestamp = WindowSums(window), dict[int, int](), 0
    for gap, spend in steps:
        timestamp += gap
        spends[timestamp] = spend
        expected = sum(spends.get(one, 0) for one in range(timestamp - window + 1, timestamp + 1))
        assert sums.add(timestamp, spend) == expected
    every = [
        sum(spends.get(start + i, 0) for i in range(window)) for start in range(1 - window, timestamp + 1)
    ]
    assert sums.largest == max(every, default=0)
