"""The pure parts of the demo: its flights, its topology, its series, its page."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.demo.flights import Flight, first_flights, true_counts
from benchmarks.demo.kafka import NoKafka, choose
from benchmarks.demo.page import write_page
from benchmarks.demo.releases import Series
from benchmarks.demo.topology import AIRPORTS, DESTINATIONS, LEFT, ORIGINAL, Timetable, write_topology
from eventveil.model.topology import MechanismSettings
from eventveil.topology.loading import load

MECHANISM = MechanismSettings("uniform", Fraction(1), "1.0", 2)
COLUMNS = ("ATL", "BOS")


def series(timestamps: int) -> Series:
    return Series(COLUMNS, np.zeros((timestamps, 2), np.int64), MECHANISM)


def record(timestamp: int, **changes: Any) -> dict[str, Any]:
    counts = {"ATL": 3, "BOS": -1}
    return {
        "timestamp": timestamp, "counts": counts, "fresh": True, "units": 100, "window_spent": 50, **changes,
    }  # fmt: skip


def test_the_flights_come_in_order_of_time_and_each_has_an_aircraft_and_a_destination() -> None:
    flights = first_flights(672)
    assert len(flights) > 24_000
    times = [flight.time for flight in flights]
    assert times == sorted(times)
    assert times[0] >= 0
    assert 671 < times[-1] < 672
    assert not {"", "NA"} & {name for flight in flights for name in (flight.tail_number, flight.destination)}
    assert {flight.origin for flight in flights} == set(LEFT)


def test_an_aircraft_counts_once_in_a_timestamp_by_its_first_flight() -> None:
    flights = [
        Flight(0.1, "N1", "BOS", "JFK"),
        Flight(0.5, "N1", "ATL", "EWR"),
        Flight(0.9, "N2", "ATL", "EWR"),
        Flight(1, "N1", "ATL", "LGA"),
    ]
    assert true_counts(flights, lambda flight: flight.destination, COLUMNS, 2).tolist() == [[1, 1], [1, 0]]
    assert true_counts(flights, lambda flight: flight.origin, LEFT, 2).tolist() == [[1, 1, 0], [0, 0, 1]]


def test_the_topology_of_the_demo_is_that_of_the_flights_with_another_timeline(tmp_path: Path) -> None:
    origin = 1_767_225_600_000
    write_topology(tmp_path / "topology.yaml", "flights-demo-x", Timetable(origin, 400, 336))
    written = load(str(tmp_path / "topology.yaml"), {"KAFKA_BOOTSTRAP": "here:1"})
    (original,) = load(str(ORIGINAL), {}).streams
    assert written.kafka.bootstrap == "here:1"
    airports, destinations = written.streams
    assert [airports.name, destinations.name] == [AIRPORTS, DESTINATIONS]
    assert list(airports.counts.labels) == LEFT
    assert destinations.counts == original.counts
    assert destinations.source.column == original.source.column
    for stream in written.streams:
        for field in ("user", "time", "partitioner"):
            assert getattr(stream.source, field) == getattr(original.source, field)
        assert stream.timeline.interval == 400
        assert stream.timeline.origin == stream.timeline.start == origin
        assert (stream.mechanism.kind, stream.mechanism.epsilon, stream.mechanism.window) == (
            "seasonal",
            1,
            24,
        )
        assert stream.mechanism.options == {"periods": "24,168"}
    topics = {
        *written.sources,
        *(stream.sink.topic for stream in written.streams),
        written.streams[0].dead_letter,
    }
    assert len(topics) == 4
    assert all(topic.startswith("flights-demo-x.") for topic in topics)


def test_a_series_takes_releases_in_order_and_knows_when_it_is_complete() -> None:
    one = series(2)
    assert one.add(record(1))
    assert not one.complete
    assert one.add(record(2, fresh=False, window_spent=100))
    assert one.complete
    assert not one.add(record(3))
    assert one.sanitized.tolist() == [[3, -1], [3, -1]]
    assert one.fresh.tolist() == [True, False]
    assert one.spent.tolist() == [0.5, 1.0]
    assert (one.error(), one.error(0)) == (2.0, 3.0)


@pytest.mark.parametrize("told", [2.5, {"ATL": 2.5, "BOS": 2.5}])
def test_a_series_takes_the_error_of_each_count_from_the_record(told: Any) -> None:
    one = series(2)
    one.add(record(1))
    one.add(record(2, error=told))
    assert np.isnan(one.errors[0]).all()
    assert one.errors[1].tolist() == [2.5, 2.5]


@pytest.mark.parametrize("timestamp", [1, 3])
def test_a_release_that_is_missing_or_comes_twice_ends_the_demo(timestamp: int) -> None:
    one = series(4)
    one.add(record(1))
    with pytest.raises(RuntimeError, match=f"expected timestamp 2 and received {timestamp}"):
        one.add(record(timestamp))


def test_nothing_in_the_audit_can_break_out_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"picture")
    write_page(tmp_path / "page.html", tmp_path / "picture.png", series(2), series(1), "</script><b>&")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 2
    assert "data:image/png;base64,cGljdHVyZQ==" in page


def test_a_kafka_that_cannot_be_is_refused_with_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose("somewhere:9092") == "somewhere:9092"
    with pytest.raises(NoKafka, match="say local, docker or host:port"):
        choose("somewhere")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoKafka, match="no Docker engine answers"):
        choose("docker")
    with pytest.raises(NoKafka, match=r"(?s)java is missing.*make demo KAFKA=host:port"):
        choose(None)
