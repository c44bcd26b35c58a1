"""Decide, then publish: one draw and one charge per timestamp, whatever crashes in between."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventveil.counting.counter import Partial
from eventveil.mechanisms.registry import build
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.records import Outgoing
from eventveil.model.topology import SinkFormat, Stream
from eventveil.privacy.noise import NoiseSource, SystemNoise
from eventveil.tasks.outages import Outage
from eventveil.tasks.release import PartitionSanitizer, ReleaseState, StreamSanitizer, Topics
from tests.unit.support import INSTANCE, ZeroNoise, chunk, partial, stream

TOPICS = Topics("app-ledger", "app-ledger-changelog", 3)
STREAMS = (stream(kind="budget-absorption", window=3), stream("other", labels=("x", "y", "z")))
PARTITIONS = 2
START = ReleaseState(INSTANCE, 1, 1, 0)


def sanitizer(
    one: Stream, state: ReleaseState = START, noise: NoiseSource | None = None, partitions: int = PARTITIONS
) -> StreamSanitizer:
    mechanism = build(one.mechanism, len(one.counts.labels), 1, noise or SystemNoise())
    return StreamSanitizer(one, partitions, mechanism, state, None)


def worker(
    states: Mapping[str, ReleaseState] | None = None,
    noise: NoiseSource | None = None,
    streams: Sequence[Stream] = STREAMS,
    partitions: int = PARTITIONS,
) -> PartitionSanitizer:
    states = states or {}
    return PartitionSanitizer(
        TOPICS, {one.name: sanitizer(one, states.get(one.name, START), noise, partitions) for one in streams}
    )


def feed(one: PartitionSanitizer, parts: Sequence[Partial], start: int = 0) -> None:
    one.process(chunk([(0, part.encode()) for part in parts], start=start, topic="app-partials"))


def complete(timestamp: int, counts: Mapping[int, int] | None = None, **changes: Any) -> list[Partial]:
    """The partials of a timestamp: ``counts`` from the first partition, nothing from the others."""
    first, *others = range(PARTITIONS)
    return [
        partial(timestamp, counts, partition=first, **changes),
        *(partial(timestamp, partition=other, **changes) for other in others),
    ]


def state_of(records: Sequence[Outgoing], name: str = "visits") -> ReleaseState:
    (value,) = [one.value for one in records if one.topic == TOPICS.changelog and one.key == name.encode()]
    assert value is not None
    return ReleaseState.decode(value, "here")


def sink_of(records: Sequence[Outgoing], name: str = "visits") -> list[bytes | None]:
    return [one.value for one in records if one.topic == f"{name}.sanitized"]


# The two transactions


def test_nothing_is_decided_before_a_timestamp_is_complete() -> None:
    one = worker()
    feed(one, complete(1)[:1])
    assert one.decide() == []
    assert one.publish() == []


def test_transaction_a_writes_the_private_state_and_nothing_public() -> None:
    one = worker()
    feed(one, complete(1))
    decided = one.decide()
    assert [(record.topic, record.key, record.partition) for record in decided] == [
        ("app-ledger-changelog", b"visits", 3)
    ]
    state = state_of(decided)
    assert (state.first, state.next, state.resume, len(state.pending)) == (1, 2, 2, 1)
    assert state.mechanism is not None


def test_transaction_b_publishes_the_very_bytes_of_a_with_their_ledger_entry() -> None:
    one = worker()
    feed(one, complete(1))
    state = state_of(one.decide())
    entry, release, after = one.publish()
    assert (release.topic, release.key, release.partition) == ("visits.sanitized", b"visits", None)
    assert release.value == state.pending[0].encode()
    assert (entry.topic, entry.key, entry.partition) == ("app-ledger", b"visits", 3)
    assert entry.value is not None
    assert orjson.loads(entry.value)["digest"] == hashlib.sha256(release.value).hexdigest()
    assert orjson.loads(entry.value)["instance"] == INSTANCE
    assert (after.topic, after.key, after.partition) == ("app-ledger-changelog", b"visits", 3)
    assert state_of([after]) == state.replace(pending=())


def test_nothing_is_decided_beside_what_another_version_has_decided() -> None:
    """It would be told to be of the wrong version; a worker that takes over publishes first."""
    one = worker()
    feed(one, complete(1))
    decided = state_of(one.decide()).replace(eventveil="0.0.7")
    after = worker({"visits": decided}, streams=STREAMS[:1])
    feed(after, complete(2), start=2)
    with pytest.raises(ValueError, match="what another version has decided has not been published"):
        after.decide()


@pytest.mark.parametrize("form", ["avro", "json-schema"])
def test_nothing_is_drawn_before_the_schema_is_known_and_then_the_same_bytes_go_out_after_a_crash(
    form: SinkFormat,
) -> None:
    streams = (stream(sink_format=form), STREAMS[1])
    one = worker(streams=streams)
    feed(one, [*complete(1), *complete(1, stream="other")])
    # The other stream does not wait for it, and nobody takes the partition for one that rests.
    assert not one.rests(0)
    (other,) = [record.key for record in one.decide()]
    assert other == b"other"
    one.publish()
    one.published()
    assert (one.decide(), one.publish(), one.has_work(0)) == ([], [], False)
    one.sanitizers["visits"].schema = 17
    assert one.rests(0)
    assert one.has_work(0)
    state = state_of(one.decide())
    entry, release, _ = one.publish()
    assert release.value is not None
    assert release.value[:5] == b"\0\0\0\0\x11"
    assert entry.value is not None
    assert orjson.loads(entry.value)["digest"] == hashlib.sha256(release.value).hexdigest()
    # The owner after a crash knows no schema, and needs none for what is decided.
    successor = worker({"visits": ReleaseState.decode(state.encode(), "here")}, streams=streams)
    assert [record.value for record in successor.publish()[:2]] == [entry.value, release.value]


def test_a_release_is_awaited_until_it_is_published_and_of_several_the_first() -> None:
    one = worker()
    first = one.awaited
    second = first + STREAMS[0].timeline.interval
    feed(one, [*complete(1), *complete(1, stream="other")])
    one.decide()
    assert one.awaited == first
    one.publish()
    one.published()
    assert one.awaited == second
    feed(one, complete(2), start=4)
    one.decide()
    one.published()
    assert (one.sanitizers["visits"].state.published, one.awaited) == (2, second)


def test_what_is_told_of_the_budget_is_what_is_published_and_not_what_is_only_decided() -> None:
    one = worker(streams=[stream(kind="uniform", window=4)])
    told = []
    for timestamp in range(1, 7):
        feed(one, complete(timestamp), start=2 * (timestamp - 1))
        decided = state_of(one.decide())
        told.append(one.sanitizers["visits"].spent)
        one.publish()
        one.published()
    told.append(one.sanitizers["visits"].spent)
    assert told == [0, 0.25, 0.5, 0.75, 1, 1, 1]
    after = worker({"visits": decided.replace(pending=())}, streams=[stream(kind="uniform", window=4)])
    assert after.sanitizers["visits"].spent == 1


def test_publishing_can_be_repeated_until_it_is_durable_and_then_nothing_is_left() -> None:
    one = worker()
    feed(one, complete(1))
    one.decide()
    assert one.publish() == one.publish() != []
    one.published()
    assert one.publish() == []
    assert one.decide() == []


def test_the_resume_offset_moves_once_the_release_is_published() -> None:
    one = worker(streams=STREAMS[:1])
    feed(one, [*complete(1), partial(2, {0: 1})])
    one.decide()
    one.publish()
    assert one.resume == 0
    one.published()
    assert one.resume == 2


def test_an_idle_stream_holds_the_resume_offset_of_its_partition_back() -> None:
    one = worker()
    feed(one, complete(1))
    one.decide()
    one.published()
    assert one.resume == 0


def test_the_counts_of_all_partitions_go_through_the_mechanism() -> None:
    one = worker(noise=ZeroNoise(), streams=[stream()])
    feed(one, [partial(1, {0: 3}), partial(1, {0: 1, 1: 5}, partition=1)])
    assert orjson.loads(state_of(one.decide()).pending[0])["counts"] == {"a": 4, "b": 5}


def test_a_backlog_is_decided_in_order_and_in_batches_of_limited_size() -> None:
    wide = stream(labels=tuple(f"column-{number:06}" for number in range(20_000)), window=1)
    one = worker(noise=ZeroNoise(), streams=[wide])
    timestamps = range(1, 31)
    feed(one, [part for timestamp in timestamps for part in complete(timestamp)])
    released: list[int] = []
    batches = 0
    while decided := one.decide():
        (record,) = decided
        assert len(record.value or b"") < 6_000_000
        released += [orjson.loads(value or b"")["timestamp"] for value in sink_of(one.publish())]
        one.published()
        batches += 1
    assert batches > 1
    assert released == list(timestamps)


# What is observed


def test_a_chunk_is_looked_at_for_its_streams_only_and_the_others_keep_what_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    really = StreamSanitizer.complete.fget
    assert really is not None
    told = property(lambda self: asked.append(self.stream.name) or really(self))
    monkeypatch.setattr(StreamSanitizer, "complete", told)
    one = worker(streams=[stream(f"s{number}") for number in range(20)], partitions=1)
    assert not one.has_work(0)
    assert one.next(0) is None
    # Which a predecessor may have left complete, so each was looked at once.
    assert {*asked} == {f"s{number}" for number in range(20)}
    asked.clear()
    for timestamp in (1, 2):
        feed(one, [partial(timestamp, {0: 3}, stream="s7")], start=timestamp - 1)
        assert one.has_work(0)
        while work := one.next(0):
            one.committed(work)
        assert not one.has_work(0)
    assert {*asked} == {"s7"}
    assert one.sanitizers["s7"].state.published == 2
    assert all(one.sanitizers[f"s{number}"].state == START for number in range(20) if number != 7)


def test_a_stream_whose_schema_becomes_known_is_decided_without_another_partial() -> None:
    one = worker(streams=[stream(), stream("other", sink_format="avro")], partitions=1)
    feed(one, [partial(1), partial(1, stream="other")])
    while work := one.next(0):
        one.committed(work)
    assert not one.has_work(0)
    assert not one.rests(0)
    one.sanitizers["other"].schema = 5
    assert one.rests(0)
    assert one.has_work(0)
    work = one.next(0)
    assert work is not None
    assert work.name == "decide"
    assert one.sanitizers["other"].state.next == 2


def test_missing_partials_are_an_error() -> None:
    one = worker({"visits": START.replace(resume=5), "other": START.replace(resume=7)})
    assert one.position == 5
    with pytest.raises(ValueError, match="starts at 6, the position is 5"):
        feed(one, complete(1), start=6)


def test_partials_that_were_seen_already_are_passed_over() -> None:
    one = worker()
    feed(one, complete(1))
    one.decide()
    one.published()
    feed(one, complete(1))
    feed(one, [*complete(1), *complete(2)])
    assert one.position == 4
    assert [state_of(one.decide()).next] == [3]


def test_an_older_chunk_does_not_move_the_position_back() -> None:
    one = worker()
    one.process(chunk(start=0, next_offset=9))
    one.process(chunk(start=0, next_offset=4))
    assert one.position == 9


def test_partials_of_a_stream_that_is_no_longer_in_the_topology_are_passed_over() -> None:
    one = worker()
    feed(one, complete(1, stream="gone"))
    assert one.decide() == []
    assert one.position == 2


@pytest.mark.parametrize("value", [None, b"", b"{}", b"[1]", b'{"stream":"visits"}', b"\xff"])
def test_what_is_no_partial_is_refused_without_its_offset(value: bytes | None) -> None:
    one = worker()
    with pytest.raises(StateRefused, match="partials, partition 0: a record is not a partial") as refusal:
        one.process(chunk([(0, value)], start=0, offsets=[4711], topic="partials"))
    assert "4711" not in str(refusal.value)


def test_a_refused_chunk_leaves_the_position_where_it_was() -> None:
    one = worker()
    with pytest.raises(StateRefused):
        feed(one, [*complete(1), partial(2, instance="other")])
    assert one.position == 0


def test_two_different_partials_stop_the_partition_and_nothing_is_told_of_the_counts() -> None:
    one = worker()
    with pytest.raises(StateRefused, match="two different") as refusal:
        feed(one, [partial(1, {0: 987654}), partial(1, {0: 987655})])
    assert "98765" not in str(refusal.value)


def test_a_timestamp_without_a_partial_is_never_released_nor_are_its_successors() -> None:
    one = worker()
    told = (
        "partials, partition 0: partial counts of stream visits for the timestamp that begins at .* are gone"
    )
    with pytest.raises(Unsettled, match=told) as caught:
        feed(one, [*complete(2), *complete(3), complete(1)[0]])
    assert one.decide() == []
    assert one.position == 0
    assert "delete the topic, create it" in str(caught.value.refusal)


def test_partial_counts_that_come_in_order_are_not_missed() -> None:
    one = worker()
    feed(one, [complete(1)[0], complete(2)[0], complete(3)[0]])
    feed(one, [complete(1)[1], complete(2)[1]], start=3)
    assert state_of(one.decide()).next == 3
    # Nor one of a partition that was given up, which may be gone.
    one, alone = releasing()
    alone.combiner.give_up(1, 1, 1)
    feed(one, [complete(1)[0], complete(2)[1]])


# Crashes


def test_after_a_crash_between_a_and_b_the_same_bytes_are_published() -> None:
    before = worker()
    feed(before, [*complete(1), *complete(2)])
    state = state_of(before.decide())
    expected = before.publish()
    after = worker({"visits": state})
    assert after.publish() == expected
    after.published()
    feed(after, [*complete(1), *complete(2), *complete(3)], start=after.position)
    (release,) = sink_of([*after.decide(), *after.publish()])
    assert orjson.loads(release or b"")["timestamp"] == 3


def test_a_successor_goes_on_with_the_budget_that_is_left() -> None:
    """Uniform with a window of 2 spends half each time; amnesia would show half as the window's sum."""
    plain = stream()
    before = worker(streams=[plain])
    feed(before, complete(1))
    before.decide()
    state = state_of(before.publish())
    after = worker({"visits": state}, streams=[plain])
    feed(after, complete(2), start=state.resume)
    record = orjson.loads(state_of(after.decide()).pending[0])
    assert record["window_spent"] == record["units"]
    assert record["spent"]["publish"] * 2 == record["units"]


