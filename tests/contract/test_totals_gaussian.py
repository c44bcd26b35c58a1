"""``totals`` with Gaussian noise: what a user moves in all looks together, and the law of the noise, exactly.

A noise source that sees what it is added to tells the looks apart from their noise (``ObservedNoise``). Two
neighbours whose noisy looks come out alike have released and remembered the same, so what is told of the user
is the sum of (what the user moves in a look)^2 / sigma^2, whatever noise there is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import erfc, exp, sqrt
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.mechanisms import nested_gaussian
from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.gaussian import GaussianNoise
from eventveil.mechanisms.nested import fanouts_of, powers
from eventveil.mechanisms.nested_gaussian import BITS, planned
from eventveil.mechanisms.registry import build
from eventveil.mechanisms.totals import Totals
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import Adjacency, MechanismSettings
from eventveil.privacy import gaussian
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import ObservedNoise

EPSILON, DELTA = Fraction(1), Fraction(1, 10**5)
ALLOWED = float(gaussian.mu_squared(EPSILON, DELTA))
OTHERS = np.array([[5, 0], [0, 7], [3, 3], [900, 1]])
ONE = 1 << BITS
Visits = dict[int, tuple[int, int]]


def make(
    blocks: str,
    noise: Any,
    columns: int = 2,
    sensitivity: int = 1,
    adjacency: Adjacency = "add-remove",
    epsilon: Fraction = EPSILON,
) -> Totals:
    options = {"blocks": blocks, "noise": "gaussian", "delta": DELTA}
    settings = MechanismSettings("totals", epsilon, str(epsilon), 1, adjacency, options)
    made = build(settings, columns, sensitivity, noise)
    assert isinstance(made, Totals)
    return made


def told(
    blocks: str, length: int, visits: Visits, instead: Visits | None = None, **terms: Any
) -> list[tuple[float, float]]:
    """Of each look, by how much it differs in L2 squared, and its variance; in parts of a count."""
    seen = []
    for own in (visits, instead or {}):
        noise = ObservedNoise(lambda size: np.arange(size) * 7 * ONE + 12345)
        mechanism, public = make(blocks, noise, **terms), []
        for i in range(length):
            release = mechanism.step(OTHERS[i % 4] + np.array(own.get(i, (0, 0))))
            state = orjson.loads(mechanism.snapshot())
            del state["noise"]
            public.append((state, release.counts.tolist(), release.publish))
        seen.append((public, noise.draws))
    (public, draws), (other_public, other_draws) = seen
    assert public == other_public
    assert [one[0] for one in draws] == [one[0] for one in other_draws]
    return [
        (float(((one[1] - other[1]) ** 2).sum()), float(one[0]) ** 2)
        for one, other in zip(draws, other_draws, strict=True)
    ]


def spent(blocks: str, length: int, visits: Visits, instead: Visits | None = None, **terms: Any) -> float:
    """What two neighbours tell in mu squared, over what epsilon and delta allow."""
    looks = told(blocks, length, visits, instead, **terms)
    return sum(square / variance for square, variance in looks) / ALLOWED


FULL = pytest.approx(1, abs=1e-4)
TREES = [("2", 4), ("3,6", 12), ("2,4,8", 8), ("5,10", 20)]


@pytest.mark.parametrize(("blocks", "length"), TREES)
def test_one_timestamp_of_a_user_is_told_once_by_all_looks_together(blocks: str, length: int) -> None:
    for at, place in itertools.product(range(length), ((1, 0), (0, 1))):
        found = spent(blocks, length, {at: place})
        assert found <= 1 + 1e-12
        assert found == FULL


@pytest.mark.parametrize(("blocks", "length"), TREES)
def test_no_look_beyond_a_longest_block_tells_of_a_user(blocks: str, length: int) -> None:
    longest = int(blocks.split(",")[-1])
    moved = [square for square, _ in told(blocks, 2 * longest, {longest - 1: (1, 0)})]
    assert [i for i, square in enumerate(moved) if square] == [longest - 1]
    moved = [square for square, _ in told(blocks, 2 * longest, {0: (1, 0)})]
    assert all(moved[:longest])
    assert not any(moved[longest:])


def test_all_events_of_a_user_in_one_column_are_paid_for() -> None:
    assert spent("3,6", 6, {1: (3, 0)}, sensitivity=3) == FULL
    assert spent("3,6", 6, {1: (2, 1)}, sensitivity=3) < 0.6


def test_a_user_who_was_elsewhere_is_paid_for_by_substitute() -> None:
    terms = {"sensitivity": 4, "adjacency": "substitute"}
    assert spent("3,6", 6, {1: (2, 0)}, {1: (0, 2)}, **terms) == FULL
    assert spent("3,6", 6, {1: (2, 0)}, {1: (0, 2)}, sensitivity=2) == pytest.approx(2, abs=1e-3)


@pytest.mark.parametrize(("blocks", "length"), TREES[:3])
def test_a_user_at_several_timestamps_is_told_by_no_more_than_is_stated(blocks: str, length: int) -> None:
    options = {"blocks": blocks, "noise": "gaussian", "delta": DELTA}
    for first, end in itertools.combinations(range(length + 1), 2):
        found = spent(blocks, length, dict.fromkeys(range(first, end), (1, 0)))
        assert found <= Totals.squares(end - first, options) * (1 + 1e-12)
    # Sums of squares alone would not do: the noise is correlated.
    together = spent(blocks, length, dict.fromkeys(range(int(blocks.split(",")[-1])), (1, 0)))
    assert together > 1.3 * int(blocks.split(",")[-1])


def test_visits_in_two_histories_are_told_by_no_more_than_both_together() -> None:
    for places in itertools.product((None, (1, 0), (0, 1)), repeat=3):
        own = {i: place for i, place in enumerate(places) if place}
        other = dict.fromkeys(range(3), (1, 0))
        if own:
            both = spent("3", 3, own) + spent("3", 3, other)
            assert spent("3", 3, own, other) <= both * (1 + 1e-12)


def mass(low: float, high: float) -> float:
    """P(low < Z < high), to about 15 digits of itself on either side of 0."""
    if low < 0 < high:
        return 1 - mass(-np.inf, low) - mass(high, np.inf)
    low, high = (-high, -low) if high <= 0 else (low, high)
    return (erfc(low / sqrt(2)) - erfc(high / sqrt(2))) / 2


def likelihoods(counts: Sequence[int], reach: int) -> dict[tuple[int, int], float]:
    """Of all releases of a block of two within reach, from the looks that lead to them; epsilon 3."""
    found = {}
    for released in itertools.product(range(-reach, reach + 1), repeat=2):
        targets = iter(released)
        noise = ObservedNoise(lambda size, targets=targets: np.full(size, next(targets) * ONE))  # type: ignore[misc]
        mechanism = make("2", noise, columns=1, epsilon=Fraction(3))
        assert tuple(int(mechanism.step(np.array([one])).counts[0]) for one in counts) == released
        found[released] = 1.0
        for one, (sigma, look, _) in zip(released, noise.draws, strict=True):
            edges = ((one * ONE + side * ONE // 2 - 0.5 - int(look[0])) / float(sigma) for side in (-1, 1))
            found[released] *= mass(*edges)
    return found


def test_the_exact_delta_of_what_is_released_is_within_the_promise() -> None:
    """Independently of the looks' sum: the likelihoods of releases themselves, added up over all of them."""
    plain = likelihoods((0, 0), 15)
    assert sum(plain.values()) > 1 - 1e-12
    for present in ((1, 0), (0, 1)):
        other = likelihoods(present, 15)
        for one, two in ((plain, other), (other, plain)):
            delta = sum(max(one[at] - exp(3) * two[at], 0.0) for at in one)
            assert DELTA * Fraction(7, 10) < delta <= DELTA


