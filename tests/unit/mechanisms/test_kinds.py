from __future__ import annotations

from fractions import Fraction

import pytest

from eventveil.mechanisms.registry import KINDS, build
from tests.contract.noises import ZeroNoise, settings


def test_the_kinds_are_there_under_their_names_with_their_levels() -> None:
    assert {kind: mechanism.level for kind, mechanism in KINDS.items()} == {
        "uniform": "w-event",
        "sample": "w-event",
        "budget-distribution": "w-event",
        "budget-absorption": "w-event",
        "fast": "w-event",
        "paced": "w-event",
        "seasonal": "w-event",
        "time-unit": "event",
        "retroactive-grouping": "event",
        "totals": "event",
        "shp-window": "user",
        "shp-point": "user",
        "shp-adaptive": "user",
    }


@pytest.mark.parametrize("kind", ["uniform", "sample", "budget-distribution", "budget-absorption"])
def test_a_mechanism_is_built_as_its_settings_say(kind: str) -> None:
    mechanism = build(settings(kind, 5, Fraction(1, 2)), 3, 2, ZeroNoise())
    assert type(mechanism) is KINDS[kind]
    assert mechanism.kind == kind
    assert mechanism.guarantee.window == 5
    assert mechanism.guarantee.epsilon == Fraction(1, 2)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'slow', only budget-absorption, .*, uniform, and module:Class"):
        build(settings("slow"), 3, 1, ZeroNoise())
