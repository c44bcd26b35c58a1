"""The clock that a worker decides by, and whether it was ahead of the broker's or is behind it.

A timestamp that is closed cannot be opened again, so a worker whose clock was ahead must not have closed it.
The broker tells its time with every append. What is compared with it is not the clock of that moment but the
furthest ahead that this owner has ever seen its clock, carried on by the monotonic clock: then it does not
matter when the decision was made, on how many readings it rests, and whether the clock was set right since.

A clock that is behind decides nothing wrong, only late: what is compared is the clock of the moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from eventveil.model.errors import EventveilError

#: Linux's monotonic clock stands still while the machine sleeps; this one does not.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_clock() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


def monotonic_clock() -> int:
    """Milliseconds since some moment; it is never set back, and advances while the machine sleeps."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


@dataclass(frozen=True, slots=True)
class Clock:
    """A wall clock, a monotonic clock that runs as fast, both in milliseconds, and the broker's.

    ``shown`` is what the wall clock should show when that of a broker shows its argument. Only tests have
    others than the defaults.
    """

    wall: Callable[[], int] = wall_clock
    monotonic: Callable[[], int] = monotonic_clock
    shown: Callable[[int], int] = int


SYSTEM_CLOCK = Clock()


class PartitionClock:
    """The clock of one owner of a partition, which may be ahead of the brokers' by ``skew`` ms at most.

    Any thread may ask it.
    """

    def __init__(self, clock: Clock, skew: int) -> None:
        self.skew = skew
        self._clock = clock
        self._lead: int | None = None
        #: How far a broker's clock was ahead of the monotonic one when it was last heard of, at least.
        self._heard: int | None = None
        self._reading = threading.Lock()

    def now(self) -> int:
        """Epoch milliseconds."""
        with self._reading:
            # In this order, because a pause in between must not make the lead smaller.
            monotonic = self._clock.monotonic()
            now = self._clock.wall()
            lead = now - monotonic
            self._lead = lead if self._lead is None else max(lead, self._lead)
        return now

    def elapsed(self) -> int:
        """Milliseconds of the monotonic clock."""
        return self._clock.monotonic()

    def ahead(self, elapsed: int, appended: int) -> int:
        """By how many ms the clock was ahead at worst, if the broker's showed ``appended`` at ``elapsed``."""
        if self._lead is None:
            self.now()
        assert self._lead is not None
        return self._lead + elapsed - self._clock.shown(appended)

    def hear(self, appended: int) -> None:
        """A broker's clock showed ``appended`` just now, or some time ago."""
        self._heard = self._clock.shown(appended) - self._clock.monotonic()

    @property
    def behind(self) -> int:
        """By how many ms the clock is certainly behind that of the broker which was last heard of; else 0.

        The monotonic clock carries on what that showed, so a clock that is set back is noticed before the
        broker is heard of again, and one that is set right is behind no longer.
        """
        if self._heard is None:
            return 0
        # In this order, because a pause in between must not make it larger.
        shown = self._heard + self._clock.monotonic()
        return max(0, shown - self._clock.wall())


class ClockAhead(EventveilError):
    """The clock of this machine was ahead of a broker's by more than was declared, or nobody can tell."""

    def __init__(self, owner: str, skew: int, least: int | None, most: int | None) -> None:
        if least is None or most is None:
            found = "its changelog has no append times; `eventveil topics` says how to correct it"
        elif least > skew:
            found = (
                f"it is at least {least} ms ahead of the broker's, clock_skew is {skew} ms, and timestamps"
                " would close before their events are in. Set the clocks of workers and brokers right"
            )
        else:
            found = (
                f"the broker takes too long to answer whether it is within clock_skew, {skew} ms: it may be"
                f" {most} ms ahead. Wait, or declare a larger clock_skew"
            )
        super().__init__(f"{owner}: nothing is decided by the clock of this machine: {found}")
