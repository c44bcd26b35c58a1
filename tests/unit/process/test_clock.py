"""How far ahead the clock of an owner was at worst."""

from __future__ import annotations

import pytest

from eventveil.process.clock import Clock, PartitionClock


class Times:
    """A machine whose two clocks the test sets; the broker's is ``monotonic`` plus 1,000,000."""

    def __init__(self) -> None:
        self.wall, self.monotonic = 1_000_000, 0
        self.clock = PartitionClock(Clock(lambda: self.wall, lambda: self.monotonic), skew=100)

    def pass_by(self, milliseconds: int) -> None:
        self.wall += milliseconds
        self.monotonic += milliseconds

    def ahead(self, delay: int = 0) -> int:
        """What an answer tells that was appended now and comes after ``delay``."""
        return self.clock.ahead(self.monotonic + delay, 1_000_000 + self.monotonic)


def test_a_clock_that_is_right_is_ahead_by_what_the_answer_takes() -> None:
    times = Times()
    times.clock.now()
    times.pass_by(5_000)
    assert (times.ahead(), times.ahead(delay=30)) == (0, 30)


@pytest.mark.parametrize("passed", [0, 50, 10_000])
def test_a_reading_that_was_ahead_is_never_forgotten(passed: int) -> None:
    times = Times()
    times.wall += 7_000
    assert times.clock.now() == 1_007_000
    times.wall -= 7_000
    times.pass_by(passed)
    times.clock.now()
    assert times.ahead() == 7_000


def test_a_clock_that_was_behind_and_is_set_right_is_not_ahead() -> None:
    times = Times()
    times.wall -= 7_000
    times.clock.now()
    assert times.ahead() == -7_000
    times.wall += 7_000
    times.clock.now()
    assert times.ahead() == 0


def test_nothing_decided_by_it_yet_is_as_good_as_a_reading_now() -> None:
    times = Times()
    times.wall += 300
    assert times.ahead() == 300
