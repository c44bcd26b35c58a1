"""The streams over one source partition: when they close, what is re-read, and that every event counts once.

The last tests run random logs through random chunks, closes and crashes and compare what was committed with
``Truth``, which applies the rules of DESIGN to one record at a time and knows no state.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import CounterState, Partial
from eventveil.decoding.rules import Reason
from eventveil.model.reach import Reach
from eventveil.model.records import NO_APPEND_TIME, NO_EPOCH, Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.tasks.aggregate import Aggregation, Batch, Outputs, PartitionAggregator
from tests.unit.support import (
    USER_OF_PARTITION,
    aggregator,
    chunk,
    counter_state,
    event,
    partial,
    sparse,
    stream,
)

HERE, THERE = USER_OF_PARTITION
FAR = 10**6
LAST = 2000  # well after the last record of a random log and its deadlines


def closed(batch: Batch | None) -> list[tuple[str, int, dict[int, int]]]:
    return [] if batch is None else [(one.stream, one.timestamp, sparse(one)) for one in batch.partials]


def reasons(letters: Iterable[Outgoing]) -> list[tuple[str, int, str]]:
    """(stream, offset, reason) of dead letters."""
    found = []
    for letter in letters:
        headers = {name.removeprefix("eventveil."): text.decode() for name, text in letter.headers}
        found.append((headers["stream"], int(headers["offset"]), headers["reason"]))
    return found


# When a timestamp closes


def test_nothing_closes_before_it_is_due_although_an_append_time_passed_its_deadline() -> None:
    one = aggregator()
    one.process(chunk([(1005, event()), (1020, event(time=1020))]))
    assert one.close(1017) is None
    assert (one.closed, one.due) == (1008, 1018)
    assert closed(one.close(1018)) == [("visits", 1, {0: 1})]
    assert (one.closed, one.due) == (1018, 1028)


def test_an_append_time_that_is_still_to_come_proves_nothing_and_the_next_record_heals_it() -> None:
    """A broker's clock was ahead for a moment: records on time may not have been read yet."""
    one = aggregator()
    one.process(chunk([(1005, event()), (FAR, b"x")]))
    assert one.close(1018) is None
    assert one.wants_end(1018)
    # Nor later, when the clock has got there: what was on time may still not be read.
    one.capture_end(1018, 3)
    assert not one.can_close(FAR)
    one.process(chunk([(1007, event("v"))], start=2))
    assert closed(one.close(1018)) == [("visits", 1, {0: 2})]


def test_nothing_closes_when_due_while_events_on_time_may_still_come() -> None:
    one = aggregator()
    one.process(chunk([(1014, event())]))
    assert one.close(FAR) is None
    one.process(chunk([(1018, event(time=1010))], start=1))
    assert closed(one.close(FAR)) == [("visits", 1, {0: 1})]


def test_a_rejected_record_proves_the_passage_of_time_as_well_as_any() -> None:
    one = aggregator()
    one.process(chunk([(1018, b"nonsense")]))
    assert closed(one.close(1018)) == [("visits", 1, {})]


def test_a_record_without_append_time_proves_nothing() -> None:
    one = aggregator()
    one.process(chunk([(NO_APPEND_TIME, event())]))
    assert one.close(FAR) is None
    letters = one.dead_letter_batch()
    assert letters is not None
    assert reasons(letters.dead_letters) == [("visits", 0, "no-append-time")]


def test_a_captured_end_that_was_reached_closes_without_any_event() -> None:
    one = aggregator()
    assert one.wants_end(1018)
    one.capture_end(1018, 0)
    assert closed(one.close(1018)) == [("visits", 1, {})]


def test_an_end_captured_before_the_timestamp_was_due_closes_nothing() -> None:
    one = aggregator()
    one.capture_end(1017, 0)
    assert one.close(FAR) is None
    assert one.wants_end(FAR)
    one.capture_end(1018, 0)
    assert [timestamp for _, timestamp, _ in closed(one.close(FAR))] == [1]


def test_a_captured_end_closes_only_once_the_position_reached_it() -> None:
    one = aggregator()
    one.capture_end(1018, 2)
    one.process(chunk([(1000, event())]))
    assert one.close(FAR) is None
    one.process(chunk([(1001, event("v"))], start=1))
    assert closed(one.close(FAR)) == [("visits", 1, {0: 2})]


def test_control_markers_at_the_end_of_the_log_count_as_reached() -> None:
    one = aggregator()
    one.capture_end(1018, 5)
    one.process(chunk([(1000, event())], next_offset=4))
    assert one.close(FAR) is None
    one.process(chunk(start=4, next_offset=5))
    assert closed(one.close(FAR)) == [("visits", 1, {0: 1})]


def test_the_end_is_not_wanted_before_a_timestamp_is_due() -> None:
    one = aggregator()
    assert not one.wants_end(1017)
    assert one.wants_end(1018)


def test_the_end_is_not_wanted_where_append_times_are_proof_enough() -> None:
    one = aggregator()
    one.process(chunk([(1018, event(time=1010))]))
    assert not one.wants_end(1018)
    one.close(1018)
    assert not one.wants_end(1027)
    assert one.wants_end(1028)


