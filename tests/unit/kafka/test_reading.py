"""What a reader does about errors that pass. Everything else is tried on a real Kafka."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from operators.kafka import reading


class Forgetful:
    """A client that answers with errors before it knows a topic."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.refreshed = 0

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return 3, 7

    def list_topics(self, *_: object, **__: object) -> None:
        self.refreshed += 1


def watermarks(consumer: Forgetful) -> tuple[int, int]:
    return reading._watermarks(cast(Consumer, consumer), "new", 0)


def test_a_topic_that_the_client_does_not_know_yet_is_asked_for_again() -> None:
    consumer = Forgetful(KafkaError._UNKNOWN_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert watermarks(consumer) == (3, 7)
    assert consumer.refreshed == 2


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    consumer = Forgetful(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        watermarks(consumer)
    assert consumer.refreshed == 0


def test_an_error_that_stays_is_raised_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_SILENCE_SECONDS", 0.5)
    with pytest.raises(KafkaException):
        watermarks(Forgetful(*[KafkaError._UNKNOWN_PARTITION] * 1000))