# Continuing without a partition

#: Due at 1018 and every 10 ms from there; a partition without a leader is waited for 100 ms.
RELEASING = stream(grace=100)


def releasing() -> tuple[PartitionSanitizer, StreamSanitizer]:
    one = worker(streams=[RELEASING], noise=ZeroNoise())
    return one, one.sanitizers["visits"]


def gone(since: int, until: int, over: bool = False) -> list[Outage]:
    """What was seen of partition 1."""
    return [Outage(1, since, until, over)]


def test_nobody_is_given_up_before_grace_is_over_nor_where_waiting_is_the_rule() -> None:
    one, visits = releasing()
    feed(one, complete(1)[:1])
    assert visits.look(1117, gone(1017, 1117)) == []
    assert one.decide() == []
    assert visits.look(1118, gone(1017, 1118)) == [1]
    assert visits.look(1119, gone(1017, 1119)) == [], "it is no news"
    assert state_of(one.decide()).next == 2
    waiting = worker(noise=ZeroNoise())
    feed(waiting, complete(1)[:1])
    assert waiting.sanitizers["visits"].look(10**9, gone(0, 10**9)) == []
    assert waiting.decide() == []


def test_a_partition_that_was_there_when_the_timestamp_was_due_is_waited_for_however_long() -> None:
    one, visits = releasing()
    feed(one, complete(1)[:1])
    for now in range(1018, 10**6, 50_000):
        visits.look(now, gone(1018, now))
        assert visits.combiner.left_out == []
    feed(one, complete(1)[1:], start=1)
    assert state_of(one.decide()).given_up[0][:2] == (1, 2)
    (record,) = sink_of(one.publish())
    assert b"missing" not in (record or b"")


