"""The marker that ends a transaction in a partition, sent as a coordinator sends it, also when it is late."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from confluent_kafka import KafkaError

from eventveil.kafka.connection import Connection
from eventveil.kafka.settings import aiokafka as settings
from eventveil.kafka.transaction_requests import PLACES
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka

_SECONDS = 10.0
#: A broker refuses a marker of a coordinator that is older than the last one that it has heard of.
_EPOCHS = 100


class _Response(Response):
    API_KEY, API_VERSION = 27, 1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                (
                    "topics",
                    CompactArray(
                        ("name", CompactString("utf-8")),
                        (
                            "partitions",
                            CompactArray(("partition", Int32), ("error_code", Int16), ("tags", TaggedFields)),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Struct(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY, API_VERSION = 27, 1
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("committed", Boolean),
                ("topics", PLACES),
                ("coordinator_epoch", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Markers(Request[_Struct]):
    API_KEY = 27

    def __init__(self, *marker: Any) -> None:
        self._marker = marker

    def build(self, request_struct_class: type[_Struct]) -> _Struct:
        return request_struct_class([(*self._marker, {})], {})


def end(bootstrap: str, place: TopicPartition, producer: int, epoch: int, *, commit: bool) -> int:
    """Send a marker of a producer and its epoch to the broker; the error code that it answers."""
    host, port = bootstrap.split(":")
    connection = Connection((host, int(port)), settings(Kafka(bootstrap)), _SECONDS)
    try:
        for coordinator in range(_EPOCHS):
            request = _Markers(producer, epoch, commit, [(place.topic, [place.partition], {})], coordinator)
            connection.send(request, _SECONDS)
            ((_, ((_, ((_, code, _),), _),), _),) = connection.receive(_SECONDS).markers
            if code != KafkaError.TRANSACTION_COORDINATOR_FENCED:
                break
        return int(code)
    finally:
        connection.close()