def test_an_end_that_was_captured_is_not_asked_for_again_until_it_is_reached() -> None:
    one = aggregator()
    one.capture_end(1018, 1)
    assert not one.wants_end(1018)
    assert not one.wants_end(FAR)
    one.process(chunk([(1000, event())]))
    assert one.close(1018) is not None
    assert one.wants_end(1028)


def test_after_the_close_the_same_end_is_not_asked_for_again_until_the_next_is_due() -> None:
    one = aggregator()
    one.capture_end(1018, 0)
    assert not one.wants_end(1018)
    assert one.close(1018) is not None
    assert not one.wants_end(1027)
    assert one.wants_end(1028)


def caught_up(*, early_clock: bool, cut: int) -> dict[int, int]:
    """Timestamp 1 after downtime: its log, read in two chunks, from two leaders 1 ms apart (skew is 3 ms)."""
    log = [(1013, event("first", time=1001))]
    if early_clock:
        log.append((1015, event("one user more", time=1014)))
    log += [(1014, event(f"user {number}", time=1002)) for number in range(50)]
    one, now, position = aggregator(), 2000, 0
    for part in (log[:cut], log[cut:]):
        one.process(chunk(part, start=position))
        position += len(part)
        if one.wants_end(now):
            one.capture_end(now, len(log))
        if (batch := one.close(now)) is not None and batch.partials[0].timestamp == 1:
            return sparse(batch.partials[0])
    raise AssertionError("timestamp 1 was not closed")


def test_where_a_chunk_ends_does_not_decide_which_events_on_time_count() -> None:
    assert caught_up(early_clock=True, cut=2) == caught_up(early_clock=True, cut=3)


def test_one_user_changes_a_timestamp_by_no_more_than_one_whatever_clocks_within_the_skew_say() -> None:
    without, with_one = caught_up(early_clock=False, cut=2), caught_up(early_clock=True, cut=2)
    assert abs(with_one[0] - without[0]) <= 1


def test_an_end_that_was_captured_while_the_clock_was_ahead_proves_nothing_later() -> None:
    one = aggregator()
    one.process(chunk([(1000, event())]))
    one.capture_end(5000, 1)
    # The clock is right again, and the log has grown.
    assert not one.can_close(1018)
    assert one.wants_end(1018)
    assert one.close(1018) is None


def test_catching_up_closes_every_missed_timestamp_in_order() -> None:
    one = aggregator()
    one.process(chunk([(1005, event()), (1038, event(time=1030))]))
    assert closed(one.close(FAR)) == [("visits", 1, {0: 1}), ("visits", 2, {}), ("visits", 3, {})]
    assert one.close(FAR) is None


def test_streams_with_different_timelines_over_one_source_close_each_by_its_own() -> None:
    slow = stream("slow", interval=40, lateness=0)
    shifted = stream("shifted", origin=1020)
    one = aggregator(stream(), slow, shifted)
    one.process(chunk([(1021, event(time=1021)), (1039, event("v", time=1038))]))
    assert closed(one.close(1037)) == [("visits", 1, {}), ("visits", 2, {})]
    one.process(chunk([(1048, b"x")], start=2))
    assert closed(one.close(FAR)) == [
        ("visits", 3, {0: 1}),
        ("visits", 4, {0: 1}),
        ("slow", 1, {0: 2}),
        ("shifted", 1, {0: 1}),
        ("shifted", 2, {0: 1}),
    ]


def test_a_batch_carries_the_states_of_the_streams_that_closed_and_of_no_other() -> None:
    one = aggregator(stream(), stream("slow", interval=1000))
    one.process(chunk([(1018, event(time=1011))]))
    batch = one.close(FAR)
    assert batch is not None
    assert batch.states == {"visits": counter_state(next=2, judged=1)}
    assert one.resume == 0


def test_a_large_backlog_closes_in_batches_of_limited_size() -> None:
    one = aggregator(stream(interval=1, lateness=0, clock_skew=0))
    one.process(chunk([(1000 + 50_000, b"x")]))
    timestamps: list[int] = []
    batches = 0
    while batch := one.close(FAR):
        assert sum(len(each.encode()) for each in batch.partials) < 8_000_000
        timestamps += [each.timestamp for each in batch.partials]
        assert batch.states["visits"].next == timestamps[-1] + 1
        one.durable(batch)
        batches += 1
    assert batches > 1
    assert timestamps == list(range(1, 50_001))


# Positions


def test_missing_records_are_an_error() -> None:
    one = aggregator(states={"visits": counter_state(resume=5, judged=5)})
    with pytest.raises(ValueError, match="starts at 6, the position is 5"):
        one.process(chunk([(1000, event())], start=6))
    assert one.position == 5


def test_records_that_were_seen_already_are_passed_over() -> None:
    one = aggregator(stream(contributions=5))
    records = [(1000, event()), (1000, event()), (1000, b"x")]
    one.process(chunk(records))
    one.process(chunk(records))
    one.process(chunk([*records, (1000, event())]))
    assert one.position == 4
    assert one.counters["visits"].outcomes == {"counted": 3, Reason.NOT_JSON: 1}
    assert one.dead_letters == 1


