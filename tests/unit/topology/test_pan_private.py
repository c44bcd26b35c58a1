"""What pan_private asks of the rest of a topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventveil.topology.fingerprints import fingerprint_fields
from tests.unit.topology.examples import BASE, changed, load_text, problems_of, two_streams

NO_BUDGET = ("budget: {epsilon: 5, span: 5d}\n", "")
TRUSTED = ("[ATL, BOS]", "[ATL, BOS]\n      contributions: trusted")
REGISTRY = ("version: 1\n", "version: 1\nregistry: {url: 'http://registry'}\n")
SINGLE = ("window: 120", "window: 120\n      adjacency: substitute\n      pan_private: single")


def test_a_pan_private_stream_is_read(tmp_path: Path) -> None:
    (stream,) = load_text(tmp_path, changed(TRUSTED, SINGLE)).streams
    assert stream.kind == "pan-private"
    assert (stream.counts.contributions, stream.sensitivity) == (1, 2)
    assert stream.bound > 10**9
    assert fingerprint_fields(stream, 1, 4)["mechanism.pan_private"] == "single"
    (other,) = load_text(tmp_path, BASE).streams
    assert other.kind == "counts"
    assert "mechanism.pan_private" not in fingerprint_fields(other, 1, 4)


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        (
            [SINGLE],
            "17:7",
            "counts.contributions: pan_private needs contributions: trusted, because bounding",
        ),
        (
            [TRUSTED, ("window: 120", "window: 120\n      pan_private: announced")],
            "20:7",
            "mechanism.adjacency: pan_private needs adjacency: substitute, because a look at the",
        ),
        (
            [TRUSTED, SINGLE, ("/tailnum", "/tailnum\n      repartition: true")],
            "11:20",
            "source.repartition: pan_private needs repartition: false, because a topic of re-keyed",
        ),
        (
            [TRUSTED, SINGLE, ("/tailnum", "/tailnum\n      append_time: boundary")],
            "11:20",
            "source.append_time: pan_private needs append_time: broker",
        ),
        (
            [TRUSTED, SINGLE, ("/tailnum", "/tailnum\n      time_zone: Europe/Berlin")],
            "11:18",
            "source.time_zone: pan_private needs no time_zone, because records are judged twice, and time",
        ),
        (
            [TRUSTED, SINGLE, ("/tailnum", "/tailnum\n      format: avro"), REGISTRY],
            "12:15",
            "source.format: pan_private needs format: json, because records are judged twice, and a schema",
        ),
        (
            [TRUSTED, SINGLE, ("interval: 1h", "interval: 1h\n      on_missing: release")],
            "15:19",
            "timeline.on_missing: pan_private needs on_missing: wait",
        ),
        (
            [TRUSTED, SINGLE, ("budget-absorption", "uniform")],
            "24:20",
            "uniform has no option pan_private; remove it, or use one of budget-absorption, budget-dist",
        ),
        (
            [TRUSTED, ("window: 120", "window: 120\n      adjacency: substitute\n      pan_private: twice")],
            "24:20",
            "pan_private: found 'twice', expected one of single, announced",
        ),
    ],
)
def test_what_it_needs_is_asked_for_at_its_place(
    tmp_path: Path, changes: list[tuple[str, str]], place: str, message: str
) -> None:
    (problem,) = problems_of(tmp_path, changed(*changes))
    assert f"{problem.line}:{problem.column}" == place
    assert message in problem.message


def test_announced_looks_need_room_between_two_releases(tmp_path: Path) -> None:
    announced = (SINGLE[0], SINGLE[1].replace("single", "announced"))
    short = ("interval: 1h", "interval: 2s\n      clock_skew: 100ms")
    assert load_text(
        tmp_path, changed(TRUSTED, announced, (short[0], short[1].replace("2s", "2100ms")), NO_BUDGET)
    )
    assert load_text(tmp_path, changed(TRUSTED, SINGLE, short, NO_BUDGET))
    (problem,) = problems_of(tmp_path, changed(TRUSTED, announced, short, NO_BUDGET))
    assert "interval: is 2s; for announced looks it has to exceed clock_skew by 2s" in problem.message


def test_no_other_stream_counts_its_events_without_noise(tmp_path: Path) -> None:
    text = two_streams(
        ("other.events", "flights.events"), ("/u", "/tailnum"), ("/c", "/dest"), ("/t}", "/time}")
    )
    for old, new in (TRUSTED, SINGLE):
        text = text.replace(old, new, 1)
    (problem,) = problems_of(tmp_path, text)
    assert "stream destinations of the same topic has pan_private" in problem.message
    assert problem.message.startswith("streams.second.source.topic")
