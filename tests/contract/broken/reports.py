"""Broken variants of local reports, as patches."""

from __future__ import annotations

from fractions import Fraction

import pytest

from eventveil.local import reports
from eventveil.local.sampling import SlidingWindow, power_of_e


def half_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "power_of_e", lambda exponent: power_of_e(2 * exponent))


def ratio_rounded_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "power_of_e", lambda exponent: power_of_e(exponent) + Fraction(1, 1000))


def clipped_on_one_side(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reports, "clipped", lambda value, maximum: min(value, maximum))


def narrow_outputs(patch: pytest.MonkeyPatch) -> None:
    honest = SlidingWindow.report
    patch.setattr(
        SlidingWindow, "report", lambda self, i, r: min(honest(self, i, r), self.inputs - 1 + i % 2)
    )
