"""The contribution bound of re-keyed events, against a model of dicts and sorting."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.counting import bounding_by_origin
from eventveil.counting.bounding_by_origin import EarliestContributions, Packing

Where = tuple[int, int, int]
Event = tuple[int, Where]
COLUMNS = 300
LARGEST = 2**63 - 1


class Model:
    """Every event that ever came, by user and origin."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.events: dict[int, set[Where]] = {}

    def admit(self, user: int, origin: Where) -> bool:
        known = self.events.setdefault(user, set())
        grown = origin not in known and len(known) < self.bound
        known.add(origin)
        return grown

    def counts(self) -> Counter[int]:
        return Counter(
            column_of(origin) for known in self.events.values() for origin in sorted(known)[: self.bound]
        )


def column_of(origin: Where) -> int:
    """An event that comes twice has the same column."""
    time, partition, offset = origin
    return (time * 7 + partition * 101 + offset * 13) % COLUMNS


def admit(contributions: EarliestContributions, events: list[Event]) -> list[bool]:
    users = np.array([user for user, _ in events], np.int64)
    origins = np.array([origin for _, origin in events], np.int64)
    columns = np.array([column_of(origin) for _, origin in events], np.int64)
    return contributions.admit(users, origins, columns).tolist()


def counts_of(contributions: EarliestContributions) -> Counter[int]:
    return +Counter(dict(enumerate(contributions.counts().tolist())))


def check(chunks: list[list[Event]], bound: int) -> None:
    """After every chunk all is as in the model."""
    contributions, model = EarliestContributions(bound, COLUMNS), Model(bound)
    for chunk in chunks:
        assert admit(contributions, chunk) == [model.admit(*event) for event in chunk]
        assert counts_of(contributions) == model.counts()
        assert sorted(contributions.users().tolist()) == sorted(model.events)
        assert len(contributions) == len(model.events)


def test_the_earliest_events_of_every_user_count() -> None:
    contributions = EarliestContributions(1, COLUMNS)
    for user, origin in ((1, (5, 1, 8)), (1 + 4096, (4, 1, 7)), (1, (5, 0, 9)), (1, (6, 0, 10))):
        admit(contributions, [(user, origin)])
    assert counts_of(contributions) == Counter([column_of((5, 0, 9)), column_of((4, 1, 7))])


_ORIGINS = st.tuples(*[st.integers(0, 3)] * 3) | st.tuples(
    *[st.sampled_from([0, 1, 2**20, 2**31, 2**32, 2**40, LARGEST - 1, LARGEST])] * 3
)
_EVENTS = st.tuples(st.integers(0, 3) | st.integers(0, 2**32 - 2), _ORIGINS)


@given(st.lists(st.lists(_EVENTS, min_size=1, max_size=30), max_size=8), st.integers(1, 5))
def test_whatever_comes_in_whatever_chunks(chunks: list[list[Event]], bound: int) -> None:
    check(chunks, bound)


