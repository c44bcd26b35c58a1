"""OffsetsForLeaderEpoch, which aiokafka lacks: where a leader epoch ended in a log (KIP-320).

Version 3 (Apache Kafka 2.3) is the first that a consumer may send, with leave to describe the topic.
"""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

from eventveil.model.records import TopicPartition

_KEY, _VERSION = 23, 3
#: Who asks is no replica.
_CONSUMER = -1


def _by_topic(*fields: tuple[str, object]) -> tuple[str, Array]:
    """What is asked or told of partitions, each with these fields."""
    return "topics", Array(("topic", String("utf-8")), ("partitions", Array(*fields)))


class EpochEnds(Response):  # type: ignore[misc]
    """Of each partition an error, its number, the epoch and its end."""

    API_KEY, API_VERSION = _KEY, _VERSION
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        _by_topic(
            ("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64)
        ),
    )


class _EpochEndsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION = _KEY, _VERSION
    RESPONSE_TYPE = EpochEnds
    SCHEMA = Schema(
        ("replica_id", Int32),
        _by_topic(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32)),
    )


class EpochEndRequest(Request[_EpochEndsStruct]):  # type: ignore[misc]
    """Asks for the last epoch up to ``epoch`` that a partition has, and where it ended.

    ``current`` is the epoch that the leader has to be in, NO_EPOCH for any.
    """

    API_KEY = _KEY

    def __init__(self, place: TopicPartition, epoch: int, current: int) -> None:
        self.place, self.epoch, self.current = place, epoch, current

    def build(self, request_struct_class: type[_EpochEndsStruct]) -> _EpochEndsStruct:
        """The request in the one version that there is."""
        topic, partition = self.place
        return request_struct_class(_CONSUMER, [(topic, [(partition, self.current, self.epoch)])])
