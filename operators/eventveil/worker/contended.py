"""Does another worker have the same name in the consumer group? Each then gets what the other has."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger(__name__)

#: As many assignments within as many seconds, with owners fenced in between, say that a name is shared.
_ASSIGNMENTS, _SECONDS = 4, 60.0


class ContendedName:
    """Notes assignments of a worker that has a name, ``member``, and warns where another one may have it too.

    ``fenced`` tells how many owners of this worker others have fenced so far. Brokers do not tell that a name
    is taken: they take the newer worker for the older one that has come back.
    """

    def __init__(
        self, member: str | None, fenced: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._member, self._fenced, self._clock = member, fenced, clock
        self._seen: deque[tuple[float, int]] = deque(maxlen=_ASSIGNMENTS)

    def assigned(self) -> None:
        """Take note of an assignment of partitions."""
        if self._member is None:
            return
        self._seen.append((self._clock(), self._fenced()))
        (began, fenced), (ended, now) = self._seen[0], self._seen[-1]
        if len(self._seen) == _ASSIGNMENTS and ended - began <= _SECONDS and now > fenced:
            self._seen.clear()
            log.warning(
                "partitions were assigned %d times within %.0f seconds, and owners fenced in between: another"
                " worker may run with --member %s. Give each worker a name of its own",
                _ASSIGNMENTS, ended - began, self._member,
            )  # fmt: skip
