"""The test for columns that nobody listed: epsilon and delta from exact probabilities, on small domains."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from eventveil.privacy import discovery
from eventveil.privacy.discovery import FoundColumn, Test, test_of, threshold
from eventveil.privacy.noise import SeededNoise

#: pytest takes what is called so for a test.
Test.__test__ = False  # type: ignore[attr-defined]
test_of.__test__ = False  # type: ignore[attr-defined]

EPSILON, DELTA = Fraction(1, 2), Fraction(1, 10**4)
Sums = tuple[int, ...]


def tail(scale: Fraction, least: int) -> float:
    """P(Z >= least) of discrete Laplace noise."""
    q = math.exp(-1 / float(scale))
    return q**least / (1 + q) if least >= 1 else 1 - q ** (1 - least) / (1 + q)


def told(test: Test, sums: Sums) -> dict[tuple[bool, ...], float]:
    """The probability of each set of columns that pass; a column without events never does."""
    odds = [tail(test.scale, test.threshold - one) if one else 0.0 for one in sums]
    return {
        passed: math.prod(p if one else 1 - p for p, one in zip(odds, passed, strict=True))
        for passed in itertools.product((False, True), repeat=len(sums))
    }


def blocks(test: Test, first: Sums, second: Sums) -> dict[tuple[tuple[bool, ...], ...], float]:
    """The same of two blocks, the second of which does not test what the first has found."""
    joint = {}
    for one, p in told(test, first).items():
        left = tuple(0 if known else count for known, count in zip(one, second, strict=True))
        for other, r in told(test, left).items():
            joint[one, other] = joint.get((one, other), 0.0) + p * r
    return joint


def delta_at(epsilon: float, one: dict, other: dict) -> float:
    """How far the probability of some set of outputs exceeds e^epsilon times the other one."""
    return sum(max(0.0, p - math.exp(epsilon) * other[output]) for output, p in one.items())


def neighbours(events: int, columns: int, others: int) -> Iterator[tuple[Sums, Sums, Sums, Sums]]:
    """Two blocks without and with a user of ``events`` events, beside up to ``others`` of other users.

    Others' sums lie around the threshold as well: it is there that a test tells most.
    """
    for shares in itertools.product(range(events + 1), repeat=2 * columns):
        if sum(shares) != events:
            continue
        for around in ((0,) * columns, (others,) + (0,) * (columns - 1), (others,) * columns):
            first = tuple(a + b for a, b in zip(around, shares[:columns], strict=True))
            second = tuple(a + b for a, b in zip(around, shares[columns:], strict=True))
            yield around, around, first, second


def worst(made: Callable[[int, int], Test], contributions: int, window: int) -> float:
    """The largest delta at EPSILON over neighbours that differ in one window, both ways."""
    test, events = made(contributions, window), contributions * window
    found = 0.0
    for others in (1, test.threshold - events, test.threshold - 1, test.threshold, test.threshold + 3):
        for a, b, c, d in neighbours(events, 2, max(0, others)):
            without, having = blocks(test, a, b), blocks(test, c, d)
            found = max(
                found, delta_at(float(EPSILON), having, without), delta_at(float(EPSILON), without, having)
            )
    return found


def sound(contributions: int, window: int) -> Test:
    """The test as it is."""
    return test_of(EPSILON, DELTA, contributions, window)


def forgets_contributions(contributions: int, window: int) -> Test:
    """A mutant: the threshold is that of a user with one event."""
    whole = sound(contributions, window)
    return Test(whole.scale, threshold(whole.scale, 1, DELTA))


def forgets_window(contributions: int, window: int) -> Test:
    """A mutant: the scale is that of one timestamp."""
    scale = contributions / EPSILON
    return Test(scale, threshold(scale, contributions * window, DELTA))


def delta_of_timestamp(contributions: int, window: int) -> Test:
    """A mutant: delta is kept for each timestamp of the window, not for all of them."""
    whole = sound(contributions, window)
    return Test(whole.scale, threshold(whole.scale, contributions * window, DELTA * window))


CASES = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (3, 1)]


@pytest.mark.parametrize(("contributions", "window"), CASES)
def test_a_window_costs_epsilon_and_delta_exactly(contributions, window):
    assert worst(sound, contributions, window) <= float(DELTA) * (1 + 1e-9)


@pytest.mark.parametrize("mutant", [forgets_contributions, forgets_window, delta_of_timestamp])
def test_a_broken_test_is_noticed(mutant):
    assert max(worst(mutant, contributions, window) for contributions, window in CASES[1:]) > float(DELTA)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1, 2), Fraction(3)])
@pytest.mark.parametrize("delta", [Fraction(1, 10**9), Fraction(1, 10**5), Fraction(1, 10**4)])
@pytest.mark.parametrize(("contributions", "window"), [(1, 1), (1, 24), (5, 168), (100, 1)])
def test_no_smaller_threshold_would_do(epsilon, delta, contributions, window):
    test, events = test_of(epsilon, delta, contributions, window), contributions * window
    alone, apart = (lambda t: tail(test.scale, t - events), lambda t: events * tail(test.scale, t - 1))
    assert test.scale == events / epsilon
    assert max(alone(test.threshold), apart(test.threshold)) <= float(delta) * (1 + 1e-9)
    assert max(alone(test.threshold - 2), apart(test.threshold - 2)) > float(delta)


def test_every_way_to_spread_events_over_columns_stays_below_delta():
    test, events = test_of(EPSILON, DELTA, 3, 4), 12

    def ways(left: int, most: int) -> Iterator[tuple[int, ...]]:
        if not left:
            yield ()
        for one in range(min(left, most), 0, -1):
            yield from ((one, *rest) for rest in ways(left - one, one))

    sums = [sum(tail(test.scale, test.threshold - one) for one in way) for way in ways(events, events)]
    assert len(sums) == 77
    assert max(sums) <= float(DELTA)


def test_columns_pass_as_often_as_the_tail_says():
    test = Test(Fraction(4), 10)
    noise, rounds = SeededNoise(5), 4000
    seen = np.zeros(3)
    for _ in range(rounds):
        passed = {one.column for one in test({"a": 1, "b": 10, "c": 25}, noise)}
        seen += [column in passed for column in "abc"]
    expected = np.array([tail(test.scale, 10 - one) for one in (1, 10, 25)])
    assert np.abs(seen / rounds - expected).max() < 5 * 0.5 / math.sqrt(rounds)


class _Zero:
    """Noise that is none, and how much was asked for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def discrete_laplace(self, scale, size):
        self.sizes.append(size)
        return np.zeros(size, np.int64)


