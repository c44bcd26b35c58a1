"""The partitioners agree with the clients that produce the raw events."""

from __future__ import annotations

import zlib

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import given
from hypothesis import strategies as st

from eventveil.model.partitioners import MANY, PARTITIONERS, crc32_partition, murmur2, murmur2_partition
from tests.unit.support import USER_OF_PARTITION

# org.apache.kafka.common.utils.UtilsTest.testMurmur2; Java's integers are signed.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS.items())
def test_murmur2_gives_the_hashes_of_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS.items())
def test_the_java_partition_masks_the_sign_instead_of_taking_the_absolute_value(
    key: bytes, expected: int
) -> None:
    masked = expected + 2**31 if expected < 0 else expected
    assert [murmur2_partition(key, partitions) for partitions in (1, 3, 12, 1000)] == [
        masked % partitions for partitions in (1, 3, 12, 1000)
    ]


@given(st.binary(max_size=40))
def test_murmur2_agrees_with_aiokafka(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) % 2**32


@pytest.mark.parametrize(("key", "expected"), [(b"123456789", 0xCBF43926), (b"a", 0xE8B7BE43)])
def test_crc32_is_the_unsigned_checksum_that_librdkafka_takes(key: bytes, expected: int) -> None:
    # The check value of CRC-32/ISO-HDLC; both are above 2**31, where a signed reading would differ.
    assert crc32_partition(key, 2**32) == expected
    assert crc32_partition(key, 12) == expected % 12


@given(st.binary(min_size=1, max_size=40), st.integers(1, 1000))
def test_crc32_agrees_with_zlib_over_any_number_of_partitions(key: bytes, partitions: int) -> None:
    assert crc32_partition(key, partitions) == (zlib.crc32(key) & 0xFFFFFFFF) % partitions


def test_the_names_in_a_topology_choose_the_partitioner() -> None:
    key = b"a-little-bit-longer-string"
    assert PARTITIONERS["murmur2"](key, 1000) == (-1486304829 + 2**31) % 1000
    assert PARTITIONERS["crc32"](key, 1000) == zlib.crc32(key) % 1000
    assert set(PARTITIONERS) == {"murmur2", "crc32"}


def test_the_users_that_the_other_tests_lean_on_lie_where_they_say() -> None:
    assert [murmur2_partition(user.encode(), 2) for user in USER_OF_PARTITION] == [0, 1]


@given(st.lists(st.binary(min_size=1, max_size=9) | st.binary(min_size=5, max_size=5)), st.integers(1, 300))
def test_many_keys_at_once_go_where_each_goes_alone(keys: list[bytes], partitions: int) -> None:
    keys = keys * 3 + [b"%d" % number for number in range(40)]
    for name, partition_of in PARTITIONERS.items():
        assert MANY[name](keys, partitions).tolist() == [partition_of(key, partitions) for key in keys]
