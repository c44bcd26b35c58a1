"""Re-keying: whole records, marks that are true, and counts that no interleaving of partitions changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.counting.counter import CounterState
from eventveil.decoding.avro import AvroSchema
from eventveil.model.errors import StateRefused
from eventveil.model.reach import Reach
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, Chunk, Mark, Outgoing, TopicPartition
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.tasks.passed_on import read_passed_on
from eventveil.tasks.repartition import Capture, Rekeyer, RekeyerState
from eventveil.tasks.task import Transaction
from tests.unit.support import INSTANCE, USER_OF_PARTITION, chunk, counter_state, event, sparse, stream

HERE, THERE = USER_OF_PARTITION
VISITS = stream(topic="app-repartition-raw", raw="raw")
START = RekeyerState(INSTANCE, 0, 0)
LAST = 1200
CHANGELOG = TopicPartition("changelog", 3)


def rekeyer(state: RekeyerState = START) -> Rekeyer:
    return Rekeyer(VISITS.source, [VISITS.timeline], 2, state, CHANGELOG)


class Origin(NamedTuple):
    """Where a re-keyed record comes from."""

    append_time: int
    partition: int
    offset: int


def read(record: Outgoing) -> tuple[Origin | Mark, bytes | None]:
    """What the headers of a record say, and the key that it had."""
    events, origins, marks = read_passed_on(replace(chunk([(LAST, record.value)]), headers=[record.headers]))
    return (marks[0], None) if marks else (Origin(*origins[0].tolist()), events.keys[0])


def origins(records: Sequence[Outgoing]) -> list[tuple[int | None, Origin | Mark]]:
    """The partition that each record goes to, and what its headers say."""
    return [(one.partition, read(one)[0]) for one in records]


def passed_on(one: Rekeyer) -> list[Outgoing]:
    done = one.next(LAST)
    assert (done is not None) == one.has_work(LAST)
    if done is None:
        return []
    assert (done.name, done.by_clock, done.concludes) == ("pass-on", True, True)
    *records, durable = done.records
    assert (durable.topic, durable.partition, durable.key) == (*CHANGELOG, VISITS.source.topic.encode())
    one.committed(done)
    assert durable.value == state_of(done).encode()
    return records


def test_the_state_carries_how_far_the_log_was_read_in_which_epoch() -> None:
    one = rekeyer()
    one.process(chunk([(1001, event())]))
    one.note(Reach(3, 1))
    done = one.next(LAST)
    assert done is not None
    *_, durable = done.records
    assert [*durable.headers] == [("eventveil.reach", b"3/1")]


def state_of(done: Transaction) -> RekeyerState:
    assert isinstance(done.cause, RekeyerState)
    return done.cause


def test_a_record_goes_whole_to_the_partition_of_its_user_and_says_where_it_was() -> None:
    one = rekeyer()
    one.process(chunk([(1000, event(THERE)), (1001, event(HERE))], key=b"another key"))
    records = passed_on(one)
    assert origins(records) == [(1, Origin(1000, 0, 0)), (0, Origin(1001, 0, 1))]
    assert [record.value for record in records] == [event(THERE), event(HERE)]
    assert [record.key for record in records] == [THERE.encode(), HERE.encode()]
    assert read(records[0])[1] == b"another key"


def test_a_record_keeps_its_headers_under_names_that_no_producer_chooses() -> None:
    one = rekeyer()
    headers = [("env", b"live"), ("eventveil.passed", b"99"), ("none", None), ("env", b"test")]
    one.process(replace(chunk([(1000, event(HERE)), (1001, event(HERE))]), headers=[headers, ()]))
    records = passed_on(one)
    assert origins(records) == [(0, Origin(1000, 0, 0)), (0, Origin(1001, 0, 1))], "none is a mark"
    written = [header for header in records[0].headers if header[0].startswith("eventveil.headers")]
    assert written == [
        ("eventveil.headers/env", b"live"), ("eventveil.headers/eventveil.passed", b"99"),
        ("eventveil.headers/none", None), ("eventveil.headers/env", b"test"),
    ]  # fmt: skip
    read_back, _, _ = read_passed_on(
        replace(chunk([(LAST, record.value) for record in records]), headers=[one.headers for one in records])
    )
    assert [*read_back.headers] == [headers, []]


def test_a_header_that_is_null_hides_an_earlier_one_after_re_keying_as_before() -> None:
    """Else a record would go to the partition of one user, and count there as another."""
    source = replace(VISITS.source, user='["$headers/user","$key"]')
    one = Rekeyer(source, [VISITS.timeline], 2, START, CHANGELOG)
    hidden = [("user", THERE.encode()), ("user", None)]
    one.process(replace(chunk([(1000, b"{}")], key=HERE.encode()), headers=[hidden]))
    (record,) = passed_on(one)
    assert (record.partition, record.key) == (0, HERE.encode())
    again, _, _ = read_passed_on(replace(chunk([(LAST, record.value)]), headers=[record.headers]))
    assert [*again.headers] == [hidden]
    assert again.keys == [HERE.encode()]


def test_headers_that_are_too_long_to_travel_take_the_value_along() -> None:
    one = rekeyer()
    too_long = [("a", bytes(1_000_000))]
    one.process(replace(chunk([(1000, event(HERE)), (1001, None)]), headers=[too_long, too_long]))
    records = passed_on(one)
    assert [record.value and len(record.value) for record in records] == [8_000_001, None]
    assert all(len(value) < 1000 for record in records for _, value in record.headers)


def test_a_user_that_is_around_the_value_is_found_without_it() -> None:
    source = replace(VISITS.source, user='["$headers/user","$key"]')
    one = Rekeyer(source, [VISITS.timeline], 2, START, CHANGELOG)
    named = [("user", THERE.encode())]
    values = [(1000, b"no JSON"), (1001, b"no JSON"), (1002, None)]
    one.process(replace(chunk(values, key=HERE.encode()), headers=[named, (), ()]))
    assert [(record.partition, record.key) for record in passed_on(one)] == [
        (1, THERE.encode()), (0, HERE.encode()), (0, None),
    ]  # fmt: skip


@pytest.mark.parametrize("value", [None, b"{", b"{}", event(7), event(""), b"7"])
def test_a_record_without_a_user_travels_too_for_the_streams_to_reject(value: bytes | None) -> None:
    one = rekeyer(RekeyerState(INSTANCE, 1, 0))
    one.process(chunk([(1000, value)], partition=1, key=None))
    (record,) = passed_on(one)
    assert (record.partition, record.key, record.value) == (1, None, value)
    assert read(record) == (Origin(1000, 1, 0), None)


def test_a_mark_goes_to_every_partition_behind_the_records_that_it_is_about() -> None:
    one = rekeyer()
    one.process(chunk([(1000, event(HERE)), (1018, event(HERE))]))
    marks = [(0, Mark(0, 1015)), (1, Mark(0, 1015))]
    assert origins(passed_on(one)) == [(0, Origin(1000, 0, 0)), (0, Origin(1018, 0, 1)), *marks]
    one.process(chunk([(1024, event(HERE))], start=2))
    assert origins(passed_on(one)) == [(0, Origin(1024, 0, 2))], "no deadline lies between"


def test_an_idle_partition_is_marked_once_its_end_was_captured_and_reached() -> None:
    one = rekeyer()
    assert not one.wants_end(1017)
    assert one.wants_end(1018)
    one.capture_end(1018, 1)
    assert not one.wants_end(1018)
    assert passed_on(one) == []
    one.process(chunk([(1010, event(HERE))]))
    # Less the clock skew: what is appended from then on may not have been readable yet.
    assert origins(passed_on(one))[1:] == [(0, Mark(0, 1015)), (1, Mark(0, 1015))]
    assert not one.wants_end(1027)
    assert one.wants_end(1028)


def test_no_mark_follows_from_an_append_time_that_is_still_to_come() -> None:
    """A broker's clock was ahead for a moment. Marks are durable, and stand for every event before them."""
    one = rekeyer()
    one.process(chunk([(1_000_000, event(HERE))]))
    done = one.next(1018)
    assert done is not None
    assert state_of(done).passed == START.passed
    one.committed(done)
    assert one.wants_end(1018)
    one.process(chunk([(1018, event(HERE))], start=1))
    assert origins(passed_on(one))[1:] == [(0, Mark(0, 1015)), (1, Mark(0, 1015))]


