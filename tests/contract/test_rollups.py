"""The exact privacy loss of roll-ups: a user's event is in one column and in each block around it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import exp
from typing import Any

import numpy as np
import pytest

from eventveil.mechanisms.gaussian import GaussianNoise
from eventveil.mechanisms.registry import KINDS
from eventveil.model.topology import Adjacency, MechanismSettings
from eventveil.privacy.gaussian import mu_squared
from tests.contract.broken.levels import RollsUpForFree
from tests.contract.test_gaussian import masses
from tests.contract.test_totals import EPSILON, loss_of, run


def rolled(kind: str, rollups: str, window: int = 1) -> MechanismSettings:
    return MechanismSettings(kind, EPSILON, "1.5", window, options={"rollups": rollups})


@pytest.mark.parametrize("kind", ["uniform", "time-unit"])
@pytest.mark.parametrize(
    ("rollups", "visit"), [("2", (0, 1)), ("2", (0, 0, 1, 0)), ("3", (0, 0, 1)), ("2,4", (0, 1, 0, 0))]
)
def test_one_event_costs_its_timestamp_s_charge_and_no_more(
    kind: str, rollups: str, visit: Sequence[int]
) -> None:
    assert loss_of(rolled(kind, rollups), 1, 0, visit) == pytest.approx(float(EPSILON), abs=1e-12)


def test_a_timestamp_of_a_window_costs_its_share() -> None:
    # Noise of every second timestamp is taken the other way around.
    found = loss_of(rolled("uniform", "2", 2), 2, 1, (1, 0), both_ways=True)
    assert found == pytest.approx(float(EPSILON / 2), abs=1e-12)


@pytest.mark.parametrize(("visit", "share"), [((2, 0), 1.0), ((1, 0, 0, 1), 1.0), ((1, 1), 0.5)])
def test_two_contributions_are_covered_by_a_sensitivity_of_two(visit: Sequence[int], share: float) -> None:
    """Both of a block whole: its own draw alone hides them, and that costs half."""
    settings, expected = rolled("uniform", "2"), share * float(EPSILON)
    assert loss_of(settings, 1, 0, visit, sensitivity=2) == pytest.approx(expected, abs=1e-12)
    assert loss_of(settings, 1, 0, visit, sensitivity=1) == pytest.approx(2 * expected, abs=1e-12)


def test_a_user_who_is_in_another_column_instead_is_two_steps_or_one_of_substitute() -> None:
    settings = rolled("uniform", "2")
    assert loss_of(settings, 1, 0, (1, -1), sensitivity=2) <= float(EPSILON) + Fraction(1, 10**9)


DELTA = Fraction(1, 10**5)


def gaussian(
    kind: str, rollups: str, window: int = 1, adjacency: Adjacency = "add-remove", epsilon: Fraction = EPSILON
) -> MechanismSettings:
    options = {"rollups": rollups, "noise": "gaussian", "delta": DELTA}
    return MechanismSettings(kind, epsilon, str(epsilon), window, adjacency, options)


def told(
    settings: MechanismSettings, visit: Sequence[int], length: int = 1, at: int = 0, sensitivity: int = 1
) -> float:
    """What is told in mu squared, over what epsilon and delta allow."""
    return loss_of(settings, length, at, visit, sensitivity, 2) / float(mu_squared(EPSILON, DELTA))


FULL = pytest.approx(1, abs=1e-6)
LITTLE_LESS = 0.1  # whole numbers tell less than what they were rounded from


@pytest.mark.parametrize("kind", ["uniform", "time-unit"])
@pytest.mark.parametrize(
    ("rollups", "visit"), [("2", (0, 1)), ("2", (0, 0, 1, 0)), ("3", (0, 0, 1)), ("2,4", (0, 1, 0, 0))]
)
def test_one_event_costs_its_charge_of_mu_squared_and_no_more(
    kind: str, rollups: str, visit: Sequence[int]
) -> None:
    found = told(gaussian(kind, rollups), visit)
    assert found <= 1
    assert found == FULL


def test_a_timestamp_of_a_window_costs_its_share_of_mu_squared() -> None:
    assert told(gaussian("uniform", "2", 2), (1, 0), 2, 1) == pytest.approx(1 / 2, abs=1e-6)


def test_all_contributions_in_one_column_or_in_several_are_covered_in_mu_squared() -> None:
    settings = gaussian("uniform", "2")
    assert told(settings, (2, 0), sensitivity=2) == FULL
    assert told(settings, (1, 1), sensitivity=2) <= 1
    assert told(settings, (1, 0, 0, 1), sensitivity=2) == pytest.approx(1 / 2, abs=1e-6)


def test_a_user_who_is_in_another_column_instead_is_covered_in_mu_squared_by_substitute() -> None:
    settings = gaussian("uniform", "2", adjacency="substitute")
    assert told(settings, (1, -1), sensitivity=2) <= 1
    assert told(settings, (1, 0, -1, 0), sensitivity=2) == FULL  # in another block
    # Within the only block there is, a user who is in another column does not change its sum.
    assert told(settings, (1, -1), sensitivity=2) == pytest.approx(2 / 2.5, abs=1e-6)


def test_the_exact_delta_of_what_is_released_is_within_the_promise() -> None:
    """Of a block of two columns at epsilon 6, summed over all draws within reach: released is what there is
    and noise, so that a user moves all likelihoods by one."""
    settings, reach = gaussian("uniform", "2", epsilon=Fraction(6)), 9
    # The block, and what its columns differ by.
    mass = [
        dict(zip(range(-reach, reach + 1), masses(float(scale), reach).tolist(), strict=True))
        for scale in run(settings, [np.zeros(2, np.int64)], ())[1].scales
    ]
    plain: dict[tuple[int, int], float] = {}
    for draws in itertools.product(*mass):
        released: Any = run(settings, [np.zeros(2, np.int64)], draws)[0][0]["counts"]
        chance = mass[0][draws[0]] * mass[1][draws[1]]
        plain[tuple(released)] = plain.get(tuple(released), 0.0) + chance
    assert sum(plain.values()) > 1 - 1e-6
    present = {(one + 1, other): chance for (one, other), chance in plain.items()}
    for here, there in ((plain, present), (present, plain)):
        delta = sum(max(chance - exp(6) * there.get(at, 0.0), 0.0) for at, chance in here.items())
        assert LITTLE_LESS * DELTA < delta <= DELTA


def sigma_off(patch: pytest.MonkeyPatch) -> None:
    sigma = GaussianNoise.sigma
    patch.setattr(GaussianNoise, "sigma", lambda self, part: sigma(self, part) * Fraction(95, 100))


def for_free(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(KINDS, "uniform", RollsUpForFree)


def as_with_laplace_noise(patch: pytest.MonkeyPatch) -> None:
    """Levels that are paid in scale, not in variance: more than is needed."""
    sigma = GaussianNoise.sigma
    patch.setattr(GaussianNoise, "sigma", lambda self, part: sigma(self, part / 2))


CHARGE = test_one_event_costs_its_charge_of_mu_squared_and_no_more
EXACT = test_the_exact_delta_of_what_is_released_is_within_the_promise
ONE_EVENT = {"kind": "uniform", "rollups": "2", "visit": (0, 1)}


@pytest.mark.parametrize(
    ("test", "arguments", "patch"),
    [
        (CHARGE, ONE_EVENT, sigma_off),
        (CHARGE, ONE_EVENT, for_free),
        (CHARGE, ONE_EVENT, as_with_laplace_noise),
        (EXACT, {}, for_free),
    ],
)
def test_a_broken_variant_fails_the_named_test_which_passes_without_it(
    test: Callable[..., None],
    arguments: dict[str, Any],
    patch: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test(**arguments)
    patch(monkeypatch)
    with pytest.raises(AssertionError):
        test(**arguments)
