"""Which partition a user belongs to, as the common Kafka producers compute it from the key.

``murmur2``: the Java client's default (and aiokafka's), ``toPositive(murmur2(key)) % partitions``;
``crc32``: librdkafka's ``consistent`` family, ``crc32(key) % partitions``. ``fnv1a``
(Sarama's default) is only recognized, not served.

A source that gets more partitions moves users. So each growth is declared for a timestamp: the events of
earlier ones count in the partition that their users had before, the others in the new one. Nobody counts
twice at a timestamp, and what is in the other partition is a dead letter.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.model.durable import Positive

_WORD = 0xFFFFFFFF
_MIX = 0x5BD1E995
_SEED = 0x9747B28C
_FNV_BASIS, _FNV_PRIME = 0x811C9DC5, 0x01000193
#: So few keys are hashed sooner one by one than together.
_FEW = 8


def murmur2(key: bytes) -> int:
    """MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2), unsigned 32 bit."""
    length = len(key)
    whole = length & ~3
    state = (_SEED ^ length) & _WORD
    for position in range(0, whole, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _MIX & _WORD
        word = (word ^ word >> 24) * _MIX & _WORD
        state = (state * _MIX & _WORD) ^ word
    if whole < length:
        state = (state ^ int.from_bytes(key[whole:], "little")) * _MIX & _WORD
    state = (state ^ state >> 13) * _MIX & _WORD
    return state ^ state >> 15


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition of a non-empty key under the Java client's default partitioner."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def crc32_partition(key: bytes, partitions: int) -> int:
    """The partition of a non-empty key under librdkafka's ``consistent`` partitioner."""
    return zlib.crc32(key) % partitions


def fnv1a_partition(key: bytes, partitions: int) -> int:
    """The partition of a non-empty key under Sarama's default, which is librdkafka's ``fnv1a``."""
    state = _FNV_BASIS
    for byte in key:
        state = (state ^ byte) * _FNV_PRIME & _WORD
    return (state if state <= _WORD >> 1 else _WORD + 1 - state) % partitions


def murmur2_partitions(keys: Sequence[bytes], partitions: int) -> NDArray[np.int64]:
    """``murmur2_partition`` of many keys, those of one length together."""
    found = np.empty(len(keys), np.int64)
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for row, key in enumerate(keys):
        by_length[len(key)].append(row)
    for length, rows in by_length.items():
        if len(rows) < _FEW:
            found[rows] = [murmur2_partition(keys[row], partitions) for row in rows]
        else:
            joined = b"".join([keys[row] for row in rows])
            hashes = _murmur2_of_equal_length(np.frombuffer(joined, np.uint8).reshape(len(rows), length))
            found[rows] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)
    return found


def _murmur2_of_equal_length(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """``murmur2`` of every row. Arithmetic of uint32 arrays wraps around."""
    count, length = keys.shape
    whole = length & ~3
    mix = np.uint32(_MIX)
    state = np.full(count, (_SEED ^ length) & _WORD, np.uint32)
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4")
    for position in range(words.shape[1]):
        word = words[:, position] * mix
        word = (word ^ word >> np.uint32(24)) * mix
        state = state * mix ^ word
    if whole < length:
        rest = np.zeros((count, 4), np.uint8)
        rest[:, : length - whole] = keys[:, whole:]
        state = (state ^ rest.view("<u4")[:, 0]) * mix
    state = (state ^ state >> np.uint32(13)) * mix
    return state ^ state >> np.uint32(15)


def crc32_partitions(keys: Sequence[bytes], partitions: int) -> NDArray[np.int64]:
    """``crc32_partition`` of many keys."""
    return np.fromiter(map(zlib.crc32, keys), np.int64, len(keys)) % partitions


PARTITIONERS: dict[str, Callable[[bytes, int], int]] = {
    "murmur2": murmur2_partition,
    "crc32": crc32_partition,
}
#: Those that keys are compared with, to find out which they were written with.
RECOGNIZED: dict[str, Callable[[bytes, int], int]] = {**PARTITIONERS, "fnv1a": fnv1a_partition}
#: The same for many keys at once.
MANY: dict[str, Callable[[Sequence[bytes], int], NDArray[np.int64]]] = {
    "murmur2": murmur2_partitions,
    "crc32": crc32_partitions,
}


class Growth(NamedTuple):
    """Timestamps before ``since`` are counted in ``partitions`` partitions, unless an earlier growth says."""

    since: Positive
    partitions: Positive


class PartitionCounts:
    """The number of partitions of a source by timestamp: ``partitions`` now, and before each growth."""

    def __init__(self, partitions: int, grown: Iterable[Growth] = ()) -> None:
        self._partitions, self._grown = partitions, tuple(grown)

    @property
    def since(self) -> int:
        """The first timestamp from which on it is what it is now; 0 if it never was another."""
        return self._grown[-1].since if self._grown else 0

    def at(self, timestamp: int) -> int:
        """How many partitions the events of a timestamp are divided into."""
        return next((one.partitions for one in self._grown if timestamp < one.since), self._partitions)


def are_ordered(grown: Iterable[Growth]) -> bool:
    """Whether growths follow each other, each to more partitions than the one before."""
    return all(
        one.since <= other.since and one.partitions < other.partitions for one, other in pairwise(grown)
    )
