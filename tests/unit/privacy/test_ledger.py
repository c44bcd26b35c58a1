"""The ledger against a plain list of spends."""

from __future__ import annotations

import json
import time
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.model.errors import BudgetExceeded
from eventveil.privacy.ledger import BudgetLedger, HorizonLedger, Spend

#: Named alike in every process, for the ids of tests.
MISSING = Enum("Missing", "FIELD").FIELD


class Reference:
    """The definition: all spends forever, sums over windows."""

    def __init__(self, window: int, units: int) -> None:
        self.window, self.units = window, units
        self.spends: list[list[int]] = []

    def spent(self) -> int:
        return sum(map(sum, self.spends[-self.window :]))

    def charge(self, what: int, units: int) -> bool:
        if self.spent() + units > self.units:
            return False
        self.spends[-1][what] += units
        return True


@given(
    window=st.integers(1, 5),
    units=st.integers(1, 12),
    actions=st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 1), st.integers(1, 8))), max_size=60),
    restart_every=st.integers(1, 10),
)
def test_the_ledger_agrees_with_the_definition(
    window: int, units: int, actions: list[tuple[int, int] | None], restart_every: int
) -> None:
    ledger, reference = BudgetLedger(window, units), Reference(window, units)
    ledger.open_timestamp()
    reference.spends.append([0, 0])
    for number, action in enumerate(actions):
        if action is None:
            ledger.open_timestamp()
            reference.spends.append([0, 0])
        else:
            what, amount = action
            charge = (ledger.charge_test, ledger.charge_publish)[what]
            before = ledger.snapshot()
            if reference.charge(what, amount):
                charge(amount)
            else:
                with pytest.raises(BudgetExceeded):
                    charge(amount)
                assert ledger.snapshot() == before
        assert ledger.current == tuple(reference.spends[-1])
        assert ledger.window_spent == reference.spent()
        assert ledger.window_published == sum(publish for _, publish in reference.spends[-window:])
        assert ledger.remaining == units - reference.spent()
        remembered = sum(length for length, _, _ in ledger.snapshot()["runs"])
        assert remembered == min(len(reference.spends), window)
        if number % restart_every == 0:
            state = json.loads(json.dumps(ledger.snapshot()))
            ledger = BudgetLedger(window, units)
            ledger.restore(state)
            assert ledger.snapshot() == state
    totals = [sum(spend) for spend in reference.spends]
    assert all(sum(totals[i : i + window]) <= units for i in range(len(totals)))


def test_the_whole_budget_can_be_spent_and_not_one_unit_more() -> None:
    ledger = BudgetLedger(2, 10)
    ledger.open_timestamp()
    ledger.charge_test(4)
    ledger.open_timestamp()
    ledger.charge_publish(6)
    assert ledger.remaining == 0
    with pytest.raises(BudgetExceeded, match="1 units were asked for, 0 of 10 remain"):
        ledger.charge_test(1)
    ledger.open_timestamp()
    assert ledger.remaining == 4


def test_tests_and_publications_are_recorded_apart() -> None:
    ledger = BudgetLedger(3, 100)
    ledger.open_timestamp()
    ledger.charge_test(1)
    ledger.charge_publish(20)
    assert ledger.current == Spend(test=1, publish=20)
    assert ledger.window_published == 20


@pytest.mark.parametrize("units", [0, -1, 1.0, True, "1", None])
def test_a_spend_that_is_no_positive_integer_is_refused(units: object) -> None:
    ledger = BudgetLedger(1, 10)
    ledger.open_timestamp()
    for charge in (ledger.charge_test, ledger.charge_publish):
        with pytest.raises(ValueError, match="positive number of units"):
            charge(units)  # type: ignore[arg-type]  # that is the test
    assert ledger.window_spent == 0


def test_a_spend_before_the_first_timestamp_is_refused() -> None:
    with pytest.raises(ValueError, match="open timestamp"):
        BudgetLedger(1, 10).charge_test(1)


