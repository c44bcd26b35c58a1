"""The contribution bound, user by user."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.counting.users import Contributions, PlainContributions, scatter


def admit(contributions: Contributions, users: list[int]) -> list[bool]:
    return contributions.admit(np.array(users, np.int64)).tolist()


def first_ones(users: list[int], bound: int) -> list[bool]:
    """What counts, found out one by one."""
    before: Counter[int] = Counter()
    admitted = []
    for user in users:
        admitted.append(before[user] < bound)
        before[user] += 1
    return admitted


@pytest.mark.parametrize("bound", [1, 2, 5, 255, 256, 70_000])
def test_a_user_contributes_exactly_the_bound(bound: int) -> None:
    contributions = Contributions(bound)
    assert admit(contributions, [7] * (bound + 3)) == [True] * bound + [False] * 3
    assert admit(contributions, [7, 8]) == [False, True]


def test_nobody_can_choose_users_that_fall_on_the_same_places() -> None:
    """The numbers whose product with Knuth's constant begins alike, as somebody who has many could."""
    numbers = np.arange(4_000_000, dtype=np.uint32)
    chosen = numbers[(numbers + np.uint32(1)) * np.uint32(0x9E3779B1) < 2**24]
    contributions = PlainContributions(1)
    contributions._make_room(len(chosen))
    places, _ = contributions._enter((chosen + 1).astype(np.uint32))
    first = (scatter((chosen + 1).astype(np.uint32)) >> np.uint64(64 - contributions._bits)).astype(np.int64)
    assert 0.1 < np.mean(places != first) < 0.3  # at random 0.2, for the table is half full


_CHUNKS = st.lists(
    st.lists(st.integers(0, 5) | st.integers(0, 2**32 - 2), min_size=1, max_size=40), max_size=8
)


@given(_CHUNKS, st.integers(1, 4))
def test_of_each_user_the_first_events_count_whatever_the_others_do(
    chunks: list[list[int]], bound: int
) -> None:
    contributions = Contributions(bound)
    admitted = [one for chunk in chunks for one in admit(contributions, chunk)]
    users = [user for chunk in chunks for user in chunk]
    assert admitted == first_ones(users, bound)
    assert len(contributions) == len(set(users))
    assert sorted(contributions.users().tolist()) == sorted(set(users))


def test_many_users_are_told_apart_although_their_places_collide() -> None:
    # The inverse of the factor that finds the place: the first table has one place for all of the last.
    for step, bound in product((1, 16, 1 << 12, 2_654_435_769, pow(0x9E3779B1, -1, 2**32)), (1, 2)):
        users = [number * step % (2**32 - 1) for number in range(3000)]
        contributions = Contributions(bound)
        for start in range(0, len(users), 700):
            assert all(admit(contributions, users[start : start + 700]))
        assert admit(contributions, users) == [bound == 2] * len(users)
        assert not any(admit(contributions, users))
        assert len(contributions) == len(set(users))


@given(_CHUNKS, st.integers(1, 3), st.integers(0, 8))
def test_new_numbers_change_nothing_else(chunks: list[list[int]], bound: int, when: int) -> None:
    contributions = Contributions(bound)
    before, after = chunks[:when], chunks[when:]
    known = sorted({user for chunk in chunks for user in chunk})
    small = [[known.index(user) for user in chunk] for chunk in before]
    for chunk in small:
        admit(contributions, chunk)
    contributions.renumber(np.array([3 * number + 1 for number in range(len(known))], np.int64))
    later = [[3 * known.index(user) + 1 for user in chunk] for chunk in after]
    found = [one for chunk in later for one in admit(contributions, chunk)]
    flat = [known.index(user) for chunk in chunks for user in chunk]
    assert found == first_ones(flat, bound)[sum(map(len, before)) :]


@pytest.mark.parametrize(("bound", "limit"), [(1, 12), (255, 15), (60_000, 18)])
def test_a_contribution_takes_few_bytes(bound: int, limit: int) -> None:
    contributions = Contributions(bound)
    most = 0.0
    for start in range(0, 200_000, 1000):
        contributions.admit(np.arange(start, start + 1000))
        most = max(most, contributions.bytes / len(contributions)) if start > 1000 else 0.0
    assert most <= limit * 1.01
