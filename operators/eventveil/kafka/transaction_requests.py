"""Requests of a transactional producer that aiokafka lacks.

aiokafka has InitProducerId in version 0 only, by which a producer always fences the one before it. From
version 3 on (KIP-360, Apache Kafka 2.5) it may name its epoch: if it has been fenced meanwhile it is refused,
instead of fencing its successor. DescribeTransactions (KIP-664, Apache Kafka 3.0) tells what a coordinator
has decided last.
"""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from eventveil.kafka.outgoing import Producer

_INIT, _INIT_VERSION = 22, 3
_DESCRIBE, _DESCRIBE_VERSION = 65, 0
_NOBODY = Producer(-1, -1)
#: Partitions by topic, in versions with tags.
PLACES = CompactArray(
    ("topic", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)
)


class _NewEpoch(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = _INIT, _INIT_VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class _NewEpochStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY, API_VERSION = _INIT, _INIT_VERSION
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

    API_KEY = _INIT

    def __init__(self, identity: str, timeout_ms: int, last: Producer | None) -> None:
        last = last or _NOBODY
        self._fields = identity, timeout_ms, last.id, last.epoch

    def build(self, request_struct_class: type[_NewEpochStruct]) -> _NewEpochStruct:
        """The request in the one version that there is."""
        return request_struct_class(*self._fields, {})


class _Described(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = _DESCRIBE, _DESCRIBE_VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", CompactString("utf-8")),
                ("transaction_state", CompactString("utf-8")),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("topics", PLACES),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _DescribeStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY, API_VERSION = _DESCRIBE, _DESCRIBE_VERSION
    RESPONSE_TYPE = _Described
    SCHEMA = Schema(("transactional_ids", CompactArray(CompactString("utf-8"))), ("tags", TaggedFields))


class DescribeTransactionRequest(Request[_DescribeStruct]):  # type: ignore[misc]
    """Asks for the last transaction of ``identity``: its state, and the producer that has or had it."""

    API_KEY = _DESCRIBE

    def __init__(self, identity: str) -> None:
        self._identity = identity

    def build(self, request_struct_class: type[_DescribeStruct]) -> _DescribeStruct:
        """The request in the one version that there is."""
        return request_struct_class([self._identity], {})
