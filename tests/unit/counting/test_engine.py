"""Counts of an engine: the last before completion is the count, and which those are the log alone says.

The last test takes random logs through random chunks, closes and crashes and compares the partial counts with
``truth``, which knows the whole log and no state.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from eventveil.counting.counter import CounterState, Partial
from eventveil.decoding.rules import Reason
from eventveil.mechanisms.base import RELEASE_LIMIT
from eventveil.model.records import Chunk
from eventveil.model.topology import Stream
from eventveil.tasks.aggregate import PartitionAggregator
from tests.unit.support import USER_OF_PARTITION, chunk, counter_state, sparse, stream
from tests.unit.tasks.test_aggregate import reasons

Record = tuple[int, bytes | None]
HERE, THERE = USER_OF_PARTITION
#: Timestamp t is [1000 + 10 (t - 1), 1000 + 10 t), and by time late from 5 after its end, due 3 later.
BY_TIME = stream(count="/n", user="/column", user_type="either")
BY_WATERMARK = stream(count="/n", user="/column", user_type="either", watermark="/until")


def count(number: Any, column: Any = "a", time: Any = 1000, **more: Any) -> bytes:
    return orjson.dumps({"column": column, "time": time, "n": number, **more})


def until(time: Any) -> bytes:
    return orjson.dumps({"until": time})


def worker(of: Stream, state: CounterState | None = None, partitions: int = 1) -> PartitionAggregator:
    return PartitionAggregator(partitions, {of.name: (of, state or counter_state())})


def closed(one: PartitionAggregator, now: int) -> list[dict[int, int]]:
    """The counts of what closes now, by timestamp and column."""
    found = []
    while batch := one.close(now):
        found += [sparse(partial) for partial in batch.partials]
        one.durable(batch)
    return found


def why(one: PartitionAggregator) -> list[str]:
    batch = one.dead_letter_batch()
    return [] if batch is None else [reason for _, _, reason in reasons(batch.dead_letters)]


def test_the_last_number_before_the_deadline_is_the_count() -> None:
    one = worker(BY_TIME)
    records = [(1003, count(7)), (1009, count(2, "b")), (1014, count(9)), (1015, count(500)), (1020, None)]
    one.process(chunk(records))

    assert why(one) == [Reason.LATE, Reason.TOMBSTONE]
    assert closed(one, 1018) == [{0: 9, 1: 2}]
    assert one.counters["visits"].outcomes == {"counted": 2, "corrected": 1, "late": 1, "tombstone": 1}


def test_a_number_of_nothing_takes_a_count_back() -> None:
    one = worker(BY_TIME)
    one.process(chunk([(1003, count(7)), (1004, count(0)), (1020, count(1, time=1010))]))

    assert closed(one, 1018) == [{}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (count(-1), Reason.BAD_COUNT),
        (count(2**40 + 1), Reason.BAD_COUNT),
        (b'{"column": "a", "time": 1000, "n": %d}' % 2**70, Reason.WRONG_TYPE),
        (count(1.5), Reason.WRONG_TYPE),
        (count(1.0), Reason.WRONG_TYPE),
        (count("7"), Reason.WRONG_TYPE),
        (count(True), Reason.WRONG_TYPE),
        (count(None), Reason.WRONG_TYPE),
        (b'{"column": "a", "time": 1000}', Reason.MISSING_FIELD),
        (b'{"time": 1000, "n": 1}', Reason.MISSING_FIELD),
        (count(1, column=""), Reason.UNKNOWN_COLUMN),
        (count(1, column="z"), Reason.UNKNOWN_COLUMN),
        (count(1, time=1001), Reason.MISALIGNED),
        (count(1, time=1999), Reason.TOO_FAR_AHEAD),
        (count(1, time=990), Reason.BEFORE_ORIGIN),
        (b"7", Reason.MISSING_FIELD),
        (b"{", Reason.NOT_JSON),
        (None, Reason.TOMBSTONE),
    ],
)
def test_what_is_no_count_is_a_dead_letter_and_counts_nothing(value: bytes | None, reason: Reason) -> None:
    for of in (BY_TIME, BY_WATERMARK):
        one = worker(of)
        one.process(chunk([(1003, value)]))

        assert why(one) == [reason]
        assert one.counters["visits"].held.contributions == 0


def test_the_largest_number_counts_exactly() -> None:
    one = worker(BY_TIME)
    one.process(chunk([(1003, count(2**40)), (1020, None)]))

    assert closed(one, 1018) == [{0: 2**40}]


def test_a_column_lives_in_the_partition_of_its_name() -> None:
    of = stream(count="/n", user="/column", user_type="either", labels=(HERE, THERE))
    one = worker(of, partitions=2)
    one.process(chunk([(1003, count(4, HERE)), (1003, count(5, THERE)), (1020, None)]))

    assert why(one) == [Reason.WRONG_PARTITION, Reason.TOMBSTONE]
    assert closed(one, 1018) == [{0: 4}]


def test_names_without_a_column_are_replaced_each_for_itself_and_add_up() -> None:
    of = stream(count="/n", user="/column", user_type="either", unknown="column", unknown_column=1)
    one = worker(of)
    numbers = [("x", 5), ("y", 7), ("x", 6), ("b", 1)]
    one.process(chunk([*((1003, count(number, name)) for name, number in numbers), (1020, None)]))

    assert closed(one, 1018) == [{1: 14}]


def test_names_that_add_up_to_more_than_a_mechanism_takes_count_as_much_as_it_takes() -> None:
    of = stream(count="/n", user="/column", user_type="either", unknown="column", unknown_column=1)
    one = worker(of)
    numbers = [("x", 2**40), ("a", 3), ("y", 1), ("z", 2**40)]
    one.process(chunk([*((1003, count(number, name)) for name, number in numbers), (1020, None)]))

    assert closed(one, 1018) == [{0: 3, 1: RELEASE_LIMIT}]


def test_a_timestamp_waits_for_its_watermark_however_long() -> None:
    one = worker(BY_WATERMARK)
    one.process(chunk([(1003, count(7)), (9999, count(3, time=1010))]))

    assert closed(one, 10**9) == []
    assert not one.wants_end(10**9), "no end of the log shows that a timestamp is complete"
    one.process(chunk([(10_001, until(1019))], start=2))
    assert closed(one, 10**9) == [{0: 7}], "the second one ends at 1020"
    one.process(chunk([(10_002, until(1020))], start=3))
    assert closed(one, 10**9) == [{0: 3}]


def test_a_watermark_closes_nothing_before_the_clock_says_that_it_is_due() -> None:
    one = worker(BY_WATERMARK)
    one.process(chunk([(1011, count(7)), (1012, until(1010))]))

    assert closed(one, 1017) == []
    assert closed(one, 1018) == [{0: 7}]


def test_what_follows_its_watermark_is_late_whether_its_timestamp_is_closed_or_not() -> None:
    one = worker(BY_WATERMARK)
    one.process(chunk([(1011, count(7)), (1012, until(1010)), (1012, count(8)), (1013, count(9, "b"))]))
    assert closed(one, 1018) == [{0: 7}]
    one.process(chunk([(1019, count(1)), (1019, count(1, time=1010))], start=4))

    assert why(one) == [Reason.LATE]
    assert one.counters["visits"].outcomes[Reason.LATE] == 3


def test_a_watermark_that_goes_back_or_says_nothing_new_changes_nothing() -> None:
    one = worker(BY_WATERMARK)
    one.process(chunk([(1031, until(1020)), (1031, until(1000)), (1032, until(1020)), (1033, count(1))]))

    assert why(one) == [Reason.LATE]
    assert closed(one, 10**6) == [{}, {}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (until(1010 + 10 + 8 + 1), Reason.TOO_FAR_AHEAD),
        (until("soon"), Reason.TIME_UNREADABLE),
        (until([1]), Reason.WRONG_TYPE),
    ],
)
def test_a_watermark_that_is_too_far_ahead_or_no_time_completes_nothing(value: bytes, reason: Reason) -> None:
    one = worker(BY_WATERMARK)
    one.process(chunk([(1011, value), (1012, count(3))]))

    assert why(one) == [reason]
    assert closed(one, 10**6) == []


def test_a_record_of_null_as_watermark_is_a_count() -> None:
    one = worker(BY_WATERMARK)
    one.process(chunk([(1003, count(7, until=None)), (1011, until(1010))]))

    assert closed(one, 1018) == [{0: 7}]


def test_a_successor_reads_again_and_judges_as_before_the_watermark() -> None:
    """The watermark stands behind a count of a timestamp that is still open: read again, it is not late."""
    first = worker(BY_WATERMARK)
    first.process(chunk([(1011, count(7)), (1012, until(1010)), (1013, None)]))
    batch = first.dead_letter_batch()
    assert batch is not None
    state = CounterState.decode(batch.states["visits"].encode(), "here")
    assert (state.resume, state.judged, state.passed) == (0, 3, ())

    successor = worker(BY_WATERMARK, state)
    successor.process(chunk([(1011, count(7)), (1012, until(1010)), (1013, None), (1014, count(8))]))
    assert closed(successor, 1018) == [{0: 7}]
    assert successor.counters["visits"].outcomes == {Reason.LATE: 1}, "the others had their verdict"


def test_a_successor_knows_the_watermark_of_records_that_nobody_needs_again() -> None:
    first = worker(BY_WATERMARK)
    first.process(chunk([(1011, until(1010)), (1013, None)]))
    batch = first.dead_letter_batch()
    assert batch is not None
    state = CounterState.decode(batch.states["visits"].encode(), "here")
    assert (state.resume, state.passed) == (2, (1010,))

    successor = worker(BY_WATERMARK, state)
    assert closed(successor, 1018) == [{}]


def truth(of: Stream, log: Sequence[Record], last: int) -> dict[int, dict[int, int]]:
    """The counts of every timestamp up to ``last``, one record at a time."""
    rules, complete = of.timeline, 0
    found: dict[int, dict[int, int]] = {timestamp: {} for timestamp in range(1, last + 1)}
    for appended, value in log:
        fields = orjson.loads(value or b"{}")
        if "until" in fields and of.source.watermark:
            if fields["until"] - rules.interval <= appended + rules.max_ahead:
                complete = max(complete, fields["until"])
        elif "n" in fields and fields["time"] <= appended + rules.max_ahead:
            timestamp = (fields["time"] - rules.origin) // rules.interval + 1
            end = rules.origin + timestamp * rules.interval
            late = end <= complete if of.source.watermark else appended >= end + rules.lateness
            if not late and fields["n"] >= 0 and timestamp <= last:
                found[timestamp]["ab".index(fields["column"])] = fields["n"]
    return {at: {column: n for column, n in one.items() if n} for at, one in found.items()}


def random_log(rnd: random.Random, length: int) -> list[Record]:
    clock, mark, log = 1000, 1000, list[Record]()
    for _ in range(length):
        clock += rnd.choice((0, 0, 1, 2, 5))
        if rnd.random() < 0.15:
            mark = rnd.choice((mark, clock - clock % 10, clock + rnd.randrange(30)))
            log.append((clock, until(mark)))
        else:
            time = clock - clock % 10 + rnd.choice((-20, -10, -10, 0, 0, 0, 10))
            log.append((clock, count(rnd.choice((-1, 0, 1, 2, 3)), rnd.choice("ab"), max(1000, time))))
    # Everything is complete in the end.
    return [*log, (clock + 1000, until(clock + 900)), (clock + 1000, None)]


@pytest.mark.parametrize("of", [BY_TIME, BY_WATERMARK], ids=["by time", "by watermark"])
def test_a_log_that_is_read_in_any_pieces_after_any_crashes_has_one_set_of_counts(of: Stream) -> None:
    crashes = 0
    for seed in range(60):
        rnd = random.Random(seed)
        log = random_log(rnd, 80)
        state, partials, letters, dead = counter_state(), list[Partial](), list[int](), 0
        now = 0
        while state.next <= 20:
            one = worker(of, state)
            crashes += 1
            for _ in range(rnd.randrange(1, 12)):
                start = one.position
                end = min(len(log), start + rnd.randrange(1, 30))
                one.process(_piece(log, start, end))
                # The clock of the reader: before the last record, or long after it.
                now = max(now, log[min(one.position, len(log)) - 1][0] + rnd.choice((0, 0, 40)))
                batch = one.close(now) or one.dead_letter_batch()
                if rnd.random() < 0.3:
                    break
                if batch is None:
                    continue
                partials += batch.partials
                letters += [offset for _, offset, _ in reasons(batch.dead_letters)]
                one.durable(batch)
                state = CounterState.decode(batch.states["visits"].encode(), "here")
        assert [one.timestamp for one in partials] == list(range(1, len(partials) + 1)), "each once"
        found = {one.timestamp: sparse(one) for one in partials if one.timestamp <= 20}
        expected = truth(of, log, 20)
        assert found == expected, seed
        assert len(letters) == len({*letters}), "each dead letter once"
        dead += len(letters)
        assert dead
    assert crashes > 200


def _piece(log: Sequence[Record], start: int, end: int) -> Chunk:
    return chunk(log[start:end], start=start, next_offset=max(start, end))
