"""A client for what administrators ask, which is never freed in a thread of its own.

librdkafka aborts the process when a client is freed in the thread that its answers come in. An answer there
may start Python's garbage collector, which frees a client that nobody refers to any more but a cycle does, as
after an exception. So a client that is not needed any more is handed to a thread that frees it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from confluent_kafka.admin import AdminClient

#: What may be put into it also while the garbage collector runs, in any thread.
_ended: SimpleQueue[Admin] = SimpleQueue()
#: References to an object that a list alone refers to: the list's, and that of who counts them.
_ALONE = 2
_starting = Lock()
_freeing: Thread | None = None


class Admin(AdminClient):
    """An AdminClient. ``settings`` are those of librdkafka."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        _start_freeing()
        super().__init__(dict(settings))

    def __del__(self) -> None:
        # It lives on in the queue. Python finalises an object once, so the thread that takes it out frees it.
        _ended.put(self)


def _start_freeing() -> None:
    """Start the thread that frees clients, if this process does not have it: a fork is without it."""
    global _freeing
    with _starting:
        if _freeing is None or not _freeing.is_alive():
            _freeing = Thread(target=_free, name="free-clients", daemon=True)
            _freeing.start()


def _free() -> None:
    while True:
        ended = [_ended.get()]
        # The thread that ended it may not be done with it, and the last one to refer to it frees it.
        while sys.getrefcount(ended[0]) > _ALONE:
            time.sleep(0.01)
        ended.clear()
