"""The page as it is now."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eventveil.live.page import REFRESH, headers, page
from eventveil.live.sink_tail import Read, SinkTail, read_sinks
from eventveil.model.topology import Topology


class Served(NamedTuple):
    """A page, and the headers that it is to be served with."""

    text: str
    headers: Mapping[str, str]


class Shown:
    """The page of a topology. It is made from the topology alone: nothing that is counted gets here.

    ``read`` is how the sinks are read, ``refresh`` how often the page asks for itself (ms); only tests pass
    others.
    """

    def __init__(self, topology: Topology, read: Read = read_sinks, refresh: int = REFRESH) -> None:
        self._topology, self._refresh = topology, refresh
        self._tail = SinkTail(topology, read)

    def serve(self, obstacles: Sequence[str], following: Mapping[str, int]) -> Served:
        """The page now; ``obstacles`` are why the worker is not ready, without raw data.

        ``following``: the next timestamps that the worker releases, by stream.
        """
        seen, now = self._tail.look(), time.time_ns() // 1_000_000
        text = page(self._topology, seen, self._tail.problem, obstacles, following, now, self._refresh)
        return Served(text, headers(text))
