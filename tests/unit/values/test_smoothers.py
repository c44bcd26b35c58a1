from __future__ import annotations

from fractions import Fraction
from typing import get_args

import pytest

from eventveil.values.smoothers import SmootherKind, smoother

SUMS = [10, 21, -4, 8, 100]


@pytest.mark.parametrize(
    ("kind", "guesses"),
    [
        ("recent", [10, 21, -4, 8, 100]),
        ("mean", [10, 15, 9, 8, 27]),
        ("median", [10, 15, 10, 9, 10]),
        ("moving-average", [10, 15, 8, 2, 52]),
        ("exponential", [10, 13, 8, 8, 38]),
    ],
)
def test_each_kind_guesses_what_its_name_says(kind: SmootherKind, guesses: list[int]) -> None:
    # The moving average is of 2 sums here, except where it has its own length of 3.
    each = smoother(kind, 3 if kind != "moving-average" else 2, Fraction(1, 3))
    assert each.predict() is None
    seen = []
    for total in SUMS:
        each.observe(total)
        seen.append(each.predict())
    assert seen[:2] == guesses[:2]
    if kind == "moving-average":
        assert seen == [10, 15, 8, 2, 54]
    elif kind == "exponential":
        assert seen == [10, 13, 7, 7, 38]
    else:
        assert seen == guesses


@pytest.mark.parametrize("kind", get_args(SmootherKind))
def test_a_restored_smoother_guesses_the_same(kind: SmootherKind) -> None:
    one, other = (smoother(kind, 2, Fraction(1, 3)) for _ in range(2))
    for count in range(4):
        other.restore(one.snapshot())
        assert other.predict() == one.predict()
        for each in (one, other):
            each.observe(SUMS[count])
        assert other.predict() == one.predict()


@pytest.mark.parametrize("kind", ["recent", "mean", "moving-average", "exponential"])
def test_what_is_no_state_is_refused(kind: SmootherKind) -> None:
    with pytest.raises(ValueError, match=r"smoother|mean|exponential"):
        smoother(kind, 2, Fraction(1, 3)).restore([1, 2, 3])


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="length"):
        smoother("moving-average", 0, Fraction(1, 2))
    for alpha in (Fraction(0), Fraction(3, 2)):
        with pytest.raises(ValueError, match="alpha"):
            smoother("exponential", 2, alpha)
