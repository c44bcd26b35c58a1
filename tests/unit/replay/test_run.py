from __future__ import annotations

import json
import random
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.counting.boundaries import Boundary
from eventveil.mechanisms.registry import KINDS
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import NO_APPEND_TIME, TopicPartition
from eventveil.model.topology import MechanismSettings, Sink, Stream
from eventveil.replay.run import replay, seeded_noise, select_streams
from eventveil.tasks import aggregate
from tests.contract.noises import W_EVENT_KINDS
from tests.fuzz.ways import WAYS, read_by
from tests.unit.replay.history import (
    COLUMNS,
    HOUR,
    ORIGIN,
    Recorded,
    ZeroNoise,
    brute_force,
    counts_of,
    event,
    random_events,
    replay_file,
    stream,
    topology,
    write_lines,
    zero_noise,
)

DAY = 24 * HOUR
END = ORIGIN + 10 * HOUR
#: Of two partitions, murmur2 puts this one and "u" into different ones.
USER_ELSEWHERE = "x"

#: By kind, the beginnings of the digests of releases.
RELEASED = json.loads((Path(__file__).parents[2] / "golden" / "replays.json").read_text())


def records(path: Path, values: list[bytes], *streams: Stream, **options: Any) -> list[bytes]:
    return [one.record for one in replay_file(path, values, *streams, **options)]


def in_partitions(
    values: list[bytes], partitions: int, delay: int = 0
) -> dict[int, list[tuple[int, bytes | None]]]:
    """Where a producer with murmur2 puts events that it sends in the order of time, ``delay`` later."""
    found: dict[int, list[tuple[int, bytes | None]]] = {number: [] for number in range(partitions)}
    for value in sorted(values, key=lambda value: json.loads(value)["at"]):
        fields = json.loads(value)
        found[murmur2_partition(fields["user"].encode(), partitions)].append((fields["at"] + delay, value))
    return found


# Counts


@pytest.mark.parametrize("bound", [1, 3])
def test_the_counts_are_those_of_brute_force_empty_timestamps_included(tmp_path: Path, bound: int) -> None:
    values = random_events(500, 8, seed=1)
    found = counts_of(replay_file(tmp_path, values, stream(contributions=bound), end=END))
    truth = brute_force(values, bound=bound)
    assert found == {("destinations", number): dict(truth.get(number, {})) for number in range(1, 11)}
    assert sum(sum(counts.values()) for counts in found.values()) < 500  # the bound has bitten


@pytest.mark.parametrize("form", ["avro", "json-schema"])
def test_a_replay_writes_json_and_asks_no_registry_whatever_the_sink_has(tmp_path: Path, form: Any) -> None:
    values, plain = random_events(50, 3, seed=1), stream()
    by_schema = replace(plain, sink=replace(plain.sink, format=form))
    first, second = (
        records(tmp_path, values, one, end=END, noise=seeded_noise(1)) for one in (plain, by_schema)
    )
    assert first == second
    assert len(first) == 10


def test_the_kernel_changes_no_bit_of_a_release_nor_of_a_dead_letter(tmp_path: Path) -> None:
    values = random_events(400, 60, seed=2)
    odd = [b"", b"{", b'{"user":7}', event("v", "BOS", ORIGIN).replace(b'"v"', b'"v","user":"w"')]
    values = [one for group in zip(values, odd * 100, strict=True) for one in group]
    made = {}
    for way in WAYS:
        with read_by(way):
            run = replay_file(tmp_path, values, seed=7, end=END)
            made[way] = ([one.record for one in run], run.outcomes)
    assert made["kernel"] == made["plain"]
    assert len(made["plain"][0]) == 10
    assert {"counted", "not-json", "wrong-type"} <= set(made["plain"][1]["destinations"])


def test_of_a_users_events_the_first_lines_count_whatever_their_times(tmp_path: Path) -> None:
    values = [event("u", "BOS", ORIGIN + 50), event("u", "ATL", ORIGIN + 10)]
    assert counts_of(replay_file(tmp_path, values, end=ORIGIN + HOUR)) == {("destinations", 1): {"BOS": 1}}