def test_with_several_contributions_an_event_is_its_offset_and_not_its_bytes() -> None:
    """Read again, an event counts once; written again by its producer, it is another event."""
    one = aggregator(stream(contributions=3))
    one.process(chunk([(1000, event()), (1000, event())]))
    one.process(chunk([(1000, event()), (1000, event())]))
    one.process(chunk([(1000, event("v"))], start=2))
    one.capture_end(1018, 3)
    batch = one.close(1018)
    assert batch is not None
    assert sparse(batch.partials[0]) == {0: 3}


def test_an_older_chunk_does_not_move_the_position_back() -> None:
    one = aggregator()
    one.process(chunk(start=0, next_offset=9))
    one.process(chunk(start=0, next_offset=4))
    assert one.position == 9


def test_the_worker_resumes_where_the_neediest_stream_does() -> None:
    states = {"visits": counter_state(resume=7, judged=9), "other": counter_state(resume=3, judged=12)}
    one = aggregator(stream(), stream("other"), states=states)
    assert (one.resume, one.position) == (3, 3)


def test_the_resume_offset_moves_with_a_commit_and_not_before() -> None:
    one = aggregator()
    one.process(chunk([(1000, event()), (1018, event(time=1012))]))
    batch = one.close(FAR)
    assert batch is not None
    assert one.resume == 0
    one.durable(batch)
    assert one.resume == 1


# Dead letters


def test_a_dead_letter_holds_the_original_bytes_and_says_where_they_came_from_and_why() -> None:
    one = aggregator()
    one.process(chunk([(1000, b"\xffnonsense")], start=0, offsets=[41], topic="raw", key=b"\x00k"))
    batch = one.dead_letter_batch()
    assert batch is not None
    (letter,) = batch.dead_letters
    assert (letter.topic, letter.key, letter.value) == ("visits.dead", b"\x00k", b"\xffnonsense")
    headers = dict(letter.headers)
    assert headers.pop("eventveil.detail") != b""
    assert headers == {
        "eventveil.reason": b"not-json",
        "eventveil.stream": b"visits",
        "eventveil.topic": b"raw",
        "eventveil.partition": b"0",
        "eventveil.offset": b"41",
        "eventveil.timestamp": b"1000",
    }
    assert batch.states == {"visits": counter_state(resume=42, judged=42)}
    assert batch.partials == ()


def test_a_tombstone_is_a_dead_letter_with_its_key_and_no_value() -> None:
    one = aggregator()
    one.process(chunk([(1000, None)]))
    batch = one.dead_letter_batch()
    assert batch is not None
    assert [(letter.key, letter.value) for letter in batch.dead_letters] == [(b"key", None)]
    assert reasons(batch.dead_letters) == [("visits", 0, "tombstone")]


def test_dead_letters_are_written_once() -> None:
    one = aggregator()
    one.process(chunk([(1000, b"x")]))
    assert one.dead_letters == 1
    assert one.dead_letter_batch() is not None
    assert one.dead_letters == 0
    assert one.dead_letter_batch() is None


def test_dead_letters_go_along_with_the_close_of_their_stream() -> None:
    one = aggregator()
    one.process(chunk([(1000, b"x"), (1018, event(time=1010))]))
    batch = one.close(FAR)
    assert batch is not None
    assert reasons(batch.dead_letters) == [("visits", 0, "not-json")]
    assert one.dead_letter_batch() is None


def test_a_record_that_two_streams_reject_is_a_dead_letter_of_both() -> None:
    one = aggregator(stream(), stream("other", labels=("b",)))
    one.process(chunk([(1000, b"x"), (1000, event())]))
    batch = one.dead_letter_batch()
    assert batch is not None
    assert sorted(reasons(batch.dead_letters)) == [
        ("other", 0, "not-json"),
        ("other", 1, "unknown-column"),
        ("visits", 0, "not-json"),
    ]
    assert {letter.topic for letter in batch.dead_letters} == {"visits.dead", "other.dead"}


def test_a_gigantic_record_is_reported_without_its_bytes() -> None:
    one = aggregator()
    records = chunk([(1000, b"x" * 8_000_000), (1000, b"x" * 2_000_000)])
    while one.position < 2:
        one.process(records)
    batch = one.dead_letter_batch()
    assert batch is not None
    gigantic, large = batch.dead_letters
    assert (gigantic.key, gigantic.value) == (None, None)
    assert dict(gigantic.headers)["eventveil.detail"].endswith(b"left out here for its size")
    assert (large.key, large.value) == (b"key", b"x" * 2_000_000)
    assert [reason for _, _, reason in reasons(batch.dead_letters)] == ["too-large", "too-large"]


def test_each_stream_holds_records_to_its_own_size_limit() -> None:
    value = event()
    tight, wide = stream("tight", max_bytes=len(value) - 1), stream("wide", max_bytes=len(value))
    one = aggregator(tight, wide)
    one.process(chunk([(1000, value)]))
    assert one.counters["tight"].outcomes == {Reason.TOO_LARGE: 1}
    assert one.counters["wide"].outcomes == {"counted": 1}


# Random logs, chunks, closes and crashes


@dataclass(frozen=True)
class Line:
    """A record of a random log; ``fields`` None stands for bytes that are no JSON."""

    offset: int
    append_time: int
    fields: dict[str, Any] | None

    @property
    def value(self) -> bytes:
        return b"{" if self.fields is None else orjson.dumps(self.fields)


