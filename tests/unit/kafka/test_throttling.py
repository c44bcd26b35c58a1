"""Quotas of brokers: nothing is sent over a connection that they mute, and it is told."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError

from eventveil.kafka import throttling
from eventveil.kafka.connection import Connection, Throttled, Unanswered
from eventveil.kafka.links import Link
from eventveil.kafka.throttling import Throttling
from tests.unit.kafka.test_connection import PLAINTEXT, REQUEST, Server, broker

PAUSE = 0.7


class Quota:
    """Answers the first request with a pause; ``asked`` is when the requests were read."""

    def __init__(self, pause: float = PAUSE, answers: int = 9) -> None:
        self.pause, self.answers = pause, answers
        self.asked: list[float] = []

    def __call__(self, to: socket.socket, correlation: int) -> None:
        self.asked.append(time.monotonic())
        pause = self.pause if len(self.asked) == 1 else 0
        if len(self.asked) <= self.answers:
            Server._send(to, correlation, struct.pack(">ih", int(pause * 1000), 0))


@contextmanager
def throttled(quota: Quota) -> Iterator[tuple[Link, Any]]:
    """A link to a broker that has just let it wait."""
    with broker(quota) as server:
        link = Link(PLAINTEXT, Throttling("eventveil"))
        link.ask(server.address, REQUEST, 60)
        yield link, server.address
        link.close()


@pytest.mark.parametrize("at_once", [False, True])
def test_the_next_request_waits_until_the_broker_listens_again(at_once: bool) -> None:
    quota = Quota()
    with throttled(quota) as (link, address):
        assert link.muted(address) > 0
        answer = link.ask_all({address: REQUEST}, 60)[address] if at_once else link.ask(address, REQUEST, 60)
        assert answer.error_code == 0
        assert link.muted(address) == 0
    first, second = quota.asked
    assert second - first >= PAUSE - 0.01


@pytest.mark.parametrize("at_once", [False, True])
def test_what_cannot_be_answered_in_time_is_not_sent(at_once: bool) -> None:
    quota = Quota(pause=100)
    with throttled(quota) as (link, address):
        if at_once:
            refused = link.ask_all({address: REQUEST}, 12)[address]
            assert isinstance(refused, Throttled)
        else:
            with pytest.raises(Throttled) as caught:
                link.ask(address, REQUEST, 12)
            refused = caught.value
        assert refused.is_final
        assert refused.error.code() == KafkaError._TIMED_OUT
        assert "throttles client.id eventveil for longer than can be waited; raise its quota" in str(refused)
    assert len(quota.asked) == 1


def test_a_request_without_an_answer_names_the_quota() -> None:
    quota, told = Quota(pause=0.1, answers=1), r"throttles client\.id eventveil, perhaps its quota"
    with throttled(quota) as (link, address), pytest.raises(Unanswered, match=told):
        link.ask(address, REQUEST, 1.5)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made = [1000.0]
    monkeypatch.setattr(throttling, "time", Mock(monotonic=lambda: made[0]))
    return made


def muted(seconds: float) -> Connection:
    return Mock(muted=seconds)


def test_a_pause_is_logged_once_for_each_bound_that_it_reaches(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    made = Throttling("shop")
    for seconds in (0, 0.4, 2.7, 3.5, 1.2, 7.3, 6.0):
        made.note(muted(seconds))
    assert [record.getMessage().partition(" at a time")[0] for record in caplog.records] == [
        "brokers throttle client.id shop for 1 s or more",
        "brokers throttle client.id shop for 5 s or more",
    ]


def test_a_pause_is_forgotten_after_a_while_and_then_told_again(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    made = Throttling("shop")
    assert made.seconds == 0
    made.note(muted(2.5))
    now[0] += 60
    assert made.seconds == 2.5
    made.note(muted(0.01))
    now[0] += 3
    assert made.seconds == 0, "a shorter pause does not prolong the memory of a longer one"
    made.note(muted(1.5))
    assert made.seconds == 1.5
    assert len(caplog.records) == 2
