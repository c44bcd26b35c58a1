"""Known failures of Faust, each by its issue: the worker must have none of them.

| issue | what failed there | here |
| --- | --- | --- |
| faust-streaming #47 | after a graceful stop, recovery of an exactly-once table waits forever for an offset that is a control marker | below |
| faust-streaming #176 | recovery waits forever for offsets that compaction has removed | below |
| faust-streaming #216 | after a rebalance events are fetched before the position is set: a gap | below, and SEE |
| faust-streaming #597 | a changelog partition that retention has emptied cannot be recovered from | below, and SEE |
| robinhood #340 | kill -9 of an exactly-once worker loses events from its table | SEE |
| robinhood #658 | a second exactly-once worker joins, and the rebalance crashes the first | below, and SEE |
"""  # noqa: E501

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from eventveil.kafka.admin import Admin
from tests.integration import test_surroundings, test_worker, test_worker_killed
from tests.kafka.topics import abandon, end_offset, read, settled, transactional_producer
from tests.worker.application import Application, Traffic
from tests.worker.checks import assert_truth, worker
from tests.worker.waiting import wait_for_releases

#: Tests elsewhere that would fail, too.
SEE: dict[str, list[Callable[..., None]]] = {
    "faust-streaming #216": [test_worker.test_workers_share_the_partitions_and_survive_a_join_and_a_leave],
    "faust-streaming #597": [
        test_worker.test_an_emptied_ledger_changelog_stops_the_worker_and_cannot_be_created_anew,
        test_surroundings.test_a_ledger_that_was_emptied_is_refused,
    ],
    "robinhood #340": [
        test_worker_killed.test_ten_kills_in_300_timestamps_lose_nothing_double_nothing_and_draw_once
    ],
    "robinhood #658": [test_worker.test_workers_share_the_partitions_and_survive_a_join_and_a_leave],
}


def changelogs(application: Application) -> list[tuple[str, int]]:
    """The partitions of both changelogs that hold something."""
    places = [
        (f"{application.name}-{role}-changelog", partition)
        for role, partitions in (("counting", application.partitions), ("ledger", 2))
        for partition in range(partitions)
    ]
    return [place for place in places if read(application.bootstrap, place[0], partition=place[1])]


def stop_between_transactions(application: Application, tmp_path: Path) -> None:
    """Let a worker release and stop it, once more if it was in the middle of a transaction."""
    for attempt in range(20):
        with worker(application, tmp_path, f"before-{attempt}") as before:
            wait_for_releases(application, len(application.releases()) + 8)
            before.signal(signal.SIGTERM)
            assert before.wait() == 0
        if all(behind_last_record(application, *place) == 1 for place in changelogs(application)):
            return
    raise AssertionError("every stop fell into a transaction")


def behind_last_record(application: Application, topic: str, partition: int) -> int:
    """How many offsets there are behind the last committed record."""
    last = read(application.bootstrap, topic, partition=partition)[-1].offset()
    assert last is not None
    return end_offset(application.bootstrap, topic, partition=partition) - 1 - last


@pytest.mark.parametrize("marker", ["commit", "abort"])
def test_faust_streaming_47_a_changelog_that_ends_in_a_control_marker_is_recovered(
    application: Application, tmp_path: Path, marker: str
) -> None:
    with Traffic(application, seed=47, per_second=100):
        stop_between_transactions(application, tmp_path)
        if marker == "abort":
            for topic, partition in changelogs(application):
                stranger = transactional_producer(application.bootstrap, f"{topic}-{partition}-stranger")
                abandon(stranger, topic, [b"never committed"], partition, b"places")
                stranger.abort_transaction(30)
        places = changelogs(application)
        for topic, partition in places:
            # One commit marker; or a commit marker, the aborted record and its abort marker.
            settled(application.bootstrap, topic, partition)
            behind = behind_last_record(application, topic, partition)
            assert behind == (1 if marker == "commit" else 3), (topic, partition)
        with worker(application, tmp_path, "after"):
            wait_for_releases(application, len(application.releases()) + 32)
    assert_truth(application, application.sink)
    assert len(places) == application.partitions + 1


def test_faust_streaming_176_a_compacted_changelog_is_recovered(
    application: Application, tmp_path: Path
) -> None:
    eager = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "500"}
    for topic in {topic for topic, _ in changelogs(application)}:
        application.alter(topic, eager)
    with Traffic(application, seed=176, per_second=100):
        with worker(application, tmp_path, "before") as before:
            wait_until_compacted(application, changelogs(application))
            before.kill()
        with worker(application, tmp_path, "after"):
            wait_for_releases(application, len(application.releases()) + 20)
    assert_truth(application, application.sink)


