"""Which partition a user belongs to, as the common Kafka producers compute it from the key.

``murmur2``: the Java client's default (and aiokafka's), ``toPositive(murmur2(key)) % partitions``;
``crc32``: librdkafka's ``consistent`` family, ``crc32(key) % partitions``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

_WORD = 0xFFFFFFFF
_MIX = 0x5BD1E995
_SEED = 0x9747B28C


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


PARTITIONERS: dict[str, Callable[[bytes, int], int]] = {
    "murmur2": murmur2_partition,
    "crc32": crc32_partition,
}
