from __future__ import annotations

import pytest

from eventveil.model.errors import BudgetExceeded
from eventveil.values.ledger import Charge, PositionLedger


def test_spans_that_follow_each_other_are_charged() -> None:
    ledger = PositionLedger(3)
    ledger.charge(Charge("threshold", 0, 10, 3))
    ledger.charge(Charge("tree", 10, 30, 3))
    ledger.charge(Charge("tree", 40, 50, 1))
    assert ledger.charged_until == 50


@pytest.mark.parametrize("start", [0, 5, 9])
def test_no_position_pays_twice(start: int) -> None:
    ledger = PositionLedger(3)
    ledger.charge(Charge("threshold", 0, 10, 1))
    with pytest.raises(BudgetExceeded, match="all before 10 have paid"):
        ledger.charge(Charge("tree", start, 20, 1))
    assert ledger.charged_until == 10


@pytest.mark.parametrize("units", [0, 4, -1])
def test_no_position_pays_more_than_epsilon_or_nothing(units: int) -> None:
    ledger = PositionLedger(3)
    with pytest.raises(BudgetExceeded, match="epsilon is 3"):
        ledger.charge(Charge("tree", 0, 10, units))
