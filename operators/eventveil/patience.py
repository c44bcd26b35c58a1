"""How long a doubt that may pass is looked at again before it is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from eventveil.errors import EventveilError, Unsettled

#: Seconds for which the same doubt may stand.
PATIENCE_SECONDS = 30.0
#: How often it has to be met before it is refused, however long that takes.
_LOOKS = 3


class Patience:
    """How long the same doubt may stand, in seconds, before it is refused."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._doubt, self._since, self._looks = "", 0.0, 0

    def refusal(self, doubt: Unsettled) -> EventveilError | None:
        """The refusal of a doubt that was met again and again for so long, at least three times.

        It is the same if it differs in numbers only: what is missing may grow while it is looked at.
        """
        if (kind := re.sub(r"\d+", "", str(doubt))) != self._doubt:
            self._doubt, self._since, self._looks = kind, self._clock(), 0
        self._looks += 1
        lasted = self._clock() - self._since
        return doubt.refusal if self._looks >= _LOOKS and lasted >= self._seconds else None

    def settle(self) -> None:
        """Forget the doubt: a look has settled it."""
        self._doubt = ""
