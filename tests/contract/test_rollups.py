"""The exact privacy loss of roll-ups: a user's event is in one column and in each block around it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from eventveil.model.topology import MechanismSettings
from tests.contract.test_totals import EPSILON, loss_of


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
    assert loss_of(rolled("uniform", "2", 2), 2, 1, (1, 0)) == pytest.approx(float(EPSILON / 2), abs=1e-12)


@pytest.mark.parametrize(("visit", "share"), [((2, 0), 1.0), ((1, 0, 0, 1), 1.0), ((1, 1), 0.5)])
def test_two_contributions_are_covered_by_a_sensitivity_of_two(visit: Sequence[int], share: float) -> None:
    """Both of a block whole: its own draw alone hides them, and that costs half."""
    settings, expected = rolled("uniform", "2"), share * float(EPSILON)
    assert loss_of(settings, 1, 0, visit, sensitivity=2) == pytest.approx(expected, abs=1e-12)
    assert loss_of(settings, 1, 0, visit, sensitivity=1) == pytest.approx(2 * expected, abs=1e-12)


def test_a_user_who_is_in_another_column_instead_is_two_steps_or_one_of_substitute() -> None:
    settings = rolled("uniform", "2")
    assert loss_of(settings, 1, 0, (1, -1), sensitivity=2) <= float(EPSILON) + Fraction(1, 10**9)
