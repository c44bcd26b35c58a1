"""Is a topic that an owner reads still the one that its state is of, with as many partitions?

A topic that is deleted and created again has the name of the old one, and offsets that mean something else.
One that was given more partitions has events of the same timestamps where nothing reads them. So the
cluster is asked after everything has been read, and before anything is concluded from it. An id is never
used again and no partition is ever removed, so an answer that finds both unchanged holds for all that was
read and asked before it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping

from eventveil.kafka.cluster import Cluster, Topic
from eventveil.model.errors import Unsettled
from eventveil.worker.threads import Blocking

_PAUSE_SECONDS = 1.0


class Inquiry:
    """Asks the cluster for topics on behalf of all owners of a worker.

    The answer is always to a question that was put after the request. One question is under way at a time,
    and all requests that come meanwhile share the next one: two hundred partitions that become due together
    ask twice.
    """

    def __init__(self, cluster: Cluster, blocking: Blocking) -> None:
        self._cluster, self._blocking = cluster, blocking
        self._turn = asyncio.Lock()
        self._names: set[str] = set()
        self._next: asyncio.Task[dict[str, Topic]] | None = None

    async def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the named topics that exist now, perhaps among others. Raises KafkaException."""
        self._names.update(names)
        if self._next is None:
            self._next = asyncio.create_task(self._ask())
        return await asyncio.shield(self._next)

    async def _ask(self) -> dict[str, Topic]:
        async with self._turn:
            names, self._names, self._next = self._names, set(), None
            answer: dict[str, Topic] = await self._blocking(self._cluster.topics, names)
            return answer


class AppendTimes:
    """Whether a topic stamps its records with LogAppendTime."""

    def __init__(self, cluster: Cluster, blocking: Blocking, topic: str) -> None:
        self._cluster, self._blocking, self._topic = cluster, blocking, topic
        self._ask_again = 0.0

    async def restored(self) -> bool:
        """Whether it certainly does; False also for a second after it did not. Raises KafkaException."""
        if time.monotonic() < self._ask_again:
            return False
        settings = await self._blocking(self._cluster.settings, [self._topic])
        kind = settings.get(self._topic, {}).get("message.timestamp.type")
        if kind == "LogAppendTime":
            return True
        self._ask_again = time.monotonic() + _PAUSE_SECONDS
        return False


class TopicGuard:
    """The topics that an owner depends on, as they were when it took over.

    ``growing`` ones may get more partitions.
    """

    def __init__(
        self, inquiry: Inquiry, known: Mapping[str, Topic], growing: Collection[str] = frozenset()
    ) -> None:
        self._inquiry, self._known, self._growing = inquiry, known, growing

    async def check(self) -> None:
        """Raise Unsettled if a topic is not what it was; the next take-over finds out what it is."""
        live = await self._inquiry.topics(self._known) if self._known else {}
        for name, known in self._known.items():
            if (what := self._change(known, live.get(name))) is not None:
                raise Unsettled(f"topic {name}", what)

    def _change(self, known: Topic, live: Topic | None) -> str | None:
        if live is None:
            return "it is not there"
        if live.id != known.id:
            return "it is another topic of the same name now"
        if live.partitions == known.partitions or known.name in self._growing:
            return None
        return f"it has {live.partitions} partitions, and had {known.partitions} when its state was read"