def wait_until_compacted(application: Application, places: list[tuple[str, int]]) -> None:
    """Until most records of each partition are gone, and with them most offsets that a restore passes."""
    waiting = set(places)
    deadline = time.monotonic() + 240
    while waiting and time.monotonic() < deadline:
        time.sleep(1)
        for topic, partition in list(waiting):
            left = read(application.bootstrap, topic, "read_uncommitted", partition)
            end = end_offset(application.bootstrap, topic, partition=partition)
            # The genesis record stays; without compaction every second offset holds a record.
            if end > 40 and len(left) < end / 4:
                waiting.discard((topic, partition))
    assert not waiting, f"the broker's cleaner has not touched {waiting}"


def test_faust_streaming_216_no_event_is_skipped_when_a_worker_is_destroyed_and_replaced(
    application: Application, tmp_path: Path
) -> None:
    """The survivor keeps partitions through each rebalance, and has fetched ahead in them."""
    with worker(application, tmp_path, "survivor") as survivor, Traffic(application, seed=216):
        survivor.wait_for_log(" owns ")
        for number in range(3):
            with worker(application, tmp_path, f"replaced-{number}") as replaced:
                replaced.wait_for_log(" owns ")
                time.sleep(1)
                replaced.kill()
            time.sleep(1)
        wait_for_releases(application, 60)
        assert survivor.running
        # Each worker that came made the survivor take over anew; a leave may be one with the next join.
        assert survivor.log.read_text().count(" assigned ") > 3
    test_worker.wait_for_committed_end(application, tmp_path)
    assert_truth(application, application.sink)


def test_faust_streaming_597_an_empty_changelog_partition_is_recovered_from_or_refused(
    application: Application, tmp_path: Path
) -> None:
    ledger = f"{application.name}-ledger-changelog"
    with worker(application, tmp_path, "before"):
        wait_for_releases(application, 4)
    # One partition of two has no stream and is empty: nobody waits for it.
    assert len([place for place in changelogs(application) if place[0] == ledger]) == 1
    empty(application, [place for place in changelogs(application) if place[0] == ledger])
    # Empty with an end that is not 0, as retention leaves it: the budget spent is unknown.
    assert "there is no genesis record" in test_worker.refusal(application, tmp_path)


def empty(application: Application, places: list[tuple[str, int]]) -> None:
    """Delete every record, as retention would; only a topic with cleanup.policy delete allows it."""
    admin = Admin({"bootstrap.servers": application.bootstrap, "log_level": 0})
    for topic, partition in places:
        application.alter(topic, {"cleanup.policy": "compact,delete"})
        place = TopicPartition(
            topic, partition, end_offset(application.bootstrap, topic, partition=partition)
        )
        admin.delete_records([place])[place].result(30)
        application.alter(topic, {"cleanup.policy": "compact"})
        assert end_offset(application.bootstrap, topic, partition=partition) > 0


def test_robinhood_658_a_second_worker_joins_and_the_first_goes_on(kafka: str, tmp_path: Path) -> None:
    """The steps of the issue: ten partitions, state, a graceful stop, two workers one after the other."""
    application = Application(kafka, tmp_path, partitions=10)
    application.create()
    with Traffic(application, seed=658):
        with worker(application, tmp_path, "alone") as alone:
            wait_for_releases(application, 8)
            alone.signal(signal.SIGTERM)
            assert alone.wait() == 0
        with worker(application, tmp_path, "first") as first:
            wait_for_releases(application, len(application.releases()) + 8)
            with worker(application, tmp_path, "second") as second:
                second.wait_for_log(" owns ")
                wait_for_releases(application, len(application.releases()) + 12)
                assert first.running
                assert second.running
                for one in (first, second):
                    assert "stopped:" not in one.log.read_text()
    test_worker.wait_for_committed_end(application, tmp_path)
    assert_truth(application, application.sink)


def test_every_issue_is_covered() -> None:
    here = " ".join(
        name for name in globals() if name.startswith("test_faust") or name.startswith("test_rob")
    )
    listed = [line.split("|")[1].strip() for line in str(__doc__).splitlines() if "#" in line]
    assert len(listed) == 6
    for issue in listed:
        number = issue.split("#")[1]
        assert f"_{number}_" in here or SEE[issue], issue
