"""A reading counts only if it comes from a broker that shows what the leader has acknowledged."""

from __future__ import annotations

from eventveil.kafka.barrier import is_nonce, least_end, nonce, nonce_key
from eventveil.model.records import TopicPartition

PLACE = TopicPartition("changelog", 0)


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
