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

    def hear(self, took: int = 0) -> None:
        """An answer comes, ``took`` ms after the broker's append."""
        self.clock.hear(1_000_000 + self.monotonic - took)


def test_a_clock_that_is_right_is_ahead_by_what_the_answer_takes() -> None:
    times = Times()
    times.clock.now()
    times.pass_by(5_000)
    assert (times.ahead(), times.ahead(delay=30)) == (0, 30)


def test_a_clock_is_behind_by_what_a_broker_shows_at_least() -> None:
    times = Times()
    assert times.clock.behind == 0, "no broker was heard of"
    times.wall -= 7_000
    assert times.clock.behind == 0
    times.hear(took=300)
    assert times.clock.behind == 6_700
    times.hear()
    assert times.clock.behind == 7_000


def test_a_clock_that_is_right_or_ahead_is_not_behind() -> None:
    times = Times()
    times.hear(took=5_000)
    assert times.clock.behind == 0
    times.wall += 9_000
    times.hear()
    assert times.clock.behind == 0


def test_a_clock_that_is_set_back_or_right_is_noticed_before_the_next_answer() -> None:
    times = Times()
    times.hear()
    times.pass_by(3_600_000)
    assert times.clock.behind == 0
    times.wall -= 5_000
    assert times.clock.behind == 5_000
    times.pass_by(3_600_000)
    assert times.clock.behind == 5_000
    times.wall += 5_000
    assert times.clock.behind == 0


def test_a_reading_that_was_ahead_does_not_hide_that_the_clock_is_behind() -> None:
    times = Times()
    times.wall += 7_000
    times.clock.now()
    times.wall -= 14_000
    times.hear()
    assert times.clock.behind == 7_000
    assert times.ahead() == 7_000


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
