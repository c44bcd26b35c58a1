"""What one single broker answers, asked without a client that would go on to another one."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from io import BytesIO

from aiokafka.protocol.metadata import MetadataRequest_v5, MetadataResponse_v5

from tests.kafka.ports import HOST

_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Metadata:
    """``brokers``: those alive; ``leaders`` and ``in_sync`` by topic and partition, -1 for no leader."""

    brokers: frozenset[int]
    leaders: dict[tuple[str, int], int]
    in_sync: dict[tuple[str, int], frozenset[int]]
    replicas: dict[tuple[str, int], frozenset[int]]


def metadata(port: int, topics: list[str] | None = None) -> Metadata:
    """What the broker at ``port`` believes of these topics (None: of all). Raises OSError."""
    request = MetadataRequest_v5(topics, False)
    body = request.build_request_header(correlation_id=1, client_id="asking").encode() + request.encode()
    with socket.create_connection((HOST, port), _SECONDS) as connection:
        connection.settimeout(_SECONDS)
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = BytesIO(_exactly(connection, size))
    request.parse_response_header(answer)
    return _told(MetadataResponse_v5.decode(answer))


def _told(answer: MetadataResponse_v5) -> Metadata:
    found = [
        ((name, partition), leader, frozenset(replicas), frozenset(in_sync))
        for _, name, _, partitions in answer.topics
        for _, partition, leader, replicas, in_sync, _ in partitions
    ]
    return Metadata(
        brokers=frozenset(broker[0] for broker in answer.brokers),
        leaders={place: leader for place, leader, _, _ in found},
        in_sync={place: in_sync for place, _, _, in_sync in found},
        replicas={place: replicas for place, _, replicas, _ in found},
    )


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data