def test_the_most_cautious_stream_says_when_the_end_is_asked_for() -> None:
    cautious = stream("cautious", topic="app-repartition-raw", raw="raw", clock_skew=9)
    one = Rekeyer(VISITS.source, [VISITS.timeline, cautious.timeline], 2, START, CHANGELOG)
    assert not one.wants_end(1023)
    assert one.wants_end(1024)
    one.capture_end(1024, 0)
    assert origins(passed_on(one)) == [(0, Mark(0, 1015)), (1, Mark(0, 1015))]


def test_it_is_due_when_the_next_end_is_asked_for_and_rests_until_then() -> None:
    cautious = stream("cautious", topic="app-repartition-raw", raw="raw", clock_skew=9)
    one = Rekeyer(VISITS.source, [VISITS.timeline, cautious.timeline], 2, START, CHANGELOG)
    for due, appended in ((1024, 1000), (1034, 1013)):
        assert one.due == due
        assert (one.rests(due - 1), one.wants_end(due - 1)) == (True, False)
        assert (one.rests(due), one.wants_end(due)) == (False, True)
        one.process(chunk([(appended, event(HERE))], start=one.position))
        passed_on(one)
        assert one.due == due, "no mark has passed the deadline"
        one.capture_end(due, one.position)
        assert isinstance(origins(passed_on(one))[-1][1], Mark)


