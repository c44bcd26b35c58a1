"""Whatever crashes, stands still or is taken over between any two steps: one draw, one charge, right counts.

No broker, no process, no sleep: the log is in memory, and a broker certifies it (``tests/conformance``).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import orjson
import pytest

from eventveil.counting import counter
from eventveil.counting.counter import Partial
from eventveil.model.errors import EventveilError, StateRefused
from eventveil.model.topology import Stream
from eventveil.privacy.noise import SeededNoise
from eventveil.tasks.release import ReleaseState
from eventveil.tasks.values import PerturberState
from tests.crashes.broken import BROKEN, ForgetsReleases, ForgetsTheBlock, StateApart, broken_world
from tests.crashes.checks import SameNoise, check, check_found, check_replay
from tests.crashes.engine import ENGINE, ENGINE_BROKEN, ENGINE_BY_TIME, EngineTruth, EngineWorld
from tests.crashes.pan_private import PAN_PRIVATE_BROKEN, PanPrivateWorld, check_pan_private
from tests.crashes.values import CHANGELOG, LEDGER, ValuesDrawnAgain, ValueWorld, check_values
from tests.crashes.world import (
    BY_COLUMN,
    COUNTS,
    DISCOVERS,
    FORGETS,
    REKEYED,
    REKEYED_BY_BOUNDARY,
    REKEYED_BY_COLUMN,
    REKEYED_DISCOVERS,
    TOTALS,
    World,
)

pytestmark = pytest.mark.slow

#: At least one of this many seeds must show that a worker is broken.
SEEDS = 40
#: What a check says, or a task that meets records that cannot be there.
NOTICED = (AssertionError, EventveilError)


@pytest.mark.parametrize(
    ("of", "histories", "turns", "names"),
    [
        (COUNTS, 24, 300, {"close", "judge", "decide", "publish"}),
        (REKEYED, 10, 600, {"pass-on", "close", "judge", "decide", "publish"}),
        (REKEYED_BY_BOUNDARY, 8, 1000, {"pass-on", "close", "judge", "decide", "publish"}),
        (BY_COLUMN, 10, 600, {"close", "judge", "decide", "publish"}),
        (REKEYED_BY_COLUMN, 6, 1000, {"pass-on", "close", "judge", "decide", "publish"}),
    ],
    ids=[
        "keyed",
        "re-keyed",
        "re-keyed by boundary",
        "with a bound of each column",
        "re-keyed with a bound of each column",
    ],
)
def test_whatever_happens_every_timestamp_is_drawn_charged_and_published_once_with_the_right_counts(
    of: Stream, histories: int, turns: int, names: set[str]
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(histories):
        world = World(seed, SeededNoise(seed), of)
        world.run(turns)
        seen["timestamp"] += check(world)
        seen += world.seen
    # Nothing above means anything if the histories never got there.
    assert names | {"pause", "fenced", "take-over lost", "transaction that lasted too long"} <= set(seen)
    assert seen["crash"] > 1000
    assert seen["judged anew"] > 10 * histories
    assert seen["published amid crashes"] > histories
    assert seen["timestamp"] > 20 * histories


class ManyVersions(World):
    """Earlier and later versions take over from each other; one of them does not record its version."""

    versions = ("0.1.0", "0.2.0", "", "1.0.0rc1")


def test_whatever_happens_an_entry_names_the_version_that_has_decided_its_release() -> None:
    seen: Counter[str] = Counter()
    for seed in range(10):
        world = ManyVersions(seed, SeededNoise(seed))
        world.run()
        seen["timestamp"] += check(world)
        decided: dict[int, str] = {}
        for one in world.committed(world.topology.ledger_changelog):
            state = ReleaseState.decode(one.value or b"", "here")
            for timestamp in range(state.published + 1, state.next):
                assert decided.setdefault(timestamp, state.eventveil) == state.eventveil
        # Aborted ones too: who publishes for another version writes the same bytes.
        for one in world.public(world.topology.ledger):
            entry = orjson.loads(one.value or b"")
            assert entry.get("eventveil", "") == decided[entry["timestamp"]]
            seen[entry.get("eventveil", "")] += 1
    assert min(seen[one] for one in (*ManyVersions.versions, "timestamp")) > 10


class ManyVersionsOfValues(ValueWorld):
    """The same of values."""

    versions = ManyVersions.versions


def test_whatever_happens_a_span_names_the_version_that_has_charged_it() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4):
        world = ManyVersionsOfValues(seed, SeededNoise(seed))
        world.run()
        check_values(world)
        charged: dict[tuple[int, int], str] = {}
        for one in world.committed(CHANGELOG):
            state = PerturberState.decode(one.value or b"", "here")
            for charge in state.pending.charges:
                charged[state.partition, charge.start] = state.eventveil
        for one in world.public(LEDGER):
            entry = orjson.loads(one.value or b"")
            assert entry.get("eventveil", "") == charged[entry["partition"], entry["start"]]
            seen[entry.get("eventveil", "")] += 1
    assert min(seen[one] for one in ManyVersions.versions) > 3


@pytest.mark.parametrize(
    "of",
    [COUNTS, TOTALS, BY_COLUMN],
    ids=["absorption", "totals with Gaussian noise", "with a bound of each column"],
)
def test_whatever_happens_the_releases_are_those_of_a_replay_with_the_same_noise(of: Stream) -> None:
    compared = 0
    for seed in range(100, 108):
        world = World(seed, SameNoise(seed), of)
        world.run()
        check(world)
        compared += check_replay(world, seed)
    assert compared > 100


@pytest.mark.parametrize(
    ("of", "histories", "turns", "least"),
    [(DISCOVERS, 6, 600, 150), (REKEYED_DISCOVERS, 6, 1000, 60)],
    ids=["keyed", "re-keyed"],
)
def test_whatever_happens_columns_are_found_by_all_of_their_block_and_stay(
    of: Stream, histories: int, turns: int, least: int
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(histories):
        world = World(seed, SameNoise(seed), of)
        world.run(turns)
        seen["timestamp"] += check(world)
        seen += check_found(world, seed)
        # What is replayed here is what was passed on; a replay of the topic of events has tests of its own.
        seen["compared"] += check_replay(world, seed) if of is DISCOVERS else seen["timestamp"]
        seen += world.seen
    assert {"close", "judge", "decide", "publish", "pause", "fenced", "take-over lost"} <= set(seen)
    assert seen["crash"] > 200
    assert min(seen["timestamp"], seen["compared"]) > least
    assert least // 5 < seen["found"] < seen["tested"] - least // 5


def test_whatever_happens_columns_are_forgotten_by_what_is_released_of_them() -> None:
    seen: Counter[str] = Counter()
    for seed in range(4):
        world = World(seed, SameNoise(seed), FORGETS)
        world.run(600)
        seen["timestamp"] += check(world)
        seen += check_found(world, seed)
        seen["compared"] += check_replay(world, seed)
        seen += world.seen
    assert min(seen["crash"], seen["timestamp"], seen["compared"]) > 100
    assert min(seen["found"], seen["forgotten"]) > 15


@pytest.mark.parametrize(("broken", "of"), [(ForgetsReleases, FORGETS), (ForgetsTheBlock, DISCOVERS)])
def test_the_histories_notice_a_worker_that_loses_what_a_block_has_counted_or_released(
    broken: type[World], of: Stream
) -> None:
    def caught(seed: int) -> bool:
        world = broken(seed, SameNoise(seed), of)
        try:
            world.run(600)
            check(world)
            check_found(world, seed)
        except NOTICED:
            return True
        return False

    assert any(map(caught, range(SEEDS)))


def cut_by_chance(patch: pytest.MonkeyPatch, seed: int) -> Counter[bool]:
    """Every writer of partial counts cuts them elsewhere than before; how many were cut, and were not."""
    rnd, pieces, cut = random.Random(seed), Partial.pieces, Counter[bool]()

    def otherwise(partial: Partial) -> Iterator[Partial]:
        patch.setattr(counter, "_PIECE", rnd.choice((10, 80, 1000)))
        made = [*pieces(partial)]
        cut[len(made) > 1] += 1
        return iter(made)

    patch.setattr(Partial, "pieces", otherwise)
    return cut


def test_pieces_are_those_of_one_writer_after_any_crash_and_however_others_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(2):
        with monkeypatch.context() as patch:
            cut = cut_by_chance(patch, seed)
            world = World(seed, SameNoise(seed), DISCOVERS)
            world.run(600)
        seen += check_found(world, seed) + world.seen
        seen += Counter(timestamp=check(world), cut=cut[True], whole=cut[False])
    assert min(seen[one] for one in ("timestamp", "tested", "cut", "whole", "crash")) > 20
    assert seen["fenced"] > 0


def test_the_histories_notice_pieces_that_are_committed_apart_from_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(seed: int) -> bool:
        with monkeypatch.context() as patch:
            cut_by_chance(patch, seed)
            try:
                StateApart(seed, SameNoise(seed), DISCOVERS).run(600)
            except StateRefused as error:
                return "two different partial counts" in str(error)
        return False

    assert any(map(refused, range(SEEDS)))


@pytest.mark.parametrize("of", [ENGINE, ENGINE_BY_TIME], ids=["by watermark", "by time"])
def test_whatever_happens_to_workers_and_engine_the_last_committed_counts_are_released_once(
    of: Stream,
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(8):
        world = EngineWorld(seed, SameNoise(seed), of)
        world.run(400)
        seen["timestamp"] += check(world)
        seen["count"] += sum(map(len, EngineTruth(world).counts.values()))
        if seed < 4:
            seen["compared"] += check_replay(world, seed)
        seen += world.seen
    assert {"close", "judge", "decide", "publish", "pause", "fenced", "take-over lost"} <= set(seen)
    assert seen["crash"] > 200
    assert min(seen["crash of the engine"], seen["fenced engine"], seen["published amid crashes"]) > 8
    assert min(seen["timestamp"], seen["count"]) > 160
    assert seen["compared"] > 20


@pytest.mark.parametrize("name", ENGINE_BROKEN)
def test_the_histories_notice_a_worker_that_takes_counts_otherwise(name: str) -> None:
    def caught(seed: int) -> bool:
        world = ENGINE_BROKEN[name](seed, SeededNoise(seed))
        try:
            world.run(400)
            check(world)
        except NOTICED:
            return True
        return False

    assert any(map(caught, range(SEEDS)))


@pytest.mark.parametrize("name", BROKEN)
def test_the_histories_notice_a_broken_worker(name: str) -> None:
    def caught(seed: int) -> bool:
        world = broken_world(name, seed)
        try:
            world.run()
            check(world)
        except NOTICED:
            return True
        return False

    assert any(map(caught, range(SEEDS)))


def test_whatever_happens_every_value_gets_one_reading_in_its_place_and_its_charge() -> None:
    seen: Counter[str] = Counter()
    for seed in range(12):
        world = ValueWorld(seed, SeededNoise(seed))
        world.run()
        seen["value"] += check_values(world)
        seen += world.seen
    assert {"pause", "fenced", "take-over lost", "transaction that lasted too long"} <= set(seen)
    assert seen["crash"] > 300
    assert seen["published amid crashes"] > 60
    assert seen["value"] > 600


def test_the_histories_notice_values_that_are_drawn_again() -> None:
    def caught(seed: int) -> bool:
        world = ValuesDrawnAgain(seed, SeededNoise(seed))
        try:
            world.run()
            check_values(world)
        except NOTICED:
            return True
        return False

    assert any(map(caught, range(SEEDS)))


def test_whatever_happens_a_pan_private_timestamp_is_drawn_once_or_given_up_and_leaves_nothing() -> None:
    seen: Counter[str] = Counter()
    for seed in range(12):
        world = PanPrivateWorld(seed)
        world.run(450)
        seen += check_pan_private(world)
        seen += world.seen
    assert {"judge", "expose", "decide", "publish", "pause", "fenced", "take-over lost"} <= set(seen)
    assert seen["crash"] > 200
    assert seen["counted"] > 200
    assert seen["given up"] > 12


@pytest.mark.parametrize(
    ("broken", "said"), PAN_PRIVATE_BROKEN.items(), ids=[one.__name__ for one in PAN_PRIVATE_BROKEN]
)
def test_the_histories_notice_a_worker_that_shows_more_of_a_pan_private_timestamp(
    broken: type[PanPrivateWorld], said: str
) -> None:
    def caught(seed: int) -> bool:
        world = broken(seed)
        world.run(600)
        try:
            check_pan_private(world)
        except AssertionError as error:
            return said in str(error)
        return False

    assert any(map(caught, range(SEEDS)))