def test_a_timestamp_is_not_decided_before_it_is_due_nor_while_a_partition_may_still_be_left_out() -> None:
    one, visits = releasing()
    feed(one, [*complete(1), *complete(2)])
    visits.look(1017, [])
    assert one.decide() == []
    visits.look(1018, [])
    assert state_of(one.decide()).next == 2
    one.published()
    visits.look(1040, gone(1020, 1040))
    assert one.decide() == [], "whether its partial is there depends on data"
    visits.look(1041, gone(1020, 1040, over=True))
    assert state_of(one.decide()).next == 3


def test_who_is_given_up_is_durable_before_the_timestamp_can_be_decided() -> None:
    one, visits = releasing()
    visits.look(1118, gone(1000, 1118))
    state = state_of(one.decide())
    assert (state.next, state.given_up, state.pending) == (1, ((1, 1, 1),), ())
    assert one.publish() == []
    one.published()
    assert one.decide() == []
    successor = worker({"visits": state}, streams=[RELEASING])
    successor.sanitizers["visits"].look(1200, [])
    feed(successor, complete(1, {0: 3}))
    assert state_of(successor.decide()).next == 2
    (record,) = sink_of(successor.publish())
    assert orjson.loads(record or b"")["missing"] == [1]


def test_a_decision_by_the_clock_does_not_lead_back_before_the_partials_of_a_stream() -> None:
    """There may be some of an earlier life of it, which would be refused as foreign."""
    states = {"visits": START.replace(resume=5), "other": START}
    one = worker(states, streams=[RELEASING, STREAMS[1]], noise=ZeroNoise())
    feed(one, complete(1, stream="other")[:1])
    visits = one.sanitizers["visits"]
    visits.look(1118, [Outage(partition, 1000, 1118, False) for partition in range(PARTITIONS)])
    state = state_of(one.decide())
    assert (one.position, state.next, state.resume) == (1, 2, 5)


