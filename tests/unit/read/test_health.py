"""Whether releases show that events count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from eventveil.read.health import LEAST, STATES, State, Total, state_of, total_of
from tests.unit.read.making import record


def fresh(*counts: float, error: float = 10.0) -> list[Total]:
    return [Total(one, error, True) for one in counts]


@pytest.mark.parametrize(
    ("totals", "expected", "state"),
    [
        (fresh(1000, 1000), None, "unknown"),
        (fresh(1000, 1000, 1000), None, "counting"),
        (fresh(12, -15, 9), None, "nothing"),
        (fresh(-100, -100, -100), None, "nothing"),
        (fresh(400, 400, 400), 1000, "much-less"),
        (fresh(499, 499, 499), 1000, "counting"),  # less than half, and not surely
        (fresh(12, -15, 9), 1000, "nothing"),
        (fresh(5000, 5000, 5000), 1000, "counting"),
    ],
)
def test_states(totals: list[Total], expected: int | None, state: State) -> None:
    assert state_of(totals, LEAST, expected) == state


def test_a_release_that_stands_out_by_itself_shows_that_events_count_whatever_came_before() -> None:
    first = [Total(0, 110, True), Total(0, 60, False), Total(0, 40, True)]
    assert state_of(first, 6) == "nothing"
    assert state_of([*first, Total(292, 20, True)], 6) == "counting"
    assert state_of([*first, Total(79, 20, True)], 6) == "nothing"
    assert state_of([*fresh(300, error=70), *first, Total(0, 20, True)], 6) == "nothing"


def test_many_small_counts_are_told_from_noise_of_their_own_and_not_from_one_noise_repeated() -> None:
    assert state_of(fresh(*[8] * 24), 24) == "counting"
    repeated = [Total(8, 10, at == 0) for at in range(24)]
    assert state_of(repeated, 24) == "nothing"


def test_a_single_draw_of_a_stream_that_has_begun_says_nothing_yet() -> None:
    """It may be of a timestamp that the stream saw the end of."""
    one_draw = [Total(8, 10, at == 0) for at in range(5)]
    assert state_of(one_draw, 24) == "unknown"
    assert state_of([*one_draw, Total(9, 10, True)], 24) == "nothing"
    assert state_of(one_draw, 5) == "nothing"
    assert state_of([Total(80, 10, at == 0) for at in range(5)], 24) == "counting"


def test_the_total_of_a_record_has_the_error_of_a_sum() -> None:
    found = total_of(record(counts={"a": 3, "b": 4}, error={"a": 3.0, "b": 4.0}))
    assert found == ("views", Total(7, 5.0, True))
    one_for_all = total_of(record(counts=[1, 2, 3, 4], error=2.0, fresh=False))
    assert one_for_all == ("views", Total(10, 4.0, False))
    assert total_of(record(error=None, noise_scale=None)) is None
    clipped = total_of(record(counts={"a": 3, "b": 4}, error={"a": 3.0, "b": 4.0}, minimum=0))
    assert clipped == ("views", Total(7, 7.0, False))
    sliding = total_of(record(counts={"a": 30}, error=10.0, span=10))
    assert sliding == ("views", Total(3, 1.0, False))


def test_clipped_releases_of_nothing_are_nothing() -> None:
    noise = np.random.default_rng(7).laplace(0, 10, (24, 50))
    counts = np.maximum(np.rint(noise), 0)
    # What `formats.release.clipped` says a count of 0 errs by.
    totals = [Total(float(one.sum()), 50 * 10.0, False) for one in counts]
    assert state_of(totals, LEAST) == "nothing"


def probabilities(true: Sequence[int], scale: float, expected: int) -> dict[State, float]:
    """How likely each state is, after releases of these true counts with Laplace noise of this scale."""
    values = np.arange(-400, 401)
    weights = np.exp(-np.abs(values) / scale)
    weights /= weights.sum()
    sums = weights
    for _ in true[1:]:
        sums = np.convolve(sums, weights)
    found = dict.fromkeys(STATES, 0.0)
    reach = len(sums) // 2
    for at, weight in enumerate(sums.tolist()):
        # Of releases with noise of their own and one error, only the sum matters.
        counts = [sum(true) + at - reach, *[0] * (len(true) - 1)]
        totals = [Total(count, scale * 2**0.5, True) for count in counts]
        found[state_of(totals, LEAST, expected)] += weight
    return found


@pytest.mark.parametrize("true", [(0, 0, 0), (2, 1, 3), (9, 8, 12), (30, 30, 30)])
def test_a_state_says_no_more_of_a_user_than_the_releases_do(true: tuple[int, ...]) -> None:
    scale, expected = 3.0, 20  # three releases of one window: epsilon is 3 / scale
    with_user = [one + 1 for one in true]
    here, there = (probabilities(counts, scale, expected) for counts in (true, with_user))
    assert sum(here.values()) == pytest.approx(1)
    for state in STATES:
        if here[state] > 1e-12:
            assert abs(np.log(here[state] / there[state])) <= 3 / scale + 1e-9
    # And it does say something: a rule that always says the same would pass.
    assert probabilities((0, 0, 0), scale, expected)["nothing"] > 0.9
    assert probabilities((100, 100, 100), scale, expected)["counting"] > 0.9
