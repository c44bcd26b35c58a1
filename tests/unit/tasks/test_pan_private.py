"""Pan-private streams: one timestamp at a time, what a failure gives up, what is there to be seen."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.counting.counter import CounterState
from eventveil.formats.announcement import Announcement
from eventveil.mechanisms.pan_private import Counters, PanPrivate
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import StateRefused
from eventveil.model.reach import Reach
from eventveil.model.records import Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.privacy.noise import NoiseSource, SeededNoise
from eventveil.tasks.pan_private import Exposure, PanPrivateStream, PanPrivateTopics, release_key
from eventveil.tasks.release import ReleaseState, StreamSanitizer
from tests.unit.support import INSTANCE, ZeroNoise, chunk, counter_state, event, stream
from tests.unit.tasks.test_aggregate import FAR, LAST, Line, reasons, truth

PLACES = PanPrivateTopics(TopicPartition("ledger", 1), TopicPartition("changelog", 0))
NAME = "visits"


def pan_private(looks: str = "single", **changes: Any) -> Stream:
    """Its noise is smaller than a count."""
    fields = {
        "epsilon": Fraction(1000),
        "window": 1,
        "adjacency": "substitute",
        "kind": "budget-distribution",
    }
    return stream(**{**fields, "options": {"pan_private": looks}, **changes})


class World:
    """A log, what is durable, and the one worker over it, which fails as it is told."""

    def __init__(
        self,
        one: Stream,
        lines: Sequence[Line] = (),
        noise: Callable[[], NoiseSource] = ZeroNoise,
        version: str = "",
    ) -> None:
        self.version = version
        self.stream, self.lines, self._noise = one, lines, noise
        self.table: dict[bytes | None, bytes | None] = {NAME.encode(): counter_state().encode()}
        self.sink: list[dict[str, Any]] = []
        self.ledger: list[dict[str, Any]] = []
        self.letters: list[Outgoing] = []
        self.outcomes: Counter[str] = Counter()
        self.take_over()

    def take_over(self) -> None:
        known = {key: value or b"" for key, value in self.table.items()}
        counted = CounterState.decode(known[NAME.encode()], "here")
        initial = ReleaseState(INSTANCE, 1, 1, 0).encode()
        released = ReleaseState.decode(known.get(release_key(NAME), initial), "here")
        exposure = Exposure.decode(known.get(Exposure.key(NAME), Exposure(INSTANCE).encode()), "here")
        mechanism = of_stream(self.stream, self._noise())
        assert isinstance(mechanism, PanPrivate)
        sanitizer = StreamSanitizer(self.stream, 1, mechanism, released, None, version=self.version)
        self.worker = PanPrivateStream(self.stream, mechanism, counted, sanitizer, exposure, PLACES)
        if left := self.worker.left():
            self.commit(left.records)
            self.worker.committed(left)
        self.worker.begin()

    def commit(self, records: Iterable[Outgoing]) -> None:
        for record in records:
            if record.topic == "changelog":
                self.table[record.key] = record.value
            elif record.topic == "ledger":
                self.ledger.append(orjson.loads(record.value or b""))
            elif record.topic == self.stream.sink.topic:
                self.sink.append(orjson.loads(record.value or b""))
            else:
                self.letters.append(record)

    def announce(self, heard: int) -> None:
        self.worker.hear(heard)
        exposing = self.worker.next(0)
        assert exposing is not None
        assert exposing.name == "expose"
        self.commit(exposing.records)
        self.worker.committed(exposing)

    def write_dead_letters(self) -> None:
        if batch := self.worker.aggregator.dead_letter_batch():
            self.commit(self.worker._settling("judge", batch).records)
            self.worker.aggregator.durable(batch)
            self.outcomes += batch.outcomes[NAME]

    def release(self, fails: str = "", now: int | None = None) -> None:
        """Release the next timestamp; ``fails`` names the step that kills the worker.

        Without ``now`` its time has come, and there is nothing more to read.
        """
        task = self.worker
        if now is None:
            now = task.due
            if not task.aggregator.can_close(now):
                task.capture_end(now, task.position)
        if fails == "before expose":
            self.write_dead_letters()
            return self.take_over()
        done = ""
        while done != "publish":
            work = task.next(now)
            assert work is not None
            if (done := work.name) == "decide" and fails == "decided in vain":
                return self.take_over()
            self.commit(work.records)
            self.outcomes += work.outcomes.get(NAME, Counter())
            if (done, fails) in {("expose", "exposed"), ("decide", "decided"), ("publish", "published")}:
                return self.take_over()
            task.committed(work)
        return None

    def read(self, end: int, records: int, overlap: int = 0) -> None:
        """A chunk of what is readable below offset ``end``."""
        start = max(0, self.worker.aggregator.position - overlap)
        waiting = [line for line in self.lines if start <= line.offset < end]
        found = waiting[: records + overlap]
        after = max(start, end if found == waiting else found[-1].offset + 1)
        self.worker.process(
            chunk(
                [(line.append_time, line.value) for line in found],
                start=start, offsets=[line.offset for line in found], next_offset=after,
            )
        )  # fmt: skip


def lines_of(chance: random.Random) -> list[Line]:
    """Events of several timestamps mixed, in columns a and b and others, some not as they should be."""
    found, offset, now = [], 0, 1000
    for _ in range(chance.randrange(60)):
        offset += chance.choice([1, 1, 1, 3])
        now += chance.choice([0, 0, 1, 2, 5, 25])
        fields: dict[str, Any] | None = {
            "user": f"user {chance.randrange(5)}",
            "column": chance.choice("aabbc"),
            "time": now + chance.choice([0, 0, 3, 6, 8, -3, -8, -20, -300]),
        }
        found.append(Line(offset, now, fields if chance.random() < 0.95 else None))
    return found


FAILURES = ("before expose", "exposed", "decided in vain", "decided", "published", "", "", "", "", "")


@pytest.mark.parametrize("seed", range(50))
def test_whatever_fails_each_timestamp_is_released_once_with_the_truth_or_given_up(seed: int) -> None:
    chance = random.Random(seed)
    lines = lines_of(chance)
    world = World(pan_private(), lines)
    given_up: set[int] = set()
    now = 990
    while now < LAST:
        now += chance.randrange(30)
        readable = bisect_left(
            lines, now - world.stream.timeline.clock_skew, key=lambda line: line.append_time
        )
        end = lines[readable - 1].offset + 1 if readable else 0
        for _ in range(chance.randrange(4)):
            world.read(end, chance.randrange(1, 20), chance.choice([0, 0, 5]))
            if chance.random() < 0.2:
                world.take_over()
        aggregator = world.worker.aggregator
        if aggregator.wants_end(now):
            aggregator.capture_end(now, end)
        if chance.random() < 0.3:
            world.write_dead_letters()
        while aggregator.can_close(now):
            fails, timestamp = chance.choice(FAILURES), world.worker.timestamp
            if fails in {"exposed", "decided in vain"} and world.worker.draws:
                given_up.add(timestamp)
            world.release(fails, now)
            if fails:
                break
    end = lines[-1].offset + 1 if lines else 0
    world.worker.aggregator.capture_end(LAST, end)
    while world.worker.timestamp <= 90:
        world.read(end, 100)
        while world.worker.aggregator.can_close(LAST):
            world.release(now=LAST)
    timestamps = [one["timestamp"] for one in world.sink]
    assert timestamps == list(range(1, world.worker.timestamp))
    assert [one["timestamp"] for one in world.ledger] == timestamps
    expected = truth(pan_private(contributions=FAR), 1, 0, lines)
    before: dict[str, int] = {"a": 0, "b": 0}
    for one in world.sink:
        counts = expected.counts.get(one["timestamp"], {})
        if one["timestamp"] in given_up:
            assert (one["forfeited"], one["fresh"], one["counts"]) == (True, False, before)
            assert one["spent"]["publish"] > 0
        else:
            assert one["counts"] == {"a": counts.get(0, 0), "b": counts.get(1, 0)}, one
            assert "forfeited" not in one
        before = one["counts"]
    verdicts = Counter(expected.outcomes.values())
    assert len(set(letters := reasons(world.letters))) == len(letters)
    assert Counter(reason for _, _, reason in letters) == {
        reason: count for reason, count in verdicts.items() if reason != "counted"
    }
    assert world.outcomes["counted"] + world.outcomes["discarded"] == verdicts["counted"]


# What is there to be seen


def cells(world: World) -> list[int] | None:
    counters = world.worker.aggregator.counter.counters
    return None if counters is None else counters.cells.tolist()


def test_counters_hold_noise_before_the_first_event_and_nothing_once_the_partition_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labels = tuple(f"column {number}" for number in range(200))
    world = World(pan_private(epsilon=Fraction(1), labels=labels), noise=lambda: SeededNoise(1))
    seeds = cells(world)
    assert seeds is not None
    assert sum(map(abs, seeds)) > 500
    world.worker.process(chunk([(1000, event(column="column 3")), (1001, event(column="column 3"))]))
    seeds[3] += 2
    assert cells(world) == seeds
    world.worker.end()
    assert cells(world) == [0] * 200
    monkeypatch.setattr(Counters, "add", None)
    world.worker.process(chunk([(1002, event(column="column 3"))], start=2))
    assert cells(world) == [0] * 200
    with pytest.raises(ValueError, match="given up"):
        world.worker.decide()


def test_the_state_carries_how_far_the_log_was_read_in_which_epoch() -> None:
    world = World(pan_private())
    world.worker.process(chunk([(1002, event()), (1002, b"broken")]))
    world.worker.note(Reach(3, 2))
    letters = world.worker.aggregator.dead_letter_batch()
    assert letters is not None
    *_, state = world.worker._settling("judge", letters).records
    assert [*state.headers] == [("eventveil.reach", b"3/2")]


def test_whoever_is_counting_when_the_partition_is_given_up_wipes_the_counters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(pan_private())
    judge = world.worker.aggregator.process

    def given_up_meanwhile(one: Chunk) -> None:
        judge(one)
        assert cells(world) == [1, 0]
        world.worker.end()

    monkeypatch.setattr(world.worker.aggregator, "process", given_up_meanwhile)
    world.worker.process(chunk([(1002, event())]))
    assert cells(world) == [0, 0]


def test_a_worker_whose_clock_is_behind_reads_on_although_its_timestamp_is_complete() -> None:
    world = World(pan_private())
    world.worker.process(chunk([(1018 + number // 100, event(time=1018)) for number in range(500)]))
    assert world.worker.aggregator.position == 1
    world.worker.next(0)
    assert world.worker.aggregator.position == 500


def test_the_column_of_an_event_that_is_ignored_does_not_show_in_the_state() -> None:
    for column in ("a", "nothing"):
        world = World(pan_private(unknown="ignore"))
        world.worker.process(chunk([(1005, event(column=column, time=1010)), (1006, event(time=1010))]))
        world.release()
        state = CounterState.decode(world.table[NAME.encode()] or b"", "here")
        assert state.resume == 0


def test_events_of_a_later_timestamp_are_in_no_counter_until_it_is_their_turn() -> None:
    world = World(pan_private())
    world.worker.process(chunk([(1005, event(time=1010)), (1006, event()), (1018, event(time=1018))]))
    assert cells(world) == [1, 0]
    world.worker.aggregator.capture_end(1018, 3)
    assert world.worker.aggregator.can_close(1018)
    world.release()
    assert cells(world) == [2, 0]
    assert world.table[NAME.encode()] == counter_state(next=2, resume=0, judged=3).encode()


def test_an_exposure_takes_dead_letters_along() -> None:
    world = World(pan_private())
    world.worker.process(chunk([(1005, b"?"), (1006, event())]))
    done = []
    for now in (1006, world.worker.due):
        if now == world.worker.due:
            world.worker.process(chunk([(1008, b"?"), (1019, event(time=1019))], start=2))
        while (work := world.worker.next(now)) is not None:
            done.append((work.name, len(work.letters)))
            world.commit(work.records)
            world.worker.committed(work)
    assert done == [("judge", 1), ("expose", 1), ("decide", 0), ("publish", 0)]
    assert reasons(world.letters) == [(NAME, 0, "not-json"), (NAME, 2, "not-json")]


def test_dead_letters_that_fail_cost_no_timestamp() -> None:
    """A decision that fails gives its timestamp up: nothing should go with it that has its own topic."""
    world = World(pan_private())
    lines = [(1005, b"?"), (1006, event()), (1025, event(time=1025))]
    for reachable in (False, True):
        world.worker.process(chunk(lines))
        while (work := world.worker.next(1025)) is not None:
            records = [*work.records]
            if not reachable and any(one.topic == world.stream.dead_letter for one in records):
                world.take_over()
                break
            world.commit(records)
            world.worker.committed(work)
    assert [one["counts"] for one in world.sink] == [{"a": 1, "b": 0}]
    assert not any("forfeited" in one for one in world.ledger)
    assert reasons(world.letters) == [(NAME, 0, "not-json")]


def test_no_name_of_a_user_outlives_a_chunk() -> None:
    world = World(pan_private())
    world.worker.process(chunk([(1000, event(f"user {number}")) for number in range(100)]))
    assert len(world.worker.aggregator.counter.users) == 0
    assert cells(world) == [100, 0]


def test_what_a_nullified_timestamp_gets_is_discarded_without_counters() -> None:
    world = World(pan_private(kind="budget-absorption", window=3))
    for number in range(3):
        world.worker.process(chunk([(1010 * (number + 1) + 8, event(time=1000))], start=number))
        world.worker.aggregator.capture_end(FAR, number + 1)
    released = 0
    while cells(world) is not None:
        world.release()
        released += 1
        assert released < 10
        world.worker.process(
            chunk([(1000 + 10 * released, event(time=1000 + 10 * released))], start=2 + released)
        )
    assert not world.worker.draws
    world.release()
    assert (world.sink[-1]["fresh"], world.sink[-1]["spent"]) == (False, {"test": 0, "publish": 0})
    assert world.outcomes["discarded"] == 1


# Looks


def test_an_announced_look_forces_the_publication_of_its_timestamp_and_of_no_other() -> None:
    world = World(pan_private("announced"))
    for looked in (False, True, False):
        if looked:
            world.announce(heard=7)
        world.release()
        assert world.sink[-1]["fresh"] == looked
        assert (world.sink[-1]["spent"]["test"] == 0) == looked
    exposure = world.worker.exposure
    assert (exposure.timestamp, exposure.announced, exposure.heard) == (3, 2, 7)


def test_whoever_fails_after_a_look_gives_the_timestamp_up() -> None:
    world = World(pan_private("announced"))
    world.announce(heard=1)
    world.take_over()
    assert cells(world) is None
    world.release()
    assert (world.sink[-1]["fresh"], world.sink[-1]["forfeited"]) == (False, True)
    world.release()
    assert "forfeited" not in world.sink[-1]


def test_a_timestamp_is_looked_at_once_and_with_half_of_its_time_left() -> None:
    world = World(pan_private("announced"))
    # The one before is due at 1008, and its own deadline is 1015.
    assert world.worker.may_be_announced(1010)
    assert not world.worker.may_be_announced(1011)
    world.announce(heard=1)
    assert not world.worker.may_be_announced(1001)
    world.release()
    assert world.worker.may_be_announced(1018)


def test_nobody_is_told_to_look_where_there_is_nothing_to_be_seen() -> None:
    world = World(pan_private("announced", kind="budget-absorption", window=3))
    world.release()
    world.release()
    world.announce(heard=1)
    world.release()
    assert cells(world) is None, "three shares are spent, so two timestamps are nullified"
    assert not world.worker.may_be_announced(0)


def test_an_announcement_is_of_one_life_of_a_stream_and_for_whom_still_waits() -> None:
    said = Announcement(NAME, INSTANCE, 1000, "7")
    assert Announcement.read(said.encode()) == said
    assert said.concerns(NAME, INSTANCE, 999)
    for other in ((NAME, INSTANCE, 1000), (NAME, "another", 1), ("another", INSTANCE, 1)):
        assert not said.concerns(*other)


@pytest.mark.parametrize("value", [None, b"", b"{", b"[]", b'{"stream":"visits"}', b"7", b'{"until":"1"}'])
def test_whatever_else_is_among_announcements_announces_nothing(value: bytes | None) -> None:
    assert Announcement.read(value) is None
    fields = orjson.loads(Announcement(NAME, INSTANCE, 1, "7").encode()) | {"until": "1"}
    assert Announcement.read(orjson.dumps(fields)) is None


def test_an_announcement_is_not_for_a_stream_with_looks_that_nobody_notices() -> None:
    with pytest.raises(ValueError, match="nobody notices"):
        World(pan_private("single")).announce(heard=1)


# State


@pytest.mark.parametrize(
    "value",
    [
        b"{",
        orjson.dumps({"version": 1, "instance": INSTANCE, "timestamp": "3"}),
        orjson.dumps({"version": 1, "instance": INSTANCE, "timestamp": 1, "announced": 2}),
        orjson.dumps({"version": 1, "instance": INSTANCE, "heard": -1}),
        orjson.dumps({"version": 1, "more": 1, "instance": INSTANCE}),
        orjson.dumps({"version": 2, "instance": INSTANCE}),
    ],
)
def test_an_exposure_that_cannot_be_is_refused(value: bytes) -> None:
    with pytest.raises(StateRefused, match="here"):
        Exposure.decode(value, "here")


def test_an_exposure_is_read_back() -> None:
    exposure = Exposure(INSTANCE, 5, 4, 17)
    assert Exposure.decode(exposure.encode(), "here") == exposure


def test_a_state_of_another_timestamp_than_its_release_is_noticed_by_the_mechanism() -> None:
    world = World(pan_private())
    world.release()
    sanitizer = world.worker.sanitizer
    assert (sanitizer.state.next, world.worker.timestamp) == (2, 2)
    assert np.all(np.array(cells(world)) == 0)
