"""PAK's threshold: a smooth bound, and (epsilon, delta) by exhaustion on a small domain."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import exp, log

import numpy as np
import pytest

from eventveil.privacy.noise import SeededNoise
from eventveil.values.pak import Pak, PakSettings, smooth_sensitivity
from tests.unit.values.noises import Constant

EPSILON = Fraction(2)
DELTA = Fraction(1, 100)
GROWTH = Fraction(5, 4)
MAXIMUM = 3
STREAMS = list(product(range(MAXIMUM + 1), repeat=4))
NEIGHBOURS = [
    (a, b) for a, b in product(STREAMS, STREAMS) if sum(x != y for x, y in zip(a, b, strict=True)) == 1
]


def by_definition(values: tuple[int, ...], rank: int) -> float:
    """max over all streams of how far one replaced value moves the quantile there, by distance."""

    def local(stream: tuple[int, ...]) -> int:
        here = sorted(stream)[rank - 1]
        moved = [sorted((*stream[:i], v, *stream[i + 1 :]))[rank - 1] for i in range(4) for v in (0, MAXIMUM)]
        return max(abs(there - here) for there in moved)

    distances = (sum(x != y for x, y in zip(values, other, strict=True)) for other in STREAMS)
    return max(local(s) * float(GROWTH) ** -d for s, d in zip(STREAMS, distances, strict=True))


@pytest.mark.parametrize("rank", [1, 3, 4])
def test_smooth_sensitivity_is_what_its_definition_says(rank: int) -> None:
    for values in STREAMS[::3]:
        bound = float(smooth_sensitivity(np.array(values), rank, MAXIMUM, GROWTH))
        assert bound >= by_definition(values, rank) - 1e-12
        assert bound <= by_definition(values, rank) * float(GROWTH) + 1e-12  # the last ranks lie outside


@pytest.mark.parametrize("rank", [1, 3, 4])
def test_neighbours_share_their_bound_up_to_the_growth(rank: int) -> None:
    bounds = {values: smooth_sensitivity(np.array(values), rank, MAXIMUM, GROWTH) for values in STREAMS}
    assert all(bounds[one] <= GROWTH * bounds[other] for one, other in NEIGHBOURS)


def threshold_masses(values: tuple[int, ...], wrong: Fraction = Fraction(1)) -> dict[int, float]:
    """The distribution of the threshold before it is clamped, from the scale that is asked for."""
    source = Constant(0)
    settings = PakSettings(EPSILON, DELTA, MAXIMUM, held=4, chunk=4, quantile=Fraction(3, 4), clamp=False,
                           failure=Fraction(2, 5))  # fmt: skip
    stream = Pak(settings, source)
    stream.step(np.array(values, np.int64))
    assert stream.threshold is not None
    assert source.scale is not None
    ratio = exp(-1 / (source.scale * wrong))
    return {stream.threshold + z: (1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in range(-400, 401)}


def excess(wrong: Fraction = Fraction(1)) -> float:
    """The smallest delta for which the threshold is (EPSILON, delta)-private, over all neighbours."""
    masses = {values: threshold_masses(values, wrong) for values in STREAMS}
    return max(
        sum(max(mass - exp(EPSILON) * masses[other].get(theta, 0), 0) for theta, mass in masses[one].items())
        for one, other in NEIGHBOURS
    )


def test_the_threshold_is_epsilon_delta_private() -> None:
    assert excess() <= DELTA


def test_a_third_of_the_noise_is_found_out() -> None:
    assert excess(Fraction(1, 3)) > DELTA


def test_the_guarantee_says_that_it_is_not_pure() -> None:
    stream = Pak(PakSettings(EPSILON, DELTA, 10, failure=Fraction(1, 10)), SeededNoise(1))
    assert (stream.guarantee.epsilon, stream.guarantee.delta) == (EPSILON, DELTA)


def test_the_growth_is_below_that_of_the_paper() -> None:
    stream = Pak(PakSettings(Fraction(1, 20), Fraction(1, 10**12), 41270), SeededNoise(1))
    assert log(stream._growth) < (1 / 20) / (2 * log(10**12))


@pytest.mark.parametrize("clamp", [True, False])
def test_at_a_small_epsilon_the_threshold_is_the_largest_value_or_far_above(clamp: bool) -> None:
    settings = PakSettings(Fraction(1, 20), Fraction(1, 10**12), 41270, held=2000, clamp=clamp)
    stream = Pak(settings, SeededNoise(1))
    stream.step(np.full(2000, 8, np.int64))
    assert stream.threshold is not None
    assert (stream.threshold == 41270) == clamp
    assert stream.threshold >= 41270


def test_with_much_data_and_budget_the_threshold_is_near_the_quantile() -> None:
    values = np.arange(50_000) % 1000
    stream = Pak(PakSettings(Fraction(100), Fraction(1, 10**6), 5000, held=50_000), SeededNoise(1))
    stream.step(values)
    assert stream.threshold is not None
    assert 990 <= stream.threshold <= 1100


@pytest.mark.parametrize(
    "wrong", [{"delta": Fraction(0)}, {"quantile": Fraction(1)}, {"failure": Fraction(1, 2)}]
)
def test_settings_that_cannot_be_honoured_are_refused(wrong: dict[str, Fraction]) -> None:
    with pytest.raises(ValueError, match="should lie between"):
        Pak(PakSettings(**{"epsilon": EPSILON, "delta": DELTA, "maximum": 10, **wrong}), SeededNoise(1))  # type: ignore[arg-type]
