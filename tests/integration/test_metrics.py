"""What a real worker tells of itself while it works: health, public metrics, raw ones when asked for."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from eventveil.read.health import STATES
from eventveil.worker.observe.metrics import METRICS
from tests.kafka.topics import abandon, read, transactional_producer
from tests.worker.application import ORIGIN, Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.waiting import wait_for_releases
from tests.worker.watch import Watch

ANYWHERE = ("--metrics", "127.0.0.1:0")
RELEASES = ("eventveil_releases_total", "fresh", "places")


def worker(application: Application, tmp_path: Path, *options: str, name: str = "worker") -> WorkerProcess:
    return WorkerProcess("eventveil", application.path, tmp_path / f"{name}.log", *ANYWHERE, *options)


def keeps_up(found: Mapping[tuple[str, ...], float]) -> bool:
    """Whether a worker has caught up after its start: uniform has spent a whole window by then."""
    delays = [found[f"eventveil_{what}_delay_seconds", "places"] for what in ("close", "release")]
    return (
        max(delays) <= 2 and found["eventveil_budget_spent_epsilon", "places"] == 1 and found[RELEASES] >= 20
    )


def wait_for_releases_of(application: Application, told: float) -> list[int]:
    """The released timestamps, once they are as many as a worker tells: it may be ahead of a reader."""
    deadline = time.monotonic() + 180
    while len(found := application.releases()) < told:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return sorted(found)


def test_health_and_public_metrics_of_a_worker_that_works(application: Application, tmp_path: Path) -> None:
    with worker(application, tmp_path) as running, Watch(running) as watch:
        assert watch.obstacles(), "nothing can be owned yet"
        with Traffic(application, seed=5):
            watch.wait_until_ready()
            wait_for_releases(application, 20)
            found = watch.until(keeps_up)
            # What is not in the sink yet is released after this moment, except for its transaction.
            began = time.time()
            published = wait_for_releases_of(application, found[RELEASES])
            end_of_the_last_seen = (ORIGIN + published[-1] * application.interval) / 1000
            # A page of metrics is no snapshot: one of them may be older than another.
            after = watch.until(
                lambda metrics: (
                    metrics[RELEASES] > len(published) + 4
                    and metrics["eventveil_released_until_seconds", "places"] > end_of_the_last_seen
                    and metrics["eventveil_last_release_time_seconds", "places"] >= int(began)
                )
            )
        # Nothing is read of values here, and no stream is pan-private.
        public = {metric.name for metric in METRICS if not metric.raw}
        public -= {"eventveil_readings_total", "eventveil_forfeited_total"}
        assert {name for name, *_ in found} == public
        for role, partitions in (("aggregate", 3), ("sanitize", 1)):
            assert found["eventveil_assigned_partitions", role] == partitions
            assert found["eventveil_owned_partitions", role] == partitions
            assert found["eventveil_owner_failures_total", role] == 0
        assert 20 <= found[RELEASES] <= len(published) < after[RELEASES]
        assert found["eventveil_budget_remaining_epsilon", "places"] == 0
        assert found["eventveil_topic_mistakes",] == 0
        states = {state: found["eventveil_counting_state", state, "places"] for state in STATES}
        assert sum(states.values()) == 1
        assert states["unknown"] == 0
        assert after["eventveil_last_release_time_seconds", "places"] < time.time()
        assert after["eventveil_released_until_seconds", "places"] < time.time()
    assert {status for path, status in watch.statuses if path != "/health/ready"} == {200}
    assert watch.statuses["/health/ready", 200] > 0


def test_a_second_worker_on_the_machine_starts_and_shares_the_work(
    application: Application, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        logs = [
            stack.enter_context(WorkerProcess("eventveil", application.path, tmp_path / f"{name}.log"))
            for name in ("one", "two")
        ]
        urls = {
            re.findall(r"health on (\S+?:\d+)", log.wait_for_log("metrics and health on "))[0] for log in logs
        }
        assert len(urls) == 2
        for one in logs:
            one.wait_for_log("owns")
        wait_for_releases(application, 4)


def test_a_take_over_that_takes_long_is_not_ready_and_alive(application: Application, tmp_path: Path) -> None:
    identity = f"{application.name}-zombie"
    # Longer than a busy machine takes to get so far.
    zombie = transactional_producer(application.bootstrap, identity, transaction_timeout_ms=600_000)
    abandon(zombie, f"{application.name}-counting-changelog", ["{}"], 0, "zombie")
    place = f"{application.source}: 1 partition being taken over"
    with worker(application, tmp_path) as running, Watch(running) as watch:
        deadline = time.monotonic() + 180
        while not (len(found := watch.obstacles()) == 1 and found[0].startswith(place)):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        time.sleep(3)
        (reason,) = watch.obstacles()
        assert reason.startswith(place)
        assert watch.metrics()["eventveil_ready",] == 0
        assert watch.metrics()["eventveil_owned_partitions", "aggregate"] == 2
        zombie.abort_transaction(30)
        watch.wait_until_ready()
        assert watch.metrics()["eventveil_ready",] == 1
        wait_for_releases(application, 4)
    assert {status for path, status in watch.statuses if path != "/health/ready"} == {200}


def test_raw_metrics_account_for_every_event_once_also_over_a_rebalance(
    application: Application, tmp_path: Path
) -> None:
    with (
        worker(application, tmp_path, "--raw-metrics", name="one") as one,
        Watch(one) as first,
        Traffic(application, seed=6) as traffic,
    ):
        first.wait_until_ready()
        wait_for_releases(application, 8)
        with worker(application, tmp_path, "--raw-metrics", name="two") as two, Watch(two) as second:
            second.wait_until_ready()
            first.wait_until_ready()
            time.sleep(3)
            traffic.__exit__()
            watches = (first, second)
            wait_for_total(watches, traffic.produced)
            wait_for_releases(application, len(application.releases()) + 8)
            found = events(watches)
            scrapes = [watch.until(has_settled) for watch in watches]
    assert sorted(one["eventveil_owned_partitions", "aggregate"] for one in scrapes) == [1, 2]
    letters: Counter[str] = Counter()
    for message in read(application.bootstrap, application.dead):
        letters[dict(message.headers() or [])["eventveil.reason"].decode()] += 1
    silent = {"counted", "bounded", "ignored"}
    assert {why: count for why, count in found.items() if why not in silent} == letters
    releases = application.releases()
    truth = application.truth(first=min(releases))
    assert found["counted"] == sum(sum(counts.values()) for counts in truth.values())
    assert found.total() == traffic.produced
    assert len(letters) >= 6
    fetched = [one["eventveil_records_fetched_total", application.source] for one in scrapes]
    assert min(fetched) > 0
    assert sum(fetched) >= traffic.produced
    assert sum(name == "eventveil_lag_records" for one in scrapes for name, *_ in one) == 3


def has_settled(found: Mapping[tuple[str, ...], float]) -> bool:
    """Whether nothing is left to read or to count."""
    lags = [value for (name, *_), value in found.items() if name == "eventveil_lag_records"]
    return found["eventveil_open_contributions", "places"] == 0 and not any(lags)


def events(watches: tuple[Watch, ...]) -> Counter[str]:
    """The sum over workers of what became of events, by outcome."""
    found: Counter[str] = Counter()
    for watch in watches:
        for (name, *labels), value in watch.metrics().items():
            if name == "eventveil_events_total" and value:
                found[labels[0]] += int(value)
    return found


def wait_for_total(watches: tuple[Watch, ...], total: int, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while (found := events(watches)).total() != total:
        assert time.monotonic() < deadline, f"{found.total()} of {total}: {json.dumps(found)}"
        time.sleep(0.2)
