"""A long run in short: memory, changelogs and what a take-over reads do not grow with the timestamps.

``make longrun`` shows the same for a million timestamps, with times.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.longrun.run import LongRun, halves, hasten_cleaner, median_memory
from eventveil.kafka import log
from eventveil.kafka.reader import StoredRecord
from eventveil.model.records import TopicPartition
from eventveil.topology.loading import load
from eventveil.worker.app import Worker
from tests.kafka.broker import local_broker
from tests.kafka.jars import missing_tools

EARLY, LATE = 8_000, 40_000
#: This many timestamps pass until the restarted worker has caught up and grown to its size.
WARM_UP = 12_000
#: Bytes on disk. A record takes 70 at least; a transaction of thousands of releases 5 for each of 40,000.
MOST_PER_TIMESTAMP = 8


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[LongRun]:
    if missing := missing_tools():
        pytest.skip("; ".join(missing))
    with local_broker() as broker:
        hasten_cleaner(broker.bootstrap)
        mechanism = {"kind": "budget-absorption", "epsilon": 1, "window": 100}
        with LongRun(broker, tmp_path, mechanism=mechanism, rate=1500) as run:
            yield run


@pytest.mark.timeout(1800)
def test_memory_changelogs_and_take_overs_stay_flat(
    long_run: LongRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_run.run_until(EARLY, 300)
    long_run.stop()
    stopped = long_run.released
    live_early = long_run.live_bytes()
    read_early = records_read_by_take_overs(long_run, monkeypatch)
    long_run.start()
    long_run.run_until(LATE, 600)
    long_run.stop()
    live_late = long_run.live_bytes()
    read_late = records_read_by_take_overs(long_run, monkeypatch)

    assert long_run.is_gapless()
    assert long_run.released >= LATE
    # The ledger's tail dominates; the last few seconds of the changelogs are not compacted.
    assert 0 < read_late < 1.3 * read_early
    first, second = halves(long_run.samples, stopped + WARM_UP, long_run.released)
    assert median_memory(second) < 1.25 * median_memory(first)
    # Five times the timestamps, and no more to keep. How much more than that the disk has depends on when the
    # broker cleans, so of the disk nothing is compared: in the end it must be cleaned.
    assert 0 < live_late < 1.3 * live_early
    long_run.wait_until_cleaned(MOST_PER_TIMESTAMP * long_run.released, 180)


def records_read_by_take_overs(run: LongRun, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many records the owners of all partitions read to take them over, in this process."""
    topology = load(str(run.application.path), os.environ)
    found = 0
    original = log.read_records

    def counting(*arguments: Any, **settings: Any) -> Iterator[StoredRecord]:
        nonlocal found
        for record in original(*arguments, **settings):
            found += 1
            yield record

    async def take_all_over() -> None:
        worker = Worker(topology)
        places = [TopicPartition(run.application.source, one) for one in range(run.application.partitions)]
        places += [TopicPartition(topology.partials, one) for one in range(topology.topics.partials)]
        for place in filter(worker.owners.has_streams, places):
            owner = worker.owners.make(place)
            owner.take_over()
            owner.end()

    with monkeypatch.context() as patch:
        patch.setattr(log, "read_records", counting)
        asyncio.run(take_all_over())
    return found