def test_the_release_names_the_missing_partition_and_its_state_remembers_it() -> None:
    one, visits = releasing()
    feed(one, complete(1, {0: 3})[:1])
    assert visits.look(1118, gone(1000, 1118)) == [1]
    state = state_of(one.decide())
    assert state.missing == ((1, 1, 1),)
    assert visits.combiner.discarded == 1
    (record,) = sink_of(one.publish())
    released = orjson.loads(record or b"")
    assert released["missing"] == [1]
    assert released["counts"] == {"a": 3, "b": 0}
    successor = worker({"visits": state}, streams=[RELEASING])
    assert sink_of(successor.publish()) == [record]
    successor.published()
    successor.sanitizers["visits"].look(1028, [])
    feed(successor, complete(1, {0: 3}))
    feed(successor, complete(2), start=2)
    assert state_of(successor.decide()).missing == ()
    assert b"missing" not in (sink_of(successor.publish())[-1] or b"")


class Cluster:
    """The durable topics, and the one worker on them; a crash takes all but the durable."""

    def __init__(self, log: Sequence[Partial], noise: NoiseSource) -> None:
        self.log = log
        self.noise = noise
        self.states = {one.name: START for one in STREAMS}
        self.decided: dict[tuple[str, int], bytes] = {}
        self.public: list[Outgoing] = []
        self.redrawn = self.repeated = 0
        self.lost: dict[tuple[str, int], bytes] = {}
        self.take_over()

    def take_over(self) -> None:
        states = {name: ReleaseState.decode(state.encode(), "here") for name, state in self.states.items()}
        self.worker = worker(states, self.noise)
        self.repeated += sum(len(state.pending) for state in states.values())
        self.publish(survives=True)

    def read(self, number: int, overlap: int) -> None:
        start = max(0, self.worker.position - overlap)
        feed(self.worker, self.log[start : self.worker.position + number], start)

    def settle(self, dies_at: str) -> None:
        decided = self.worker.decide()
        if not decided:
            return
        drawn = self._drawn(decided)
        if dies_at == "a":
            self.lost.update(drawn)
            self.take_over()
            return
        self.redrawn += sum(self.lost.get(at, value) != value for at, value in drawn.items())
        for at, value in drawn.items():
            assert self.decided.setdefault(at, value) == value, "a timestamp was decided twice"
        self._commit(decided)
        self.publish(survives=dies_at != "b")

    def publish(self, survives: bool) -> None:
        records = self.worker.publish()
        if not survives:
            self.take_over()
            return
        self._commit(records)
        if records:
            self.worker.published()
        assert self.worker.resume == min(state.resume for state in self.states.values())

    def _drawn(self, decided: Sequence[Outgoing]) -> dict[tuple[str, int], bytes]:
        found = {}
        for record in decided:
            for pending in ReleaseState.decode(record.value or b"", "here").pending:
                fields = orjson.loads(pending)
                found[fields["stream"], fields["timestamp"]] = pending.encode()
        return found

    def _commit(self, records: Sequence[Outgoing]) -> None:
        for record in records:
            if record.topic == TOPICS.changelog:
                state = ReleaseState.decode(record.value or b"", "here")
                name = (record.key or b"").decode()
                assert state.next >= self.states[name].next
                assert state.resume >= self.states[name].resume
                self.states[name] = state
            else:
                self.public.append(record)


