"""What of a library's messages is written: none again and again, as while a broker is away, and no offset."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

#: How often the same message is written at most, in seconds: at first, and when it has come all the time.
SECONDS, LONGEST_SECONDS = 30.0, 900.0
#: Messages that are told apart at most; then all begin anew.
MOST = 1000
_OWN = "eventveil"


class Repeats(logging.Filter):
    """Lets the same message of a library through once in ``SECONDS``, with how many were left out before.

    While it keeps coming, each pause is twice the one before, up to ``LONGEST_SECONDS``. The same is what has
    one logger, one level and one template, whatever the arguments. Our own messages all pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lock = clock, threading.Lock()
        #: When a message may be written again, how long that pause is, and how many were left out in it.
        self._known: dict[tuple[str, int, str], tuple[float, float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        if record.name.partition(".")[0] == _OWN:
            return True
        key = record.name, record.levelno, str(record.msg)
        with self._lock:
            now = self._clock()
            again, pause, left_out = self._known.get(key, (now, SECONDS, 0))
            if now < again:
                self._known[key] = again, pause, left_out + 1
                return False
            if len(self._known) >= MOST:
                self._known.clear()
            pause = min(2 * pause, LONGEST_SECONDS) if left_out else SECONDS
            self._known[key] = now + pause, pause, 0
        if left_out:
            record.msg = f"{record.getMessage()} [{left_out} messages like this one were left out]"
            record.args = None
        return True


class HiddenOffsets(logging.Filter):
    """Hides the offsets that aiokafka would write: differences between two are exact counts of events."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always: what is written is another thing."""
        if isinstance(record.args, tuple):
            record.args = tuple("(hidden)" if _is_offset(one) else one for one in record.args)
        return True


def _is_offset(argument: object) -> bool:
    # By name, so that this folder needs no client of Kafka.
    return type(argument).__name__ == "OffsetAndMetadata"