@dataclass
class Truth:
    """What a log should come to for one stream: counts per timestamp, and an outcome per offset."""

    counts: dict[int, Counter[int]] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)


def truth(
    one: Stream, first: int, begin: int, lines: Sequence[Line], boundaries: dict[int, int] | None = None
) -> Truth:
    """Apply the declared rules to the lines from offset ``begin`` on, one after the other.

    With ``boundaries``, by timestamp, append times say nothing.
    """
    found = Truth()
    contributed: Counter[tuple[str, int]] = Counter()
    for line in lines:
        if line.offset < begin:
            continue
        outcome, timestamp = _rule(one, first, line, boundaries)
        if outcome == "counts":
            assert line.fields is not None
            if line.fields["column"] not in one.counts.labels:
                outcome = "ignored"
            elif contributed[line.fields["user"], timestamp] == one.counts.contributions:
                outcome = "bounded"
            else:
                outcome = "counted"
                contributed[line.fields["user"], timestamp] += 1
                column = one.counts.labels.index(line.fields["column"])
                found.counts.setdefault(timestamp, Counter())[column] += 1
        found.outcomes[line.offset] = outcome
    return found


def _rule(one: Stream, first: int, line: Line, boundaries: dict[int, int] | None) -> tuple[str, int]:
    rules = one.timeline
    if line.fields is None:
        return "not-json", 0
    if line.fields["user"] == "":
        return "empty-user", 0
    if line.fields["column"] not in one.counts.labels and one.counts.unknown == "dead-letter":
        return "unknown-column", 0
    if line.fields["user"] == THERE:
        return "wrong-partition", 0
    time = line.fields["time"]
    if boundaries is None and time - line.append_time > rules.max_ahead:
        return "too-far-ahead", 0
    if boundaries is not None:
        # Less than 64 intervals fit into the max_ahead of these streams, so every boundary is a reference.
        passed = max((at for at, offset in boundaries.items() if offset <= line.offset), default=first - 1)
        deadline = rules.origin + (passed + 1) * rules.interval + rules.lateness
        if time > deadline + rules.max_ahead:
            return "too-far-ahead", 0
    if time < rules.origin:
        return "before-origin", 0
    timestamp, end = 1, rules.origin + rules.interval
    while time >= end:
        timestamp, end = timestamp + 1, end + rules.interval
    if timestamp < first:
        return "before-start", 0
    late = line.append_time >= end + rules.lateness
    if boundaries is not None:
        late = line.offset >= boundaries[timestamp] if timestamp in boundaries else False
    return ("late", 0) if late else ("counts", timestamp)


class Cluster:
    """What is durable, and the one worker that reads and writes it; a crash takes all but the durable."""

    def __init__(self, lines: Sequence[Line], streams: Sequence[Stream], firsts: Sequence[int]) -> None:
        self.lines = lines
        self.streams = streams
        self.states = {
            one.name: counter_state(first=first, next=first)
            for one, first in zip(streams, firsts, strict=True)
        }
        self.partials: list[Partial] = []
        self.letters: list[Outgoing] = []
        self.outcomes = {one.name: Counter[str]() for one in streams}
        self.now, self.end = 990, 0
        self.crashes = self.amid_re_reading = 0
        self.take_over()

    def take_over(self) -> None:
        decoded = {name: CounterState.decode(state.encode(), "here") for name, state in self.states.items()}
        self.worker = PartitionAggregator(2, {one.name: (one, decoded[one.name]) for one in self.streams})
        assert self.worker.resume == min(state.resume for state in self.states.values())

    def tick(self, milliseconds: int, ahead: int) -> None:
        """Time passes. What the brokers appended ``clock_skew`` ago is readable by now, perhaps more."""
        self.now += milliseconds
        skew = max(one.timeline.clock_skew for one in self.streams)
        readable = bisect_left(self.lines, self.now - skew, key=lambda line: line.append_time)
        reached = min(readable + ahead, len(self.lines))
        self.end = max(self.end, self.lines[reached - 1].offset + 1 if reached else 0)

    def read(self, records: int, overlap: int) -> None:
        """Fetch a chunk; offsets without a line are control markers and aborted records."""
        start = max(0, self.worker.position - overlap)
        waiting = [line for line in self.lines if start <= line.offset < self.end]
        found = waiting[: records + overlap]
        after = self.end if found == waiting else found[-1].offset + 1 if found else start
        self.worker.process(
            chunk(
                [(self.append_time(line), line.value) for line in found],
                start=start,
                offsets=[line.offset for line in found],
                next_offset=max(after, start),
            )
        )

    def append_time(self, line: Line) -> int:
        """What the broker tells of it."""
        by_broker = self.streams[0].source.append_time == "broker"
        return line.append_time if by_broker else NO_APPEND_TIME

    def settle(self, what: str, survives: bool) -> None:
        """Ask for the end, close or write dead letters; the worker may die before the transaction commits."""
        if what == "ask":
            if self.worker.wants_end(self.now):
                self.worker.capture_end(self.now, self.end)
            return
        batch = self.worker.close(self.now) if what == "close" else self.worker.dead_letter_batch()
        if batch is None:
            return
        if not survives:
            self.crash()
            return
        self.amid_re_reading += any(self.worker.position < self.states[name].judged for name in batch.states)
        self.partials += batch.partials
        self.letters += batch.dead_letters
        for name, outcomes in batch.outcomes.items():
            self.outcomes[name] += outcomes
        for name, state in batch.states.items():
            assert state.next >= self.states[name].next
            assert state.judged >= self.states[name].judged
            assert state.resume >= self.states[name].resume
        self.states.update(batch.states)
        self.worker.durable(batch)
        assert self.worker.resume == min(state.resume for state in self.states.values())

    def crash(self) -> None:
        self.crashes += 1
        self.take_over()

    def finish(self) -> None:
        """All is appended, read, closed or a dead letter, as the worker does it from tick to tick."""
        self.tick(LAST - self.now, len(self.lines))
        for _ in range(3):
            self.read(1000, 0)
            for what in ("ask", "close", "dead letters"):
                self.settle(what, survives=True)
        assert self.worker.position >= self.end
        assert not self.worker.wants_end(self.now)
        assert self.worker.dead_letters == 0


