from __future__ import annotations

from fractions import Fraction

import pytest

from eventveil.values.grid import on_grid

CENT = Fraction(1, 100)


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        (0, 0),
        (1, 100),
        (0.015, 1),
        (Fraction(1, 4).__float__(), 25),
        (0.125, 13),
        (9.99, 999),
        (-3, 0),
        (11, 1000),
    ],
)
def test_values_become_the_nearest_step_and_are_cut_off_on_both_sides(value: float, steps: int) -> None:
    assert on_grid(value, CENT, 1000) == steps


@pytest.mark.parametrize("value", [None, "7", True, [1], float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_becomes_zero_in_its_place(value: object) -> None:
    assert on_grid(value, CENT, 1000) == 0


def test_steps_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="step should be above 0"):
        on_grid(1, Fraction(0), 10)
    with pytest.raises(ValueError, match="maximum at least 1"):
        on_grid(1, CENT, 0)
