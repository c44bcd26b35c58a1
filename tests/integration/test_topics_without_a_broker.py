"""``eventveil topics --create`` while one broker of three is down: all is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster
from tests.kafka.jars import missing_tools
from tests.worker.application import Application

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))


@pytest.fixture
def application(cluster: Cluster, tmp_path: Path) -> Application:
    made = Application(cluster.bootstrap, tmp_path, replication=3)
    made.write()
    return made


def test_while_a_broker_is_down_all_topics_and_the_genesis_are_made_and_stay_as_they_are(
    cluster: Cluster, application: Application
) -> None:
    create = ("topics", str(application.path), "--create", "--sources")
    cluster.kill(3)
    # For some seconds more the others take the dead one for the leader of partitions that are its own.
    output = application.command(*create)
    assert (output.count("created "), output.count("found ")) == (7, 0)
    assert "places: genesis written; it begins with timestamp" in output
    cluster.start(3)
    cluster.wait_until_in_sync()
    cluster.kill(2)
    again = application.command(*create)
    assert again.count("found ") == 7
    assert "created" not in again
    assert "genesis" not in again
