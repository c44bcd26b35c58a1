"""Gaussian noise: what a user moves is paid in mu squared, and the exact delta is as promised.

A transcript is a sequence of rounded normal numbers whose standard deviations follow from it, so what it
tells is decided by the sum of (what a user moves)^2 / sigma^2 (``eventveil.privacy.gaussian``). Delta is
computed from the exact probabilities of rounded numbers, over all timestamps together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from math import erfc, exp, sqrt
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from eventveil.mechanisms import gaussian as mechanisms_gaussian
from eventveil.mechanisms.contract import PROPERTIES, Property, judge
from eventveil.mechanisms.contract.subject import Subject
from eventveil.mechanisms.gaussian import GaussianNoise
from eventveil.mechanisms.registry import KINDS, build
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import Adjacency, MechanismSettings, Option
from eventveil.privacy import gaussian
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import ObservedNoise, ZeroNoise

EPSILON, DELTA = Fraction(1), Fraction(1, 10**5)
GAUSSIAN: dict[str, Option] = {"noise": "gaussian", "delta": DELTA}
KINDS_OF_WINDOWS = ("uniform", "sample", "seasonal")
CASES: dict[str, tuple[str, dict[str, Option]]] = {
    **{kind: (kind, GAUSSIAN) for kind in (*KINDS_OF_WINDOWS, "time-unit")},
    "time-unit span": ("time-unit", {**GAUSSIAN, "span": 3}),
    "seasonal periods": ("seasonal", {**GAUSSIAN, "periods": "3,8"}),
    "totals": ("totals", {**GAUSSIAN, "blocks": "3"}),
    "uniform rollups": ("uniform", {**GAUSSIAN, "rollups": "2"}),
}
#: The first are about e^epsilon alone, or scales of Laplace noise; the states
#: and all that may be spent take seconds, and do not depend on the noise.
OTHER_PROPERTIES = ("loss", "distinguishing", "noise", "states", "state-size", "budget", "budget-long")
PROPERTIES_OF_ALL = [one for one in PROPERTIES if one.name not in OTHER_PROPERTIES]
OTHERS = np.array([[5, 0], [0, 7], [3, 3]])
Visits = dict[int, tuple[int, int]]


def make(
    case: str, noise: Any, window: int = 3, sensitivity: int = 1, adjacency: Adjacency = "add-remove"
) -> Any:
    kind, options = CASES[case]
    extent = 1 if KINDS[kind].level == "event" else window
    settings = MechanismSettings(kind, EPSILON, "1", extent, adjacency, options)
    return build(settings, 2, sensitivity, noise)


def told(
    case: str, visits: Visits, instead: Visits | None = None, noisy: int = 9, **terms: Any
) -> list[tuple[float, Fraction]]:
    """Of each draw, by how much it differs in L2 squared, and its standard deviation.

    Two neighbours whose noisy counts come out alike: whatever is remembered and released is the same.
    """
    seen = []
    for own in (visits, instead or {}):
        noise = ObservedNoise(lambda size: np.arange(size) + noisy)
        mechanism, states = make(case, noise, **terms), []
        for i, others in enumerate(OTHERS):
            release = mechanism.step(others + np.array(own.get(i, (0, 0))))
            kept = orjson.loads(mechanism.snapshot())
            public = {name: part for name, part in kept.items() if name not in mechanism.raw}
            states.append((public, release.counts.tolist(), release.fresh))
        seen.append((states, noise.draws))
    (states, draws), (other_states, other_draws) = seen
    assert states == other_states
    assert [one[0] for one in draws] == [one[0] for one in other_draws]
    return [
        (float(((one[1] - other[1]) ** 2).sum()), one[0])
        for one, other in zip(draws, other_draws, strict=True)
    ]


def spent(case: str, visits: Visits, instead: Visits | None = None, **terms: Any) -> float:
    """What two neighbours tell in mu squared, over what epsilon and delta allow: at most 1."""
    allowed = float(gaussian.mu_squared(EPSILON, DELTA))
    return sum(square / float(sigma) ** 2 for square, sigma in told(case, visits, instead, **terms)) / allowed


def everywhere(contributions: int = 1) -> list[Visits]:
    """A user at all three timestamps, with all events in one column, in every way."""
    places = ((contributions, 0), (0, contributions))
    return [dict(enumerate(one)) for one in itertools.product(places, repeat=3)]


FULL = pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("case", [*KINDS_OF_WINDOWS, "seasonal periods"])
def test_a_user_who_moves_tells_as_much_as_a_window_pays_and_no_more(case: str) -> None:
    found = [spent(case, visits) for visits in everywhere()]
    assert max(found) <= 1
    assert max(found) == FULL


@pytest.mark.parametrize("case", ["time-unit", "time-unit span"])
def test_one_timestamp_of_a_user_tells_as_much_as_is_paid_and_no_more(case: str) -> None:
    for timestamp, place in itertools.product(range(3), ((1, 0), (0, 1))):
        assert spent(case, {timestamp: place}) <= 1
        assert spent(case, {timestamp: place}) == FULL


@pytest.mark.parametrize("case", KINDS_OF_WINDOWS)
def test_all_events_of_a_user_in_one_column_are_paid_for(case: str) -> None:
    found = [spent(case, visits, sensitivity=3) for visits in everywhere(3)]
    assert max(found) <= 1
    assert max(found) == FULL
    # Half of them elsewhere move less in L2, which nothing relies on.
    assert spent(case, dict.fromkeys(range(3), (2, 1)), sensitivity=3) < 0.6


@pytest.mark.parametrize("case", KINDS_OF_WINDOWS)
def test_a_user_who_was_elsewhere_is_paid_for_by_substitute(case: str) -> None:
    other = dict.fromkeys(range(3), (0, 2))
    terms = {"sensitivity": 4, "adjacency": "substitute"}
    found = [spent(case, visits, other, **terms) for visits in everywhere(2)]
    assert max(found) <= 1
    assert max(found) == FULL
    assert spent(case, dict.fromkeys(range(3), (2, 0)), other, sensitivity=2) == pytest.approx(2, abs=1e-5)


def masses(sigma: float, reach: int) -> NDArray[np.float64]:
    """P(round(sigma Z) = n) for n in -reach..reach, each to about 15 digits of itself."""

    def tail(x: float) -> float:
        return erfc(x / (sigma * sqrt(2))) / 2

    half = [tail(n - 0.5) - tail(n + 0.5) for n in range(1, reach + 1)]
    return np.array([*half[::-1], 1 - 2 * tail(0.5), *half])


def exact_delta(sigmas: list[float], shift: int) -> float:
    """The least delta with which all draws together are private at EPSILON, where each moves by ``shift``."""
    with_user = without = np.ones(1)
    for sigma in sigmas:
        reach = int(7.5 * sigma) + shift
        mass = masses(sigma, reach + shift)
        with_user = np.outer(with_user, mass[: 2 * reach + 1]).ravel()
        without = np.outer(without, mass[shift : 2 * reach + 1 + shift]).ravel()
    gain: NDArray[np.float64] = with_user - exp(EPSILON) * without
    return float(gain[gain > 0].sum())


def sigmas_of(case: str, contributions: int = 1) -> list[float]:
    visits = dict.fromkeys(range(1 if case.startswith("time-unit") else 3), (contributions, 0))
    return [float(sigma) for square, sigma in told(case, visits, sensitivity=contributions) if square]


@pytest.mark.parametrize(
    ("case", "contributions"),
    [("uniform", 1), ("seasonal", 1), ("sample", 1), ("sample", 3), ("time-unit", 1), ("time-unit", 3)],
)
def test_delta_of_the_rounded_numbers_is_what_is_promised_and_little_less(
    case: str, contributions: int
) -> None:
    found = exact_delta(sigmas_of(case, contributions), contributions)
    assert found <= DELTA
    assert found > DELTA * Fraction(7, 10)


def sigma_off(patch: pytest.MonkeyPatch) -> None:
    sigma = GaussianNoise.sigma
    patch.setattr(GaussianNoise, "sigma", lambda self, part: sigma(self, part) * Fraction(95, 100))


def mu_added(patch: pytest.MonkeyPatch) -> None:
    """The sum of mu kept to, instead of that of their squares."""
    sigma = GaussianNoise.sigma
    patch.setattr(GaussianNoise, "sigma", lambda self, part: sigma(self, part * part))


def squares_for_mu(patch: pytest.MonkeyPatch) -> None:
    """What is mu squared taken for mu."""
    sigma = GaussianNoise.sigma
    patch.setattr(
        GaussianNoise, "sigma", lambda self, part: sigma(self, Fraction(sqrt(part * self.mu_squared)))
    )


def without_contributions(patch: pytest.MonkeyPatch) -> None:
    of = mechanisms_gaussian.gaussian_of
    patch.setattr(
        "eventveil.mechanisms.publishing.gaussian_of", lambda settings, sensitivity: of(settings, 1)
    )


def root_of_contributions(patch: pytest.MonkeyPatch) -> None:
    """As if a user counted at most once per column."""
    square = GaussianNoise.sigma
    patch.setattr(
        GaussianNoise,
        "sigma",
        lambda self, part: square(
            GaussianNoise(self.delta, self.mu_squared, self.contributions, 1, self.histories), part
        ),
    )


def substitute_as_one(patch: pytest.MonkeyPatch) -> None:
    """Half of the squared change by substitute is forgotten."""
    sigma = GaussianNoise.sigma
    patch.setattr(GaussianNoise, "sigma", lambda self, part: sigma(self, 2 * part))


MOVES = test_a_user_who_moves_tells_as_much_as_a_window_pays_and_no_more
ONE_COLUMN = test_all_events_of_a_user_in_one_column_are_paid_for
EXACT = test_delta_of_the_rounded_numbers_is_what_is_promised_and_little_less
MUTANTS: dict[str, tuple[Callable[..., None], dict[str, Any], Callable[[pytest.MonkeyPatch], None]]] = {
    "sigma off by 5 %: told by mu squared": (MOVES, {"case": "uniform"}, sigma_off),
    "sigma off by 5 %: told by the exact delta": (EXACT, {"case": "sample", "contributions": 1}, sigma_off),
    "mu added instead of mu squared": (EXACT, {"case": "uniform", "contributions": 1}, mu_added),
    "mu squared taken for mu": (EXACT, {"case": "uniform", "contributions": 1}, squares_for_mu),
    "no contributions": (ONE_COLUMN, {"case": "uniform"}, without_contributions),
    "no contributions: the exact delta": (
        EXACT, {"case": "sample", "contributions": 3}, without_contributions
    ),
    "the root of the contributions": (ONE_COLUMN, {"case": "sample"}, root_of_contributions),
    "substitute as add-remove": (
        test_a_user_who_was_elsewhere_is_paid_for_by_substitute, {"case": "uniform"}, substitute_as_one
    ),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_broken_variant_fails_the_named_test_which_passes_without_it(
    mutant: tuple[Callable[..., None], dict[str, Any], Callable[[pytest.MonkeyPatch], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test, arguments, patch = mutant
    test(**arguments)
    patch(monkeypatch)
    with pytest.raises(AssertionError):
        test(**arguments)


@pytest.mark.parametrize("one", PROPERTIES_OF_ALL, ids=lambda one: one.name)
@pytest.mark.parametrize("case", CASES)
def test_every_kind_keeps_the_contract_with_gaussian_noise(case: str, one: Property) -> None:
    kind, options = CASES[case]
    finding = judge(one, Subject(KINDS[kind], options))
    assert finding.counterexample is None, finding


@pytest.mark.parametrize("case", CASES)
def test_a_state_goes_on_with_the_same_noise_only(case: str) -> None:
    kind, options = CASES[case]
    mechanism = make(case, SeededNoise(1))
    mechanism.step(OTHERS[0])
    rest = {name: value for name, value in options.items() if name not in GAUSSIAN}
    for others in ({}, {"noise": "gaussian", "delta": DELTA / 2}):
        settings = MechanismSettings(
            kind, EPSILON, "1", mechanism.guarantee.window, options={**rest, **others}
        )
        other = build(settings, 2, 1, SeededNoise(1))
        with pytest.raises(ValueError, match="belongs to"):
            other.restore(mechanism.snapshot())
        with pytest.raises(ValueError, match="belongs to"):
            mechanism.restore(other.snapshot())


def test_a_source_without_gaussian_noise_is_refused_and_nothing_is_released() -> None:
    mechanism = make("uniform", ZeroNoise())
    with pytest.raises(ValueError, match="Gaussian"):
        mechanism.step(OTHERS[0])
    with pytest.raises(RuntimeError):
        mechanism.step(OTHERS[0])


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(KINDS_OF_WINDOWS) - {"time-unit", "totals"}))
def test_kinds_for_which_nothing_is_proved_take_no_gaussian_noise(kind: str) -> None:
    settings = MechanismSettings(kind, EPSILON, "1", 3, options={"noise": "gaussian"})
    with pytest.raises(ValueError, match="noise"):
        build(settings, 1, 1, SeededNoise(1))


@pytest.mark.parametrize(
    "options",
    [
        {"noise": "gaussian"},
        {"noise": "gaussian", "delta": Fraction(1, 9999)},
        {"delta": DELTA},
        {"noise": "normal", "delta": DELTA},
    ],
)
def test_settings_that_promise_nothing_are_refused(options: dict[str, Option]) -> None:
    with pytest.raises(UnfitSetting):
        build(MechanismSettings("uniform", EPSILON, "1", 3, options=options), 1, 1, SeededNoise(1))
