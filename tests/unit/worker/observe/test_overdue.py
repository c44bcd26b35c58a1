"""A release that is overdue and does not come is told of, however ready the worker is."""

from __future__ import annotations

import logging

import pytest

from eventveil.worker.observe.overdue import AGAIN_SECONDS, OVERDUE_SECONDS, Overdue


def test_a_release_that_does_not_come_is_told_of_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    overdue, told = Overdue("shop"), []
    with caplog.at_level(logging.INFO):
        for second in range(0, 1000, 10):
            overdue.look({"views": (7, max(0, second - 100) * 1000), "sections": (second, 0)}, float(second))
            told += [second] * len(caplog.messages)
            caplog.clear()
    first = 100 + int(OVERDUE_SECONDS)
    assert told == [first, first + int(AGAIN_SECONDS)]


def test_a_stream_that_releases_again_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    overdue = Overdue("shop")
    for second in range(0, 100, 10):
        overdue.look({"views": (7, 60_000 + 1000 * second), "sections": (3, 0)}, float(second))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        # Timestamp 8 is overdue as well when 7 is released.
        for second, timestamp, delay in ((100, 7, 90_000), (110, 8, 90_000), (120, 9, 1000), (130, 10, 0)):
            overdue.look({"views": (timestamp, delay), "sections": (second, 0)}, float(second))
            assert bool(caplog.messages) == (second >= 120)
    assert caplog.messages == ["stream views releases again: timestamp 7 was overdue and is released"]


def test_nothing_is_told_of_what_another_worker_has_released(caplog: pytest.LogCaptureFixture) -> None:
    overdue = Overdue("shop")
    for second in range(0, 100, 10):
        overdue.look({"views": (7, 60_000 + 1000 * second)}, float(second))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for delays in ({}, {"views": (9, 1000)}, {"views": (10, 0)}):
            overdue.look(delays, 100.0)
    assert caplog.messages == []


def test_a_worker_that_catches_up_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    overdue = Overdue("shop")
    with caplog.at_level(logging.INFO):
        for second in range(0, 1000, 10):
            overdue.look({"views": (second // 50, 3_600_000)}, float(second))
        # Neither is a stream that another worker releases meanwhile.
        overdue.look({"views": (99, 3_600_000)}, 1000.0)
        overdue.look({}, 1030.0)
        overdue.look({"views": (99, 3_600_000)}, 1070.0)
    assert caplog.messages == []
    with caplog.at_level(logging.INFO):
        overdue.look({"views": (99, 3_600_000)}, 1070.0 + OVERDUE_SECONDS)
    (message,) = caplog.messages
    assert message.startswith("stream views: timestamp 99 was due 3600 s ago and is not released")
    assert "A worker that runs an older file does not count a stream" in message
    # The first worker of a group cannot know who else is in it.
    assert "If another program has joined consumer group shop, the partitions" in message
    assert "--group shop --describe --members lists all members with their hosts" in message