def test_without_append_times_it_is_due_until_what_was_captured_has_been_read() -> None:
    one = untold()
    for due, end in ((1018, 1), (1028, 2)):
        assert one.due == due
        assert (one.wants_boundary(due - 1), one.wants_boundary(due)) == (False, True)
        one.capture_boundary(due, end)
        assert not one.rests(due)
        one.process(chunk([(NO_APPEND_TIME, event(HERE))], start=one.position))
        assert isinstance(origins(passed_on(one))[-1][1], Mark)
        assert one.rests(due)


def test_a_successor_goes_on_behind_the_last_record_and_says_no_mark_twice() -> None:
    one = rekeyer()
    one.process(chunk([(1018, event(HERE))]))
    done = one.next(LAST)
    assert done is not None
    state = RekeyerState.decode(state_of(done).encode(), "here")
    assert (state, state.position, state.passed) == (state_of(done), 1, 1015)
    successor = rekeyer(state)
    successor.process(chunk([(1018, event(HERE)), (1016, event(HERE))]))
    assert origins(passed_on(successor)) == [(0, Origin(1016, 0, 1))]


def test_missing_records_are_an_error() -> None:
    with pytest.raises(ValueError, match="starts at 1, the position is 0"):
        rekeyer().process(chunk(start=1))


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        [("eventveil.partition", b"0")],
        [("eventveil.partition", b"x")],
        [("eventveil.partition", b"0"), ("eventveil.offset", b"%d" % 2**63), ("eventveil.timestamp", b"0")],
        [("eventveil.partition", b"0"), ("eventveil.offset", None), ("eventveil.timestamp", b"0")],
        [("eventveil.partition", None), ("eventveil.passed", b"0")],
    ],
)
def test_a_record_that_somebody_else_wrote_is_refused(headers: Any) -> None:
    good = [(f"eventveil.{name}", b"0") for name in ("partition", "offset", "timestamp")]
    three = replace(chunk([(LAST, event())] * 3, start=7), headers=[good, headers, good])
    with pytest.raises(StateRefused, match=r"partition 0: .*not written by the re-keying stage") as refusal:
        read_passed_on(three)
    # Where in the partition goes to no log.
    assert "8" not in str(refusal.value)


@pytest.mark.parametrize("change", [{"position": -1}, {"passed": "1"}, {"extra": 1}, {"version": 2}])
def test_a_broken_state_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StateRefused):
        RekeyerState.decode(orjson.dumps({**orjson.loads(START.encode()), **change}), "here")


# Two partitions of events, two of users, crashes of all four stages

BOUND = 1
Event = tuple[int, int, str, str, int]  # partition, append time, user, column, time
COUNTED = stream(topic="app-repartition-raw", raw="raw", contributions=BOUND)


