"""The threads of a worker: what would hold up its event loop, apart by what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: Runs a blocking call in a thread, see ``Threads``.
Blocking = Callable[..., Awaitable[Any]]
_SEVERAL = 32


class Threads:
    """Runs calls in threads; each kind returns what the call returns, and raises what it raises."""

    def __init__(self) -> None:
        #: For what waits for Kafka, or must not wait for the events that are still to be counted.
        self.waiting = _threads("kafka", _SEVERAL)
        #: For take-overs: they may wait for minutes, and partitions that are owned must not wait for them.
        self.taking_over = _threads("take-over", _SEVERAL)
        #: For what waits for a schema registry: one that hangs must hold up nobody who has its schemas. One
        #: call at a time, in the order they came: a call is about one schema, so no partition that names many
        #: keeps another waiting for longer than one of them takes.
        self.asking = _threads("registry", 1)
        #: For looks at topics, for which all threads that wait for Kafka may be waiting; one at a time.
        self.looking = _threads("topics", 1)
        #: For finding out why no broker answers, while all other threads may be waiting for one.
        self.diagnosing = _threads("diagnosis", 1)
        #: For whatever takes as long as there are events; one call at a time, in the order they came. Several
        #: would fight for the interpreter at each step of an array, which costs more processor time than the
        #: steps, and more time, too: a quarter of both with two cores.
        self.counting = _threads("counting", 1)


def _threads(name: str, number: int) -> Blocking:
    threads = ThreadPoolExecutor(number, thread_name_prefix=name)

    async def run(call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(threads, call, *arguments)

    return run
