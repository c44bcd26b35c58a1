"""A source that gets partitions: each timestamp is counted under one number of them, each user in one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest

from eventveil.decoding.rules import Reason
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.model.errors import StateRefused
from eventveil.model.partitioners import Growth, PartitionCounts, murmur2_partition
from eventveil.tasks.aggregate import PartitionAggregator
from tests.unit.support import chunk, counter_state, event, sparse, stream

GROWN = (Growth(3, 2), Growth(5, 4))
MANIFEST = ManifestRecord("visits", "i", {}, "raw", "id", 0, 1, 0, 0)


def test_each_timestamp_has_one_number_of_partitions() -> None:
    counts = PartitionCounts(8, GROWN)
    assert [counts.at(timestamp) for timestamp in range(7)] == [2, 2, 2, 4, 4, 8, 8]
    assert counts.since == 5
    assert PartitionCounts(8).since == 0


@pytest.mark.parametrize(
    "broken",
    [[[1]], [[1, 2, 3]], [["1", 2]], [[0, 2]], [[True, 2]], 7, [[3, 2], [2, 4]], [[2, 4], [3, 4]]],
    ids=str,
)
def test_growths_that_cannot_be_are_refused(broken: Any) -> None:
    fields = {**orjson.loads(MANIFEST.encode()), "grown": broken}
    with pytest.raises(StateRefused, match="cannot be read"):
        ManifestRecord.find({ManifestRecord.key("visits"): orjson.dumps(fields)}, "visits", "here")


def test_a_genesis_remembers_them_and_is_as_before_without() -> None:
    grown = MANIFEST.replace(grown=GROWN)
    key = ManifestRecord.key("visits")
    assert ManifestRecord.find({key: grown.encode()}, "visits", "here") == grown
    assert b"grown" not in MANIFEST.encode()
    with pytest.raises(StateRefused, match="cannot be read"):
        ManifestRecord.find({key: grown.encode().replace(b"[3,2]", b"[3]")}, "visits", "here")


USERS = [f"user {number}" for number in range(60)]


def count(partition: int) -> tuple[dict[int, int], Counter[str]]:
    """How many events of timestamps 1 to 6, one of each user in each, a partition of eight counts."""
    one = stream()
    interval = one.timeline.interval
    state = counter_state(partition=partition)
    aggregator = PartitionAggregator(8, {"visits": (one, state)}, grown={"visits": GROWN})
    origin = one.timeline.origin
    records = [
        (origin + t * interval, event(user, "a", origin + t * interval)) for t in range(6) for user in USERS
    ]
    aggregator.process(chunk(records, partition=partition))
    batch = aggregator.close(origin + 100 * interval + 10**9)
    found = {} if batch is None else {one.timestamp: sum(sparse(one).values()) for one in batch.partials}
    more = aggregator.counters["visits"]
    found.update({t: int(opened.counts().sum()) for t, opened in more._open.items()})
    return found, more.outcomes


def test_everybody_counts_once_at_each_timestamp_whatever_partition_it_was_sent_to() -> None:
    """Every user sends to all partitions; in each timestamp, one of them counts it."""
    total: Counter[int] = Counter()
    for partition in range(8):
        found, outcomes = count(partition)
        total.update(found)
        wrong = sum(
            murmur2_partition(user.encode(), PartitionCounts(8, GROWN).at(timestamp)) != partition
            for user in USERS
            for timestamp in range(1, 7)
        )
        assert outcomes[Reason.WRONG_PARTITION.value] == wrong
    assert {t: total[t] for t in range(1, 7)} == dict.fromkeys(range(1, 7), len(USERS))