def test_the_largest_come_first_and_ties_go_by_text():
    sums, noise = {"d": 12, "b": 11, "c": 11, "a": 11, "e": 9}, _Zero()
    test = Test(Fraction(1), 10)
    assert test(sums, noise) == [
        FoundColumn("d", 12),
        FoundColumn("a", 11),
        FoundColumn("b", 11),
        FoundColumn("c", 11),
    ]
    assert noise.sizes == [5]


def test_nothing_is_drawn_where_there_is_nothing_to_test():
    noise = _Zero()
    assert Test(Fraction(1), 10)({}, noise) == []
    assert noise.sizes == []


def test_a_column_without_events_must_not_be_tested():
    with pytest.raises(ValueError, match="not tested"):
        Test(Fraction(1), 10)({"a": 0}, _Zero())


def test_draws_do_not_depend_on_the_order_in_which_columns_came():
    test = Test(Fraction(5), 3)
    one = test({"a": 3, "b": 4, "c": 5}, SeededNoise(1))
    assert one == test({"c": 5, "b": 4, "a": 3}, SeededNoise(1))


def test_sums_beyond_64_bits_are_compared_exactly():
    assert Test(Fraction(1), 2**70)({"a": 2**70, "b": 2**70 - 1}, _Zero()) == [FoundColumn("a", 2**70)]


@pytest.mark.parametrize("terms", [(0, DELTA, 1, 1), (1, DELTA, 0, 1), (1, DELTA, 1, 0), (1, 0, 1, 1)])
def test_terms_that_promise_nothing_are_refused(terms):
    epsilon, delta, contributions, window = terms
    with pytest.raises(ValueError, match="should be"):
        test_of(Fraction(epsilon), Fraction(delta), contributions, window)


def test_a_threshold_beyond_what_noise_is_drawn_for_is_refused():
    window = discovery.LARGEST_THRESHOLD // 30
    assert test_of(Fraction(1), DELTA, 1, window // 2).threshold < discovery.LARGEST_THRESHOLD
    with pytest.raises(ValueError, match="more than noise is drawn for"):
        test_of(Fraction(1), DELTA, 1, window * 2)


def test_a_delta_that_promises_nothing_is_refused():
    with pytest.raises(ValueError, match="delta should be"):
        test_of(Fraction(1), discovery.LARGEST_DELTA * 2, 1, 1)
