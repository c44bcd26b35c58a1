"""What the kernel counts is what arrays count, whichever events were certain and whichever were judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eventveil.process import kernel
from tests.fuzz.ways import read_by

COLUMNS, APPENDED = 3, 2**40


@pytest.fixture
def native() -> Iterator[Any]:
    with read_by("kernel"):
        yield kernel.NATIVE


def of(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def arrays(events: list[tuple[int, ...]]) -> tuple[NDArray[np.int64], ...]:
    """Rows, users, columns and timestamps."""
    rows = np.array(events, np.int64).reshape(-1, 4)
    return rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy(), rows[:, 3].copy()


def placed(native: Any, events: list[tuple[int, ...]]) -> Any:
    """The same in the kernel, by a timeline whose timestamps are milliseconds."""
    users = native.Users("crc32", 1, 0)
    users.of([f"u{number}" for number in range(1, 20)])
    rows, numbers, columns, timestamps = arrays(events)
    placer = native.Placer((0, 1, 2**50, 2**50), False, 1, 1)
    appended = np.full(int(rows.max(initial=0)) + 1, APPENDED)
    found = placer.place(users, (rows, numbers, columns, timestamps - 1), (appended, None), (0, 1))
    assert len(found) == len(events)
    return found


class Model:
    """One event after the other."""

    def __init__(self, bound: int, per_column: int | None = None) -> None:
        self._bound, self._per_column = bound, per_column or bound
        self._counted: Counter[tuple[int, int]] = Counter()
        self._in_column: Counter[tuple[int, int, int]] = Counter()
        self.counts: dict[int, list[int]] = {}

    def take(self, event: tuple[int, ...]) -> str:
        _, user, column, timestamp = event
        if column < 0:
            return {-1: "ignored", -3: "filtered"}[column]
        self.counts.setdefault(timestamp, [0] * COLUMNS)
        if self._counted[user, timestamp] == self._bound:
            return "bounded"
        if self._in_column[user, column, timestamp] == self._per_column:
            return "bounded"
        self._in_column[user, column, timestamp] += 1
        self._counted[user, timestamp] += 1
        self.counts[timestamp][column] += 1
        return "counted"

    def users(self, timestamp: int) -> set[int]:
        return {user for user, at in self._counted if at == timestamp}


@pytest.mark.parametrize(("bound", "per_column"), [(1, None), (2, None), (300, None), (2, 1), (40, 25)])
def test_events_count_in_the_order_of_their_rows(native: Any, bound: int, per_column: int | None) -> None:
    chance, tally, model = Random(bound), native.Tally(bound, COLUMNS, per_column), Model(bound, per_column)
    opened: dict[int, int] = {}
    for _ in range(60):
        rows = sorted(chance.sample(range(40), chance.choice((0, 1, 5, 40))))
        events = [
            (row, chance.randrange(1, 9), chance.randrange(-1, COLUMNS), chance.randrange(1, 4))
            for row in rows
        ]
        surely = [chance.random() < 0.7 for _ in events]
        certain = [one for one, sure in zip(events, surely, strict=True) if sure]
        # The filter leaves events out that nobody is sure of.
        judged = [
            (row, user, chance.choice((column, -3)), timestamp)
            for (row, user, column, timestamp), sure in zip(events, surely, strict=True)
            if not sure
        ]
        told, outcomes, known = chance.choice((0, 20)), Counter[str](), {*model.counts}
        for event in sorted([*certain, *judged]):
            became = model.take(event)
            if event[3] in model.counts:
                opened.setdefault(event[3], event[0])
            if event[0] >= told:
                outcomes[became] += 1
        numbers, touched = tally.take(
            placed(native, certain) if certain else None, arrays(judged) if judged else None, told
        )
        assert numbers == tuple(outcomes[one] for one in ("counted", "bounded", "ignored", "filtered"))
        for timestamp, users, first in touched:
            assert users == len(model.users(timestamp))
            assert first == (None if timestamp in known else opened[timestamp])
        assert {timestamp for timestamp, *_ in touched} == {
            timestamp for _, _, column, timestamp in [*certain, *judged] if column >= 0
        }
    for timestamp, counts in model.counts.items():
        assert {*np.frombuffer(tally.users(timestamp), np.int64).tolist()} == model.users(timestamp)
        for ask in (tally.counts, tally.counts, tally.close):
            assert np.frombuffer(ask(timestamp), np.int64).tolist() == counts


def test_users_with_new_numbers_are_still_known(native: Any) -> None:
    tally = native.Tally(1, COLUMNS)
    tally.take(None, arrays([(0, 5, 0, 1), (1, 3, 0, 1)]), 0)
    tally.renumber(1, of(0, -1, -1, 2, -1, 1))
    assert tally.take(None, arrays([(0, 1, 0, 1), (1, 2, 0, 1), (2, 3, 1, 1)]), 0)[0] == (1, 2, 0, 0)
    with pytest.raises(IndexError, match="no new number"):
        tally.renumber(1, of(0, 1, 2))
    assert np.frombuffer(tally.close(1), np.int64).tolist() == [2, 1, 0]


def one_each(timestamps: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """An event of user 1 for each, in a column that follows from the timestamp."""
    rows = np.arange(len(timestamps))
    return rows, np.ones(len(rows), np.int64), timestamps % COLUMNS, timestamps


# A search through all open timestamps at each step would take twenty minutes.
@pytest.mark.timeout(120)
def test_no_step_takes_longer_the_more_timestamps_are_open(native: Any) -> None:
    tally, chance, size = native.Tally(2, COLUMNS), np.random.default_rng(1), 400_000
    timestamps = np.arange(size)
    numbers, touched = tally.take(None, one_each(timestamps), 0)
    assert numbers == (size, 0, 0, 0)
    assert touched == [(one, 1, one) for one in range(size)]
    # Each twice, and each is told once.
    again = np.concatenate([chance.permutation(timestamps), chance.permutation(timestamps)])
    numbers, touched = tally.take(None, one_each(again), 0)
    assert numbers == (size, size, 0, 0)
    assert touched == [(one, 1, None) for one in again[:size].tolist()]
    half = size // 2
    for timestamp in [*range(half), *(half + chance.permutation(half)).tolist()]:
        found = np.frombuffer(tally.close(timestamp), np.int64).tolist()
        assert found == [2 * (column == timestamp % COLUMNS) for column in range(COLUMNS)]
    with pytest.raises(IndexError, match="timestamp 7 is not open"):
        tally.close(7)


# To copy all new numbers for each open timestamp would take ten.
@pytest.mark.timeout(120)
def test_renumbering_many_timestamps_with_few_of_all_users_each_copies_no_numbers(native: Any) -> None:
    tally, size = native.Tally(1, COLUMNS), 100_000
    tally.take(None, one_each(np.arange(size)), 0)
    new_numbers = np.arange(1, 2**22 + 1)
    for timestamp in range(size):
        tally.renumber(timestamp, new_numbers)
    assert all(np.frombuffer(tally.users(one), np.int64).tolist() == [2] for one in range(size))


@pytest.mark.parametrize(
    "events",
    [
        [(1, 1, 0, 1), (0, 1, 0, 1)],
        [(0, 1, 0, 1), (0, 2, 0, 1)],
        [(0, 1, COLUMNS, 1)],
        [(0, 1, -2, 1)],
        [(0, 1, -4, 1)],
        [(0, -1, 0, 1)],
        [(0, 2**32 - 1, 0, 1)],
        [(7, 1, 0, 1)],
    ],
    ids=["order", "twice", "no column", "unsure", "what", "no user", "no user of 32 bits", "certain already"],
)
def test_what_is_no_event_is_refused_and_nothing_counted(native: Any, events: list[tuple[int, ...]]) -> None:
    tally, certain = native.Tally(1, COLUMNS), placed(native, [(7, 1, 0, 1)])
    with pytest.raises(ValueError, match="no events of this stream"):
        tally.take(certain, arrays([*events, (99, 1, 1, 1)]), 0)
    assert tally.take(certain, None, 0) == ((1, 0, 0, 0), [(1, 1, 7)])
    with pytest.raises(ValueError, match="no events of this stream"):
        tally.take(None, (*arrays([(0, 1, 0, 1)])[:3], of(1, 1)), 0)


def test_a_timestamp_that_is_not_open_is_named(native: Any) -> None:
    tally = native.Tally(1, COLUMNS)
    for ask in (tally.counts, tally.close, tally.users, lambda timestamp: tally.renumber(timestamp, of(0))):
        with pytest.raises(IndexError, match="timestamp 5 is not open"):
            ask(5)