class Pipeline:
    """What is durable of the two stages, and their workers; all are read and written in random order."""

    def __init__(self, events: Sequence[Event], chance: Any) -> None:
        self.raw: list[list[Event]] = [[one for one in events if one[0] == at] for at in (0, 1)]
        self.rekeyed: list[list[Outgoing]] = [[], []]
        self.chance = chance
        self.now = 1000
        self.states = [RekeyerState(INSTANCE, at, 0) for at in (0, 1)]
        self.rekeyers = [rekeyer(state) for state in self.states]
        self.counters = [counter_state(partition=at) for at in (0, 1)]
        self.aggregators = [self.aggregator(at) for at in (0, 1)]
        self.counts: Counter[tuple[int, int]] = Counter()
        self.closed: Counter[tuple[int, int]] = Counter()
        self.letters: list[tuple[bytes, bytes, bytes]] = []
        self.crashes = 0

    def aggregator(self, at: int) -> PartitionAggregator:
        state = CounterState.decode(self.counters[at].encode(), "here")
        return PartitionAggregator(2, {"visits": (COUNTED, state)})

    def pass_on(self, at: int, records: int, survives: bool) -> None:
        """Read some records that were appended by now, and commit them unless the worker dies."""
        one = self.rekeyers[at]
        readable = [record for record in self.raw[at] if record[1] < self.now - COUNTED.timeline.clock_skew]
        if one.wants_end(self.now):
            one.capture_end(self.now, len(readable))
        found = readable[one.position : one.position + records]
        values = [(append, event(user, column, time)) for _, append, user, column, time in found]
        one.process(chunk(values, start=one.position, partition=at))
        if (done := one.next(self.now)) is not None and survives:
            for record in done.records:
                if record.topic == VISITS.source.topic:
                    self.rekeyed[record.partition or 0].append(record)
            self.states[at] = state_of(done)
            one.committed(done)
        elif not survives:
            self.crashes += 1
            self.rekeyers[at] = rekeyer(RekeyerState.decode(self.states[at].encode(), "here"))

    def count(self, at: int, records: int, survives: bool) -> None:
        """Read some re-keyed records, close, write dead letters, unless the worker dies before the commit."""
        one = self.aggregators[at]
        one.process(self.chunk(at, one.position, records))
        assert not one.wants_end(self.now)
        while (batch := one.close(self.now) or one.dead_letter_batch()) is not None:
            if not survives:
                break
            one.durable(batch)
            self.counters[at] = batch.states["visits"]
            for part in batch.partials:
                self.closed[at, part.timestamp] += 1
                self.counts.update({(part.timestamp, column): n for column, n in sparse(part).items()})
            for letter in batch.dead_letters:
                told = dict(letter.headers)
                place = (told["eventveil.partition"], told["eventveil.offset"], told["eventveil.reason"])
                assert told["eventveil.topic"] == b"raw"
                self.letters.append(place)
        if not survives:
            self.crashes += 1
            self.aggregators[at] = self.aggregator(at)

    def chunk(self, at: int, start: int, records: int) -> Chunk:
        found = self.rekeyed[at][start : start + records]
        return Chunk(
            topic="app-repartition-raw",
            partition=at,
            generation=1,
            start=start,
            offsets=range(start, start + len(found)),
            append_times=[self.now] * len(found),
            keys=[one.key for one in found],
            values=[one.value for one in found],
            next_offset=start + len(found),
            headers=[one.headers for one in found],
        )

    def run(self) -> Counter[tuple[int, int]]:
        """To the end; the counts."""
        for _ in range(60):
            self.now += self.chance.randrange(6)
            stage = self.chance.choice([self.pass_on, self.count])
            stage(self.chance.randrange(2), self.chance.randrange(5), self.chance.random() < 0.8)
        self.now = LAST
        for _ in range(3):
            for stage in (self.pass_on, self.count):
                for at in (0, 1):
                    stage(at, 1000, survives=True)
        assert set(self.closed.values()) == {1}, "a timestamp was closed twice"
        assert sorted(self.closed) == [(at, timestamp) for at in (0, 1) for timestamp in range(1, 20)]
        assert len(self.letters) == len(set(self.letters)), "a dead letter was written twice"
        return self.counts


def truth(events: Sequence[Event]) -> tuple[Counter[tuple[int, int]], int]:
    """The counts, record by record in the order of append time, partition, offset; and the dead letters."""
    offsets: Counter[int] = Counter()
    placed = []
    for partition, append, user, column, time in events:
        placed.append(((append, partition, offsets[partition]), user, column, time))
        offsets[partition] += 1
    counts: Counter[tuple[int, int]] = Counter()
    contributed: Counter[tuple[str, int]] = Counter()
    dead = 0
    for (append, _, _), user, column, time in sorted(placed):
        timestamp = (time - 1000) // 10 + 1
        if column not in "ab" or time > append + 7 or timestamp < 1 or append >= 1000 + timestamp * 10 + 5:
            dead += 1
        elif contributed[user, timestamp] < BOUND:
            contributed[user, timestamp] += 1
            counts[timestamp, "ab".index(column)] += 1
    return counts, dead


