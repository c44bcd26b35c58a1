from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.contract.noises import COLUMNS, ForcedNoise, attach, make, spends

KIND = "budget-absorption"


def shares(decisions: dict[int, bool], window: int, timestamps: int) -> list[int]:
    """Shares that each timestamp publishes with, if tests come out as told (default: skip)."""
    mechanism = make(KIND, ForcedNoise([]), window)
    zeros = np.zeros(COLUMNS, np.int64)
    result = []
    for i in range(1, timestamps + 1):
        attach(mechanism, ForcedNoise([decisions.get(i, False)]))
        result.append(mechanism.step(zeros).publish // 2**20)
    return result


def test_the_worked_example_of_the_paper_comes_out_exactly() -> None:
    mechanism = make(KIND, ForcedNoise([True, False, True, True, False]), window=3)
    spent = spends(mechanism, 6)
    assert [Fraction(publish, mechanism.units) for _, publish in spent] == [
        Fraction(1, 6),
        0,
        Fraction(1, 3),
        0,
        Fraction(1, 6),
        0,
    ]


def test_a_nullified_timestamp_runs_and_charges_no_test() -> None:
    noise = ForcedNoise([True, False, True, True, False])
    mechanism = make(KIND, noise, window=3)
    share = mechanism.units // 6
    assert [test for test, _ in spends(mechanism, 6)] == [share, share, share, 0, share, share]
    assert noise.asked == 5


def test_a_window_of_one_offers_one_share_every_time() -> None:
    mechanism = make(KIND, ForcedNoise([True] * 4), window=1)
    assert spends(mechanism, 4) == [(mechanism.units // 2, mechanism.units // 2)] * 4


def test_a_whole_window_of_shares_is_absorbed_at_most() -> None:
    assert shares({9: True}, window=4, timestamps=9) == [0] * 8 + [4]


def test_the_first_timestamp_is_offered_one_share_and_the_second_two() -> None:
    assert shares({1: True}, 4, 1) == [1]
    assert shares({2: True}, 4, 2) == [0, 2]


def test_shares_of_nullified_timestamps_are_not_absorbed() -> None:
    # 4 shares at 4 nullify 5, 6 and 7; the shares of 8 and 9 alone are there at 9.
    assert shares({4: True, 5: True, 7: True, 9: True}, window=4, timestamps=9)[4:] == [0, 0, 0, 0, 2]


def test_a_publication_with_one_share_nullifies_nothing() -> None:
    assert shares({1: True, 2: True, 3: True}, window=4, timestamps=3) == [1, 1, 1]


def test_the_declared_scales_are_those_of_all_shares_and_of_one() -> None:
    guarantee = make(KIND, ForcedNoise([]), window=5, sensitivity=2, epsilon=Fraction(1, 2)).guarantee
    assert guarantee.best_scale == 2 * 2 * 2
    assert guarantee.worst_scale == 2 * 2 * 2 * 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("published", -1),
        ("published", 5),
        ("published", 3.0),
        ("published", 0),
        ("shares", 0),
        ("shares", 4),
        ("shares", 1),
        ("shares", True),
        ("shares", None),
    ],
)
def test_a_state_whose_last_publication_cannot_be_is_refused(field: str, value: Any) -> None:
    mechanism = make(KIND, ForcedNoise([False, True]), window=3)
    spends(mechanism, 2)
    state = json.loads(mechanism.snapshot())
    assert (state["published"], state["shares"]) == (2, 2)
    state[field] = value
    with pytest.raises(ValueError, match=r"published|shares|publication"):
        mechanism.restore(json.dumps(state).encode())
    assert json.loads(mechanism.snapshot())["shares"] == 2
