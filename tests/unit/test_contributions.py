"""The contribution bound, user by user."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.contributions import Contributions, EarliestContributions


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_a_user_contributes_exactly_the_bound(bound: int) -> None:
    contributions = Contributions(bound)
    assert [contributions.admit(b"u") for _ in range(bound + 3)] == [True] * bound + [False] * 3


def test_users_with_the_same_beginning_are_different_users() -> None:
    contributions = Contributions(1)
    assert all(contributions.admit(user) for user in (b"u", b"u ", b"uu", b"u\0", b"U"))
    assert len(contributions) == 5


class Colliding(bytes):
    def __hash__(self) -> int:
        return 1


def test_users_are_told_apart_although_their_hashes_collide() -> None:
    contributions = Contributions(1)
    assert contributions.admit(Colliding(b"x"))
    assert contributions.admit(Colliding(b"y"))


def test_the_earliest_events_of_users_whose_hashes_collide_count() -> None:
    contributions = EarliestContributions(1)
    assert contributions.admit(Colliding(b"x"), 1, 0) == (True, None)
    assert contributions.admit(Colliding(b"y"), 0, 1) == (True, None)


@given(st.lists(st.sampled_from([b"x", b"y", b"z"])), st.integers(1, 4))
def test_of_each_user_the_first_events_count_whatever_the_others_do(users: list[bytes], bound: int) -> None:
    contributions = Contributions(bound)
    before: Counter[bytes] = Counter()
    for user in users:
        assert contributions.admit(user) == (before[user] < bound)
        before[user] += 1
    assert len(contributions) == len(before)


@given(
    st.lists(st.sampled_from(["x", "y"]), max_size=8), st.integers(1, 3), st.randoms(use_true_random=False)
)
def test_the_earliest_events_count_in_whatever_order_they_are_read(
    users: list[str], bound: int, chance: Any
) -> None:
    events = [(user.encode(), order, order % 3) for order, user in enumerate(users)]
    expected = Counter(
        column
        for user in {user for user, _, _ in events}
        for _, _, column in [one for one in events if one[0] == user][:bound]
    )
    chance.shuffle(events)
    contributions = EarliestContributions(bound)
    columns: Counter[int] = Counter()
    for user, order, column in events:
        admitted, displaced = contributions.admit(user, order, column)
        if admitted:
            columns[column] += 1
        if displaced is not None:
            columns[displaced] -= 1
    assert +columns == expected
    assert len(contributions) == len(set(users))
