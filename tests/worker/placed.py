"""The topics of an application on chosen brokers."""

from __future__ import annotations

from collections.abc import Sequence

from eventveil.lifecycle.topics import plan_topics
from eventveil.topology.loading import load
from tests.kafka.cluster import Cluster
from tests.worker.application import Application


def place_topics(application: Application, cluster: Cluster, brokers: Sequence[int]) -> None:
    """Create all topics, each partition on these brokers, led by the first of them."""
    for plan in plan_topics(load(str(application.path), {}), {application.source: application.partitions}):
        cluster.place_topic(plan.name, [brokers] * plan.partitions, plan.settings)