def run(cluster: Cluster, actions: Sequence[tuple[str, int, int]]) -> None:
    for kind, number, extra in actions:
        if kind == "tick":
            cluster.tick(number, extra)
        elif kind == "read":
            cluster.read(number, extra)
        elif kind == "crash":
            cluster.crash()
        else:
            cluster.settle(kind, survives=number > 1)


#: What a record is made of; a record is one number, so that random ones are as varied as they can be.
GAPS = (0, 0, 0, 1, 3)
STEPS = (2, 0, 0, 1, 5, 11, 30)
USERS = (HERE, HERE, "21", "21", "a-little-bit-long-string", THERE, "", None)
COLUMNS = "aaabz"
SHIFTS = (0, -1, -2, -4, -8, -12, -35, 3, 7, 12)
CHOICES = (SHIFTS, COLUMNS, USERS, STEPS, GAPS)


def chosen(code: int) -> Iterable[Any]:
    for choices in CHOICES:
        code, index = divmod(code, len(choices))
        yield choices[index]


def log(codes: Sequence[int]) -> list[Line]:
    """Records with append times that never decrease, and gaps between offsets."""
    lines = []
    offset, append_time = 0, 995
    for shift, column, user, step, gap in map(chosen, codes):
        offset, append_time = offset + gap, append_time + step
        fields = {"user": user, "column": column, "time": append_time + shift}
        lines.append(Line(offset, append_time, None if user is None else fields))
        offset += 1
    return lines


CODES = st.integers(0, math.prod(map(len, CHOICES)) - 1)
LOGS = st.lists(CODES, max_size=30).map(log)
SMALL = st.integers(0, 4)


def step(kind: str, numbers: st.SearchStrategy[int], extra: st.SearchStrategy[int]) -> Any:
    return st.tuples(st.just(kind), numbers, extra)


LIVE = st.tuples(
    step("tick", st.integers(0, 40), SMALL),
    step("read", SMALL, SMALL),
    st.tuples(st.sampled_from(["ask", "close", "dead letters", "crash"]), st.integers(0, 5), SMALL),
)
#: Append times may run ahead of the worker's clock: much is judged, and nothing is due yet.
JUDGE_AHEAD = st.tuples(
    step("tick", st.just(0), st.integers(5, 30)),
    step("read", st.integers(5, 30), st.just(0)),
    step("dead letters", SMALL, SMALL),
)
READ_AGAIN = st.tuples(
    step("crash", SMALL, SMALL),
    step("tick", st.integers(0, 100), SMALL),
    step("read", SMALL, st.just(0)),
    step("close", st.integers(1, 9), SMALL),
    step("read", SMALL, st.just(0)),
    step("close", st.integers(1, 9), SMALL),
)
ACTIONS = st.lists(LIVE | JUDGE_AHEAD | READ_AGAIN, max_size=12).map(
    lambda phases: [action for phase in phases for action in phase]
)
STREAMS = (
    stream(),
    stream("pairs", interval=7, lateness=2, max_ahead=12, contributions=2, unknown="ignore", clock_skew=0),
    stream("slow", interval=45, lateness=20, origin=985, max_ahead=30),
)
FIRSTS = (1, 3, 1)


def committed_counts(cluster: Cluster, name: str) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for one in cluster.partials:
        if one.stream == name:
            assert one.timestamp not in found, "a timestamp was committed twice"
            found[one.timestamp] = sparse(one)
    return found


