"""Is the cluster the one where the state was made? A copy of it knows nothing of what was released since."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.manifest import check_cluster

log = logging.getLogger(__name__)

_UNNAMED = (
    "%s: the genesis of %s does not name its Kafka cluster, for an earlier version wrote it, so a copy on"
    " another cluster is known by its topics only. Stop the workers and run `eventveil topics --create`,"
    " which adds the name"
)


def check_home(cluster: Cluster, states: Mapping[bytes, bytes], place: str) -> None:
    """Raise StateRefused if a changelog partition, read as ``states``, was made on another cluster.

    Blocks. Raises KafkaException if the cluster does not tell its id.
    """
    if unnamed := check_cluster(states, cluster.id(), place):
        log.warning(_UNNAMED, place, ", ".join(sorted(one.stream for one in unnamed)))