def appended(steps: list[tuple[int, int, str, str, int]]) -> list[Event]:
    """Events with append times that never run back."""
    append, events = 1000, []
    for partition, step, user, column, shift in steps:
        append += step
        events.append((partition, append, user, column, append + shift))
    return events


EVENTS = st.lists(
    st.tuples(
        st.sampled_from((0, 1)),
        st.sampled_from((1, 0, 0, 0, 2, 5, 11)),
        st.sampled_from((HERE, THERE, HERE)),
        st.sampled_from("ababz"),
        st.sampled_from((0, 0, -1, -4, -12, -30, 5, 9)),
    ),
    min_size=3,
    max_size=25,
).map(appended)


def test_every_event_counts_once_whatever_crashes_and_the_earliest_of_a_user_count() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(EVENTS, st.randoms(use_true_random=False))
    def any_run(events: list[Event], chance: Any) -> None:
        pipeline = Pipeline(events, chance)
        counts, dead = truth(events)
        assert pipeline.run() == counts
        assert len(pipeline.letters) == dead
        seen.update(counted=sum(counts.values()), dead=dead, crashes=pipeline.crashes)
        seen.update(bounded=len(events) - dead - sum(counts.values()))

    any_run()
    assert min(seen.values()) > 20, seen


@settings(max_examples=100, deadline=None)
@given(EVENTS, st.randoms(use_true_random=False))
def test_counts_add_up_over_users_in_whatever_order_partitions_are_read(
    events: list[Event], chance: Any
) -> None:
    mine = [one for one in events if one[2] == HERE]
    others = [one for one in events if one[2] != HERE]
    together = Pipeline(events, chance).run()
    assert together == Pipeline(mine, chance).run() + Pipeline(others, chance).run()


# Where the broker tells no append times

UNTOLD = stream(topic="app-repartition-raw", raw="raw", append_time="boundary", contributions=BOUND)


def untold(state: RekeyerState = START, skews: Sequence[int] = (3,)) -> Rekeyer:
    timelines = [replace(UNTOLD.timeline, clock_skew=skew) for skew in skews]
    return Rekeyer(UNTOLD.source, timelines, 2, state, CHANGELOG)


def test_without_append_times_an_event_is_passed_on_with_the_moment_of_the_last_capture_before_it() -> None:
    one = untold()
    # Due for the first time: at 1018, and the end is asked for at 1020, however much is unread.
    assert not one.wants_boundary(1017)
    assert one.wants_boundary(1018)
    one.capture_boundary(1020, 2)
    assert not one.wants_boundary(1020)
    one.capture_boundary(1028, 3)
    assert passed_on(one) == [], "what is below the captures has not been read"
    one.process(chunk([(NO_APPEND_TIME, event(HERE))] * 4))
    assert origins(passed_on(one)) == [
        *((0, Origin(0, 0, at)) for at in (0, 1)),
        (0, Origin(1017, 0, 2)),
        (0, Origin(1025, 0, 3)),
        *((at, Mark(0, 1025)) for at in (0, 1)),
    ]
    assert not one.untimed


@pytest.mark.parametrize("skews", [[3], [20], [1], [3, 20]])
def test_a_successor_gives_the_same_times_whatever_the_skew_and_asks_for_no_end_again(
    skews: Sequence[int],
) -> None:
    """What is passed on before it depends on events of others: an event must not be late only behind them."""
    one = untold()
    one.capture_boundary(1018, 1)
    one.capture_boundary(1028, 5)
    one.process(chunk([(NO_APPEND_TIME, event(HERE))] * 3))
    done = one.next(LAST)
    assert done is not None
    successor = untold(RekeyerState.decode(state_of(done).encode(), "here"), skews)
    assert state_of(done).known == one.known == 5
    assert not successor.wants_boundary(1034 + max(skews))
    assert successor.wants_boundary(1035 + max(skews))
    successor.process(chunk([(NO_APPEND_TIME, event(HERE))] * 3, start=3))
    records = passed_on(successor)
    assert origins(records)[:3] == [
        (0, Origin(time, 0, at)) for time, at in ((1015, 3), (1015, 4), (1025, 5))
    ]
    # And the next one, of a state that both have written.
    last = untold(RekeyerState.decode(successor._state.encode(), "here"))
    last.process(chunk([(NO_APPEND_TIME, event(HERE))], start=6))
    assert origins(passed_on(last))[0] == (0, Origin(1025, 0, 6))


