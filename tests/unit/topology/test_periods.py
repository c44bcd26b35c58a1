"""The option ``periods``: what follows from the timeline, and what a file says instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventveil.model.topology import Topology
from eventveil.topology.fingerprints import fingerprint_fields
from eventveil.topology.loading import load_with_defaults
from eventveil.topology.periods import DAY, derived
from tests.unit.topology.examples import changed, load_text

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