TIMESTAMPS = range(1, 6)
ALL_PARTIALS = [
    partial(timestamp, {0: 10 * timestamp + partition}, stream=one.name, partition=partition)
    for one in STREAMS
    for timestamp in TIMESTAMPS
    for partition in range(PARTITIONS)
]
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 24), st.integers(0, 3)),
        st.tuples(st.just("settle"), st.sampled_from(["", "a", "b"]), st.none()),
        st.tuples(st.just("crash"), st.none(), st.none()),
    ),
    max_size=25,
)


def in_order(log: Sequence[Partial]) -> list[Partial]:
    """The same, with the timestamps of each partition in order, as their owners write them."""
    coming: defaultdict[tuple[str, int], deque[Partial]] = defaultdict(deque)
    for one in ALL_PARTIALS:
        coming[one.stream, one.partition].append(one)
    return [coming[one.stream, one.partition].popleft() for one in log]


LOGS = st.tuples(st.permutations(ALL_PARTIALS), st.lists(st.sampled_from(ALL_PARTIALS), max_size=4)).map(
    lambda parts: [*in_order(parts[0]), *parts[1]]
)


def run(cluster: Cluster, actions: Sequence[tuple[str, Any, Any]]) -> None:
    for kind, first, second in actions:
        if kind == "read":
            cluster.read(first, second)
        elif kind == "settle":
            cluster.settle(first)
        else:
            cluster.take_over()
    cluster.read(len(cluster.log), 0)
    cluster.settle("")


