"""The names of what travels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faust.types import TP

from eventveil.model.records import TopicPartition
from tests.unit.support import chunk


def test_a_partition_is_told_by_its_topic_and_its_number() -> None:
    place = TopicPartition("shop.views", 3)
    assert str(place) == f"{place}" == "shop.views, partition 3"


def test_a_partition_is_found_under_the_name_that_faust_gives_it() -> None:
    assert {TP("shop.views", 3): "found"}[TopicPartition("shop.views", 3)] == "found"


def test_a_part_of_a_chunk_has_the_part_of_every_column() -> None:
    """A column that stayed behind would give the events the times of others."""
    whole = chunk([(0, None)] * 4)
    names = "append_times", "keys", "values", "headers", "own_times"
    columns: dict[str, Any] = {name: [f"{name} {row}" for row in range(4)] for name in names}
    whole = replace(whole, **columns)
    for part, rows in ((whole.since(3), [3]), (whole.first(2), [0, 1]), (whole.since(1).first(2), [1, 2])):
        assert [*part.offsets] == rows
        for name, column in columns.items():
            assert [*getattr(part, name)] == [column[row] for row in rows]
