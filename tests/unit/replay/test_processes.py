"""Partitions counted in processes of their own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eventveil.model.errors import EventveilError
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.topology import Kafka
from eventveil.replay import processes
from eventveil.replay.inputs import FileInput, TopicInput
from eventveil.replay.run import Replay, replay
from tests.unit.replay.divided import Divided, Misbehaving, Partitions
from tests.unit.replay.history import COLUMNS, HOUR, ORIGIN, event, stream, topology

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find the inputs of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def recorded(seed: int, partitions: int, events: int) -> Partitions:
    """Events of a day in order of their append times, some of them late, early, or none at all."""
    chance = random.Random(seed)
    found: dict[int, list[tuple[int, bytes | None]]] = {one: [] for one in range(partitions)}
    for number in range(events):
        append = ORIGIN + number * 24 * HOUR // events
        user = f"user {chance.randrange(300)}"
        at = append - chance.choice([0, 1000, HOUR // 3, 3 * HOUR, -HOUR])
        value = chance.choice([event(user, chance.choice([*COLUMNS, "XXX"]), at)] * 9 + [None, b"{"])  # type: ignore[list-item]
        found[murmur2_partition(user.encode(), partitions)].append((append, value))
    return dict(found)


@pytest.mark.parametrize(
    ("seed", "count", "partitions", "options"),
    [
        (1, 2, 4, {"end": None}),
        (2, 3, 3, {"end": ORIGIN + 20 * HOUR}),
        (3, 9, 2, {"start": ORIGIN + 6 * HOUR, "end": ORIGIN + 15 * HOUR}),
        (4, 2, 3, {"end": ORIGIN + 40 * HOUR}),
    ],
)
def test_however_many_processes_count_the_releases_are_the_same_bytes(
    seed: int, count: int, partitions: int, options: dict[str, Any]
) -> None:
    history = recorded(seed, partitions, 2000)
    streams = stream(lateness=HOUR // 2), stream("slow", interval=3 * HOUR, lateness=HOUR // 2)
    found = []
    for number in (1, count):
        source = Divided(history, size=50)
        running = replay(topology(*streams), source, seed=seed, processes=number, **options)
        assert isinstance(running._counting, processes.ProcessCounting) == (number > 1)
        memory: list[tuple[bool, bool]] = []

        def look(running: Replay = running, memory: list[tuple[bool, bool]] = memory) -> None:
            memory.append((running.elsewhere > 2**24, running.held()["slow"].contributions > 0))

        running.on_chunk = look
        releases = [(one.record, one.counts.tolist()) for one in running]
        assert [any(seen) for seen in zip(*memory, strict=True)] == [number > 1, True]
        ends = [one.last_counted for one in running.releasing.values()]
        found.append((releases, running.outcomes, ends, running.events))
    assert found[0] == found[1]
    assert found[0][1]["slow"]["counted"] > 100
    assert len(found[0][0]) > 4


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("refuse", "^the child refuses$"),
        ("kafka", "no answer for the child"),
        ("bug", "the process that counted partitions 1, 3 ended with status 1"),
        ("killed", "partitions 1, 3 ended with status -9; .* --processes 1 takes less"),
    ],
)
def test_the_failure_of_a_child_is_that_of_the_replay_and_no_child_stays(
    tmp_path: Path, what: str, told: str
) -> None:
    source = Misbehaving(recorded(5, 4, 500), tmp_path, what)
    with pytest.raises(EventveilError, match=told):
        list(replay(topology(), source, end=ORIGIN + 24 * HOUR, processes=2))
    assert alive(tmp_path) == []


def test_whoever_stops_asking_ends_the_children(tmp_path: Path) -> None:
    source = Misbehaving(recorded(6, 2, 20_000), tmp_path, "nothing but sleep")
    releases = iter(replay(topology(), source, end=ORIGIN + 24 * HOUR, processes=2))
    with pytest.raises(TimeoutError):
        interrupt_within(3, releases)
    releases.close()  # type: ignore[attr-defined]
    assert alive(tmp_path) == []


def interrupt_within(seconds: int, releases: Any) -> None:
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        next(releases)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_with_their_parent_however_it_ends(tmp_path: Path, how: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.unit.replay.divided", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=ROOT) as parent:
        assert within(60, lambda: len(list(tmp_path.iterdir())) == 2)
        assert alive(tmp_path)
        parent.send_signal(how)
    assert within(20, lambda: alive(tmp_path) == [])


def alive(folder: Path) -> list[int]:
    """Those that have written their ids into the folder, and run."""
    return [int(path.name) for path in folder.iterdir() if runs(int(path.name))]


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def within(seconds: float, holds: Any) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_few_events_are_not_worth_a_process_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 2)
    source = Divided(recorded(7, 3, 30))
    assert processes.shares(source, None) == processes.shares(source, 1) == []
    assert [share.partitions for share in processes.shares(source, 5)] == [[0], [1], [2]]
    source.total = 10_000_000
    assert [share.partitions for share in processes.shares(source, None)] == [[0, 2], [1]]
    assert processes.shares(Divided({0: []}), 8) == []


def test_a_topic_is_divided_evenly() -> None:
    source = TopicInput(Kafka("nowhere:1"), "t", rekeyed=True)
    source._starts = dict.fromkeys(range(6), 10)
    source._ends = {0: 10, 1: 110, 2: 90, 3: 50, 4: 60, 5: 12}
    shares = source.split(2)
    assert [share.partitions for share in shares] == [[1, 3], [0, 2, 4, 5]]
    for share in shares:
        assert [share.source.ended(one) for one in share.partitions] == [one == 0 for one in share.partitions]
    assert [share.partitions for share in source.split(9)] == [[1], [2], [4], [3], [5], [0]]


def test_a_file_is_not_divided(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert processes.shares(FileInput(str(tmp_path / "f")), 2) == []
