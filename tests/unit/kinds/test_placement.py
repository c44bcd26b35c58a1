"""The place of a stream in the internal topics, and what its fingerprint is made of."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from eventveil.kinds.placement import StreamPlan
from eventveil.kinds.registry import plan_streams
from eventveil.topology.fingerprints import fingerprint_fields
from tests.unit.support import stream, topology


def test_plans_come_in_the_order_of_the_file() -> None:
    plans = plan_streams(topology(stream("zebra"), stream("ant"), partials=4))
    assert [(plan.name, plan.partials) for plan in plans] == [("zebra", 4), ("ant", 4)]


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1), st.integers(1, 100))
def test_a_stream_has_the_partition_that_the_checksum_of_its_name_gives(name: str, partials: int) -> None:
    place = StreamPlan(stream(name), partials).partials_partition
    assert place == zlib.crc32(name.encode()) % partials
    assert 0 <= place < partials


def test_the_partition_of_a_name_is_for_ever() -> None:
    """A literal: were the rule changed, existing streams would lose their budget state."""
    assert StreamPlan(stream("123456789"), 1000).partials_partition == 0xCBF43926 % 1000


def test_a_new_stream_moves_no_other() -> None:
    names = [f"stream-{number}" for number in range(50)]
    alone = {name: plan_streams(topology(stream(name)))[0].partials_partition for name in names}
    together = {plan.name: plan.partials_partition for plan in plan_streams(topology(*map(stream, names)))}
    assert together == alone
    assert len(set(alone.values())) == 4


def test_the_fingerprint_knows_the_partitions_of_source_and_partials() -> None:
    one = stream()
    fields = StreamPlan(one, 4).fields(12)
    assert fields == fingerprint_fields(one, 12, 4)
    assert fields["source.partitions"] == 12
    assert fields["topics.partials"] == 4
