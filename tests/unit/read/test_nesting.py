"""Totals where noise cancels in blocks: what the reader says they err by, and how often that holds."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eventveil import read
from eventveil.formats.release import release_record
from eventveil.mechanisms.movement import noise_variance
from eventveil.mechanisms.registry import build
from eventveil.privacy.noise import SeededNoise
from eventveil.read.problems import ReadingError
from eventveil.read.releases import Releases
from tests.unit.read.making import HOUR, ORIGIN, record, written
from tests.unit.support import stream

COLUMNS = 600
DRAW = noise_variance(3.0)


def released(
    folder: Path, length: int, blocks: str = "6,24", leave_out: tuple[int, ...] = (), **more: Any
) -> Releases:
    """Of counts of 50 each."""
    labels = tuple(f"c{i}" for i in range(COLUMNS))
    one: Any = stream(
        kind="totals",
        labels=labels,
        window=1,
        options={"blocks": blocks, **more},
        interval=HOUR,
        origin=ORIGIN,
    )
    mechanism = build(one.mechanism, COLUMNS, 1, SeededNoise(5))
    steps = [mechanism.step(np.full(COLUMNS, 50)) for _ in range(length)]
    records = [
        release_record(one, at, release, mechanism.units)
        for at, release in enumerate(steps, 1)
        if at not in leave_out
    ]
    return read.file(written(folder, records))


def test_a_whole_day_errs_by_one_draw_and_two_by_two(tmp_path: Path) -> None:
    found = released(tmp_path, 72)
    days = found.totals("1d")
    assert days.errors[0, 0] == pytest.approx(DRAW**0.5)
    assert found.totals("all").errors[0, 0] == pytest.approx((3 * DRAW) ** 0.5)
    groups = found.totals("1d", groups={"both": ["c0", "c1"]})
    assert groups.errors[0, 0] == pytest.approx((2 * DRAW) ** 0.5)


def test_intervals_cover_as_often_as_they_say_wherever_a_sum_begins(tmp_path: Path) -> None:
    found = released(tmp_path, 72)
    for every in (None, "3h", "8h", "1d"):
        total = found.totals(every)
        truth = 50 * total.timestamps[:, np.newaxis]
        inside = ((total.low <= truth) & (truth <= total.high)).mean()
        assert 0.935 < inside < 0.972, every
    middle = found.between("2026-03-01T05:00", "2026-03-02T17:00").totals("all", partial=True)
    assert middle.timestamps.tolist() == [36]
    assert middle.values.std() == pytest.approx(middle.errors[0, 0], rel=0.12)


def test_gaussian_noise_cancels_as_its_blocks_say_and_has_no_heavy_tails(tmp_path: Path) -> None:
    found = released(tmp_path, 72, noise="gaussian", delta=Fraction(1, 10**6))
    blocks = found.terms.blocks
    assert blocks is not None
    assert blocks.is_normal
    day = found.totals("1d")
    assert day.errors[0, 0] == pytest.approx((blocks.scale**2 + 1 / 12) ** 0.5)
    assert (day.high - day.values)[0, 0] == pytest.approx(1.96 * day.errors[0, 0], rel=1e-3)
    for every in (None, "3h", "8h", "1d"):
        total = found.totals(every)
        truth = 50 * total.timestamps[:, np.newaxis]
        inside = ((total.low <= truth) & (truth <= total.high)).mean()
        assert 0.935 < inside < 0.965, every
    middle = found.between("2026-03-01T05:00", "2026-03-02T17:00").totals("all", partial=True)
    assert middle.values.std() == pytest.approx(middle.errors[0, 0], rel=0.12)
    low, high = found.bounds()
    assert 0.94 < ((low <= 50) & (high >= 50)).mean() < 0.965


def test_a_gap_in_a_day_leaves_what_does_not_cancel(tmp_path: Path) -> None:
    found = released(tmp_path, 24, leave_out=(3, 4, 20))
    total = found.totals("1d", partial=True)
    assert total.values.std() == pytest.approx(total.errors[0, 0], rel=0.12)
    assert total.errors[0, 0] > 1.5 * DRAW**0.5


def test_single_counts_have_the_interval_of_what_is_nearly_one_laplace_number(tmp_path: Path) -> None:
    found = released(tmp_path, 48)
    low, high = found.bounds()
    assert 0.94 < ((low <= 50) & (high >= 50)).mean() < 0.97
    assert found.totals(None).high[0, 0] == pytest.approx(high[0, 0], rel=0.01)


def test_releases_that_begin_in_the_middle_of_a_block_know_it(tmp_path: Path) -> None:
    late = released(tmp_path, 48, leave_out=tuple(range(1, 25)))
    assert late.totals("1d").errors[0, 0] == pytest.approx(DRAW**0.5)
    moved = late.terms.blocks
    assert moved is not None
    assert (moved.lengths, moved.begin % 24, moved.scale) == ((6, 24), 1, 3.0)


@pytest.mark.parametrize(
    "blocks",
    [
        {"lengths": [24, 36], "at": 1, "scale": 3.0},
        {"lengths": [24], "at": 25, "scale": 3.0},
        {"lengths": [], "at": 1, "scale": 3.0},
        {"lengths": [24], "at": 1},
        {"lengths": [24], "at": 1, "scale": -1.0},
    ],
)
def test_blocks_that_cannot_be_are_refused_with_their_place(tmp_path: Path, blocks: dict[str, Any]) -> None:
    with pytest.raises(ReadingError, match=r"line 1|:1"):
        read.file(written(tmp_path, [record(mechanism="totals", noise_scale=None, blocks=blocks)]))


def test_the_place_in_a_block_follows_from_the_release(tmp_path: Path) -> None:
    found = released(tmp_path, 5)
    assert len(found.parts) == 1
    settings = found.terms
    assert settings.mechanism == "totals"
    assert Fraction(settings.epsilon) == 1
