"""Window sums are those of brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eventveil.audit.charges import HorizonSums, WindowSums


@given(
    window=st.integers(1, 6), steps=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 50)), max_size=40)
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


@given(horizon=st.integers(1, 6), spends=st.lists(st.integers(0, 50), max_size=40), first=st.integers(1, 9))
def test_horizon_sums_are_those_of_brute_force(horizon: int, spends: list[int], first: int) -> None:
    once, renewed = HorizonSums(horizon, renews=False), HorizonSums(horizon, renews=True)
    for i, spend in enumerate(spends):
        assert once.add(first + i, spend) == sum(spends[: i + 1])
        assert renewed.add(first + i, spend) == sum(spends[i - i % horizon : i + 1])
        assert once.exhausted(first + i) == (i >= horizon)
        assert not renewed.exhausted(first + i)
    assert once.largest == sum(spends)
