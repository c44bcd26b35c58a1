"""Roll-ups: sums over blocks of columns err by one draw, and add up."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil import read
from eventveil.formats.release import release_record
from eventveil.mechanisms import contrasts
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.movement import noise_variance
from eventveil.mechanisms.nested import consistent, powers
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings
from eventveil.privacy.noise import SeededNoise
from tests.unit.read.making import HOUR, ORIGIN, written
from tests.unit.support import stream

COLUMNS = 24


def make(rollups: str, kind: str = "uniform", columns: int = COLUMNS) -> Mechanism:
    options = {"rollups": rollups} if rollups else {}
    return build(MechanismSettings(kind, Fraction(1), "1", 1, options=options), columns, 1, SeededNoise(2))


def test_blocks_of_columns_add_up_to_their_own_draw_exactly() -> None:
    draws = iter(range(3, 10**6, 11))
    asked: list[list[int]] = []

    def draw(size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        asked.append([next(draws) * (-1) ** i for i in range(size)])
        return np.array(asked[-1], np.int64)

    noise = consistent(draw, (1, 3, 12), 36)
    assert [len(one) for one in asked] == [3, 12, 36]
    assert noise.reshape(3, 12).sum(axis=1).tolist() == asked[0]


@pytest.mark.parametrize(
    ("lengths", "size"), [((1, 3, 12), 36), ((1, 2), 2), ((1, 7, 14, 70), 140), ((1, 1000), 1000)]
)
def test_gaussian_blocks_add_up_to_their_own_draw_and_halves_are_drawn_together(
    lengths: tuple[int, ...], size: int
) -> None:
    asked: list[tuple[int, int]] = []
    source = SeededNoise(4)

    def draw(times: int, number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        asked.append((times, number))
        return source.rounded_normal(Fraction(1000), number)

    noise = contrasts.consistent(draw, lengths, size)
    again = SeededNoise(4).rounded_normal(Fraction(1000), size // lengths[-1])
    assert noise.reshape(-1, lengths[-1]).sum(axis=1).tolist() == again.tolist()
    # As many draws as columns, in few calls.
    assert sum(number for _, number in asked) == size
    assert len(asked) <= 1 + 2 * sum((long // short - 1).bit_length() for short, long in pairwise(lengths))


@pytest.mark.parametrize("noise", [{}, {"noise": "gaussian", "delta": Fraction(1, 10**6)}])
def test_sums_over_time_do_not_drift_by_what_is_rounded(noise: dict[str, Any]) -> None:
    """Of two columns of a block the first one was a quarter too large on average."""
    # Noise of about one, so that rounding is seen.
    settings = MechanismSettings("uniform", Fraction(8), "8", 1, options={"rollups": "2", **noise})
    mechanism = build(settings, 4_000, 1, SeededNoise(6))
    apart = [
        np.subtract(*mechanism.step(np.zeros(4_000, np.int64)).counts.reshape(-1, 2).T) for _ in range(50)
    ]
    assert abs(np.mean(apart)) < 5 * np.std(apart) / len(np.ravel(apart)) ** 0.5


def test_a_single_column_without_roll_ups_has_the_noise_of_its_sensitivity() -> None:
    """By `substitute` a user changes it by 2 as `check` says, as in all other kinds."""

    def of(kind: str) -> Fraction:
        options: dict[str, Any] = {"noise": "gaussian", "delta": Fraction(1, 10**6)}
        settings = MechanismSettings(kind, Fraction(1), "1", 1, "substitute", options)
        return build(settings, 1, 2, SeededNoise(2)).guarantee.best_scale

    assert of("uniform") == of("time-unit") == of("sample")


def test_noise_that_would_not_stay_in_64_bits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert contrasts.fits(Fraction(2**30), (1, 1000))
    assert not contrasts.fits(Fraction(2**40), (1, 1000))
    options: dict[str, Any] = {"noise": "gaussian", "delta": Fraction(1, 10**6), "rollups": "12"}
    settings = MechanismSettings("uniform", Fraction(1), "1", 1, options=options)
    build(settings, COLUMNS, 1, SeededNoise(2))
    monkeypatch.setattr(contrasts, "MOST_DEVIATIONS", 2**60)
    with pytest.raises(ValueError, match="epsilon 1 is too small for blocks of 12"):
        build(settings, COLUMNS, 1, SeededNoise(2))


@pytest.mark.parametrize("noise", [{}, {"noise": "gaussian", "delta": Fraction(1, 10**6)}])
@pytest.mark.parametrize("kind", ["uniform", "time-unit"])
def test_errors_are_told_of_single_counts_and_of_groups_as_they_are(
    kind: str, noise: dict[str, Any], tmp_path: Path
) -> None:
    labels = tuple(f"c{i}" for i in range(COLUMNS))
    options = {"rollups": "4,12", **noise}
    one: Any = stream(kind=kind, labels=labels, window=1, options=options, interval=HOUR, origin=ORIGIN)
    mechanism = build(one.mechanism, COLUMNS, 1, SeededNoise(5))
    steps = [mechanism.step(np.full(COLUMNS, 50)) for _ in range(720)]
    records = [release_record(one, at, step, mechanism.units) for at, step in enumerate(steps, 1)]
    assert "noise_scale" not in orjson.loads(records[0])
    found = read.file(written(tmp_path, records))
    assert found.terms.rollups == (4, 12)
    assert (found.counts - 50).std() == pytest.approx(found.errors[0, 0], rel=0.03)
    some = {"all": labels, "section": labels[:12], "country": labels[4:8], "parts of two": labels[3:9]}
    for every in (None, "1d"):
        total = found.totals(every, groups={"single": labels[:1], **some})
        spread = (total.values - 50 * total.timestamps[:, np.newaxis] * [1, 24, 12, 4, 6]).std(axis=0)
        assert spread == pytest.approx(total.errors[0], rel=0.12 if every is None else 0.5)
    hour = found.totals(None, groups=some).errors[0]
    scale = float(mechanism.guarantee.best_scale)
    draw = scale if noise else noise_variance(3.0) ** 0.5
    assert hour[:2] == pytest.approx([draw * 2**0.5, draw], rel=0.02)  # rounding is told at its worst
    # Columns that were chosen are taken to be independent, which errs on the safe side.
    chosen = found.select(labels[:12]).totals(None, groups={"section": labels[:12]})
    assert chosen.errors[0, 0] > hour[1]


def test_state_and_releases_of_streams_without_rollups_are_as_they_were() -> None:
    mechanism = make("")
    release = mechanism.step(np.zeros(COLUMNS, np.int64))
    assert release.noise_scale == 1
    assert release.rollups == ()
    assert "rollups" not in orjson.loads(mechanism.snapshot())["settings"]
    with pytest.raises(ValueError, match="belongs to"):
        make("2").restore(mechanism.snapshot())


@pytest.mark.parametrize("rollups", ["5", "3,4", "12,4", "1", "x", "48"])
def test_rollups_that_do_not_divide_the_columns_are_refused(rollups: str) -> None:
    with pytest.raises(ValueError, match="each a multiple of the one before, that divide all 24"):
        make(rollups)


def test_check_says_what_is_gained_and_what_it_costs() -> None:
    (note,) = make("12").notes
    assert "the sum over a block of 12 columns, counted from the first, has 2 times the error" in note
    assert "a single count has 1.92 times that error" in note


def test_with_gaussian_noise_levels_cost_less_than_the_root_of_their_number() -> None:
    def of(**more: Any) -> Mechanism:
        options: dict[str, Any] = {"noise": "gaussian", "delta": Fraction(1, 10**6), **more}
        settings = MechanismSettings("uniform", Fraction(1), "1", 1, options=options)
        return build(settings, COLUMNS, 1, SeededNoise(2))

    ratio = of(rollups="4,12").guarantee.best_scale / of().guarantee.best_scale
    assert float(ratio) == pytest.approx((1 + 3 / 4 + 2 / 3) ** 0.5, abs=1e-6)
    (note,) = of(rollups="12").notes
    assert "the sum over a block of 12 columns, counted from the first, has 1.38 times the error" in note
    assert "a single count has 1.33 times that error" in note


@pytest.mark.parametrize(
    ("columns", "plain", "rolled"), [(1, "1", "2"), (3, "1.7", "3.5"), (600, "24.5", "2")]
)
def test_the_errors_that_the_page_tells_are_those_of_the_blocks(
    columns: int, plain: str, rolled: str
) -> None:
    weights = np.zeros(600)
    weights[:columns] = 1.0
    assert f"{columns**0.5:.1f}".removesuffix(".0") == plain
    assert f"{2 * powers(weights, (600,)).squares ** 0.5:.1f}".removesuffix(".0") == rolled
    page = (Path(__file__).parents[3] / "docs" / "mechanisms" / "uniform.md").read_text(encoding="utf-8")
    assert f"{rolled} instead of {plain}" in page
