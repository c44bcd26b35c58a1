"""The way of one event, from fetched bytes to the published release, enters the files that the page lists."""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path
from random import Random
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import READ_COMMITTED
from aiokafka.record.default_records import DefaultRecordBatchBuilder

import eventveil
from eventveil.mechanisms.movement import noise_variance
from eventveil.mechanisms.registry import of_stream
from eventveil.model.records import TopicPartition
from eventveil.tasks.aggregate import Aggregation, Outputs
from eventveil.tasks.release import PartitionSanitizer, ReleaseState, StreamSanitizer, Topics
from eventveil.tasks.task import Task, Transaction
from eventveil.worker.faust import fetches
from eventveil.worker.faust.driver import _as_chunk
from tests.fuzz.ways import read_by
from tests.unit.support import INSTANCE, ZeroNoise, chunk, counter_state, event, stream
from tests.unit.worker.faust.test_fetches import Log

ROOT = Path(eventveil.__file__).parent
PAGE = Path("docs/architecture.md").read_text()
VISITS = stream()


def all_of(task: Task, now: int) -> list[Transaction]:
    """What a task has to say, each transaction committed."""
    found = []
    while (done := task.next(now)) is not None:
        found.append(Transaction(done.name, [*done.records]))
        task.committed(done)
    return found


def tasks() -> tuple[Aggregation, PartitionSanitizer]:
    outputs = Outputs("partials", {VISITS.name: 0}, TopicPartition("changelog", 0))
    released = StreamSanitizer(
        VISITS, 1, of_stream(VISITS, ZeroNoise()), ReleaseState(INSTANCE, 1, 1, 0), None
    )
    return (
        Aggregation(outputs, 1, {VISITS.name: (VISITS, counter_state())}),
        PartitionSanitizer(Topics("ledger", "changelog", 0), {VISITS.name: released}),
    )


def fetched() -> Any:
    """A fetch of one record, as a broker answers it, in a form that blocks are taken from."""
    batch = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1000)
    batch.append(0, 1001, b"key", event(), [])
    log = Log(Random(0))
    log.end = 0
    log._add(bytes(batch.build()), 0, append_time=True)
    return log.fetched(0, READ_COMMITTED)


def release_one_event(counting: Aggregation, releasing: PartitionSanitizer, source: Any) -> list[str]:
    """The names of the transactions between an event and its release."""
    fetches.take_over(SimpleNamespace(_partition_records=source))
    (block,) = source
    counting.process(_as_chunk(TopicPartition("raw", 0), 1, 0, block, source.next_fetch_offset))
    counting.capture_end(1018, 1)
    closed = all_of(counting, 1018)
    partials = [one.value for done in closed for one in done.records if one.topic == "partials"]
    releasing.process(chunk([(0, one) for one in partials], topic="partials"))
    return [done.name for done in (*closed, *all_of(releasing, 1018))]


@pytest.mark.parametrize("way", ["plain", "kernel"])
def test_the_page_lists_the_files_that_an_event_enters(way: str) -> None:
    made, ran = set[str](), set[str]()
    entered = made

    def note(frame: FrameType, what: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if what == "call" and path.is_relative_to(ROOT):
            entered.add(str(path.relative_to(ROOT)))

    # What the first draw computes is left for the next ones.
    noise_variance.cache_clear()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with read_by(way):
            release_one_event(*tasks(), fetched())
            both, source = tasks(), fetched()
            entered = ran
            names = release_one_event(*both, source)
    finally:
        sys.setprofile(before)
    assert names == ["close", "decide", "publish"]
    listed = PAGE.partition("<!-- way: begin -->")[2].partition("<!-- way: end -->")[0]
    making, *following, plain, kernel = (
        re.findall(r"`(\w+/[\w/]+\.py)`", line) for line in listed.strip().splitlines()
    )
    # The last line also says where the kernel is called, in a file that both ways enter.
    running = [*chain.from_iterable(following), *(kernel[:1] if way == "kernel" else plain)]
    making += plain if way == "kernel" else []
    assert sorted(made - ran) == sorted(making)
    assert sorted(ran) == sorted(running)
    if way == "kernel":
        assert len(ran) <= 23
        assert f"With the compiled kernel those are {len(made | ran)}, {len(ran)} of them " in PAGE
