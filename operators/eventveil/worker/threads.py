"""The threads of a worker: what would hold up its event loop, apart by what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

#: Runs a blocking call in a thread, see ``Threads``.
Blocking = Callable[..., Awaitable[Any]]
_WAITING, _ASKING = 32, 1


class Threads:
    """Runs calls in threads; each method returns what the call returns, and raises what it raises."""

    def __init__(self) -> None:
        self._waiting = ThreadPoolExecutor(_WAITING, thread_name_prefix="kafka")
        self._taking_over = ThreadPoolExecutor(_WAITING, thread_name_prefix="take-over")
        self._asking = ThreadPoolExecutor(_ASKING, thread_name_prefix="registry")
        self._diagnosing = ThreadPoolExecutor(1, thread_name_prefix="diagnosis")
        self._counting = ThreadPoolExecutor(1, thread_name_prefix="counting")

    async def waiting(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """For what waits for Kafka, or must not wait for the events that are still to be counted."""
        return await _run(self._waiting, call, *arguments)

    async def taking_over(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """For take-overs: they may wait for minutes, and partitions that are owned must not wait for them."""
        return await _run(self._taking_over, call, *arguments)

    async def asking(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """For what waits for a schema registry: one that hangs must hold up nobody who has its schemas.

        One call at a time, in the order they came: a call is about one schema, so no partition that names
        many keeps another waiting for longer than one of them takes.
        """
        return await _run(self._asking, call, *arguments)

    async def diagnosing(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """For finding out why no broker answers, while all other threads may be waiting for one."""
        return await _run(self._diagnosing, call, *arguments)

    async def counting(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """For whatever takes as long as there are events; one call at a time, in the order they came.

        Several would fight for the interpreter at each step of an array, which costs more processor time
        than the steps, and more time, too: a quarter of both with two cores.
        """
        return await _run(self._counting, call, *arguments)


async def _run(threads: ThreadPoolExecutor, call: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(threads, partial(call, *arguments))
