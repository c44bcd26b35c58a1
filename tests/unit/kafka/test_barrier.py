"""A reading counts only if it comes from a broker that shows what the leader has acknowledged."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from eventveil.kafka import log
from eventveil.kafka.barrier import is_nonce, least_end, nonce, nonce_key
from eventveil.kafka.log import read_table
from eventveil.model.errors import Unsettled
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka

PLACE = TopicPartition("changelog", 0)


def records(end: int) -> list[Message]:
    """A log of ``end`` records, and the event that tells its end."""
    told = [Message(offset=offset, key=b"next", value=b"%d" % offset) for offset in range(end)]
    return [*told, Message(offset=end, error=KafkaError(KafkaError._PARTITION_EOF))]


class Shown:
    """A consumer of a broker that shows a log of this many records."""

    def __init__(self, end: int) -> None:
        self._end = end
        self.closed = False

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, self._end

    def assign(self, _: object) -> None:
        self._log = records(self._end)

    def poll(self, _: float) -> Message:
        return self._log.pop(0)

    def consume(self, *_: object, **__: object) -> list[Message]:
        return []

    def close(self) -> None:
        self.closed = True


def showing(monkeypatch: pytest.MonkeyPatch, *ends: int) -> list[Shown]:
    """The consumers that will be made, one after the other; the last one again and again."""
    made: list[Shown] = []

    def make(*_: Any) -> Shown:
        made.append(Shown(ends[min(len(made), len(ends) - 1)]))
        return made[-1]

    monkeypatch.setattr(log, "_consumer", make)
    return made


def test_a_log_that_ends_early_is_read_again_through_a_new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made = showing(monkeypatch, 3, 0, 9, 3)
    assert read_table(Kafka("nowhere:1"), *PLACE, least=8) == {b"next": b"8"}
    assert len(made) == 3
    assert all(one.closed for one in made)


def test_without_a_floor_the_first_log_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = showing(monkeypatch, 3, 9)
    assert read_table(Kafka("nowhere:1"), *PLACE) == {b"next": b"2"}
    assert len(made) == 1


def test_a_log_that_goes_on_ending_early_is_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "BARRIER_SECONDS", 0.2)
    made = showing(monkeypatch, 3)
    with pytest.raises(Unsettled, match="changelog, partition 0: for 35 s no broker has shown") as doubt:
        read_table(Kafka("nowhere:1"), *PLACE, least=4)
    # Offsets of a topic are nobody's business, and time does not make a loss of it.
    assert "4" not in str(doubt.value)
    assert doubt.value.refusal is None
    assert len(made) > 1
    assert all(one.closed for one in made)


def test_a_reading_has_to_go_beyond_the_record_at_the_floor() -> None:
    assert least_end({PLACE: 7}, PLACE) == 8
    assert least_end({}, PLACE) == 0


def test_a_nonce_is_known_by_its_key_and_says_what_it_is() -> None:
    record = nonce(PLACE, "app-sanitize-3")
    assert (record.topic, record.partition, record.value) == (*PLACE, None)
    assert record.key == nonce_key("app-sanitize-3") == b"barrier/app-sanitize-3"
    assert record.headers == [("eventveil", b"barrier: it says how far the log reaches, and nothing else")]
    assert is_nonce(record.key)
    assert not is_nonce(b"genesis/visits")
    assert not is_nonce(None)
