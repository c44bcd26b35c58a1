"""A record is read whatever it holds."""

from __future__ import annotations

import hashlib

from eventveil.audit.records import FoundRecord
from eventveil.model.records import TopicPartition


def test_a_record_is_of_the_stream_that_its_value_names_else_its_key() -> None:
    place = TopicPartition("topic", 0)
    assert FoundRecord.read(place, 0, b"key", b'{"stream":"value"}').stream == "value"
    assert FoundRecord.read(place, 0, b"key", b'{"stream":1}').stream == "key"
    assert FoundRecord.read(place, 0, b"key", None).stream == "key"
    assert FoundRecord.read(place, 0, None, b"[1]").stream == ""
    assert FoundRecord.read(place, 0, None, b"[1]").digest == hashlib.sha256(b"[1]").digest()
