"""The names of what travels."""

from __future__ import annotations

from faust.types import TP

from eventveil.model.records import TopicPartition


def test_a_partition_is_told_by_its_topic_and_its_number() -> None:
    place = TopicPartition("shop.views", 3)
    assert str(place) == f"{place}" == "shop.views, partition 3"


def test_a_partition_is_found_under_the_name_that_faust_gives_it() -> None:
    assert {TP("shop.views", 3): "found"}[TopicPartition("shop.views", 3)] == "found"
