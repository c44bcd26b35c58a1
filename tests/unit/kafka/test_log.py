"""How records become columns. Everything else is tried on a real Kafka."""

from __future__ import annotations

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    Message,
)

from eventveil.kafka import log
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME


def record(offset: int, time: tuple[int, int] = (TIMESTAMP_LOG_APPEND_TIME, 77)) -> Message:
    value = b"value %d" % offset
    key = b"key %d" % offset
    return Message(
        topic="t", partition=3, offset=offset, key=key, value=value, headers=[("h", value)], timestamp=time
    )


def end_of_partition(offset: int) -> Message:
    return Message(topic="t", partition=3, offset=offset, error=KafkaError(KafkaError._PARTITION_EOF))


@pytest.mark.parametrize("with_envelope", [True, False])
@pytest.mark.parametrize(
    "offsets", [[4, 5, 6, 7], [4, 6, 7, 8], [4, 5, 6, 9], [4, 7, 11, 12, 13], [4], [100, 2**40]]
)
def test_columns_hold_what_the_messages_say_whether_offsets_have_gaps_or_not(
    offsets: list[int], with_envelope: bool
) -> None:
    columns = log._Columns(with_envelope)
    messages = [record(offset) for offset in offsets]
    # The end of a partition that has grown since is told between records.
    columns.add([*messages[:2], end_of_partition(offsets[0] + 1), *messages[2:], end_of_partition(2**50)])
    columns.add([end_of_partition(2**50)])
    chunk = columns.take("t", 3, 4, offsets[-1] + 1)
    assert list(chunk.offsets) == offsets
    assert list(chunk.append_times) == [77] * len(offsets)
    assert list(chunk.values) == [b"value %d" % offset for offset in offsets]
    assert list(chunk.own_times) == ([77] * len(offsets) if with_envelope else [])
    assert [*chunk.headers] == ([[("h", value)] for value in chunk.values] if with_envelope else [])
    assert [*chunk.keys] == [b"key %d" % offset if with_envelope else None for offset in offsets]
    assert (chunk.start, chunk.next_offset, len(chunk.keys)) == (4, offsets[-1] + 1, len(offsets))
    assert not columns.take("t", 3, 4, 2**50).offsets


def test_only_the_brokers_times_are_append_times() -> None:
    columns = log._Columns(with_envelope=True)
    kinds = [TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME]
    columns.add([record(offset, (kind, 70 + offset)) for offset, kind in enumerate(kinds)])
    columns.add([record(3, (TIMESTAMP_CREATE_TIME, 9)), record(4, (TIMESTAMP_NOT_AVAILABLE, 9))])
    chunk = columns.take("t", 3, 0, 5)
    assert list(chunk.append_times) == [70, NO_APPEND_TIME, 72, NO_APPEND_TIME, NO_APPEND_TIME]
    assert list(chunk.own_times) == [70, 71, 72, 9, NO_OWN_TIME]


def test_a_chunk_ends_where_it_is_told_and_the_rest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_CHUNK_RECORDS", 3)
    columns = log._Columns(with_envelope=True)
    columns.add([record(offset) for offset in (0, 2, 5, 6, 9)])
    taken = [columns.take("t", 3, 0, after) for after in (3, 10, 10)]
    assert [list(chunk.offsets) for chunk in taken] == [[0, 2], [5, 6, 9], []]
    assert [
        [*map(len, (one.append_times, one.own_times, one.keys, one.values, one.headers))]
        for one in taken
    ] == [
        [2] * 5, [3] * 5, [0] * 5,
    ]  # fmt: skip