def test_an_end_that_was_captured_is_durable_although_a_record_before_it_is_not_read() -> None:
    """A successor that asks again gets a later end: the unread record would decide which others are late."""
    one = untold()
    one.capture_end(1018, 1)
    done = one.next(1018)
    assert done is not None
    assert state_of(done).captures == (Capture(1018, 1),)
    assert len([*done.records]) == 1
    one.committed(done)
    assert not one.has_work(1018)


def test_an_end_below_an_earlier_one_is_an_error_and_a_clock_put_back_captures_nothing_twice() -> None:
    one = untold()
    one.capture_boundary(1028, 4)
    with pytest.raises(ValueError, match="below 4"):
        one.capture_boundary(1038, 3)
    one.capture_boundary(1019, 9)
    one.process(chunk([(NO_APPEND_TIME, event(HERE))] * 5))
    assert [place for _, place in origins(passed_on(one))][3:5] == [Origin(0, 0, 3), Origin(1025, 0, 4)]


@pytest.mark.parametrize(
    "captures", [[[1018, 2], [1028, 2]], [[1028, 2], [1018, 3]], [[1018]], [[1018, "2"]]]
)
def test_captures_that_contradict_each_other_are_refused(captures: Any) -> None:
    with pytest.raises(StateRefused):
        RekeyerState.decode(orjson.dumps({**orjson.loads(START.encode()), "captures": captures}), "here")


def test_captures_of_version_0_2_0_are_read_with_the_skew_of_the_file() -> None:
    one = untold(START.replace(captures=(Capture(1018, 1),)))
    one.process(chunk([(NO_APPEND_TIME, event(HERE))] * 2))
    assert origins(passed_on(one))[:2] == [(0, Origin(0, 0, 0)), (0, Origin(1015, 0, 1))]


OWN = replace(UNTOLD, source=replace(UNTOLD.source, time="$time", own_time=True))


def own(times: Sequence[int], **changes: Any) -> Chunk:
    value = orjson.dumps({"user": HERE, "column": "a"})
    return replace(chunk([(NO_APPEND_TIME, value)] * len(times), **changes), own_times=times)


def test_a_time_that_a_record_carries_goes_along_apart_from_the_append_time() -> None:
    one = Rekeyer(OWN.source, [OWN.timeline], 2, START, CHANGELOG, own_times=True)
    one.process(own([1007, NO_OWN_TIME, -5, 2**62]))
    records = passed_on(one)
    told = [dict(record.headers).get("eventveil.own-time") for record in records]
    assert told == [b"1007", None, b"-5", b"%d" % 2**62]
    assert origins(records) == [(0, Origin(0, 0, at)) for at in range(4)], "taken for an append time"
    read_back, _, _ = read_passed_on(
        replace(chunk([(LAST, one.value) for one in records]), headers=[one.headers for one in records])
    )
    assert [*read_back.own_times] == [1007, NO_OWN_TIME, -5, 2**62]
    assert [*read_back.append_times] == [0] * 4


def test_without_a_stream_that_asks_for_it_re_keyed_records_are_the_same_bytes_as_ever() -> None:
    one, other = untold(), untold()
    one.process(own([1007]))
    other.process(replace(own([1007]), own_times=()))
    assert passed_on(one) == passed_on(other)


def test_an_event_counts_by_the_time_that_its_record_carried_before_it_was_re_keyed() -> None:
    one = Rekeyer(OWN.source, [OWN.timeline], 2, START, CHANGELOG, own_times=True)
    one.process(own([1007, 1012, 5000, NO_OWN_TIME]))
    (*records,) = passed_on(one)
    # Re-keyed by a version that did not pass it on, or before this stream was there.
    older = records[0]._replace(
        headers=[header for header in records[0].headers if header[0] != "eventveil.own-time"]
    )
    records.append(older)
    counting = PartitionAggregator(2, {"visits": (OWN, counter_state())})
    counting.process(
        replace(
            chunk([(LAST, record.value) for record in records], topic=OWN.source.topic, key=HERE.encode()),
            headers=[record.headers for record in records],
            # Those of the re-keyed records say nothing about the events.
            own_times=[1003] * len(records),
        )
    )
    (counter,) = counting.counters.values()
    assert counter.outcomes == {"counted": 2, "too-far-ahead": 1, "missing-field": 2}
    assert [sparse(counter.close()) for _ in range(2)] == [{0: 1}, {0: 1}]


