"""The request for a new epoch of a transactional producer (InitProducerId, version 3).

aiokafka has version 0 only, by which a producer always fences the one before it. From version 3 on
(KIP-360, Apache Kafka 2.5) one may name the epoch that it has: a producer that has been fenced meanwhile is
refused then, instead of fencing its successor.
"""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactString, Int16, Int32, Int64, Schema, TaggedFields

from eventveil.kafka.outgoing import Producer

_API, _VERSION = 22, 3
_NOBODY = Producer(-1, -1)


class _NewEpoch(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = _API, _VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class _NewEpochStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY, API_VERSION = _API, _VERSION
    RESPONSE_TYPE = _NewEpoch
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class NewEpochRequest(Request[_NewEpochStruct]):  # type: ignore[misc]
    """Asks for a new epoch of ``identity``; ``last`` is the one that the producer has, None for a new one."""

    API_KEY = _API

    def __init__(self, identity: str, timeout_ms: int, last: Producer | None) -> None:
        last = last or _NOBODY
        self._fields = identity, timeout_ms, last.id, last.epoch

    def build(self, request_struct_class: type[_NewEpochStruct]) -> _NewEpochStruct:
        """The request in the one version that there is."""
        return request_struct_class(*self._fields, {})
