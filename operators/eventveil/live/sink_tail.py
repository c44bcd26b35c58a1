"""Follows the sinks of a topology in a thread, as long as somebody looks.

It reads as any consumer of the sinks does, read_committed, and is given nothing of the worker around it: so
no raw count can get onto the page (docs/privacy.md, "The page of a worker").
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing

from confluent_kafka import KafkaException

from eventveil.live.recent import Seen, SeenReadings, kept_of
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Topology
from eventveil.read.following import Followed, followed

log = logging.getLogger(__name__)

Read = Callable[[Topology], Generator[Followed | None, None, None]]

#: Of each stream at first: what a worker may hold is limited.
_MOST_BYTES = 8_000_000
#: Once nobody has looked for this long, the sinks are no longer followed.
_IDLE_SECONDS = 60.0
#: The pause after a failure to read.
_PAUSE_SECONDS = 5.0
#: The first who looks waits for the first releases, at most.
_FIRST_SECONDS = 3.0


def read_sinks(topology: Topology) -> Generator[Followed | None, None, None]:
    """The newest releases of each stream, then those to come. Raises EventveilError and KafkaException."""
    return followed(topology, topology.all_streams, lambda one: kept_of(one).wanted, _MOST_BYTES)


class SinkTail:
    """What the sinks show now. ``read`` is how they are read; only tests pass another."""

    def __init__(self, topology: Topology, read: Read = read_sinks, pause: float = _PAUSE_SECONDS) -> None:
        self._topology, self._read, self._pause = topology, read, pause
        self._lock = threading.Lock()
        self._running = False
        self._asked = 0.0
        self._seen: dict[str, Seen | SeenReadings] = {}
        self._first = threading.Event()
        #: Why the sinks cannot be read, or "".
        self.problem = ""

    def look(self) -> Mapping[str, Seen | SeenReadings]:
        """What is known of the sinks, by stream; those not read yet are missing. From any thread."""
        self._asked = time.monotonic()
        with self._lock:
            if not self._running:
                self._running = True
                self._first.clear()
                threading.Thread(target=self._run, name="page", daemon=True).start()
        self._first.wait(_FIRST_SECONDS)
        return self._seen

    def _run(self) -> None:
        try:
            self._follow()
        except (EventveilError, KafkaException) as error:
            self._failed(str(error))
        except Exception as error:
            log.exception("the page of releases cannot be made")
            self._failed(f"{error!r}; the log of the worker has more")
        finally:
            with self._lock:
                self._running = False

    def _failed(self, problem: str) -> None:
        self.problem = problem
        self._first.set()
        time.sleep(self._pause)

    def _follow(self) -> None:
        recent = {one.name: kept_of(one) for one in self._topology.all_streams}
        begun = False
        with closing(self._read(self._topology)) as found:
            for one in found:
                if one is not None:
                    recent[one.stream.name].take(one.record, one.place)
                    if begun:
                        self._seen = {**self._seen, one.stream.name: recent[one.stream.name].seen()}
                elif not begun:
                    begun = True
                    self._seen = {name: kept.seen() for name, kept in recent.items()}
                    self.problem = ""
                    self._first.set()
                # After each one: where releases come fast, there may never be None again.
                if begun and time.monotonic() - self._asked > _IDLE_SECONDS:
                    return