def check_committed(cluster: Cluster) -> Counter[str]:
    """Compare what is durable with the truth; the outcomes that occurred."""
    seen: Counter[str] = Counter()
    for one, first in zip(cluster.streams, FIRSTS, strict=True):
        boundaries = None
        if one.source.append_time == "boundary":
            boundaries = {it.timestamp: it.boundary for it in cluster.partials if it.stream == one.name}
            assert list(boundaries.values()) == sorted(boundaries.values())
        expected = truth(one, first, 0, cluster.lines, boundaries)
        counts = committed_counts(cluster, one.name)
        last = cluster.states[one.name].next - 1
        assert list(counts) == list(range(first, last + 1))
        rules = one.timeline
        assert last == (LAST - rules.clock_skew - rules.lateness - rules.origin) // rules.interval
        assert counts == {timestamp: dict(expected.counts.get(timestamp, {})) for timestamp in counts}
        kept = {"counted", "bounded", "ignored"}
        letters = [(offset, why) for name, offset, why in reasons(cluster.letters) if name == one.name]
        assert len(letters) == len(set(letters)), "a dead letter was committed twice"
        assert dict(letters) == {at: why for at, why in expected.outcomes.items() if why not in kept}
        silent = Counter(expected.outcomes.values())
        assert cluster.outcomes[one.name] == silent, "a metric is not exact"
        counted = sum(sum(of.values()) for of in counts.values())
        assert counted + silent["bounded"] + silent["ignored"] + len(letters) == len(cluster.lines)
        seen += silent
    return seen


def test_whatever_crashes_every_event_counts_once_and_every_dead_letter_is_written_once() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(LOGS, ACTIONS)
    def any_run(lines: list[Line], actions: list[tuple[str, int, int]]) -> None:
        cluster = Cluster(lines, STREAMS, FIRSTS)
        run(cluster, actions)
        cluster.finish()
        seen.update(check_committed(cluster))
        seen["crash"] += cluster.crashes
        seen["close amid re-reading"] += cluster.amid_re_reading

    any_run()
    # Nothing above means anything if the random runs never got there.
    required = {"counted", "bounded", "ignored", "late", "too-far-ahead", "before-origin", "before-start"}
    required |= {"not-json", "empty-user", "unknown-column", "wrong-partition", "crash"}
    assert required <= set(seen)
    assert seen["close amid re-reading"] > 0


def test_without_a_crash_every_record_has_exactly_one_outcome() -> None:
    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(LOGS, ACTIONS.map(lambda actions: [one for one in actions if one[0] in ("tick", "read", "ask")]))
    def any_run(lines: list[Line], actions: list[tuple[str, int, int]]) -> None:
        cluster = Cluster(lines, STREAMS, FIRSTS)
        run(cluster, actions)
        cluster.finish()
        for one, first in zip(STREAMS, FIRSTS, strict=True):
            expected = Counter(truth(one, first, 0, lines).outcomes.values())
            assert cluster.worker.counters[one.name].outcomes == expected

    any_run()


# Boundaries instead of append times

BY_BOUNDARY = tuple(replace(one, source=replace(one.source, append_time="boundary")) for one in STREAMS)
#: What a worker does from tick to tick; an action that survives has a number above 1.
STEADY = st.tuples(
    step("tick", st.integers(3, 15), st.just(0)),
    *(step(kind, st.integers(1, 9), st.just(0)) for kind in ("ask", "close", "dead letters")),
    step("read", SMALL, st.just(0)),
)
STEADILY = st.lists(STEADY | STEADY | STEADY | LIVE | READ_AGAIN, min_size=8, max_size=25).map(
    lambda phases: [action for phase in phases for action in phase]
)


@pytest.mark.slow
def test_whatever_crashes_boundaries_decide_and_every_event_counts_once() -> None:
    """The rules are applied by the boundaries that stand in the partial counts, and by nothing else."""
    seen: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(st.lists(CODES, min_size=10, max_size=30).map(log), STEADILY)
    def any_run(lines: list[Line], actions: list[tuple[str, int, int]]) -> None:
        cluster = Cluster(lines, BY_BOUNDARY, FIRSTS)
        run(cluster, actions)
        cluster.finish()
        seen.update(check_committed(cluster))
        seen["crash"] += cluster.crashes
        seen["close amid re-reading"] += cluster.amid_re_reading

    any_run()
    assert {"counted", "bounded", "ignored", "late", "too-far-ahead", "before-start", "crash"} <= set(seen)
    assert seen["close amid re-reading"] > 0


def test_by_boundary_counts_add_up_over_users_however_far_behind_the_worker_is() -> None:
    """When a boundary is captured depends on the clock, not on what is still to be read."""
    seen = Counter[str]()

    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(LOGS, st.randoms(use_true_random=False))
    def any_log(lines: list[Line], chance: Any) -> None:
        def counts(of: Sequence[Line]) -> Counter[tuple[str, int, int]]:
            cluster = Cluster(of, BY_BOUNDARY, FIRSTS)
            for _ in range(60):
                cluster.tick(5, 0)
                for what in ("ask", "close", "dead letters"):
                    cluster.settle(what, survives=True)
                cluster.read(chance.randrange(4), 0)
                if chance.random() < 0.1:
                    cluster.crash()
            cluster.finish()
            total: Counter[tuple[str, int, int]] = Counter()
            for one in cluster.partials:
                total.update({(one.stream, one.timestamp, at): count for at, count in sparse(one).items()})
            seen["late"] += sum(why == "late" for _, _, why in reasons(cluster.letters))
            return total

        mine = [line for line in lines if line.fields is not None and line.fields["user"] == HERE]
        others = [line for line in lines if line not in mine]
        assert counts(lines) == counts(mine) + counts(others)
        seen["mine"] += len(mine)

    any_log()
    assert seen["late"] > 0
    assert seen["mine"] > 0


