"""How long a question is asked again, and how fast."""

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.25


class Deadline:
    """Pauses between attempts, until there is no time left for another. ``told`` is what is said then.

    ``check`` is called after each pause, and by those who ask, right before an attempt: what it raises ends
    the attempts.
    """

    def __init__(
        self,
        seconds: float,
        told: str = "no success before the deadline",
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self._ends, self._told = time.monotonic() + seconds, told
        self._pause = FIRST_PAUSE
        self.check = check

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self._ends - time.monotonic())

    def pause(self, obstacle: object) -> None:
        """Wait a little longer than the last time.

        Raises KafkaException if the time is up, and what ``check`` raises.
        """
        if self.left < self._pause:
            told = f"{self._told}; last failure: {obstacle}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, told))
        time.sleep(self._pause)
        self.check()
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
