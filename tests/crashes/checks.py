"""What must be true of the log, whatever has happened: every rule counted again, by code of its own."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.model.records import Chunk
from eventveil.model.topology import Stream
from eventveil.replay.inputs import Input
from eventveil.replay.run import replay
from tests.crashes.engine import EngineTruth
from tests.crashes.world import PARTITIONS, World


class SameNoise:
    """Noise that depends on nothing but what is asked for: who draws again draws the same."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        chance = random.Random(f"{self._seed}:{scale}:{size}")
        return np.array([chance.randint(-9, 9) for _ in range(size)], np.int64)

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        chance = random.Random(f"{self._seed}:{sigma}:{size}")
        return np.array([round(chance.gauss(0, float(sigma))) for _ in range(size)], np.int64)


class LogInput(Input):
    """The events of a world, for a replay."""

    def __init__(self, world: World) -> None:
        super().__init__(None)
        self._log, self._topic = world.log, world.stream.source.topic_of_events
        self._done: set[int] = set()

    def rules(self, stream: Stream, last: int | None) -> Stream:
        return stream

    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        return dict.fromkeys(range(PARTITIONS), 0)

    def chunks(self) -> Iterator[Chunk]:
        for partition in range(PARTITIONS):
            self._done.add(partition)
            yield self._log.read((self._topic, partition))

    def ended(self, partition: int) -> bool:
        return partition in self._done


