"""An unclean election loses records that were acknowledged: the worker finds out, and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.process import ChaosWorker
from tests.chaos.sabotage import unclean_allowed
from tests.kafka.cluster import Cluster
from tests.kafka.jars import missing_tools
from tests.worker.application import Application, Traffic
from tests.worker.placed import place_topics
from tests.worker.waiting import last_release, until, wait_for_releases

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))
#: Partitions of the changelog.
PARTIALS = 2


def test_a_state_that_an_unclean_election_has_rewound_is_refused_and_nothing_is_drawn_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    application = Application(cluster.bootstrap, tmp_path, partitions=1, replication=3)
    place_topics(application, cluster, [1, 2, 3])
    application.create()
    changelog = f"{application.name}-ledger-changelog"
    worker = ChaosWorker(application.path, tmp_path / "worker.log")
    try:
        with Traffic(application, seed=1):
            worker.start()
            wait_for_releases(application, 4)
            cluster.stop(3)
            # From here on broker 3 lacks what the others acknowledge.
            wait_for_releases(application, len(application.releases()) + 4)
            worker.kill()
        _rewind(cluster, changelog)
        # The sink has what it had. The kill may have cut a transaction short, which is committed or aborted.
        released = application.releases("read_uncommitted")
        committed = application.releases()
        worker.start()
        _wait_until_it_stops(worker)
    finally:
        worker.end()
    (reason,) = worker.stops
    assert changelog in reason
    assert "rewound or lost" in reason
    assert application.releases("read_uncommitted") == released
    assert max(committed) <= last_release(application, application.sink) <= max(released)


def _rewind(cluster: Cluster, topic: str) -> None:
    """Let broker 3, which lacks the newest records, lead this topic, and the others follow it."""
    with unclean_allowed(cluster, [topic]):
        cluster.kill(1)
        cluster.kill(2)
        cluster.start(3)
        until(lambda: {cluster.asked(3, topic).leaders.get((topic, one)) for one in range(PARTIALS)} == {3})
        cluster.start(1, 2)
        cluster.wait_until_in_sync()


def _wait_until_it_stops(worker: ChaosWorker) -> None:
    until(lambda: not worker.running, lambda: worker.log.read_text()[-2000:])
