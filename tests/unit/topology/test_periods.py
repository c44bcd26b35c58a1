"""The option ``periods``: what follows from the timeline, and what a file says instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventveil.model.topology import Topology
from eventveil.topology.fingerprints import fingerprint_fields
from eventveil.topology.loading import load_with_defaults
from eventveil.topology.periods import DAY, blocks_of, derived
from tests.unit.topology.examples import changed, load_text, problems_of

HOUR = DAY // 24


def load_with(directory: Path, interval: str, setting: str = "") -> Topology:
    kind = f"kind: seasonal{setting}"
    return load_text(
        directory, changed(("kind: budget-absorption", kind), ("interval: 1h", f"interval: {interval}"))
    )


@pytest.mark.parametrize(
    ("interval", "periods"),
    [
        (HOUR, (24, 168)),
        (HOUR // 12, (288, 2016)),
        (3 * HOUR, (8, 56)),
        (12 * HOUR, (2, 14)),
        (DAY, (7,)),
        (5 * HOUR, ()),
        (7 * HOUR, (24,)),
        (2 * DAY, ()),
        (7 * DAY, ()),
        (1, ()),
        (1000, (86_400, 604_800)),
    ],
)
def test_a_day_and_a_week_are_periods_where_they_are_whole(interval: int, periods: tuple[int, ...]) -> None:
    assert derived(interval) == periods


@pytest.mark.parametrize(
    ("interval", "setting", "options"),
    [
        ("1h", "", {"periods": "24,168"}),
        ("1d", "", {"periods": "7"}),
        ("2d", "", {}),
        ("1h", "\n      periods: []", {}),
        ("1h", "\n      periods: [12]", {"periods": "12"}),
        ("1h", "\n      periods: [168, 24]", {"periods": "24,168"}),
    ],
)
def test_periods_follow_from_the_timeline_unless_the_file_has_them(
    interval: str, setting: str, options: dict[str, str], tmp_path: Path
) -> None:
    (stream,) = load_with(tmp_path, interval, setting).streams
    assert stream.mechanism.options == options
    _, defaults = load_with_defaults(str(tmp_path / "topology.yaml"), {})
    told = {one.setting: one.value for one in defaults}.get("streams.destinations.mechanism.periods")
    assert told == (None if setting else f"[{', '.join(options.get('periods', '').split(','))}]")


def test_other_periods_are_another_fingerprint(tmp_path: Path) -> None:
    (day,), (none,) = (load_with(tmp_path, "1h", setting).streams for setting in ("", "\n      periods: []"))
    assert fingerprint_fields(day, 1, 1)["mechanism.periods"] == "24,168"
    assert "mechanism.periods" not in fingerprint_fields(none, 1, 1)


@pytest.mark.parametrize(
    ("interval", "blocks"),
    [
        (3_600_000, (24, 168)),
        (86_400_000, (7,)),
        (60_000, (60, 1440)),
        (900_000, (96, 672)),
        (300_000, (12, 288)),
        (6 * 3_600_000, (28,)),
        (420_000, (12, 144)),
        (1_000, (12, 144)),
    ],
)
def test_blocks_are_hours_days_and_weeks_that_have_some_but_not_too_many_parts(
    interval: int, blocks: tuple[int, ...]
) -> None:
    assert blocks_of(interval) == blocks


@pytest.mark.parametrize(
    ("interval", "blocks"),
    [
        (3_600_000, (4, 24, 168)),
        (86_400_000, (7,)),
        (60_000, (6, 60, 1440)),
        (900_000, (8, 96, 672)),
        (300_000, (12, 288)),
        (6 * 3_600_000, (4, 28)),
        (1_000, (12, 144)),
    ],
)
def test_blocks_have_one_level_more_with_gaussian_noise(
    interval: int, blocks: tuple[int, ...], tmp_path: Path
) -> None:
    assert blocks_of(interval, normal=True) == blocks
    kind = "kind: totals\n      noise: gaussian\n      delta: 1e-9"
    changes = [("      window: 120\n", ""), ("budget: {epsilon: 5, span: 5d}\n", "")]
    file = changed(("kind: budget-absorption", kind), ("interval: 1h", f"interval: {interval}ms"), *changes)
    (stream,) = load_text(tmp_path, file).streams
    assert stream.mechanism.options["blocks"] == ",".join(map(str, blocks))


def test_noise_that_cancels_in_sums_has_blocks_by_default_and_no_minimum(tmp_path: Path) -> None:
    kind = (
        "kind: budget-absorption\n      epsilon: 1.0\n      window: 120",
        "kind: totals\n      epsilon: 1.0",
    )
    budget = ("budget: {epsilon: 5, span: 5d}\n", "")
    (stream,) = load_text(tmp_path, changed(kind, budget)).streams
    assert stream.mechanism.options == {"blocks": "24,168"}
    clipped = changed(
        kind, budget, ("topic: flights.sanitized", "topic: flights.sanitized\n      minimum: 0")
    )
    (problem,) = problems_of(tmp_path, clipped)
    assert (
        "sink.minimum: the noise of totals cancels in sums only with negative counts left" in problem.message
    )


@pytest.mark.parametrize("noise", ["", "\n      noise: gaussian\n      delta: 1e-9"])
def test_blocks_may_have_four_lengths(noise: str, tmp_path: Path) -> None:
    window = ("      window: 120\n", "")
    no_budget = ("budget: {epsilon: 5, span: 5d}\n", "")

    def of(blocks: str) -> str:
        kind = f"kind: totals\n      blocks: {blocks}{noise}"
        return changed(("kind: budget-absorption", kind), window, no_budget)

    (stream,) = load_text(tmp_path, of("[6, 24, 168, 672]")).streams
    assert stream.mechanism.options["blocks"] == "6,24,168,672"
    (problem,) = problems_of(tmp_path, of("[2, 6, 24, 168, 672]"))
    assert "blocks: found [2, 6, 24, 168, 672], expected a list of 1 to 4 different" in problem.message