def check_published(cluster: Cluster) -> dict[tuple[str, int], bytes]:
    """Every timestamp is public once, in order, with the bytes that were decided, within the budget."""
    published: dict[tuple[str, int], bytes] = {}
    for one in STREAMS:
        records = [record.value or b"" for record in cluster.public if record.topic == one.sink.topic]
        fields = [orjson.loads(record) for record in records]
        assert [each["timestamp"] for each in fields] == list(TIMESTAMPS)
        published.update(
            {(one.name, each["timestamp"]): at for each, at in zip(fields, records, strict=True)}
        )
        spends = [each["spent"]["test"] + each["spent"]["publish"] for each in fields]
        for index, each in enumerate(fields):
            window = spends[max(0, index + 1 - one.mechanism.window) : index + 1]
            assert sum(window) == each["window_spent"] <= each["units"]
    assert published == cluster.decided
    entries = [
        orjson.loads(record.value or b"") for record in cluster.public if record.topic == TOPICS.ledger
    ]
    assert len(entries) == len(published)
    for entry in entries:
        record = published[entry["stream"], entry["timestamp"]]
        assert entry["digest"] == hashlib.sha256(record).hexdigest()
    assert all(state.pending == () for state in cluster.states.values())
    return published


def test_whatever_crashes_every_timestamp_is_published_once_with_the_bytes_that_were_charged() -> None:
    seen: Counter[str] = Counter()

    # One loses both transactions for sure, however the others fall.
    @example(ALL_PARTIALS, [("read", 30, 0), ("settle", "a", None), ("read", 30, 0), ("settle", "b", None)])
    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(LOGS, ACTIONS)
    def any_run(log: list[Partial], actions: list[tuple[str, Any, Any]]) -> None:
        cluster = Cluster(log, SystemNoise())
        run(cluster, actions)
        check_published(cluster)
        seen["redrawn after a lost transaction A"] += cluster.redrawn
        seen["repeated after a lost transaction B"] += cluster.repeated

    any_run()
    # The noise is real: a draw that was lost differs, and only the one that was charged may be public.
    assert seen["redrawn after a lost transaction A"] > 0
    assert seen["repeated after a lost transaction B"] > 0


@settings(max_examples=50, deadline=None)
@given(LOGS, ACTIONS)
def test_without_noise_the_published_counts_are_those_of_a_run_without_crashes(
    log: list[Partial], actions: list[tuple[str, Any, Any]]
) -> None:
    crashing, calm = Cluster(log, ZeroNoise()), Cluster(ALL_PARTIALS, ZeroNoise())
    run(crashing, actions)
    run(calm, [])
    published = check_published(crashing)
    assert published == check_published(calm)
    assert orjson.loads(published["other", 2])["counts"] == {"x": 41, "y": 0, "z": 0}