class UntoldPipeline(Pipeline):
    """The same without append times; the ends are captured when timestamps become due, by the clock alone."""

    def __init__(self, events: Sequence[Event], chance: Any) -> None:
        super().__init__(events, chance)
        self.rekeyers = [untold(state) for state in self.states]
        self.boundaries: list[dict[int, int]] = [{}, {}]

    def aggregator(self, at: int) -> PartitionAggregator:
        return PartitionAggregator(2, {"visits": (UNTOLD, self.counters[at])})

    def run(self) -> Counter[tuple[int, int]]:
        for self.now in range(1000, LAST):
            for at, one in enumerate(self.rekeyers):
                if one.wants_boundary(self.now):
                    end = sum(record[1] < self.now for record in self.raw[at])
                    one.capture_boundary(self.now, end)
                    self.boundaries[at][(self.now - 1008) // 10] = end
            stage = self.chance.choice([self.untimed, self.count])
            stage(self.chance.randrange(2), self.chance.randrange(5), True)
        for stage in (self.untimed, self.count):
            for at in (0, 1):
                stage(at, 1000, True)
        assert set(self.closed.values()) == {1}
        assert len(self.letters) == len(set(self.letters))
        return self.counts

    def untimed(self, at: int, records: int, _: bool) -> None:
        one = self.rekeyers[at]
        readable = [record for record in self.raw[at] if record[1] < self.now]
        found = readable[one.position : one.position + records]
        values = [(NO_APPEND_TIME, event(user, column, time)) for _, _, user, column, time in found]
        one.process(chunk(values, start=one.position, partition=at))
        for record in passed_on(one):
            self.rekeyed[record.partition or 0].append(record)


def by_boundaries(events: Sequence[Event], boundaries: Sequence[dict[int, int]]) -> Counter[tuple[int, int]]:
    """The counts by the rule of decision 6, in the order of (boundaries passed, partition, offset)."""
    offsets: Counter[int] = Counter()
    placed = []
    for partition, _, user, column, time in events:
        offset = offsets[partition]
        offsets[partition] += 1
        reached = max((t for t, end in boundaries[partition].items() if end <= offset), default=0)
        placed.append((reached, partition, offset, user, column, time))
    counts: Counter[tuple[int, int]] = Counter()
    contributed: Counter[tuple[str, int]] = Counter()
    for reached, _, _, user, column, time in sorted(placed):
        timestamp = (time - 1000) // 10 + 1
        early = time > 1000 + (reached + 1) * 10 + 5 + 7
        if column in "ab" and timestamp > reached and not early and contributed[user, timestamp] < BOUND:
            contributed[user, timestamp] += 1
            counts[timestamp, "ab".index(column)] += 1
    return counts


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.randoms(use_true_random=False))
def test_without_append_times_boundaries_decide_and_no_order_of_reading_and_no_other_user_does(
    events: list[Event], chance: Any
) -> None:
    pipeline = UntoldPipeline(events, chance)
    together = pipeline.run()
    assert together == by_boundaries(events, pipeline.boundaries)
    apart = [
        UntoldPipeline([one for one in events if (one[2] == HERE) is mine], chance).run()
        for mine in (True, False)
    ]
    assert together == apart[0] + apart[1]


def test_the_user_of_a_record_in_avro_is_found_by_its_schema_and_of_an_unknown_one_nobody() -> None:
    text = {"type": "record", "name": "V", "fields": [{"name": "user", "type": "string"}]}
    source = replace(VISITS.source, format="avro")
    one = Rekeyer(source, [VISITS.timeline], 2, START, CHANGELOG)
    # Many of them would hold up the event loop.
    assert one.quick_records == 0
    user = THERE.encode()
    body = bytes([2 * len(user)]) + user
    values = [b"\0\0\0\0\7" + body, b"\0\0\0\0\x08" + body]
    schemas = {7: AvroSchema(orjson.dumps(text).decode()), 8: None}
    one.process(replace(chunk([(1001, value) for value in values]), schemas=schemas))
    assert [(record.key, record.partition, record.value) for record in passed_on(one)[:2]] == [
        (user, 1, values[0]),
        (None, 0, values[1]),
    ]
