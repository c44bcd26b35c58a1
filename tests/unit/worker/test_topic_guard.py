"""What an owner asks of its topics before it concludes anything from what it has read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from eventveil.kafka.cluster import Topic
from eventveil.model.errors import Unsettled
from eventveil.worker.topic_guard import Inquiry, TopicGuard

RAW, PARTIALS = Topic("raw", "id", 3), Topic("partials", "p", 2)


class Answers:
    """A cluster with these topics; ``asked`` are the names of each question, answered when it may go on."""

    def __init__(self, *topics: Topic) -> None:
        self.live = {topic.name: topic for topic in topics}
        self.asked: list[set[str]] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        self.asked.append(set(names))
        self.may_go_on.wait(10)
        return {name: topic for name, topic in self.live.items() if name in names}


async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(call, *arguments)


def check(known: list[Topic], live: list[Topic], growing: Collection[str] = ()) -> None:
    async def run() -> None:
        inquiry = Inquiry(Answers(*live), in_thread)
        await TopicGuard(inquiry, {topic.name: topic for topic in known}, growing).check()

    asyncio.run(run())


def test_topics_that_are_what_they_were_pass() -> None:
    check([RAW, PARTIALS], [PARTIALS, RAW])


@pytest.mark.parametrize(
    ("live", "what"),
    [
        ([PARTIALS], "topic raw: it is not there"),
        ([PARTIALS, Topic("raw", "other", 3)], "topic raw: it is another topic of the same name now"),
        (
            [PARTIALS, Topic("raw", "id", 4)],
            "topic raw: it has 4 partitions, and had 3 when its state was read",
        ),
        ([RAW, Topic("partials", "q", 2)], "topic partials: it is another topic of the same name now"),
    ],
    ids=["gone", "another", "grown", "another one of several"],
)
def test_any_other_leaves_a_doubt_that_names_it(live: list[Topic], what: str) -> None:
    with pytest.raises(Unsettled) as doubt:
        check([RAW, PARTIALS], live)
    assert str(doubt.value).startswith(f"{what}. ")


def test_one_that_may_grow_may_not_be_another() -> None:
    check([RAW], [Topic("raw", "id", 4)], growing=["raw"])
    with pytest.raises(Unsettled):
        check([RAW], [Topic("raw", "other", 4)], growing=["raw"])


async def test_who_asks_while_a_question_is_under_way_shares_the_next_one() -> None:
    """None gets an answer to a question that was put before it asked."""
    cluster = Answers(RAW, PARTIALS)
    inquiry = Inquiry(cluster, in_thread)
    cluster.may_go_on.clear()
    first = asyncio.create_task(inquiry.topics(["raw"]))
    while not cluster.asked:
        await asyncio.sleep(0)
    others = [asyncio.create_task(inquiry.topics([name])) for name in ("raw", "partials") * 50]
    await asyncio.sleep(0)
    cluster.live["raw"] = Topic("raw", "id", 9)
    cluster.may_go_on.set()
    await first
    found = await asyncio.gather(*others)
    assert cluster.asked == [{"raw"}, {"raw", "partials"}]
    assert {one["raw"].partitions for one in found} == {9}