def test_a_file_knows_no_lateness_no_order_and_no_future(tmp_path: Path) -> None:
    values = [
        event("u", "BOS", ORIGIN + 9 * HOUR),
        event("v", "ATL", ORIGIN),
        event("w", "ORD", ORIGIN + HOUR),
    ]
    found = counts_of(replay_file(tmp_path, values, end=END))
    assert {key[1]: counts for key, counts in found.items() if counts} == {
        1: {"ATL": 1}, 2: {"ORD": 1}, 10: {"BOS": 1},
    }  # fmt: skip


def test_malformed_lines_cost_themselves_only(tmp_path: Path) -> None:
    good = random_events(50, 8, seed=2)
    bad = [b"{", b"null", b"[]", b'{"user": "u"}', b'{"user": 1, "to": "ATL", "at": 5}', b"\xff\xfe", b"]",
           event("", "ATL", ORIGIN), event("u", "nowhere", ORIGIN), event("u", "ATL", ORIGIN - 1),
           event("u", "x" * 2_000_000, ORIGIN)]  # fmt: skip
    mixed = good + bad
    random.Random(3).shuffle(mixed)
    kept = [value for value in mixed if value in good]
    running = replay_file(tmp_path, mixed, end=END)
    assert [one.record for one in running] == records(tmp_path, kept, end=END, noise=zero_noise)
    outcomes = running.outcomes["destinations"]
    assert outcomes == Counter({
        "counted": outcomes["counted"], "bounded": 50 - outcomes["counted"],
        "not-json": 3, "missing-field": 3, "wrong-type": 1, "empty-user": 1, "unknown-column": 1,
        "before-origin": 1, "too-large": 1,
    })  # fmt: skip


def test_a_file_and_the_partitions_of_a_topic_agree_when_nothing_is_late(tmp_path: Path) -> None:
    values = sorted(random_events(400, 9, seed=4), key=lambda value: json.loads(value)["at"])
    streams = stream(), stream("second", "budget-distribution", contributions=2)
    expected = records(tmp_path, values, *streams, end=END, seed=1)
    for partitions, size in ((1, 1), (3, 1), (3, 7), (5, 1000)):
        source = Recorded(in_partitions(values, partitions), size)
        assert [one.record for one in replay(topology(*streams), source, end=END, seed=1)] == expected


# The live rule


def test_a_topic_obeys_the_live_rule_record_by_record() -> None:
    rules = stream(lateness=1000, max_ahead=500)
    deadline = ORIGIN + HOUR + 1000
    judged: list[tuple[int, bytes | None]] = [
        (ORIGIN, event("early", "ATL", ORIGIN + 500)),
        (ORIGIN, event("too early", "ATL", ORIGIN + 501)),
        (ORIGIN + 10, None),
        (deadline - 1, event("just in time", "BOS", ORIGIN)),
        (deadline, event("late", "BOS", ORIGIN)),
        (deadline, event("next", "ORD", ORIGIN + HOUR)),
        (-1, event("no append time", "ORD", ORIGIN + HOUR)),
    ]
    for size in (1, 2, 100):
        running = replay(
            topology(rules), Recorded({0: judged}, size), end=ORIGIN + 2 * HOUR, noise=zero_noise
        )
        assert counts_of(running) == {
            ("destinations", 1): {"ATL": 1, "BOS": 1},
            ("destinations", 2): {"ORD": 1},
        }
        assert running.outcomes["destinations"] == Counter(
            {"counted": 3, "too-far-ahead": 1, "tombstone": 1, "late": 1, "no-append-time": 1}
        )


def test_an_event_in_a_partition_that_is_not_its_users_does_not_count() -> None:
    mine = murmur2_partition(b"u", 2)
    value = event("u", "ATL", ORIGIN)
    for partition, counted in ((mine, 1), (1 - mine, 0)):
        source = Recorded({0: [], 1: [], partition: [(ORIGIN, value)]})
        running = replay(topology(), source, end=ORIGIN + HOUR, noise=zero_noise)
        assert [int(one.counts.sum()) for one in running] == [counted]


def test_append_times_that_step_back_within_the_clock_skew_lose_nothing() -> None:
    rules = stream(clock_skew=1000)
    end = ORIGIN + HOUR
    judged = [(end + 999, event("u", "ATL", end)), (end - 1, event("v", "BOS", ORIGIN))]
    running = replay(topology(rules), Recorded({0: judged}, 1), end=end, noise=zero_noise)
    assert counts_of(running) == {("destinations", 1): {"BOS": 1}}


