"""The worker on real Kafka: several streams, several workers, stopping, catching up, refusing."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from tests.kafka.topics import abandon, read, transactional_producer
from tests.worker.application import Application, Traffic
from tests.worker.checks import assert_truth, refusal, worker
from tests.worker.waiting import wait_for_releases


def test_streams_with_different_timelines_and_sources_are_released_side_by_side(
    kafka: str, tmp_path: Path
) -> None:
    application = Application(kafka, tmp_path)
    uniform = {"kind": "uniform", "epsilon": 1, "window": 10}
    other = f"{application.name}.other"
    application.document["streams"] = {
        "quick": application.stream(application.source, f"{application.name}.quick", uniform),
        "slow": application.stream(application.source, f"{application.name}.slow", uniform, interval=1000),
        "silent": application.stream(other, f"{application.name}.silent", uniform),
    }
    application.document["streams"]["slow"]["sink"]["counts"] = "array"
    application.write()
    application.create()
    with worker(application, tmp_path):
        with Traffic(application, seed=1):
            wait_for_releases(application, 4, sink=f"{application.name}.slow")
        wait_for_releases(application, 6, sink=f"{application.name}.slow")
        wait_for_releases(application, 24, sink=f"{application.name}.quick")
        wait_for_releases(application, 24, sink=f"{application.name}.silent")
    assert_truth(application, f"{application.name}.quick")
    assert_truth(application, f"{application.name}.slow", interval=1000)
    silent = application.releases(sink=f"{application.name}.silent")
    assert all(set(json.loads(one[0])["counts"].values()) == {0} for one in silent.values())


def test_workers_share_the_partitions_and_survive_a_join_and_a_leave(
    application: Application, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(worker(application, tmp_path, "one"))
        stack.enter_context(Traffic(application, seed=2))
        one.wait_for_log("owns")
        two = stack.enter_context(worker(application, tmp_path, "two"))
        two.wait_for_log("owns")
        wait_for_more(application, 12)
        one.signal(signal.SIGTERM)
        assert one.wait() == 0
        wait_for_more(application, 20)
        assert two.running
    wait_for_committed_end(application, tmp_path)
    assert_truth(application, application.sink)


def wait_for_committed_end(application: Application, tmp_path: Path) -> None:
    """Let a worker of its own finish what the last one was killed over."""
    with worker(application, tmp_path, "last"):
        wait_for_more(application, 8)


def wait_for_more(application: Application, count: int) -> None:
    wait_for_releases(application, len(application.releases()) + count)


def test_sigterm_ends_the_worker_within_ten_seconds_with_status_0(
    application: Application, tmp_path: Path
) -> None:
    with worker(application, tmp_path) as running, Traffic(application, seed=3):
        told = running.wait_for_log("ready; next: timestamp ")
        assert re.search(r"timestamp \d+ of places, due at 20\S+Z$", told, re.MULTILINE)
        wait_for_releases(application, 4)
        asked = time.monotonic()
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
        assert time.monotonic() - asked < 10
        assert running.log.read_text().endswith("stopped\n")


def test_after_downtime_every_missed_timestamp_is_released_once_and_in_order(
    application: Application, tmp_path: Path
) -> None:
    with Traffic(application, seed=4):
        with worker(application, tmp_path, "first") as first:
            wait_for_releases(application, 8)
            first.kill()
        # Twelve timestamps become due.
        time.sleep(3)
        with worker(application, tmp_path, "second"):
            wait_for_more(application, 24)
    records = [
        json.loads(message.value() or b"") for message in read(application.bootstrap, application.sink)
    ]
    timestamps = [record["timestamp"] for record in records]
    assert timestamps == list(range(timestamps[0], timestamps[0] + len(timestamps)))
    assert_truth(application, application.sink)


def test_an_aborted_partial_count_is_never_merged(application: Application, tmp_path: Path) -> None:
    with worker(application, tmp_path):
        wait_for_releases(application, 4)
        stream = application.releases()
        partials = f"{application.name}-partials"
        records = [
            (partition, message)
            for partition in range(2)
            for message in read(application.bootstrap, partials, partition=partition)
        ]
        partition, message = records[-1]
        forged = json.loads(message.value() or b"")
        zombie = transactional_producer(application.bootstrap, f"{application.name}-zombie")
        forgeries = [
            json.dumps({**forged, "timestamp": forged["timestamp"] + ahead, "columns": [0], "counts": [99]})
            for ahead in range(1, 20)
        ]
        abandon(zombie, partials, forgeries, partition)
        zombie.abort_transaction(30)
        wait_for_releases(application, len(stream) + 24)
    assert_truth(application, application.sink)


def run_for_a_while(application: Application, tmp_path: Path) -> None:
    with worker(application, tmp_path, "before"):
        wait_for_releases(application, 3)


def test_without_genesis_the_worker_stops_and_says_so(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path)
    assert "does not exist" in log_of_refused(application, tmp_path)


def log_of_refused(application: Application, tmp_path: Path) -> str:
    with worker(application, tmp_path, "refused") as refused:
        assert refused.wait(120) == 1
    return refused.log.read_text()


def test_a_changed_topology_stops_the_worker_and_the_message_names_the_field(
    application: Application, tmp_path: Path
) -> None:
    """For one field; ``test_fail_closed`` tries them all. Those that run keep their partitions."""
    with worker(application, tmp_path, "before") as running:
        wait_for_releases(application, 3)
        application.document["streams"]["places"]["mechanism"]["epsilon"] = 2
        application.write()
        log = log_of_refused(application, tmp_path)
        assert "mechanism.epsilon was 1 and is 2 now" in log
        assert "assigned" not in log
        wait_for_more(application, 3)
        assert running.log.read_text().count(" assigned ") == 1


def test_a_source_that_was_deleted_and_created_again_stops_the_worker(
    application: Application, tmp_path: Path
) -> None:
    run_for_a_while(application, tmp_path)
    application.recreate(application.source)
    assert "was deleted and created again" in refusal(application, tmp_path, of_source=True)


def test_an_emptied_ledger_changelog_stops_the_worker_and_cannot_be_created_anew(
    application: Application, tmp_path: Path
) -> None:
    run_for_a_while(application, tmp_path)
    application.recreate(f"{application.name}-ledger-changelog")
    assert "there is no genesis record" in refusal(application, tmp_path)
    application.delete(f"{application.name}-counting-changelog")
    output = application.failing_command("topics", str(application.path), "--create")
    assert "has published before, but its budget state is gone" in output


def test_a_source_without_append_times_is_refused(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path)
    application.create()
    application.alter(application.source, {"message.timestamp.type": "CreateTime"})
    log = refusal(application, tmp_path)
    assert "message.timestamp.type is CreateTime, it should be LogAppendTime" in log