@pytest.mark.parametrize("bound", [1, 2, 3, 20, 300])
@pytest.mark.parametrize("span", [3, 1000, 2**32, 2**62])
def test_many_events_in_random_order_some_of_them_twice(bound: int, span: int) -> None:
    chance = Random(bound * span)
    users = chance.choice((5, 100, 2000))
    events = [
        (chance.randrange(users), (chance.randrange(span), chance.randrange(12), chance.randrange(span)))
        for _ in range(3000)
    ]
    events += chance.sample(events, 500)
    # Nearly in order, or not at all.
    disorder = chance.choice((span // 20 + 1, 10 * span))
    events.sort(key=lambda event: event[1][0] + chance.randrange(disorder))
    chunks = []
    while events:
        size = chance.choice((1, 3, 100, 1000))
        chunks.append(events[:size])
        del events[:size]
    check(chunks, bound)


@pytest.mark.parametrize("bound", [1, 3])
def test_the_order_of_reading_does_not_matter(bound: int) -> None:
    chance = Random(bound)
    events = [
        (number % 50, (chance.randrange(9), number % 4, chance.randrange(10**6))) for number in range(600)
    ]
    seen = set()
    for _ in range(5):
        chance.shuffle(events)
        contributions = EarliestContributions(bound, COLUMNS)
        for start in range(0, len(events), 70):
            admit(contributions, events[start : start + 70])
        seen.add(tuple(contributions.counts().tolist()))
    assert len(seen) == 1


@pytest.mark.parametrize("bound", [1, 2])
def test_users_are_told_apart_although_all_of_them_fall_on_one_place(
    bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounding_by_origin, "scatter", lambda users: np.zeros(len(users), np.uint64))
    events = [(user * 2**20, (time, 0, user)) for time in (2, 1, 0) for user in range(300)]
    check([events[start : start + 100] for start in range(0, 900, 100)], bound)


def test_nobody_can_choose_users_that_fall_on_the_same_places() -> None:
    numbers = np.arange(4_000_000, dtype=np.uint32)
    chosen = numbers[numbers * np.uint32(0x9E3779B1) < 2**24].astype(np.int64)
    contributions = EarliestContributions(1, COLUMNS)
    contributions.admit(chosen, np.stack([chosen] * 3, axis=1), chosen % COLUMNS)
    assert len(chosen) > 10_000
    places, _ = contributions._find(chosen)
    assert np.count_nonzero(places != contributions._places(chosen.astype(np.uint32))) < len(chosen) / 2


@pytest.mark.parametrize("bound", [1, 3])
def test_new_numbers_change_nothing_else(bound: int) -> None:
    chance = Random(bound)
    numbers = chance.sample(range(2**32 - 1), 40)
    contributions, model = EarliestContributions(bound, COLUMNS), Model(bound)
    for chunk in range(12):
        if chunk == 6:
            contributions.renumber(np.array(numbers))
        events = [(chance.randrange(40), (chance.randrange(50), 0, chance.randrange(50))) for _ in range(30)]
        found = admit(
            contributions, [(numbers[user] if chunk >= 6 else user, origin) for user, origin in events]
        )
        assert found == [model.admit(*event) for event in events]
    assert counts_of(contributions) == model.counts()
    assert set(contributions.users().tolist()) == {numbers[user] for user in model.events}


_FIELDS = st.integers(-(2**63), LARGEST) | st.integers(0, 9)
_ROWS = st.lists(st.tuples(_FIELDS, _FIELDS, _FIELDS), min_size=1, max_size=9)


@given(_ROWS, _ROWS)
def test_packed_origins_are_in_the_same_order_and_can_be_told_again(
    first: list[Where], second: list[Where]
) -> None:
    before = Packing(bounding_by_origin._ranges(np.array(first)))
    packing = before.around(np.array(second))
    for rows, one in ((first, before), (first + second, packing)):
        words = one.pack(np.array(rows))
        assert one.unpack(words).tolist() == [list(row) for row in rows]
        packed = [tuple(reversed(row)) for row in words.tolist()]
        assert sorted(range(len(rows)), key=packed.__getitem__) == sorted(
            range(len(rows)), key=rows.__getitem__
        )
    assert packing.around(np.array(first)) is packing


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        # Two hours, 64 partitions, 2**35 offsets; a month and four billion; everything there is.
        (((10**12, 10**12 + 7_200_000), (0, 63), (10**9, 10**9 + 2**35 - 1)), 1),
        (((10**12, 10**12 + 31 * 86_400_000), (0, 63), (0, 2**32)), 2),
        (((0, LARGEST), (0, 2**31 - 1), (0, LARGEST)), 3),
        (((5, 5), (0, 0), (0, LARGEST)), 1),
    ],
)
def test_origins_take_a_word_unless_their_ranges_are_very_large(
    ranges: tuple[tuple[int, int], ...], words: int
) -> None:
    assert Packing(ranges).words == words


@pytest.mark.parametrize(
    ("bound", "columns", "each", "limit"),
    [(1, 256, 1, 22), (1, 60_000, 1, 23), (1, 100_000, 1, 25), (255, 60_000, 1, 28.5), (4, 60_000, 4, 22.5)],
)
def test_a_contribution_takes_few_bytes(bound: int, columns: int, each: int, limit: float) -> None:
    contributions = EarliestContributions(bound, columns)
    most, held = 0.0, 0
    for start in range(0, 200_000, 1000):
        events = np.arange(start, start + 1000)
        # In order of time from 12 partitions, the far ends of which are a billion offsets apart.
        origins = np.stack([10**12 + events, events % 12, events % 12 * 10**8 + events], axis=1)
        held += np.count_nonzero(contributions.admit(events // each, origins, events % columns))
        most = max(most, contributions.nbytes / held) if start > 10_000 else 0.0
    assert held == 200_000
    assert most <= limit
