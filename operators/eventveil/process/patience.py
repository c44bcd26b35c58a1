"""How long a doubt that may pass is looked at again before it is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from eventveil.model.errors import EventveilError, Unsettled

T = TypeVar("T")

#: Seconds for which the same doubt may stand.
PATIENCE_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
#: How often it has to be met before it is refused, however long that takes.
_LOOKS = 3


class Patience:
    """How long the same doubt may stand, in seconds, before it is refused."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._doubt, self._since, self._looks = "", 0.0, 0

    def refusal(self, doubt: Unsettled) -> EventveilError | None:
        """The refusal of a doubt that was met at least three times over that long.

        None if the doubt has none.
        """
        return doubt.refusal if self.stands(doubt) else None

    def stands(self, doubt: Unsettled) -> bool:
        """Whether a doubt was met at least three times over that long.

        It is the same if it differs in numbers only: what is missing may grow while it is looked at.
        """
        if (kind := re.sub(r"\d+", "", str(doubt))) != self._doubt:
            self._doubt, self._since, self._looks = kind, self._clock(), 0
        self._looks += 1
        lasted = self._clock() - self._since
        return self._looks >= _LOOKS and lasted >= self._seconds

    def settle(self) -> None:
        """Forget the doubt: a look has settled it."""
        self._doubt = ""


def look(
    once: Callable[[], T],
    doubt_of: Callable[[T], Unsettled | None],
    patience: Patience,
    told: Callable[[Unsettled], None],
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """What a look finds, once it leaves no doubt, or the same one for as long as ``patience`` has it.

    ``once`` looks, with new clients. ``doubt_of`` is what has to be seen again and again before it is
    believed, if a look has found such a thing. ``told`` learns of each doubt that is looked at again. Raises
    the refusal of a doubt that stays, and at once a doubt that has none.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            found = once()
            doubt = doubt_of(found)
            if doubt is None or patience.stands(doubt):
                return found
        except Unsettled as error:
            doubt = error
            if doubt.refusal is None:
                raise
            if patience.stands(doubt):
                raise doubt.refusal from None
        told(doubt)
        sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


class Doubts:
    """The doubts that end the owners of a partition, one owner after the other.

    A take-over that succeeds has looked at what an earlier take-over doubted. It says nothing about a doubt
    that is met later in the life of an owner: only a life that came past that point settles it. Otherwise
    the partition would be taken over again without end.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._of_take_overs, self._of_lives = Patience(seconds, clock), Patience(seconds, clock)
        self._now = self._of_take_overs

    def begin(self) -> None:
        """A take-over begins."""
        self._now = self._of_take_overs

    def taken_over(self) -> None:
        """It has succeeded."""
        self._of_take_overs.settle()
        self._now = self._of_lives

    def healthy(self) -> None:
        """The owner got something done after its take-over, or lived for long."""
        self._of_lives.settle()

    def refusal(self, doubt: Unsettled) -> EventveilError | None:
        """See ``Patience.refusal``, for the doubt that has ended the owner."""
        return self._now.refusal(doubt)