@pytest.mark.parametrize(("window", "units"), [(0, 1), (1, 0), (-1, 5)])
def test_a_ledger_without_window_or_units_is_refused(window: int, units: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BudgetLedger(window, units)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("window", 4, "window should be 3"),
        ("window", 3.0, "window should be 3"),
        ("units", 11, "units should be 10"),
        ("units", "10", "units should be 10"),
        ("runs", None, "array"),
        ("runs", {}, "array"),
        ("runs", [[1, 2]], "three integers"),
        ("runs", [[1, 2, 3, 4]], "three integers"),
        ("runs", [[1, 2, 3.0]], "three integers"),
        ("runs", [[1, True, 3]], "three integers"),
        ("runs", ["123"], "three integers"),
        ("runs", [[0, 1, 1]], "at least 1"),
        ("runs", [[1, -1, 1]], "not negative"),
        ("runs", [[1, 1, -1]], "not negative"),
        ("runs", [[2, 0, 0], [2, 0, 1]], "more than 3 timestamps"),
        ("runs", [[10**30, 0, 0]], "more than 3 timestamps"),
        ("runs", [[1, 5, 0], [2, 3, 0]], "more than 10 units"),
        ("runs", [[1, 0, 11]], "more than 10 units"),
        ("surprise", 1, "object with"),
        ("runs", MISSING, "object with"),
        ("window", MISSING, "object with"),
    ],
    ids=str,
)
def test_a_state_that_is_not_this_ledger_s_is_refused_and_changes_nothing(
    field: str, value: object, message: str
) -> None:
    ledger = BudgetLedger(3, 10)
    ledger.open_timestamp()
    ledger.charge_test(2)
    before = ledger.snapshot()
    damaged = {key: item for key, item in {**before, field: value}.items() if item is not MISSING}
    with pytest.raises(ValueError, match=message):
        ledger.restore(damaged)
    assert ledger.snapshot() == before


@pytest.mark.parametrize("state", [None, [], "state", 1])
def test_a_state_that_is_no_object_is_refused(state: object) -> None:
    with pytest.raises(ValueError, match="object with"):
        BudgetLedger(3, 10).restore(state)


def test_the_open_timestamp_of_a_restored_ledger_can_still_be_charged() -> None:
    ledger = BudgetLedger(3, 10)
    ledger.restore({"window": 3, "units": 10, "runs": [[3, 1, 0]]})
    ledger.charge_publish(5)
    assert ledger.current == Spend(1, 5)
    assert ledger.snapshot()["runs"] == [[2, 1, 0], [1, 1, 5]]


def test_a_window_of_a_billion_costs_neither_time_nor_memory() -> None:
    ledger = BudgetLedger(10**9, 10**15)
    started = time.process_time()
    for _ in range(20_000):
        ledger.open_timestamp()
        ledger.charge_test(3)
    assert time.process_time() - started < 5
    assert ledger.snapshot()["runs"] == [[20_000, 3, 0]]


# Horizons


@given(
    window=st.integers(1, 5),
    renews=st.booleans(),
    asked=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20),
)
def test_a_horizon_never_spends_more_than_its_units_and_is_restored_anywhere(
    window: int, renews: bool, asked: list[tuple[int, int]]
) -> None:
    ledger, spent = HorizonLedger(window, 9, renews=renews), list[int]()
    for i, (test, publish) in enumerate(asked):
        ledger.open_timestamp()
        spent.append(0)
        begin = i - i % window if renews else 0
        for units, charge in ((test, ledger.charge_test), (publish, ledger.charge_publish)):
            over = not renews and i >= window
            if units and (over or sum(spent[begin:]) + units > 9):
                with pytest.raises(BudgetExceeded):
                    charge(units)
            elif units:
                charge(units)
                spent[-1] += units
        assert ledger.window_spent == sum(spent[begin:]) <= 9
        assert sum(ledger.current) == spent[-1]
        assert ledger.fits(i + 1)
        assert ledger.place == i % window + 1
        assert ledger.exhausted == (not renews and i >= window)
        state = ledger.snapshot()
        ledger = HorizonLedger(window, 9, renews=renews)
        ledger.restore(state)
        assert ledger.snapshot() == state


@pytest.mark.parametrize(
    "change",
    [
        {"window": 4}, {"units": 8}, {"opened": -1}, {"opened": True}, {"opened": 0}, {"current": [0]},
        {"current": [2, 0]}, {"current": [0, 6]}, {"spent": [0, 10]}, {"spent": [0, -1]}, {"spent": None},
        {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_state_of_a_horizon_is_refused(change: dict[str, object]) -> None:
    ledger = HorizonLedger(5, 9, renews=False)
    ledger.open_timestamp()
    ledger.charge_test(1)
    ledger.charge_publish(5)
    before = ledger.snapshot()
    with pytest.raises(ValueError, match=r"ledger"):
        ledger.restore({**before, **change})
    assert ledger.snapshot() == before


def test_a_horizon_spends_nothing_before_its_first_timestamp() -> None:
    with pytest.raises(ValueError, match="open timestamp"):
        HorizonLedger(5, 9, renews=False).charge_publish(1)
