"""Ctrl-C at any moment: the first signal ends the demo through every ``finally``, later ones do nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_deferred: list[int] | None = None


class Interrupted(BaseException):
    """The demo was asked to end. Not an Exception, so that nothing takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal ended."""
        return 128 + self.number


def raise_once() -> None:
    """Make the first of SIGNALS raise Interrupted in the main thread and ignore all others."""
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def ignore() -> None:
    """From now on the demo cleans up, and is not disturbed."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def deferred() -> Iterator[None]:
    """Let a signal wait for the end of the block: what starts in it is known by then."""
    global _deferred
    waiting: list[int] = []
    _deferred = waiting
    try:
        yield
    finally:
        _deferred = None
    if waiting:
        _interrupt(waiting[0], None)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    if _deferred is not None:
        _deferred.append(number)
        return
    ignore()
    raise Interrupted(number)