def test_a_boundary_is_wanted_when_it_is_due_even_if_an_earlier_one_is_far_from_reached() -> None:
    one = aggregator(BY_BOUNDARY[0])
    assert not one.wants_end(1017)
    assert one.wants_end(1018)
    one.capture_end(1018, 1000)
    assert not one.wants_end(1027)
    assert one.wants_end(1028)


def test_a_boundary_is_durable_before_a_verdict_rests_on_it() -> None:
    one = aggregator(BY_BOUNDARY[0])
    one.capture_end(1018, 2)
    assert one.close(1018) is None
    batch = one.dead_letter_batch()
    assert batch is not None
    assert batch.states["visits"].boundaries == ((1, 2),)
    one.durable(batch)
    assert one.dead_letter_batch() is None


def test_a_boundary_below_an_earlier_one_is_refused() -> None:
    one = aggregator(BY_BOUNDARY[0])
    one.capture_end(1018, 2)
    with pytest.raises(ValueError, match="the log ends at 1, below the boundary 2"):
        one.capture_end(1028, 1)


def test_a_state_knows_that_the_log_reached_its_last_boundary() -> None:
    captured = (Boundary(1, 2), Boundary(2, 12))
    states = {"visits": counter_state(resume=7, judged=9), "other": counter_state(resume=3, judged=10)}
    one = aggregator(BY_BOUNDARY[0], stream("other"), states=states)
    assert one.known == 10
    states["visits"] = states["visits"].replace(boundaries=captured)
    assert aggregator(BY_BOUNDARY[0], stream("other"), states=states).known == 12


# Re-keyed events: what closes a timestamp are marks (see also test_rekeying.py)


def _rekeyed(*told: tuple[str, int], start: int = 0) -> Chunk:
    """Events by append time, and marks of the one partition of events."""
    records = [(kind, number, [("eventveil.partition", b"0")]) for kind, number in told]
    for offset, (kind, number, headers) in enumerate(records, start):
        headers.append(("eventveil.passed" if kind == "mark" else "eventveil.timestamp", b"%d" % number))
        headers.append(("eventveil.offset", b"%d" % offset))
    values = [(FAR, None if kind == "mark" else event(time=number)) for kind, number, _ in records]
    return replace(chunk(values, start=start), headers=[headers for _, _, headers in records])


def test_a_mark_closes_a_timestamp_once_it_is_due() -> None:
    one = aggregator(stream(raw="events"))
    one.process(_rekeyed(("event", 1000), ("mark", 1014)))
    assert one.close(FAR) is None
    one.process(_rekeyed(("mark", 1015), start=2))
    assert one.close(1017) is None
    assert (one.closed, one.due) == (1008, 1018)
    assert closed(one.close(1018)) == [("visits", 1, {0: 1})]
    assert (one.closed, one.due) == (1018, 1028)


def test_the_marks_of_a_predecessor_close_nothing_before_its_events_were_read_again() -> None:
    one = aggregator(stream(raw="events"))
    one.process(_rekeyed(("event", 1000), ("event", 900), ("mark", 1015)))
    letters = one.dead_letter_batch()
    assert letters is not None
    (state,) = letters.states.values()
    assert (state.resume, state.judged, state.passed) == (0, 3, (1015,))
    successor = aggregator(stream(raw="events"), states={"visits": state})
    assert successor.close(FAR) is None
    successor.process(_rekeyed(("event", 1000), ("event", 900), ("mark", 1015)))
    assert closed(successor.close(FAR)) == [("visits", 1, {0: 1})]


# Each event alone (I5)


def own_outcomes(lines: Sequence[Line], mine: str, actions: Sequence[tuple[str, int, int]]) -> list[str]:
    """What became of one user's events, in order, while ``lines`` were read and timestamps closed."""
    cluster = Cluster(lines, STREAMS[:2], FIRSTS[:2])
    found = []
    for line in lines:
        before = [one.outcomes.copy() for one in cluster.worker.counters.values()]
        held = [_open_counts(cluster.worker, name) for name in cluster.worker.counters]
        cluster.worker.process(
            chunk([(line.append_time, line.value)], start=cluster.worker.position, offsets=[line.offset])
        )
        if line.fields is not None and line.fields["user"] == mine:
            for index, (name, one) in enumerate(cluster.worker.counters.items()):
                added = _open_counts(cluster.worker, name) - held[index]
                found.append(f"{list(one.outcomes - before[index])} {sorted(added.items())}")
        cluster.now = max(cluster.now, line.append_time)
        for kind, number, _ in actions:
            if kind == "close" and number % 6 == line.offset % 6:
                cluster.settle("close", survives=True)
    return found


def _open_counts(worker: PartitionAggregator, name: str) -> Counter[tuple[int, int]]:
    held: Counter[tuple[int, int]] = Counter()
    for timestamp, opened in worker.counters[name]._open.items():
        held.update({(timestamp, column): int(count) for column, count in enumerate(opened.counts())})
    return held


