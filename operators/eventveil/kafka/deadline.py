"""How long a question is asked again, and how fast."""

import time

from confluent_kafka import KafkaError, KafkaException

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.25


class Deadline:
    """Pauses between attempts, until there is no time left for another. ``told`` is what is said then."""

    def __init__(self, seconds: float, told: str = "no success before the deadline") -> None:
        self._ends, self._told = time.monotonic() + seconds, told
        self._pause = FIRST_PAUSE

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0.0, self._ends - time.monotonic())

    def pause(self, obstacle: object) -> None:
        """Wait a little longer than the last time. Raises KafkaException if the time is up."""
        if self.left < self._pause:
            told = f"{self._told}; last failure: {obstacle}"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, told))
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