# States


def decided_state() -> ReleaseState:
    one = worker(streams=[stream()])
    feed(one, [*complete(1), *complete(2)])
    return state_of(one.decide())


@pytest.mark.parametrize("missing", [[[0, 1, 99]], [[0, 2, 1]], [[0, 0, 1]], [[0, 1]], 7, [["x", 1, 1]]])
def test_missing_partitions_that_contradict_the_state_are_refused(missing: Any) -> None:
    good = orjson.loads(decided_state().encode())
    ReleaseState.decode(orjson.dumps({**good, "missing": [[0, 1, 1]]}), "here")
    with pytest.raises(StateRefused, match=r"^here: "):
        ReleaseState.decode(orjson.dumps({**good, "missing": missing}), "here")


def test_a_state_survives_its_bytes() -> None:
    state = decided_state()
    assert len(state.pending) == 2
    assert ReleaseState.decode(state.encode(), "here") == state
    assert ReleaseState.decode(START.encode(), "here") == START


def _with(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: {**fields, **changes}


BROKEN_STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an array": lambda fields: list(fields),
    "a field short": lambda fields: {key: fields[key] for key in fields if key != "pending"},
    "no mechanism field": lambda fields: {key: fields[key] for key in fields if key != "resume"},
    "a field too many": _with(extra=1),
    "text for a number": _with(next="3"),
    "a truth value": _with(first=True),
    "a fraction": _with(resume=2.0),
    "below zero": _with(resume=-1),
    "timestamp zero": _with(first=0),
    "next before first": _with(next=0),
    "releases without a budget": _with(mechanism=None),
    "a budget without releases": _with(next=1),
    "a budget that is not text": _with(mechanism={}),
    "a pending release that is not text": _with(pending=[1]),
    "nothing for pending": _with(pending=None),
    "text for pending": _with(pending="ab"),
    "more pending than was released": _with(pending=["{}", "{}", "{}"]),
}


@pytest.mark.parametrize("break_it", BROKEN_STATES.values(), ids=list(BROKEN_STATES))
def test_a_broken_state_is_refused(break_it: Callable[[dict[str, Any]], Any]) -> None:
    good = orjson.loads(decided_state().encode())
    ReleaseState.decode(orjson.dumps(good), "here")
    with pytest.raises(StateRefused, match=r"^here: "):
        ReleaseState.decode(orjson.dumps(break_it(good)), "here")


def test_a_state_that_is_cut_short_anywhere_is_refused() -> None:
    value = decided_state().encode()
    for length in range(len(value)):
        with pytest.raises(StateRefused):
            ReleaseState.decode(value[:length], "here")


@pytest.mark.parametrize("version", [3, 0, None, "1"])
def test_a_state_of_another_version_is_refused_with_the_remedy(version: Any) -> None:
    fields = {**orjson.loads(START.encode()), "version": version}
    with pytest.raises(StateRefused, match="Run the version of Eventveil that wrote it"):
        ReleaseState.decode(orjson.dumps(fields), "here")


@pytest.mark.parametrize("mechanism", ["", "{}", "[]", "null", '{"timestamp":1}'])
def test_a_budget_that_the_mechanism_does_not_know_is_refused(mechanism: str) -> None:
    with pytest.raises(StateRefused, match="budget state of stream visits"):
        sanitizer(stream(), decided_state().replace(mechanism=mechanism))


def test_the_budget_of_another_kind_is_refused() -> None:
    with pytest.raises(StateRefused, match="budget state of stream visits"):
        sanitizer(stream(kind="sample"), decided_state())


@pytest.mark.parametrize("given_up", [[[0, 1, 1]], [[0, 9, 8]], [[0, 1]], 7, [["x", 1, 9]]])
def test_partitions_to_be_left_out_that_contradict_the_state_are_refused(given_up: Any) -> None:
    good = orjson.loads(START.replace(next=2, mechanism="{}", pending=("{}",)).encode())
    assert ReleaseState.decode(orjson.dumps({**good, "given_up": [[0, 1, 2]]}), "here").given_up == (
        (0, 1, 2),
    )
    with pytest.raises(StateRefused):
        ReleaseState.decode(orjson.dumps({**good, "given_up": given_up}), "here")
