"""A sink must stay the topic that it was when an owner took over: its records are matched with charges.

This is by metadata, which may be old, and finds out early. The answers to what is written to a sink tell for
certain that it is another topic (``eventveil.kafka.changelog``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eventveil.kafka.cluster import Cluster, Topic
from eventveil.model.errors import doubt
from eventveil.topology.changes import changed
from eventveil.worker.topic_guard import Inquiry


class Sinks:
    """The sinks of an owner; ``remedy`` is what to do when one is gone."""

    def __init__(self, cluster: Cluster, sinks: Iterable[Topic], remedy: str) -> None:
        self._cluster, self._remedy = cluster, remedy
        self._known = {one.name: one.id for one in sinks}

    def check(self) -> None:
        """Raise Unsettled if a sink is another topic by now. Blocks."""
        self._compare(self._cluster.topics(self._known))

    async def check_with(self, inquiry: Inquiry) -> None:
        """The same with what others ask at this moment. Raises KafkaException, too."""
        if self._known:
            self._compare(await inquiry.topics(self._known))

    def _compare(self, live: Mapping[str, Topic]) -> None:
        for name, known in self._known.items():
            if name not in live:
                raise doubt(f"topic {name} (sink)", "it was deleted", self._remedy)
            if live[name].id != known:
                what = f"{changed('sink.topic_id', known, live[name].id)}: it was created again"
                raise doubt(f"topic {name} (sink)", what, self._remedy)