@settings(max_examples=150, deadline=None)
@given(LOGS, ACTIONS, st.randoms(use_true_random=False))
def test_what_becomes_of_a_users_events_does_not_depend_on_other_users(
    lines: list[Line], actions: list[tuple[str, int, int]], random: Any
) -> None:
    def is_mine(line: Line) -> bool:
        return line.fields is not None and line.fields["user"] == HERE

    others = [line.fields for line in lines if not is_mine(line)]
    random.shuffle(others)
    shuffled = [line if is_mine(line) else replace(line, fields=others.pop()) for line in lines]
    alone = [line for line in lines if is_mine(line)]
    thinned = [line for line in lines if is_mine(line) or random.random() < 0.5]
    expected = own_outcomes(lines, HERE, actions)
    assert len(expected) == 2 * len(alone)
    for neighbourhood in (shuffled, alone, thinned):
        assert own_outcomes(neighbourhood, HERE, actions) == expected


def test_counts_add_up_over_users() -> None:
    """The counts of all users are those of one user alone plus those of all the others."""
    seen = Counter[str]()

    @settings(max_examples=80, deadline=None, derandomize=True)
    @given(LOGS)
    def any_log(lines: list[Line]) -> None:
        def counts(of: Sequence[Line]) -> Counter[tuple[str, int, int]]:
            cluster = Cluster(of, STREAMS, FIRSTS)
            cluster.finish()
            total: Counter[tuple[str, int, int]] = Counter()
            for one in cluster.partials:
                total.update({(one.stream, one.timestamp, at): count for at, count in sparse(one).items()})
            return total

        mine = [line for line in lines if line.fields is not None and line.fields["user"] == HERE]
        others = [line for line in lines if line not in mine]
        assert counts(lines) == counts(mine) + counts(others)
        seen["mine"] += len(counts(mine))
        seen["others"] += len(counts(others))

    any_log()
    assert seen["mine"] > 0
    assert seen["others"] > 0


def test_the_partial_of_a_successor_is_byte_for_byte_that_of_its_predecessor() -> None:
    """A transaction that was lost is computed again from the log alone (protocol, step 4)."""
    records = [(1000, event()), (1001, event(HERE, "b")), (1018, event(time=1012))]
    attempts: list[bytes] = []
    for sizes in ((3,), (1, 2), (1, 1, 1), (2, 0, 1)):
        one = aggregator()
        start = 0
        for size in sizes:
            part: Chunk = chunk(records[start : start + size], start=start)
            one.process(part)
            start += size
        batch = one.close(FAR)
        assert batch is not None
        attempts.append(batch.partials[0].encode())
    assert set(attempts) == {partial(1, {0: 1, 1: 1}).encode()}


@pytest.mark.parametrize(
    ("judged", "untimed"), [(0, True), (2, True), (3, False)], ids=["new", "the last one new", "told already"]
)
def test_records_without_append_times_that_have_had_no_verdict_are_noticed(
    judged: int, untimed: bool
) -> None:
    one = aggregator(states={"visits": counter_state(judged=judged)})
    one.process(
        chunk([(1000, event()), (NO_APPEND_TIME, event()), (NO_APPEND_TIME, event()), (1001, event())])
    )
    assert one.untimed == untimed
    by_boundary = aggregator(stream(append_time="boundary"))
    by_boundary.process(chunk([(NO_APPEND_TIME, event())]))
    assert not by_boundary.untimed


@pytest.mark.parametrize(("version", "headers"), [("1.2", [("eventveil.version", b"1.2")]), ("", [])])
def test_states_name_the_version_that_judged(version: str, headers: list[tuple[str, bytes]]) -> None:
    outputs = Outputs("partials", {"visits": 0}, TopicPartition("changelog", 0), version)
    task = Aggregation(outputs, 1, {"visits": (stream(), counter_state())})
    task.capture_end(1018, 0)
    work = task.next(1018)
    assert work is not None
    partial, state = work.records
    assert ([*partial.headers], [*state.headers]) == ([], headers)


def test_states_carry_how_far_the_log_was_read_in_which_epoch() -> None:
    outputs = Outputs("partials", {"visits": 0}, TopicPartition("changelog", 0), "1.2")
    task = Aggregation(outputs, 1, {"visits": (stream(), counter_state())})
    task.note(Reach(NO_EPOCH, 9))
    assert task.reach is None
    task.note(Reach(3, 4))
    # What is read again shows nothing new.
    task.note(Reach(4, 3))
    task.capture_end(1018, 0)
    work = task.next(1018)
    assert work is not None
    partial, state = work.records
    assert [*partial.headers] == []
    assert [*state.headers] == [("eventveil.version", b"1.2"), ("eventveil.reach", b"3/4")]


def test_what_is_due_and_what_was_closed_is_told_anew_after_each_close() -> None:
    outputs = Outputs("partials", {"visits": 0, "slow": 0}, TopicPartition("changelog", 0))
    streams = {"visits": (stream(), counter_state()), "slow": (stream("slow", interval=30), counter_state())}
    task = Aggregation(outputs, 1, streams)
    told = [(task.due, task.closed)]
    for now in (1018, 1028, 1038):
        task.capture_end(now, 0)
        work = task.next(now)
        assert work is not None
        task.committed(work)
        told.append((task.due, task.closed))
    # Timestamps of 10 and of 30 ms, each due 8 ms after its end.
    assert told == [(1018, 1008), (1028, 1018), (1038, 1028), (1048, 1038)]
