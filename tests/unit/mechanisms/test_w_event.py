from __future__ import annotations

from fractions import Fraction
from typing import Any

import orjson
import pytest

from eventveil.mechanisms.base import COLUMN_LIMIT
from eventveil.mechanisms.publishing import WINDOW_LIMIT
from eventveil.mechanisms.registry import KINDS, build
from eventveil.model.topology import MechanismSettings
from tests.contract.noises import COLUMNS, W_EVENT_KINDS, ForcedNoise, ZeroNoise, make, settings, spends

EVERY_KIND = pytest.mark.parametrize("kind", sorted(KINDS))


@EVERY_KIND
@pytest.mark.parametrize("window", [0, -1, 2.0, True, WINDOW_LIMIT + 1])
def test_a_window_that_is_none_is_refused(kind: str, window: Any) -> None:
    with pytest.raises(ValueError, match="window should be an integer"):
        build(settings(kind, window), COLUMNS, 1, ZeroNoise())


@EVERY_KIND
@pytest.mark.parametrize("columns", [0, -1, 2.0, COLUMN_LIMIT + 1])
def test_columns_that_are_none_are_refused(kind: str, columns: Any) -> None:
    with pytest.raises(ValueError, match="columns should be an integer"):
        build(settings(kind), columns, 1, ZeroNoise())


@EVERY_KIND
@pytest.mark.parametrize("sensitivity", [0, -1, 1.0, Fraction(1)])
def test_a_sensitivity_that_is_none_is_refused(kind: str, sensitivity: Any) -> None:
    with pytest.raises(ValueError, match="sensitivity should be an integer"):
        build(settings(kind), COLUMNS, sensitivity, ZeroNoise())


@EVERY_KIND
@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1), 1.0, 1])
def test_an_epsilon_that_is_no_positive_fraction_is_refused(kind: str, epsilon: Any) -> None:
    with pytest.raises(ValueError, match="epsilon should be a Fraction above 0"):
        build(settings(kind, epsilon=epsilon), COLUMNS, 1, ZeroNoise())


@EVERY_KIND
def test_an_unknown_option_is_refused(kind: str) -> None:
    unknown = MechanismSettings(kind, Fraction(1), "1", 3, options={"shft": "true"})
    with pytest.raises(ValueError, match="has no option shft"):
        build(unknown, COLUMNS, 1, ZeroNoise())


@pytest.mark.parametrize("kind", W_EVENT_KINDS)
def test_a_snapshot_names_what_it_belongs_to_in_exact_terms(kind: str) -> None:
    state = orjson.loads(make(kind, ZeroNoise(), 5, epsilon=Fraction("0.3"), sensitivity=2).snapshot())
    assert state["settings"]["kind"] == kind
    assert state["settings"]["epsilon"] == "3/10"
    assert (state["settings"]["window"], state["settings"]["sensitivity"]) == (5, 2)
    assert state["timestamp"] == 0
    assert state["last"] == [0] * COLUMNS


@pytest.mark.parametrize("kind", W_EVENT_KINDS)
def test_a_snapshot_does_not_grow_with_the_window(kind: str) -> None:
    """Skipped or equal timestamps are kept as runs, so ten thousand of them are a few hundred bytes."""
    rare = {"max_samples": 1} if kind == "fast" else {}
    mechanism = make(kind, ForcedNoise([False] * 10_000), window=10_000, **rare)
    spends(mechanism, 10_000)
    assert len(mechanism.snapshot()) < {"paced": 1150, "seasonal": 1550}.get(kind, 750)
