"""Value streams as state machines: batches, snapshots, chunks, drift."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from eventveil.privacy.noise import SeededNoise
from eventveil.values.pak import Pak, PakSettings
from eventveil.values.stream import Charge, ValueStream
from eventveil.values.tops import Tops, TopsSettings
from tests.unit.values import checks
from tests.unit.values.noises import Constant

SETTINGS = TopsSettings(Fraction(2), maximum=50, held=7, chunk=30, fanout=3, drift=Fraction(3, 2))
VALUES = np.random.default_rng(1).integers(0, 50, 400)
EVERY_KIND = pytest.mark.parametrize("kind", ["tops", "tops with s = 1", "tops, prefix", "pak"])


def make(kind: str, seed: int = 1) -> ValueStream:
    if kind == "pak":
        return Pak(PakSettings(Fraction(2), Fraction(1, 1000), 50, held=7, chunk=30), SeededNoise(seed))
    smoothed = 1 if kind == "tops with s = 1" else 0
    settings = replace(SETTINGS, smoothed=smoothed, consistent=kind != "tops, prefix")
    return Tops(settings, SeededNoise(seed))


def batches(*lengths: int) -> list[NDArray[np.int64]]:
    return np.split(VALUES[: sum(lengths)], np.cumsum(lengths)[:-1])


@EVERY_KIND
def test_every_value_gets_a_reading_except_those_held_back(kind: str) -> None:
    readings = make(kind).step(VALUES[:100])
    assert len(readings.values) == 100
    assert readings.held.tolist() == [True] * 7 + [False] * 93
    assert (readings.values[:7] == 0).all()
    levels = make(kind).shape.levels
    assert readings.charges == (
        Charge("threshold", 0, 7, levels),
        *(Charge("tree", start, start + 30, levels) for start in (7, 37, 67, 97)),
    )


@pytest.mark.parametrize("kind", ["tops", "tops with s = 1"])
def test_how_values_are_batched_changes_nothing(kind: str) -> None:
    whole = checks.joined([make(kind).step(VALUES)])
    pieces = make(kind)
    assert checks.joined([pieces.step(batch) for batch in batches(3, 0, 5, 1, 30, 61, 299, 1)]) == whole


@EVERY_KIND
def test_the_same_snapshot_values_and_noise_give_the_same_readings(kind: str) -> None:
    stream = make(kind)
    for batch in batches(3, 4, 10, 20, 1, 40, 9):
        snapshot = stream.snapshot()
        twins = [make(kind, seed=99) for _ in range(2)]
        for twin in twins:
            twin.restore(snapshot)
            assert twin.snapshot() == snapshot
            assert twin.threshold == stream.threshold
        assert checks.joined([twins[0].step(batch)]) == checks.joined([twins[1].step(batch)])
        assert twins[0].snapshot() == twins[1].snapshot()
        stream.step(batch)


def test_noise_is_in_the_snapshot_before_it_is_used() -> None:
    stream = make("tops")
    stream.step(VALUES[:8])  # the first reading of a tree of 9 leaves
    other = make("tops", seed=99)
    other.restore(stream.snapshot())
    assert (other.step(VALUES[8:16]).values == stream.step(VALUES[8:16]).values).all()


@EVERY_KIND
@pytest.mark.parametrize(
    "change",
    [
        {"position": 8},
        {"charged_until": 36},
        {"charged_until": 0},
        {"offset": 30},
        {"offset": 0},
        {"offset": 1.0},
        {"tree": None},
        {"tree": [0.5]},
        {"threshold": None},
        {"threshold": 0},
        {"held": [1]},
        {"partial": -1},
        {"partial": "1"},
        {"chunk_sum": None},
        {"reference": 0.5},
        {"smoother": [1]},
        {"settings": {}},
        {"more": 1},
    ],
    ids=str,
)
def test_what_is_no_state_is_refused_and_changes_nothing(kind: str, change: dict[str, object]) -> None:
    stream = make(kind)
    stream.step(VALUES[:20])
    snapshot = stream.snapshot()
    with pytest.raises(ValueError, match=r"."):
        stream.restore(orjson.dumps({**orjson.loads(snapshot), **change}))
    assert stream.snapshot() == snapshot


@pytest.mark.parametrize(
    "settings",
    [
        replace(SETTINGS, epsilon=Fraction(1)),
        replace(SETTINGS, maximum=51),
        replace(SETTINGS, thresholds=[1, 2, 3]),
        replace(SETTINGS, maximum_by="exponential"),
        replace(SETTINGS, excess=Fraction(61)),
        replace(SETTINGS, smoother="mean"),
    ],
)
def test_a_state_is_refused_under_other_settings(settings: TopsSettings) -> None:
    with pytest.raises(ValueError, match="the state belongs to"):
        Tops(settings, SeededNoise(1)).restore(Tops(SETTINGS, SeededNoise(1)).snapshot())


@pytest.mark.parametrize("values", [np.zeros(3), np.zeros((1, 3), np.int64), [1, 2], np.zeros(3, np.int32)])
def test_what_is_no_batch_is_refused_and_changes_nothing(values: object) -> None:
    stream = make("tops")
    before = stream.snapshot()
    with pytest.raises(ValueError, match="values should be"):
        stream.step(values)  # type: ignore[arg-type]
    assert stream.snapshot() == before


def drifting(level: int, drift: Fraction | None) -> list[bool]:
    """Which of the values after a chunk at 10 and one at ``level`` are held back; hardly any noise."""
    stream = checks.tops(SeededNoise(3), maximum=1000, thresholds=[1000], epsilon=Fraction(1000), drift=drift)
    stream.step(np.array([0] + [10] * 27 + [level] * 27, np.int64))
    return stream.step(np.full(3, level, np.int64)).held.tolist()


@pytest.mark.parametrize("level", [4, 25])
def test_after_a_drift_values_are_held_back_for_a_new_threshold(level: int) -> None:
    assert drifting(level, Fraction(2)) == [True, False, False]
    assert drifting(level, None) == [False] * 3


@pytest.mark.parametrize("level", [6, 10, 18])
def test_a_small_change_is_no_drift(level: int) -> None:
    assert drifting(level, Fraction(2)) == [False] * 3


def test_noise_alone_is_no_drift() -> None:
    stream = checks.tops(SeededNoise(3), epsilon=Fraction(1, 2), drift=Fraction(3, 2))
    assert not stream.step(np.full(27 * 300, 5, np.int64)).held[1:].any()


def test_a_new_threshold_uses_values_of_its_own() -> None:
    stream = checks.tops(
        Constant(0),
        held=2,
        maximum=1000,
        thresholds=[10, 500],
        drift=Fraction(3, 2),
        epsilon=Fraction(30),
        excess=Fraction(6000),
    )
    stream.step(np.array([1, 1] + [5] * 27, np.int64))
    assert stream.threshold == 10
    readings = stream.step(np.array([10] * 27 + [400] * 5, np.int64))
    assert readings.held.tolist() == [False] * 27 + [True] * 2 + [False] * 3
    assert [charge[:3] for charge in readings.charges] == [
        ("tree", 29, 56), ("threshold", 56, 58), ("tree", 58, 85),
    ]  # fmt: skip
    assert stream.threshold == 500


def test_a_node_that_the_chunk_cuts_short_is_only_predicted() -> None:
    stream = checks.tops(Constant(0), smoothed=1, chunk=28)
    values = [0] + [6] * 27 + [0, 7, 7, 7]
    assert stream.step(np.array(values, np.int64)).values[28:].tolist() == [6 * 3 // 3, 6, 6, 9]


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": Fraction(0)},
        {"epsilon": Fraction(1, 10**18)},
        {"maximum": 0},
        {"maximum": 2**32},
        {"held": 0},
        {"held": 2**17},
        {"chunk": 1},
        {"fanout": 1},
        {"smoothed": 4},
        {"smoothed": -1},
        {"drift": Fraction(1)},
        {"thresholds": [0, 1]},
        {"thresholds": [2, 1]},
        {"thresholds": [51]},
        {"excess": Fraction(0)},
        {"maximum": 2**31, "chunk": 3**12, "smoothed": 11},
        {"chunk": 3**12, "smoothed": 0},
        {"maximum": 1, "chunk": 2**32, "fanout": 2, "smoothed": 23},
    ],
    ids=str,
)
def test_settings_that_cannot_be_honoured_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"should|positive|sum to more|too many|leaves"):
        Tops(replace(SETTINGS, **wrong), SeededNoise(1))


def test_ranges_are_unbiased_and_as_noisy_as_the_tree_says() -> None:
    """400 chunks of one value: the sum of a chunk has the variance of its top nodes."""
    stream = checks.tops(SeededNoise(5), smoothed=0)
    readings = stream.step(np.full(1 + 27 * 400, 5, np.int64)).values[1:].reshape(400, 27)
    errors = readings.sum(axis=1) - 27 * 5
    # Least squares: a sum of three trees of three levels; the top of a tree of g leaves alone has 2 scale**2.
    scale = float(checks.THETA * 3 / checks.EPSILON)
    variance = 3 * 2 * scale**2 / (1 + 1 / 3 + 1 / 9)
    assert abs(errors.mean()) < 4 * (variance / 400) ** 0.5
    assert 0.75 < errors.var() / variance < 1.3