class Truth:
    """Counts by timestamp and column, and the events that are dead letters, by partition and offset."""

    def __init__(self, world: World) -> None:
        rules, topic = world.stream.timeline, world.stream.source.topic_of_events
        self.counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self.refused: Counter[tuple[int, int]] = Counter()
        found = [
            (record.time, number, record.offset, orjson.loads(record.value or b""))
            for number in range(PARTITIONS)
            for record in world.log.records((topic, number))
        ]
        by_boundary = world.stream.source.append_time == "boundary"
        if by_boundary:
            found = by_captures(world, found)
        bound, per_column = world.stream.counts.contributions, world.stream.counts.per_column
        taken: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for appended, number, offset, event in sorted(found, key=lambda one: one[:3]):
            timestamp = (event["time"] - rules.origin) // rules.interval + 1
            late = appended >= rules.origin + timestamp * rules.interval + rules.lateness
            early = event["time"] > appended + rules.max_ahead
            if by_boundary:
                reached = max(0, (appended - rules.lateness - rules.origin) // rules.interval)
                deadline = rules.origin + (reached + 1) * rules.interval + rules.lateness
                early = event["time"] > deadline + rules.max_ahead
            unknown = event["column"] not in "ab" and world.stream.counts.discover is None
            if late or early or timestamp < 1 or unknown:
                self.refused[number, offset] += 1
                continue
            own, column = taken[event["user"], timestamp], event["column"]
            if len(own) < bound and own.count(column) < (per_column or bound):
                own.append(column)
                self.counts[timestamp][column] += 1


Appended = list[tuple[int, int, int, Any]]


def by_captures(world: World, appended: Appended) -> Appended:
    """Events with the times that the re-keying stage gave them; each was passed on once, with one that fits.

    It lies before the append time, and never falls along a partition.
    """
    given: dict[tuple[int, int], int] = {}
    for record in world.committed(world.stream.source.topic):
        headers = dict(record.headers)
        if "eventveil.offset" in headers:
            place = int(headers["eventveil.partition"]), int(headers["eventveil.offset"])
            assert place not in given, "an event was passed on twice"
            given[place] = int(headers["eventveil.timestamp"])
    assert given.keys() == {(number, offset) for _, number, offset, _ in appended}
    for (number, offset), time in given.items():
        assert given.get((number, offset - 1), 0) <= time
    assert all(given[number, offset] < time for time, number, offset, _ in appended)
    return [(given[number, offset], number, offset, event) for _, number, offset, event in appended]


def check(world: World) -> int:
    """Assert all that must be true in the end; how many timestamps were released."""
    stream = world.stream
    truth = Truth(world) if stream.source.count is None else EngineTruth(world)
    rules = stream.timeline
    due = (world.log.now - rules.clock_skew - rules.lateness - rules.origin) // rules.interval
    _check_counts(world, truth, due)
    letters = Counter(_place(record.headers) for record in world.committed(stream.dead_letter))
    assert letters == truth.refused
    _check_releases(world, due)
    return due


def _place(headers: Any) -> tuple[int, int]:
    found = dict(headers)
    return int(found["eventveil.partition"]), int(found["eventveil.offset"])


def _check_counts(world: World, truth: Truth | EngineTruth, due: int) -> None:
    """Of every timestamp and partition one partial count, and their sum is the true count."""
    counted: defaultdict[int, Counter[str]] = defaultdict(Counter)
    reported: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
    for record in world.committed(world.topology.partials):
        partial = orjson.loads(record.value or b"")
        # All pieces of one are one.
        reported[partial["timestamp"], partial["partition"]] += Fraction(1, partial.get("of", 1))
        labels = partial.get("names") or [world.stream.counts.labels[one] for one in partial["columns"]]
        for column, count in zip(labels, partial["counts"], strict=True):
            counted[partial["timestamp"]][column] += count
    expected = {(one, number): 1 for one in range(1, due + 1) for number in range(PARTITIONS)}
    assert reported == expected
    assert {one: counted[one] for one in range(1, due + 1)} == {
        one: truth.counts[one] for one in range(1, due + 1)
    }


def _check_releases(world: World, due: int) -> None:
    """Every timestamp once and in order, each with its charge, and never two draws that anybody can see."""
    app, sink = world.topology, world.stream.sink.topic
    releases, entries = world.committed(sink), world.committed(app.ledger)
    everyone = [*range(1, due + 1)]
    assert [orjson.loads(one.value or b"")["timestamp"] for one in releases] == everyone
    assert [orjson.loads(one.value or b"")["timestamp"] for one in entries] == everyone
    digests = [hashlib.sha256(one.value or b"").hexdigest() for one in releases]
    assert [orjson.loads(one.value or b"")["digest"] for one in entries] == digests
    draws: defaultdict[int, set[bytes]] = defaultdict(set)
    for topic in (sink, app.ledger):
        for one in world.public(topic):
            value = orjson.loads(one.value or b"")
            drawn = value["digest"] if topic == app.ledger else hashlib.sha256(one.value or b"").hexdigest()
            draws[value["timestamp"]].add(drawn)
    assert all(len(drawn) == 1 for drawn in draws.values())
    assert set(draws) == set(everyone)


def check_found(world: World, seed: int) -> Counter[str]:
    """Columns of releases are those that blocks of true counts and the same noise have found before them.

    Those are forgotten of which enough blocks in a row have released less than their errors. How many were
    found and forgotten, and how many were there to be found. The public log shows no other text of an event.
    """
    stream, truth, seen = world.stream, Truth(world), Counter[str]()
    how, window, labels = stream.counts.discover, stream.mechanism.window, [*stream.counts.labels]
    assert how is not None
    scale = window / how.epsilon
    least = next(one for one in range(window + 1, 10**6) if _passes(scale, one, window) <= float(how.delta))
    sums: Counter[str] = Counter()
    above: Counter[str] = Counter()
    quiet: Counter[str] = Counter()
    for record in world.committed(stream.sink.topic):
        release = orjson.loads(record.value or b"")
        assert [*release["counts"]] == labels
        shown = (record.value or b"").decode()
        assert not any(
            f'"{one}"' in shown for one in {*sums, *truth.counts[release["timestamp"]]} - {*labels}
        )
        for column, count in truth.counts[release["timestamp"]].items():
            if column not in labels:
                sums[column] += count
        error = release["error"]
        for column, count in release["counts"].items():
            above[column] += count - (error[column] if isinstance(error, dict) else error)
        if release["timestamp"] % window == 0:
            if how.forget:
                quiet = Counter({one: quiet[one] + 1 for one in labels[1:] if above[one] < 0})
                seen["forgotten"] += sum(number >= how.forget for number in quiet.values())
                labels = [one for one in labels if quiet[one] < how.forget]
            above.clear()
            columns = sorted(sums)
            draws = SameNoise(seed).discrete_laplace(scale, len(columns)).tolist()
            noisy = [(sums[one] + draw, one) for one, draw in zip(columns, draws, strict=True)]
            passed = sorted((-size, one) for size, one in noisy if size >= least)
            found = [one for _, one in passed][: how.most + 1 - len(labels)]
            seen += Counter(tested=len(columns), found=len(found))
            labels, sums = [*labels, *found], Counter()
    return seen


def _passes(scale: Fraction, threshold: int, events: int) -> float:
    """How likely a window of a user shows a column that nobody else has, by the largest of both ways."""
    ratio = math.exp(-1 / float(scale))
    alone, apart = (ratio ** (threshold - one) / (1 + ratio) for one in (events, 1))
    return max(alone, events * apart)


def check_replay(world: World, seed: int) -> int:
    """The releases equal those of a replay of the same events with the same noise; how many were compared."""
    released = [one.value for one in world.committed(world.stream.sink.topic)]
    replayed = [
        one.record for one in replay(world.topology, LogInput(world), noise=lambda _: SameNoise(seed))
    ]
    compared = min(len(released), len(replayed))
    assert released[:compared] == replayed[:compared]
    return compared
