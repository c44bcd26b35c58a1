"""Quotas of brokers: for how long they let this process wait, and how that is told.

A broker answers a request that exceeds a quota at once, says for how long it mutes the connection
(``throttle_time_ms``, KIP-219), and reads the next request after that. How long depends on how much was
written, so on the number of events: the log and readiness say only which of a few bounds it reached.
"""

from __future__ import annotations

import logging
import time
from threading import Lock

from eventveil.kafka.connection import Connection

log = logging.getLogger(__name__)

#: Told is which of these, in seconds, a pause has reached.
_BOUNDS = 1, 5, 20
#: For how long a pause is remembered.
_REMEMBERED_SECONDS = 60.0


class Throttling:
    """The pauses that brokers impose on the clients of one name. Any thread may use it."""

    def __init__(self, client: str) -> None:
        self.client = client
        self._lock = Lock()
        #: The longest pause that is remembered, in seconds, when there last was one, and the bound told.
        self._longest, self._last, self._told = 0.0, 0.0, 0

    def note(self, connection: Connection) -> None:
        """Take in what the last answer on a connection said."""
        if not (seconds := connection.muted):
            return
        with self._lock:
            self._forget()
            if seconds >= self._longest:
                # A shorter one does not prolong the memory of a longer one.
                self._longest, self._last = seconds, time.monotonic()
            reached = max((bound for bound in _BOUNDS if bound <= self._longest), default=0)
            new, self._told = reached > self._told, max(self._told, reached)
        if new:
            log.warning(
                "brokers throttle client.id %s for %d s or more at a time, which delays releases. Raise its"
                " quota (kafka-configs.sh --entity-type clients, or users)",
                self.client,
                reached,
            )

    @property
    def seconds(self) -> float:
        """The longest pause of late; 0 if there was none for a minute."""
        with self._lock:
            self._forget()
            return self._longest

    def _forget(self) -> None:
        if time.monotonic() > self._last + self._longest + _REMEMBERED_SECONDS:
            self._longest, self._told = 0.0, 0
