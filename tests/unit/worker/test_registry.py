"""A runner whose records name schemas: what it waits for, what it does meanwhile, and what ends the wait."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eventveil.decoding.avro import AvroSchema
from eventveil.kafka.changelog import OwnerClosed
from eventveil.model.reach import Reach
from eventveil.model.records import NO_EPOCH, Chunk, Schema, TopicPartition
from eventveil.process.clock import Clock, PartitionClock
from eventveil.schema_registry.access import RegistryUnavailable
from eventveil.schema_registry.known import LAG_MS, KnownSchemas
from eventveil.tasks.aggregate import Aggregation, Outputs
from eventveil.worker import runner
from eventveil.worker.ends import PartitionEnds
from eventveil.worker.observe.observation import Observation
from eventveil.worker.restore.restored import Restored
from eventveil.worker.runner import Runner
from eventveil.worker.threads import Threads
from tests.unit.support import chunk, counter_state, stream, topology
from tests.unit.worker.test_runner import PLACE, Surroundings

FIELDS = [{"name": "user", "type": "string"}, {"name": "column", "type": "string"}]
VISIT = AvroSchema(
    json.dumps({"type": "record", "name": "V", "fields": [*FIELDS, {"name": "time", "type": "long"}]})
)
#: Of the user u, in column a, at 1000 ms.
VALUE = b"\0\0\0\0\7" + b"\x02u" + b"\x02a" + b"\xd0\x0f"


class Answers:
    """A registry; each call takes the next answer, of which the last one stays."""

    def __init__(self, *answers: Schema | str | None) -> None:
        self._answers, self.asked = list(answers), 0

    def recall(
        self, values: Iterable[bytes | None], since: float
    ) -> tuple[dict[int, Schema | None], list[int]]:
        return {}, [7]

    def find(self, number: int) -> Schema | None:
        assert number == 7
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, str):
            raise RegistryUnavailable("https://registry", answer)
        return answer


class World:
    """A runner over one partition of a source in Avro, at a time that ``now`` says."""

    def __init__(self, known: Answers | KnownSchemas | None, form: str = "avro", **changes: Any) -> None:
        self.one = stream(topic=PLACE.topic, format=form, **changes)
        outputs = Outputs("partials", {self.one.name: 0}, PLACE)
        self.task = Aggregation(outputs, 1, {self.one.name: (self.one, counter_state())})
        self.known, self.now = known, 1001
        self.at_a_wait: Callable[[Runner], object] = lambda owner: None
        self.waited = 0
        self.seen = Observation(topology(self.one))
        self.done: list[str] = []
        self.ends: PartitionEnds | None = None

    def handle(self, given: Chunk) -> Runner:
        async def run() -> Runner:
            guard, around = SimpleNamespace(check=_nothing), _Around(given.next_offset)
            self.done = around.done
            restored = Restored(self.task, guard, lambda: None, "")  # type: ignore[arg-type]
            context: Any = SimpleNamespace(
                threads=Threads(), cluster=around, end_watch=self, observation=self.seen,
                topology=topology(self.one), schemas=self.known,
            )  # fmt: skip
            clock = PartitionClock(Clock(lambda: self.now, lambda: self.now), 0)
            owner = Runner(PLACE, lambda *_: restored, around, context, clock)  # type: ignore[arg-type]
            owner.take_over()
            sleep = asyncio.sleep

            async def waits(seconds: float) -> None:
                self.waited += 1
                self.at_a_wait(owner)
                await sleep(0)

            runner.asyncio.sleep = waits  # type: ignore[attr-defined]
            try:
                owner.sent(1)
                assert await owner.handle(given)
            finally:
                runner.asyncio.sleep = sleep  # type: ignore[attr-defined]
            return owner

        return asyncio.run(run())

    def follow(self, ends: PartitionEnds) -> PartitionEnds:
        """In place of the thread that asks for ends."""
        self.ends = ends
        return ends

    @property
    def outcomes(self) -> dict[str, int]:
        return dict(self.task.counters[self.one.name].outcomes)


class _Around(Surroundings):
    def __init__(self, end: int) -> None:
        super().__init__()
        self._end = end

    def reached(self, place: TopicPartition) -> Reach:
        return Reach(NO_EPOCH, self._end)


async def _nothing() -> None:
    """Nothing is in doubt."""


RECORDS = chunk([(1001, VALUE)])


def test_a_registry_that_is_away_is_waited_for_and_nothing_is_read_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(Answers("refused", "timed out", "refused", VISIT))
    held: list[tuple[bool, int, dict[str, int]]] = []
    world.at_a_wait = lambda owner: held.append((owner.unread, owner.task.position, world.outcomes))
    with caplog.at_level(logging.WARNING):
        owner = world.handle(RECORDS)
    assert held == [(True, 0, {})] * 3
    assert (owner.unread, owner.task.position, world.outcomes) == (False, 1, {"counted": 1})
    (told,) = [one.getMessage() for one in caplog.records]
    assert told.startswith(
        "input, partition 0 paused, schema registry unavailable: the schema registry at https://registry"
    )


def test_an_id_is_unknown_once_every_server_of_the_registry_would_know_it() -> None:
    answers = Answers(None)
    world = World(answers)

    def wait(owner: Runner) -> None:
        assert (owner.unread, world.outcomes) == (False, {}), "nobody is to be told of it"
        world.now += LAG_MS // 2

    world.at_a_wait = wait
    world.handle(RECORDS)
    assert (world.waited, world.outcomes) == (2, {"unknown-schema": 1})
    # Of a record that was appended long ago, at once.
    world = World(Answers(None))
    world.now = 1001 + LAG_MS
    world.handle(RECORDS)
    assert (world.waited, world.outcomes) == (0, {"unknown-schema": 1})


def test_a_schema_that_one_server_tells_of_a_moment_later_is_no_dead_letter() -> None:
    world = World(Answers(None, None, VISIT))
    world.handle(RECORDS)
    assert (world.waited, world.outcomes) == (2, {"counted": 1})


def test_who_waits_ends_with_the_partition() -> None:
    world = World(Answers("refused"))
    world.at_a_wait = lambda owner: owner.end()
    with pytest.raises(OwnerClosed):
        world.handle(RECORDS)
    assert world.outcomes == {}


@pytest.mark.parametrize("form", ["json", "json-schema"])
def test_a_source_without_schemas_asks_nobody(form: str) -> None:
    answers = Answers("refused")
    world = World(answers, form)
    prefix = b"\0\0\0\0\7" if form == "json-schema" else b""
    world.handle(chunk([(1001, prefix + b'{"user":"u","column":"a","time":1000}')]))
    assert (answers.asked, world.outcomes) == (0, {"counted": 1})


def test_what_is_read_again_by_the_same_schemas_has_the_same_verdicts() -> None:
    values = [VALUE, VALUE[:-1], b"\0\0\0\0\7", b"{}", None]
    given = chunk([(1001, one) for one in values])
    first, again = World(Answers(VISIT)), World(Answers("refused", VISIT))
    first.handle(given)
    for one in range(len(values)):
        again.handle(replace(given.since(one).first(1)))
    assert first.outcomes == again.outcomes == {"counted": 1, "not-of-schema": 3, "tombstone": 1}


def named(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def test_a_partition_whose_schemas_are_known_waits_for_no_request_of_another() -> None:
    asked, answered, in_time = threading.Event(), threading.Event(), list[bool]()

    def ask(number: int) -> Schema | None:
        if number != 7:
            asked.set()
            in_time.append(answered.wait(60))
        return VISIT

    known = KnownSchemas(ask)
    assert known.find(7) is VISIT
    other = threading.Thread(target=lambda: known.of([named(8)]))
    other.start()
    try:
        assert asked.wait(60)
        assert known.of([VALUE]) == {7: VISIT}
        world = World(known)
        world.handle(RECORDS)
        assert (world.outcomes, in_time) == ({"counted": 1}, [])
    finally:
        answered.set()
        other.join()
    assert in_time == [True]


def test_many_unknown_ids_are_asked_for_on_arrival_and_when_that_is_a_verdict() -> None:
    asked: list[int] = []

    def ask(number: int) -> Schema | None:
        asked.append(number)
        return None

    world = World(KnownSchemas(ask))

    def wait(owner: Runner) -> None:
        world.now += LAG_MS // 4

    world.at_a_wait = wait
    ids = [*range(1, 101)]
    world.handle(chunk([(1001, named(one)) for one in ids]))
    assert asked == ids * 2
    assert (world.waited, world.outcomes) == (4, {"unknown-schema": 100})


def test_an_answer_is_a_verdict_only_if_the_question_came_late_enough() -> None:
    """A round of many questions takes longer than servers of a registry take to agree."""
    answers: list[Schema | None] = [VISIT, None]
    world = World(None)

    def ask(number: int) -> Schema | None:
        world.now += LAG_MS
        return answers.pop()

    world.known = KnownSchemas(ask)
    world.handle(RECORDS)
    assert world.outcomes == {"counted": 1}


def test_an_id_that_no_schema_can_have_is_a_verdict_without_a_question() -> None:
    answers: list[int] = []
    world = World(KnownSchemas(answers.append))  # type: ignore[arg-type]
    world.handle(chunk([(1001, named(one)) for one in (0, 2**31, 2**32 - 1)]))
    assert (answers, world.waited, world.outcomes) == ([], 0, {"not-of-schema": 3})


def test_a_boundary_is_durable_while_the_registry_is_waited_for_and_nothing_closes_by_it() -> None:
    world = World(Answers("refused", "refused", "refused", VISIT), append_time="boundary")
    end: Future[Any] = Future()
    end.set_result(SimpleNamespace(offset=1, leader_epoch=None))
    held: list[tuple[int, list[str], bool]] = []

    def wait(owner: Runner) -> None:
        counter = world.task.counters[world.one.name]
        held.append((owner.task.position, [*world.done], counter.undurable))
        if world.waited == 1:
            world.now = world.task.due
            assert world.ends is not None
            world.ends.look(SimpleNamespace(ask_end=lambda place, seconds: end), lambda: None)  # type: ignore[arg-type]

    world.at_a_wait = wait
    world.handle(RECORDS)
    judged = ["judge is written", "judge"]
    assert held == [(0, [], False), (0, judged, False), (0, judged, False)]
    assert world.done == [*judged, "close is written", "close"]
    assert world.outcomes == {"counted": 1}
