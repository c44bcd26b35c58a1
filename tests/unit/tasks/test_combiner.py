"""The per-timestamp table: complete when every partition has reported, and closed to everything foreign."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventveil
from eventveil.counting.counter import Partial
from eventveil.mechanisms.base import RELEASE_LIMIT
from eventveil.model.errors import StateRefused
from eventveil.tasks.combiner import Combiner
from tests.unit.support import INSTANCE, partial

SECRET = 987654


def combiner(partitions: int = 2, next_timestamp: int = 1) -> Combiner:
    return Combiner("visits", 3, partitions, INSTANCE, next_timestamp)


def add(one: Combiner, part: Partial, offset: int = 0) -> None:
    one.add(part, part.encode(), offset)


def test_a_timestamp_is_complete_once_every_partition_has_reported() -> None:
    one = combiner(3)
    for partition in (2, 0):
        add(one, partial(1, {0: 1}, partition=partition))
        assert not one.complete()
    add(one, partial(1, {2: 5}, partition=1))
    assert one.complete()
    assert one.take().counts.tolist() == [2, 0, 5]


def test_partials_that_add_up_to_more_than_a_mechanism_takes_make_what_it_takes() -> None:
    one = combiner(2)
    for partition in (0, 1):
        add(one, partial(1, {0: 7, 1: RELEASE_LIMIT}, partition=partition))
    add(one, partial(2, {1: 5}, partition=0))
    add(one, partial(2, partition=1))
    assert one.take().counts.tolist() == [14, RELEASE_LIMIT, 0]
    assert one.take().counts.tolist() == [0, 5, 0]


def test_empty_partials_make_a_timestamp_of_zeros() -> None:
    one = combiner()
    for partition in (0, 1):
        add(one, partial(1, partition=partition))
    counts = one.take().counts
    assert counts.tolist() == [0, 0, 0]
    assert counts.dtype == np.int64


def test_a_later_timestamp_waits_for_the_next_one() -> None:
    one = combiner(1)
    add(one, partial(2, {1: 2}))
    assert not one.complete()
    add(one, partial(1, {0: 1}))
    assert one.complete()
    assert one.waiting == 2
    assert one.take().counts.tolist() == [1, 0, 0]
    assert one.waiting == 1
    assert one.complete()
    assert one.take().counts.tolist() == [0, 2, 0]
    assert not one.complete()


def test_the_same_partial_a_second_time_changes_nothing() -> None:
    one = combiner()
    for offset in (3, 4):
        add(one, partial(1, {0: 1}), offset)
    assert not one.complete()
    assert one.first_offset == 3
    add(one, partial(1, {0: 1}, partition=1), 5)
    assert one.take().counts.tolist() == [2, 0, 0]


def test_a_second_different_partial_is_refused_and_its_counts_are_not_told() -> None:
    one = combiner()
    add(one, partial(1, {0: SECRET}))
    with pytest.raises(StateRefused, match="two different partial counts were committed") as refusal:
        add(one, partial(1, {0: SECRET + 1}))
    assert "987" not in str(refusal.value)
    assert "stream visits, timestamp 1, partition 0" in refusal.value.place


def test_a_timestamp_that_was_released_is_passed_over() -> None:
    one = combiner(1, next_timestamp=5)
    add(one, partial(4, {0: 1}))
    assert one.first_offset is None
    add(one, partial(5, {0: 2}))
    assert one.take().counts.tolist() == [2, 0, 0]
    add(one, partial(5, {0: 3}))
    assert one.first_offset is None
    assert not one.complete()


def test_the_lowest_offset_still_needed_is_known() -> None:
    one = combiner(1)
    assert one.first_offset is None
    for offset, timestamp in ((7, 3), (8, 1), (9, 2)):
        add(one, partial(timestamp), offset)
    first_offsets = []
    while one.complete():
        first_offsets.append(one.first_offset)
        one.take()
    assert first_offsets == [7, 7, 7]
    assert one.first_offset is None


def test_the_lowest_offset_rises_with_what_was_taken() -> None:
    one = combiner(1)
    for offset, timestamp in ((7, 1), (8, 2)):
        add(one, partial(timestamp, {0: 1}), offset)
    one.take()
    assert one.first_offset == 8


@pytest.mark.slow
def test_a_partition_that_is_far_ahead_with_empty_partials_costs_no_memory() -> None:
    """One partition reports 200,000 timestamps before the other reports the first."""
    one = combiner()
    tracemalloc.start()
    try:
        for timestamp in range(1, 200_001):
            add(one, partial(timestamp), offset=timestamp)
        # Of the program alone: threads of tests before this one allocate too.
        ours = tracemalloc.Filter(inclusive=True, filename_pattern=f"{Path(eventveil.__file__).parent}/*")
        traces = tracemalloc.take_snapshot().filter_traces([ours]).traces
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in traces) < 100_000  # half a byte for each
    for timestamp in range(1, 25_001):
        add(one, partial(timestamp, {0: 7}, partition=1), offset=200_000 + timestamp)
        assert one.take().counts.tolist() == [7, 0, 0]
    # What a successor reads again stays bounded too.
    assert one.first_offset is not None
    assert 15_000 < one.first_offset <= 25_001


def test_an_empty_partial_contradicts_one_that_is_not() -> None:
    for before, after in ((partial(2), partial(2, {0: 1})), (partial(2, {0: 1}), partial(2))):
        one = combiner()
        for timestamp in (1, 3):
            add(one, partial(timestamp))
        add(one, before)
        with pytest.raises(StateRefused, match="two different partial counts"):
            add(one, after)


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        (partial(1, {0: SECRET}, instance="other"), "another instance"),
        (partial(1, {0: SECRET}, instance=None), "another instance"),
        (partial(1, {0: SECRET}, partition=2), "2 partitions"),
        (partial(1, {0: SECRET}, partition=-1), "2 partitions"),
        (partial(1, {3: SECRET}), "malformed"),
        (partial(1, {-1: SECRET}), "malformed"),
        (partial(1, {0: 0, 1: SECRET}), "malformed"),
        (partial(1, {0: -SECRET}), "malformed"),
        (partial(1, {0: SECRET}, columns=np.array([0, 1])), "malformed"),
        (partial(1, {0: SECRET, 1: 1}, columns=np.array([1, 0])), "malformed"),
        (partial(1, {0: SECRET, 1: 1}, columns=np.array([1, 1])), "malformed"),
        (replace(partial(1), columns=np.array([[0]]), counts=np.array([[SECRET]])), "malformed"),
        (replace(partial(1), columns=np.array(0), counts=np.array(SECRET)), "malformed"),
    ],
)
def test_a_foreign_or_malformed_partial_is_refused_and_its_counts_are_not_told(
    foreign: Partial, message: str
) -> None:
    one = combiner()
    with pytest.raises(StateRefused, match=message) as refusal:
        one.add(foreign, b"", 0)
    assert str(SECRET) not in str(refusal.value)
    assert one.first_offset is None


def test_a_foreign_partial_is_refused_even_for_a_timestamp_that_was_released() -> None:
    with pytest.raises(StateRefused, match="another instance"):
        add(combiner(next_timestamp=9), partial(1, instance="other"))


PLACES = [(t, p) for t in (1, 2, 3, 4) for p in (0, 1, 2)]


@given(st.permutations(PLACES), st.lists(st.integers(0, 11)), st.sets(st.sampled_from(PLACES)))
def test_the_order_of_partials_and_their_duplicates_do_not_matter(
    order: list[tuple[int, int]], repeated: list[int], empty: set[tuple[int, int]]
) -> None:
    one = combiner(3)
    released = []
    log = order + [order[index] for index in repeated]
    for offset, (timestamp, partition) in enumerate(log):
        counts = {} if (timestamp, partition) in empty else {partition: 10 * timestamp + partition}
        add(one, partial(timestamp, counts, partition=partition), offset)
        while one.complete():
            released.append(one.take().counts.tolist())
    assert released == [[0 if (t, p) in empty else 10 * t + p for p in (0, 1, 2)] for t in (1, 2, 3, 4)]
    assert one.first_offset is None


# Continuing without a partition


def test_a_partition_that_was_given_up_is_not_waited_for_and_counts_zero() -> None:
    one = combiner()
    add(one, partial(1, {0: 1}))
    assert one.left_out == []
    assert one.give_up(1, 1, 1)
    assert one.left_out == [1]
    assert one.complete()
    assert one.take().counts.tolist() == [1, 0, 0]
    assert one.missing == {1: (1, 1)}
    add(one, partial(2, {0: 1}))
    assert not one.complete(), "it was given up for timestamp 1 only"


def test_a_partition_that_was_given_up_counts_zero_even_if_it_has_reported() -> None:
    one = combiner()
    add(one, partial(1, {0: 1}))
    add(one, partial(1, {0: 5}, partition=1))
    one.give_up(1, 1, 2)
    add(one, partial(2, {1: 7}, partition=1))
    add(one, partial(2, {0: 1}))
    assert one.take().counts.tolist() == [1, 0, 0]
    assert one.take().counts.tolist() == [1, 0, 0]
    assert (one.discarded, one.missing) == (2, {})
    add(one, partial(3, {0: 1}))
    assert not one.complete()
    add(one, partial(3, {1: 1}, partition=1))
    assert one.take().counts.tolist() == [1, 1, 0]


def test_a_partition_on_hold_is_not_taken_even_if_it_has_reported() -> None:
    one = combiner(1)
    add(one, partial(1, {0: 1}))
    add(one, partial(2, {0: 2}))
    one.hold({0: 2})
    assert one.complete()
    one.take()
    assert not one.complete()
    one.hold({})
    assert one.complete()
    one.hold({0: 1})
    one.give_up(0, 1, 2)
    assert one.complete()


def test_all_partitions_may_be_missing() -> None:
    one = combiner()
    for partition in (0, 1):
        one.give_up(partition, 1, 1)
    assert one.complete()
    assert one.take().counts.tolist() == [0, 0, 0]


def test_what_is_given_up_grows_and_ends_with_the_timestamps_that_were_taken() -> None:
    one = combiner()
    assert not one.give_up(1, 1, 0), "none"
    assert one.give_up(1, 1, 2)
    assert not one.give_up(1, 0, 2)
    assert not one.give_up(1, 2, 2)
    assert one.give_up(1, 3, 4)
    assert one.give_up(1, 7, 8)
    assert one.given_up == ((1, 1, 4), (1, 7, 8))
    for timestamp in (1, 2, 3, 4, 5):
        add(one, partial(timestamp))
        assert one.complete() == (timestamp < 5)
        if timestamp < 5:
            one.take()
    assert one.given_up == ((1, 7, 8),)
    assert not one.give_up(1, 1, 4), "they were taken"
    assert Combiner("visits", 3, 2, INSTANCE, 8, {}, one.given_up).left_out == [1]


def test_what_comes_after_its_timestamp_was_taken_without_it_is_discarded() -> None:
    one = combiner()
    one.give_up(1, 1, 3)
    for timestamp in (1, 2, 3):
        add(one, partial(timestamp))
        assert one.take().counts.tolist() == [0, 0, 0]
    assert one.missing == {1: (1, 3)}
    late = [partial(timestamp, {2: 9}, partition=1) for timestamp in (1, 2, 3)]
    add(one, late[0])
    assert (one.discarded, one.missing) == (3, {1: (2, 3)})
    again = Combiner("visits", 3, 2, INSTANCE, 4, one.missing)
    for each in late:
        add(again, each)
    assert (again.discarded, again.missing) == (0, {})
    add(again, partial(4))
    add(again, partial(4, {1: 5}, partition=1))
    assert again.take().counts.tolist() == [0, 5, 0]
    add(again, partial(4))
    assert again.discarded == 0, "it was taken with this partition"
