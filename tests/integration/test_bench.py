"""``make bench`` in small: everybody counts right, and who does not is found out. No time is judged."""

from __future__ import annotations

import sys

import pytest

from benchmarks.throughput.events import Feed, Workload, produce, produce_hidden
from benchmarks.throughput.measuring import run_client
from benchmarks.throughput.product import run_workers
from benchmarks.throughput.series import Session, contenders
from tests.worker.process import WorkerProcess

EVENTS = 3_000


@pytest.fixture(scope="module")
def feed(kafka: str) -> Feed:
    return produce(kafka, Workload(EVENTS, users=200, columns=20))


def test_contenders_count_right_and_are_compared_with_a(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those that need an environment of their own, or are built first."""
    session = Session(kafka, events=EVENTS, runs=1, python=sys.executable, interval=200)
    monkeypatch.setattr("benchmarks.throughput.series.FRAMEWORKS", ())
    monkeypatch.setattr("benchmarks.throughput.series.FOREIGN", ())
    found = {result.name: result for result in contenders(session)}
    assert len(found) == 9
    assert all(result.correct for result in found.values())
    a = next(iter(found.values()))
    assert a.ratio_to_a == 1
    for result in found.values():
        assert result.ratio_to_a == pytest.approx(result.cpu_us_per_event / a.cpu_us_per_event, abs=0.001)
        assert len(result.runs) == 1


@pytest.mark.parametrize("module", ["miscounting", "swapping"])
def test_a_contender_with_wrong_counts_is_reported(feed: Feed, module: str) -> None:
    assert run_client("benchmarks.throughput.contenders.raw", feed).correct
    assert not run_client(f"tests.integration.contenders.{module}", feed).correct


def test_processes_that_count_wrong_together_are_reported(feed: Feed) -> None:
    assert not run_client("tests.integration.contenders.miscounting", feed, processes=2).correct


def test_a_contender_that_fails_is_no_result(feed: Feed) -> None:
    with pytest.raises(RuntimeError, match="No module named"):
        run_client("benchmarks.throughput.contenders.absent", feed)


def test_many_streams_are_measured_from_when_all_are_owned(kafka: str) -> None:
    workloads = [
        Workload(2_000, users=200, columns=20, partitions=1, interval=200, seed=at) for at in (1, 2, 3)
    ]
    feeds, show = produce_hidden(kafka, workloads)
    watched: list[str] = []
    shown: list[str] = []

    def look(worker: WorkerProcess) -> None:
        watched.append(worker.log.read_text())

    def commit() -> None:
        shown.append(watched[0])
        show()

    run = run_workers(feeds, watch=look, show=commit)
    assert run.correct
    assert [log.count(" owns ") for log in shown] == [6], "three sources and as many partitions of partials"


def test_live_events_happen_when_they_are_written(kafka: str) -> None:
    feed = produce(kafka, Workload(250_000, users=200, columns=20, partitions=1, interval=50), live=True)
    moments = feed.workload.moments
    assert len(moments) == 3
    assert sorted(moments) == list(moments)
    assert feed.workload.timestamps == moments[-1] // 50 + 1
    assert feed.workload.truth().shape == (feed.workload.timestamps, 20)
    assert run_client("benchmarks.throughput.contenders.raw", feed).correct
