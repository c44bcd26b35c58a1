"""The ledger across a change of terms: what its bridges refuse, against the definition."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.model.errors import BudgetExceeded
from eventveil.privacy.ledger import Bridge, BudgetLedger


def ledger_with(window: int, units: int, *bridges: Bridge) -> BudgetLedger:
    ledger = BudgetLedger(window, units)
    for bridge in bridges:
        ledger.bridge(bridge)
    return ledger


def spend_what_is_left(ledger: BudgetLedger, timestamps: int) -> list[int]:
    """The most that each timestamp may spend."""
    spends = []
    for _ in range(timestamps):
        ledger.open_timestamp()
        most = max(0, ledger.remaining)
        if most:
            ledger.charge_publish(most)
        with pytest.raises(BudgetExceeded):
            ledger.charge_test(1)
        spends.append(most)
    return spends


@pytest.mark.parametrize(
    ("window", "bridge", "expected"),
    [
        (2, Bridge(3, 10, [6, 3], left=2), [1, 6, 4, 6, 4]),
        (2, Bridge(3, 10, [9, 9], left=2), [0, 1, 9, 1, 9]),
        (1, Bridge(2, 10, [4], left=1), [6, 10, 10]),
        (3, Bridge(3, 15, [9, 0], left=2), [6, 4, 0, 6]),
        (3, Bridge(4, 10, [], left=3), [10, 0, 0, 10]),
        (2, Bridge(4, 10, [0, 0, 10], left=2), [0, 0, 10, 0]),
    ],
)
def test_what_the_past_spent_is_missing_until_it_leaves_the_window(
    window: int, bridge: Bridge, expected: list[int]
) -> None:
    assert spend_what_is_left(ledger_with(window, 10, bridge), len(expected)) == expected


@given(
    window=st.integers(1, 4),
    units=st.integers(1, 10),
    bridges=st.lists(
        st.tuples(st.integers(2, 6), st.integers(1, 12), st.lists(st.integers(0, 8), max_size=5)), max_size=3
    ),
    asked=st.lists(st.integers(0, 6), max_size=20),
)
def test_a_spend_is_granted_exactly_if_no_window_across_a_change_and_none_after_it_is_exceeded(
    window: int, units: int, bridges: list[tuple[int, int, list[int]]], asked: list[int]
) -> None:
    made = [Bridge(width, limit, past[: width - 1], left=width - 1) for width, limit, past in bridges]
    ledger = ledger_with(window, units, *made)
    spends: list[int] = []
    for number, amount in enumerate(asked):
        ledger.open_timestamp()
        fits = sum(spends[max(0, number - window + 1) :]) + amount <= units
        for bridge in made:
            if number < bridge.left:
                before = [*bridge.past, *spends][-(bridge.window - 1) :]
                fits = fits and sum(before) + amount <= bridge.units
        if amount and fits:
            ledger.charge_test(amount)
        elif amount:
            with pytest.raises(BudgetExceeded):
                ledger.charge_test(amount)
        spends.append(amount if fits else 0)
        state: Any = json.loads(json.dumps(ledger.snapshot()))
        ledger = BudgetLedger(window, units)
        ledger.restore(state)
        assert ledger.snapshot() == state


def test_a_bridge_is_gone_from_the_state_once_it_has_been_crossed() -> None:
    ledger = ledger_with(1, 10, Bridge(3, 10, [5, 5], left=2))
    lengths = []
    for _ in range(4):
        ledger.open_timestamp()
        lengths.append(len(ledger.snapshot().get("bridges", [])))
    assert lengths == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "bridge",
    [Bridge(3, 5, [1, 1, 1], 2), Bridge(3, 5, [1], 0), Bridge(3, 5, [1], 3), Bridge(3, 5, [-1], 2)],
    ids=str,
)
def test_a_bridge_that_makes_no_sense_is_refused(bridge: Bridge) -> None:
    with pytest.raises(ValueError, match=r"bridge|negative"):
        BudgetLedger(2, 5).bridge(bridge)


def test_a_bridge_in_mid_stream_is_refused() -> None:
    ledger = BudgetLedger(2, 5)
    ledger.open_timestamp()
    with pytest.raises(ValueError, match="first timestamp"):
        ledger.bridge(Bridge(3, 5, [1], 2))


GOOD = {"left": 1, "window": 3, "units": 5, "runs": [[2, 0, 9]]}


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        [1],
        [{**GOOD, "left": 3}],
        [{**GOOD, "left": -1}],
        [{**GOOD, "left": True}],
        [{**GOOD, "window": 0}],
        [{**GOOD, "runs": [[4, 0, 0]]}],
        [{**GOOD, "runs": [[1, 0, -1]]}],
        [{name: value for name, value in GOOD.items() if name != "runs"}],
    ],
    ids=str,
)
def test_a_damaged_bridge_in_a_state_is_refused_and_changes_nothing(damaged: object) -> None:
    ledger = BudgetLedger(2, 5)
    before = ledger.snapshot()
    with pytest.raises(ValueError):  # noqa: PT011 - the texts are those of ledgers and bridges
        ledger.restore({**before, "bridges": damaged})
    assert ledger.snapshot() == before
    ledger.restore({**before, "bridges": [GOOD]})


def test_the_own_window_of_a_ledger_may_not_be_overdrawn_in_a_state() -> None:
    with pytest.raises(ValueError, match="more than 5 units"):
        BudgetLedger(2, 5).restore({"window": 2, "units": 5, "runs": [[1, 0, 6]], "bridges": [GOOD]})


def test_every_sequence_of_spends_of_every_small_change_keeps_the_promise() -> None:
    """Exhaustively: whatever was spent under the old terms and is asked for under the new ones.

    Epsilon is old_units and new_units, a unit being worth the same before and after.
    """
    for old_window, new_window, old_units, new_units in itertools.product(
        (1, 2, 3), (1, 2, 3), (2, 3), (2, 3)
    ):
        width, limit = max(old_window, new_window), max(old_units, new_units)
        for past in itertools.product(range(old_units + 1), repeat=3):
            if any(sum(past[i : i + old_window]) > old_units for i in range(3)):
                continue
            for asked in itertools.product((0, 1, 3), repeat=3):
                bridges = [Bridge(width, limit, past[3 - width + 1 :], width - 1)] if width > 1 else []
                ledger = ledger_with(new_window, new_units, *bridges)
                after = []
                for amount in asked:
                    ledger.open_timestamp()
                    granted = min(amount, max(0, ledger.remaining))
                    if granted:
                        ledger.charge_test(granted)
                    after.append(granted)
                check_promise(past, tuple(after), old_window, new_window, old_units, new_units)


def check_promise(
    past: tuple[int, ...], after: tuple[int, ...], old_window: int, new_window: int, old: int, new: int
) -> None:
    """(a), (b) and (c) of ``eventveil.lifecycle.migration``, from their words."""
    width, limit, whole, change = max(old_window, new_window), max(old, new), past + after, len(past)
    assert all(sum(after[i : i + new_window]) <= new for i in range(len(after)))
    for begin in range(len(whole) - width + 1):
        window = whole[begin : begin + width]
        in_past = change - begin
        if 0 < in_past < width and (any(window[in_past:]) or new_window <= old_window):
            assert sum(window) <= limit