@pytest.mark.parametrize("blocks", ["2", "3,6", "2,4,8", "24,168", "6,24,168"])
def test_the_looks_have_the_law_of_nested_draws_that_readers_are_told(blocks: str) -> None:
    lengths = (1, *map(int, blocks.split(",")))
    plan, longest = planned(lengths), lengths[-1]
    factor = np.eye(longest)
    for place, earlier in itertools.combinations(range(longest), 2):
        place, earlier = earlier, place
        level = next(i for i, longer in enumerate(lengths[1:]) if earlier // longer == place // longer)
        factor[place, earlier] = plan.weights[place, level] / ONE
    assert (factor >= 0).all()  # what `squares` rests on
    variances = np.array([float(plan.draw / part) for part in plan.parts]) / 4**BITS
    inverse = np.linalg.inv(factor)
    covariance = inverse * variances @ inverse.T
    random = np.random.default_rng(1)
    for _ in range(200):
        first, end = sorted(random.choice(longest + 1, 2, replace=False))
        for weights in (np.zeros(longest), random.integers(0, 2, longest).astype(float)):
            weights[first:end] += 1
            expected = powers(weights, fanouts_of(lengths)).squares
            assert weights @ covariance @ weights == pytest.approx(expected, rel=2e-4)


def released(blocks: str, length: int, columns: int) -> tuple[Counts, Totals]:
    """(length, columns): what was added to counts of 50, and who did."""
    mechanism = make(blocks, SeededNoise(1), columns)
    return np.array([mechanism.step(np.full(columns, 50)).counts - 50 for _ in range(length)]), mechanism


@pytest.mark.parametrize(("blocks", "runs"), [
    ("3,6", [(0, 1), (5, 6), (0, 3), (1, 5), (0, 6), (3, 8), (0, 12)]), ("24", [(0, 24), (7, 31)]),
])  # fmt: skip
def test_sums_have_the_variance_that_is_told(blocks: str, runs: list[tuple[int, int]]) -> None:
    noise, mechanism = released(blocks, 48, 4000)
    lengths = (1, *map(int, blocks.split(",")))
    of_draw = GaussianNoise(DELTA, Fraction(1), 1, 1).variance(mechanism._node_scale)
    for first, end in runs:
        weights = np.zeros(48)
        weights[first:end] = 1
        parts = weights.reshape(-1, lengths[-1])
        expected = sum(
            powers(one, fanouts_of(lengths)).variance(of_draw) if one.any() else 0.0 for one in parts
        )
        assert 0.9 < noise[first:end].sum(axis=0).var() / expected < 1.08
        assert abs(noise[first:end].sum(axis=0).mean()) < 5 * sqrt(expected / 4000)


def test_the_stated_error_of_a_release_is_that_of_its_noise() -> None:
    noise, mechanism = released("3,6", 18, 4000)
    (error,) = mechanism._release(fresh=True).error  # type: ignore[misc]
    for one in noise:
        assert one.std() == pytest.approx(error, rel=0.06)


def test_more_levels_cost_less_than_with_laplace_noise() -> None:
    """Which is why it is worth having: 3 levels cost less than root(3), not 3, times one draw."""
    mechanism = make("24,168", SeededNoise(1))
    alone = mechanism._scale(mechanism.units)
    assert 1.6 < mechanism._node_scale / alone < sqrt(3)


def test_a_state_whose_sums_cannot_be_is_refused_and_nothing_is_changed() -> None:
    mechanism = make("2,4", SeededNoise(1))
    for _ in range(2):
        mechanism.step(OTHERS[0])
    state = orjson.loads(mechanism.snapshot())
    before = mechanism.snapshot()
    for noise in ([], [state["noise"][1]] * 2, ["!", state["noise"][1]], state["noise"][:1], 3):
        with pytest.raises(ValueError, match=r"noise|nothing is over"):
            mechanism.restore(orjson.dumps(state | {"noise": noise}))
    assert mechanism.snapshot() == before
    mechanism.restore(before)


def test_its_state_does_not_grow_with_its_blocks() -> None:
    sizes = []
    for blocks, length in (("2,4", 7), ("24,168", 200)):
        mechanism = make(blocks, SeededNoise(1))
        for _ in range(length):
            mechanism.step(OTHERS[0])
        sizes.append(len(mechanism.snapshot()))
    assert abs(sizes[0] - sizes[1]) < 40


def test_counts_at_the_limit_and_noise_far_beyond_it_are_clamped_and_forgotten_after_the_block() -> None:
    noise = ObservedNoise(lambda size: np.full(size, 2**62))
    mechanism = make("2", noise)
    assert mechanism.step(np.full(2, 2**40)).counts.tolist() == [2**40] * 2
    noise.targets = lambda size: np.full(size, 5 * ONE)
    mechanism.step(np.full(2, 2**40))
    assert not np.any(mechanism._nested._sums)  # type: ignore[union-attr]


@pytest.mark.parametrize("blocks", ["32768", "2,16386"])
def test_blocks_too_long_to_be_accounted_for_are_refused(blocks: str) -> None:
    with pytest.raises(UnfitSetting, match="16384"):
        make(blocks, SeededNoise(1))


def test_noise_that_does_not_fit_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        make("2", SeededNoise(1), sensitivity=2**30)


def sigma_off(patch: pytest.MonkeyPatch) -> None:
    sigma = GaussianNoise.sigma
    patch.setattr(GaussianNoise, "sigma", lambda self, part: sigma(self, part) * Fraction(95, 100))


def level_forgotten(patch: pytest.MonkeyPatch) -> None:
    """As if what the parts of the shortest blocks tell were free."""
    sound = nested_gaussian.planned

    def cheaper(lengths: tuple[int, ...]) -> nested_gaussian.Plan:
        plan, levels = sound(lengths), [1 - Fraction(1, one) for one in fanouts_of(lengths)]
        most = (1 + sum(levels)) / (1 + sum(levels[1:]))
        return plan._replace(parts=tuple(one * most for one in plan.parts))

    patch.setattr(nested_gaussian, "planned", cheaper)


def later_looks_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Each timestamp is charged for the look at itself alone."""
    sound = nested_gaussian.planned

    def cheaper(lengths: tuple[int, ...]) -> nested_gaussian.Plan:
        plan = sound(lengths)
        return plan._replace(parts=(Fraction(1, 4**BITS),) * len(plan.parts))

    patch.setattr(nested_gaussian, "planned", cheaper)


def mu_added(patch: pytest.MonkeyPatch) -> None:
    """The sum of mu is kept to over looks, instead of that of their squares."""
    costs = nested_gaussian._costs

    def added(lengths: tuple[int, ...], weights: list[list[int]], inverses: list[int]) -> list[int]:
        roots = [[round(sqrt(one * ONE)) for one in row] for row in weights]
        return costs(lengths, roots, inverses)

    patch.setattr(nested_gaussian, "_costs", added)


def without_contributions(patch: pytest.MonkeyPatch) -> None:
    from eventveil.mechanisms.gaussian import gaussian_of

    patch.setattr(
        "eventveil.mechanisms.publishing.gaussian_of", lambda settings, sensitivity: gaussian_of(settings, 1)
    )


def visits_as_if_independent(patch: pytest.MonkeyPatch) -> None:
    """n timestamps are n times mu squared, as where their noise is independent."""
    patch.setattr(Totals, "squares", classmethod(lambda cls, periods, options: periods))


def block_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Noise of the longest block is remembered beyond its end."""
    sums = nested_gaussian.NestedGaussian.released

    def kept(self: Any, place: int, counts: Counts, noisy: Counts) -> Counts:
        before = self._sums[-1].copy()
        found = sums(self, place, counts, noisy)
        if (place + 1) % self._lengths[-1] == 0:
            self._sums[-1] = before
        return found

    patch.setattr(nested_gaussian.NestedGaussian, "released", kept)


def weights_of_its_neighbour(patch: pytest.MonkeyPatch) -> None:
    """A look at the weights of the next place."""
    patch.setattr(
        nested_gaussian.NestedGaussian,
        "part",
        lambda self, place: self._plan.parts[(place + 1) % self._lengths[-1]],
    )


ONE_TIMESTAMP = test_one_timestamp_of_a_user_is_told_once_by_all_looks_together
EXACT = test_the_exact_delta_of_what_is_released_is_within_the_promise
SEVERAL = test_a_user_at_several_timestamps_is_told_by_no_more_than_is_stated
TREE = {"blocks": "3,6", "length": 12}
MUTANTS: dict[str, tuple[Callable[..., None], dict[str, Any], Callable[[pytest.MonkeyPatch], None]]] = {
    "sigma off by 5 %": (ONE_TIMESTAMP, TREE, sigma_off),
    "sigma off by 5 %: the exact delta": (EXACT, {}, sigma_off),
    "one level's sensitivity forgotten": (ONE_TIMESTAMP, TREE, level_forgotten),
    "all later looks forgotten": (ONE_TIMESTAMP, TREE, later_looks_forgotten),
    "all later looks forgotten: the exact delta": (EXACT, {}, later_looks_forgotten),
    "mu added instead of mu squared": (ONE_TIMESTAMP, TREE, mu_added),
    "no contributions": (test_all_events_of_a_user_in_one_column_are_paid_for, {}, without_contributions),
    "visits as if noise were independent": (SEVERAL, TREE, visits_as_if_independent),
    "a block that goes on": (
        test_no_look_beyond_a_longest_block_tells_of_a_user, TREE, block_goes_on
    ),
    "the noise of the next place": (ONE_TIMESTAMP, TREE, weights_of_its_neighbour),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_broken_variant_fails_the_named_test_which_passes_without_it(
    mutant: tuple[Callable[..., None], dict[str, Any], Callable[[pytest.MonkeyPatch], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test, arguments, patch = mutant
    test(**arguments)
    sound = nested_gaussian.planned
    sound.cache_clear()
    patch(monkeypatch)
    try:
        with pytest.raises(AssertionError):
            test(**arguments)
    finally:
        sound.cache_clear()
