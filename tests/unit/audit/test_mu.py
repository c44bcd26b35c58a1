"""What the audit makes of epsilon and delta, against the exact computation."""

from __future__ import annotations

from fractions import Fraction

import pytest

from eventveil.audit.mu import mu_squared
from eventveil.privacy import gaussian


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), 1, 30, 690, 720, 1000])
@pytest.mark.parametrize("power", [5, 9, 20])
def test_mu_squared_is_that_of_the_ledger_for_every_epsilon(epsilon: Fraction, power: int) -> None:
    delta = Fraction(1, 10**power)
    exact = gaussian.mu_squared(Fraction(epsilon), delta)
    assert mu_squared(Fraction(epsilon), delta) == pytest.approx(float(exact), rel=1e-6)
