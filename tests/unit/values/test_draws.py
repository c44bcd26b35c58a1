"""Unbounded noise against its exact distribution, also where the source saturates."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from numpy.typing import NDArray

from eventveil.privacy.noise import SATURATION, SeededNoise
from eventveil.values.draws import geometric, laplace
from tests.unit.privacy.goodness import against_exact, p_value
from tests.unit.values.noises import Constant, Playback

DRAWS = 100_000
PLAUSIBLE = 1e-3
IMPOSSIBLE = 1e-9
SCALE = Fraction(7, 3)


class Narrow:
    """A seeded source that behaves as if it saturated at ``limit``, which it reports as SATURATION."""

    def __init__(self, limit: int) -> None:
        self._noise, self._limit = SeededNoise(5), limit

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        draws = self._noise.discrete_laplace(scale, size)
        return np.where(np.abs(draws) >= self._limit, np.sign(draws) * SATURATION, draws)


def geometric_fit(draws: NDArray[np.int64], scale: Fraction) -> float:
    """p-value of the draws being geometric of this scale, over 0..14 and the rest."""
    ratio = exp(-1 / scale)
    masses = np.array([(1 - ratio) * ratio**k for k in range(14)] + [ratio**14])
    seen = np.bincount(np.minimum(draws, 14), minlength=15)
    return p_value(float(((seen - masses * len(draws)) ** 2 / (masses * len(draws))).sum()), 14)


def test_one_sided_draws_have_the_exact_distribution() -> None:
    draws = geometric(SeededNoise(1), SCALE, DRAWS).astype(np.int64)
    assert geometric_fit(draws, SCALE) > PLAUSIBLE
    assert geometric_fit(draws, SCALE * Fraction(9, 10)) < IMPOSSIBLE
    assert geometric_fit(draws, SCALE * Fraction(11, 10)) < IMPOSSIBLE
    assert (
        geometric_fit(np.abs(SeededNoise(1).discrete_laplace(SCALE, DRAWS)), SCALE) < IMPOSSIBLE
    )  # zero halved


def test_saturated_draws_go_on_with_the_exact_tail() -> None:
    limit = 4
    exact = laplace(Narrow(limit), SCALE, DRAWS // 5)
    assert (np.abs(exact) >= 2 * SATURATION).sum() > 100  # the tail of the tail was saturated again
    magnitudes = np.array([limit * (abs(x) // SATURATION) + abs(x) % SATURATION for x in exact], np.int64)
    draws = np.where(exact < 0, -magnitudes, magnitudes)
    assert against_exact(draws, SCALE) > PLAUSIBLE
    assert against_exact(np.clip(draws, -limit, limit), SCALE) < IMPOSSIBLE


@pytest.mark.parametrize(
    "wrong", [np.zeros(2, np.int64), np.zeros(3, np.float64), np.full(3, SATURATION + 1)]
)
def test_a_source_that_breaks_its_promise_is_refused(wrong: NDArray[np.int64]) -> None:
    class Broken(Constant):
        def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
            return wrong

    with pytest.raises(ValueError, match="a noise source should give 3 int64"):
        laplace(Broken(), SCALE, 3)


def test_negative_draws_are_thrown_away_and_replaced() -> None:
    source = Playback([np.array([-1] * 11 + [5]), np.array([-2, 7, 3, *[-1] * 7])])
    assert geometric(source, SCALE, 2).tolist() == [5, 7]
