"""The barrier: what a broker must show before anything is concluded from its answer.

A broker that is cut off from the controller and from the other brokers keeps answering clients, as leader
of its old epoch. What it shows was true once; the client cannot see that it is out of date. A writer that has
fenced the former one therefore writes a *nonce* into each partition that it is going to read. The broker
acknowledges a write of a transaction when every in-sync replica has it, and at least
``min.insync.replicas``: brokers that follow a newer epoch copy nothing from the leader of an older one, so
only the true leader can acknowledge.
No consumer is shown what lies behind the high watermark, and that of a leader that was deposed never moves
again. So a broker that shows the nonce, or the log beyond it, shows everything that lies before it
(docs/architecture.md).

Nonces of partitions that others read are written in a transaction that is then aborted: a read_committed
reader never sees them, and one that reads uncommitted recognizes them by their key and skips them.
"""

from __future__ import annotations

from collections.abc import Mapping

from eventveil.model.errors import Unsettled
from eventveil.model.records import Outgoing, TopicPartition

#: By partition, the offset of a record that the true leader has acknowledged: a reading has to go beyond it.
Floors = Mapping[TopicPartition, int]

#: How long a broker is sought that shows the log beyond the floor. A transaction that somebody else left open
#: hides it for 30 seconds at most: 20 until it times out, and 10 until the broker looks.
BARRIER_SECONDS = 35.0
#: No stream name holds a slash.
_PREFIX = b"barrier/"
_HEADER = ("eventveil", b"barrier: it says how far the log reaches, and nothing else")


def nonce_key(owner: str) -> bytes:
    """The key of the nonces of a writer: one record each is left of them by compaction."""
    return _PREFIX + owner.encode()


def nonce(place: TopicPartition, owner: str, value: bytes | None = None) -> Outgoing:
    """The record that a writer puts into a partition; without ``value`` it is for a transaction to abort."""
    topic, partition = place
    return Outgoing(topic, value, nonce_key(owner), partition, [_HEADER])


def is_nonce(key: bytes | None) -> bool:
    """Whether a record of this key is a nonce, for readers to pass over."""
    return key is not None and key.startswith(_PREFIX)


def least_end(floors: Floors, place: TopicPartition) -> int:
    """Where a log must end, at least, for a reading of it to count; 0 if nothing is known of it."""
    return floors.get(place, -1) + 1


def behind(place: TopicPartition) -> Unsettled:
    """The doubt about a partition of which nobody shows what was written to it."""
    return Unsettled(
        str(place),
        f"for {BARRIER_SECONDS:g} s no broker has shown what its leader had acknowledged: one that is cut "
        "off from the others may have answered, or a transaction stays open",
    )
