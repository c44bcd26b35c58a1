from __future__ import annotations

from fractions import Fraction

from tests.contract.noises import ForcedNoise, make, spends

KIND = "budget-distribution"


def publications(decisions: list[bool], window: int) -> list[Fraction]:
    """What each timestamp spends on publication, in parts of epsilon."""
    mechanism = make(KIND, ForcedNoise(decisions), window)
    return [Fraction(publish, mechanism.units) for _, publish in spends(mechanism, len(decisions))]


def test_the_worked_example_of_the_paper_comes_out_exactly() -> None:
    decisions = [True, False, True, True, False, False]
    assert publications(decisions, window=3) == [Fraction(1, 4), 0, Fraction(1, 8), Fraction(3, 16), 0, 0]


def test_the_test_costs_the_same_at_every_timestamp() -> None:
    mechanism = make(KIND, ForcedNoise([True, False, True, True, False, False]), window=3)
    assert [test for test, _ in spends(mechanism, 6)] == [mechanism.units // 6] * 6


def test_a_window_of_one_offers_a_quarter_every_time() -> None:
    assert publications([True] * 4, window=1) == [Fraction(1, 4)] * 4


def test_budget_comes_back_when_its_publication_leaves_the_window() -> None:
    assert publications([True, False, False, True], window=3) == [Fraction(1, 4), 0, 0, Fraction(1, 4)]


def test_halves_round_down_to_whole_units() -> None:
    mechanism = make(KIND, ForcedNoise([True] * 40), window=333)
    left = mechanism.units // 2
    for _, publish in spends(mechanism, 20):
        assert publish == left // 2
        left -= publish


def test_an_offer_below_64_units_is_none_though_the_test_goes_on() -> None:
    noise = ForcedNoise([True] * 60)
    mechanism = make(KIND, noise, window=100)
    spent = spends(mechanism, 60)
    expected, left = [], mechanism.units // 2
    while left // 2 >= 64:
        expected.append(left // 2)
        left -= left // 2
    assert [publish for _, publish in spent] == expected + [0] * (60 - len(expected))
    assert noise.asked == 60
    assert {test for test, _ in spent} == {2**20}


def test_the_declared_scales_are_those_of_the_first_offer_and_of_64_units() -> None:
    guarantee = make(KIND, ForcedNoise([]), window=5, sensitivity=2, epsilon=Fraction(1, 2)).guarantee
    assert guarantee.best_scale == 4 * 2 * 2
    assert guarantee.worst_scale == Fraction(2 * 2 * (2 * 5 * 2**20), 64)