def test_releases_come_while_a_topic_is_read_and_reading_stops_after_the_last() -> None:
    values = random_events(1000, 100, seed=5)
    source = Recorded(in_partitions(values, 2), 1)
    delivered = [
        source.delivered for _ in replay(topology(), source, end=ORIGIN + 50 * HOUR, noise=zero_noise)
    ]
    assert delivered == sorted(delivered)
    assert delivered[0] < 100
    assert 400 < delivered[-1] == source.delivered < 700


def test_a_partition_without_records_holds_nothing_up() -> None:
    values = random_events(200, 10, seed=6, users=1)
    source = Recorded(in_partitions(values, 8), 1)
    releases = iter(replay(topology(), source, end=END, noise=zero_noise))
    next(releases)
    assert source.delivered < 100


@pytest.mark.slow
@pytest.mark.parametrize("other_is_empty", [True, False])
def test_memory_does_not_grow_with_the_timestamps_that_one_partition_is_ahead(
    other_is_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first record of a partition closes everything since the origin, long before the others begin."""
    monkeypatch.setattr(aggregate, "_BATCH_BYTES", 1_000_000)  # a quarter, for a quarter of the timestamps

    def peak(timestamps: int) -> int:
        end = ORIGIN + 250 * timestamps
        ahead = in_partitions([event(user, "ATL", end) for user in ("u", USER_ELSEWHERE)], 2)
        if other_is_empty:
            ahead[murmur2_partition(USER_ELSEWHERE.encode(), 2)] = []
        running = replay(topology(stream(interval=250)), Recorded(ahead, 1), end=end, noise=zero_noise)
        tracemalloc.start()
        try:
            releases = iter(running)
            assert [next(releases).timestamp for _ in range(100)] == list(range(1, 101))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # More than two transactions would hold, both.
    assert peak(37_500) < 1.2 * peak(12_500)


# Range and order


def test_the_order_is_timestamp_then_name_of_the_stream(tmp_path: Path) -> None:
    values = random_events(300, 50, seed=7)
    streams = stream("zeta"), stream("alpha"), stream("mid", interval=DAY)
    for running in (
        replay_file(tmp_path, values, *streams, end=ORIGIN + 3 * DAY),
        replay(
            topology(*streams), Recorded(in_partitions(values, 3)), end=ORIGIN + 3 * DAY, noise=zero_noise
        ),
    ):
        found = [(one.timestamp, one.stream.name) for one in running]
        expected = [(number, name) for number in range(1, 73) for name in ("alpha", "zeta")]
        assert found == sorted(expected + [(number, "mid") for number in (1, 2, 3)])


@pytest.mark.parametrize("partitions", [None, 1, 3])
def test_with_last_each_stream_ends_with_its_last_event(tmp_path: Path, partitions: int | None) -> None:
    hours = (0, 1, 30, 31)
    values = [event("u", "ATL", ORIGIN + hour * HOUR) for hour in hours]
    values += [event("u", "nowhere", ORIGIN + 90 * HOUR)]
    streams = stream("hourly"), stream("daily", interval=DAY)
    if partitions is None:
        running = replay_file(tmp_path, values, *streams)
    else:
        running = replay(topology(*streams), Recorded(in_partitions(values, partitions), 1), noise=zero_noise)
    found = counts_of(running)
    assert {key for key in found if key[0] == "hourly"} == {("hourly", number) for number in range(1, 33)}
    assert {number for (name, number), counts in found.items() if name == "hourly" and counts} == {
        1,
        2,
        31,
        32,
    }
    assert found["daily", 1] == found["daily", 2] == {"ATL": 1}
    assert ("daily", 3) not in found
    assert {name: one.last_counted for name, one in running.releasing.items()} == {"hourly": 32, "daily": 2}


def test_with_last_and_no_event_there_is_no_release(tmp_path: Path) -> None:
    running = replay_file(tmp_path, [b"garbage"])
    assert list(running) == []
    assert running.releasing["destinations"].last_counted == 0


def test_with_last_an_event_at_the_end_of_time_does_not_count(tmp_path: Path) -> None:
    values = [event("u", "ATL", ORIGIN), event("v", "ATL", 2**53 - 1)]
    assert len(list(replay_file(tmp_path, values))) == 1


def test_a_later_start_gives_the_same_counts_and_numbers_with_a_fresh_state(tmp_path: Path) -> None:
    values = random_events(300, 10, seed=8)
    whole = list(replay_file(tmp_path, values, end=END))
    part = list(replay_file(tmp_path, values, start=ORIGIN + 4 * HOUR, end=END))
    assert [one.timestamp for one in part] == [5, 6, 7, 8, 9, 10]
    assert [one.counts.tolist() for one in part] == [one.counts.tolist() for one in whole[4:]]
    assert part[0].release.window_spent < whole[4].release.window_spent


def test_what_lies_outside_the_range_is_not_kept(tmp_path: Path) -> None:
    values = random_events(300, 10, seed=9)
    running = replay_file(tmp_path, values, start=ORIGIN + 4 * HOUR, end=ORIGIN + 5 * HOUR)
    assert [one.timestamp for one in running] == [5]
    outcomes = running.outcomes["destinations"]
    hours = Counter((json.loads(value)["at"] - ORIGIN) // HOUR for value in values)
    assert outcomes["before-start"] == sum(hours[hour] for hour in range(4))
    assert outcomes["too-far-ahead"] == sum(hours[hour] for hour in range(5, 10))


class Bounded(Recorded):
    """A topic without append times of which a worker has left boundaries."""

    def __init__(self, values: Sequence[bytes], left: Mapping[int, tuple[Boundary, ...]]) -> None:
        super().__init__({0: [(NO_APPEND_TIME, value) for value in values]})
        self._left = left

    def boundaries(
        self, stream: Stream, first: int, partials: TopicPartition
    ) -> Mapping[int, tuple[Boundary, ...]]:
        return self._left


@pytest.mark.parametrize("way", WAYS)
def test_history_of_before_the_first_boundary_counts_wherever_the_range_begins(way: str) -> None:
    """A worker began at timestamp 1001, behind six events: one is too far ahead even then, and what follows
    is late."""
    hours = (0, 500, 900, 3000, 990, 1000, 5, 999)
    values = [event("u", "ATL", ORIGIN + hour * HOUR) for hour in hours]
    one = stream(max_ahead=3 * DAY)
    one = replace(one, source=replace(one.source, append_time="boundary"))
    end = ORIGIN + 1002 * HOUR
    with read_by(way):
        for start in (None, ORIGIN + 980 * HOUR):
            given = Bounded(values, {0: (Boundary(1001, 6),)})
            running = replay(topology(one), given, start=start, end=end, noise=zero_noise)
            found = [timestamp for (_, timestamp), counts in counts_of(running).items() if counts]
            assert found == ([1, 501, 901, 991, 1001] if start is None else [991, 1001])
            outcomes = running.outcomes["destinations"]
            assert (outcomes["too-far-ahead"], outcomes["late"]) == (1, 2 if start is None else 1)


# Noise and budget


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes_and_another_one_others(tmp_path: Path, kind: str) -> None:
    values = random_events(300, 10, seed=10)
    first, again, other = (
        records(tmp_path, values, stream(kind=kind), end=END, seed=seed) for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other
    assert len(first) == 10
    assert all(json.loads(record)["seeded"] is True for record in first)
    # As earlier commits released them; what is to change here changes what `replay --seed` gives to people.
    assert [sha256(record).hexdigest()[:16] for record in first] == RELEASED[kind]


def test_without_a_seed_two_replays_differ_and_are_not_marked(tmp_path: Path) -> None:
    values = random_events(300, 10, seed=11)
    first, second = (
        [one.record for one in replay_file(tmp_path, values, end=END, noise=None)] for _ in range(2)
    )
    assert first != second
    assert all("seeded" not in json.loads(record) for record in first + second)


def test_the_noise_of_a_stream_depends_on_no_other_stream(tmp_path: Path) -> None:
    values = random_events(300, 10, seed=12)
    one, two = stream("one"), stream("two")
    alone = records(tmp_path, values, one, end=END, seed=3)
    for together in (
        records(tmp_path, values, one, two, end=END, seed=3),
        records(tmp_path, values, two, one, end=END, seed=3),
    ):
        assert [record for record in together if json.loads(record)["stream"] == "one"] == alone
    twin = records(tmp_path, values, two, end=END, seed=3)
    assert [json.loads(r)["counts"] for r in twin] != [json.loads(r)["counts"] for r in alone]


def test_streams_have_unrelated_noise_under_one_seed() -> None:
    make, scale = seeded_noise(1), Fraction(100)
    one, two = (make(stream(name)).discrete_laplace(scale, 200).tolist() for name in ("a", "b"))
    assert one != two


@settings(deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(W_EVENT_KINDS), st.integers(1, 6))
def test_no_window_spends_more_than_epsilon(seed: int, kind: str, window: int) -> None:
    made = stream(kind=kind)
    made = replace(made, mechanism=replace(made.mechanism, window=window))
    values = random_events(150, 20, seed=seed)
    running = replay(
        topology(made), Recorded(in_partitions(values, 1), 50), end=ORIGIN + 25 * HOUR, seed=seed
    )
    releases = list(running)
    assert len(releases) == 25
    spent = [one.release.test + one.release.publish for one in releases]
    for position, one in enumerate(releases):
        window_spent = sum(spent[max(0, position - window + 1) : position + 1])
        assert one.release.window_spent == window_spent <= one.units


def test_the_record_is_that_of_the_sink(tmp_path: Path) -> None:
    made = stream(kind="sample")
    record = records(tmp_path, [event("u", "BOS", ORIGIN)], made, end=ORIGIN + HOUR, noise=zero_noise)[0]
    assert json.loads(record) == {
        "stream": "destinations", "timestamp": 1,
        "start": "2013-01-01T00:00:00Z", "end": "2013-01-01T01:00:00Z",
        "counts": {"ATL": 0, "BOS": 1, "ORD": 0}, "error": 1.36, "noise_scale": 1.0, "fresh": True,
        "mechanism": "sample", "epsilon": "1", "window": 3, "units": 6 * 2**20,
        "spent": {"test": 0, "publish": 6 * 2**20}, "window_spent": 6 * 2**20,
    }  # fmt: skip
    wide = replace(made, sink=Sink("out", counts="array"))
    record = records(tmp_path, [event("u", "BOS", ORIGIN)], wide, end=ORIGIN + HOUR, noise=zero_noise)[0]
    assert json.loads(record)["counts"] == [0, 1, 0]


def test_a_mechanism_gets_the_sensitivity_of_its_stream(tmp_path: Path) -> None:
    made = stream(contributions=4)
    made = replace(made, mechanism=MechanismSettings("sample", made.mechanism.epsilon, "1", 3, "substitute"))
    scales = []

    class Watching(ZeroNoise):
        def discrete_laplace(self, scale: Any, size: int) -> Any:
            scales.append(scale)
            return super().discrete_laplace(scale, size)

    list(replay_file(tmp_path, [], made, end=ORIGIN + HOUR, noise=lambda _: Watching()))
    assert scales == [8]


# Which streams


def test_an_input_replays_the_streams_that_read_it() -> None:
    streams = stream("a", topic="one"), stream("b", topic="two"), stream("c", topic="one")
    made = topology(*streams)
    assert select_streams(made, "one") == [streams[0], streams[2]]
    assert select_streams(made, None) == list(streams)
    assert select_streams(made, "one", ["c"]) == [streams[2]]
    assert select_streams(made, None, ["b"]) == [streams[1]]


@pytest.mark.parametrize(
    ("topic", "only", "message"),
    [
        ("three", (), "no stream reads topic three; those of the file are one, two"),
        (None, ("d",), "no stream d, only a, b"),
        ("one", ("b",), "stream b reads topic two, not one"),
    ],
)
def test_what_does_not_fit_is_refused(topic: str | None, only: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_streams(topology(stream("a", topic="one"), stream("b", topic="two")), topic, only)


def test_all_streams_read_a_file(tmp_path: Path) -> None:
    streams = stream("a", topic="one"), stream("b", topic="two")
    source = write_lines(tmp_path / "f", [event("u", COLUMNS[0], ORIGIN)])
    found = counts_of(replay(topology(*streams), source, end=ORIGIN + HOUR, noise=zero_noise))
    assert found == {("a", 1): {"ATL": 1}, ("b", 1): {"ATL": 1}}
