"""What is said of events that do not count: publicly, and to who asked for raw data."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from itertools import count
from unittest.mock import patch

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from eventveil.decoding.rules import Reason
from eventveil.model.partitioners import crc32_partition
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.worker.observe import metrics
from eventveil.worker.observe.losses import Losses
from eventveil.worker.observe.metrics import WorkerCollector
from eventveil.worker.observe.observation import Observation, PartitionView, StreamView
from eventveil.worker.observe.surroundings import Surroundings
from tests.unit.read.making import record
from tests.unit.support import aggregator, chunk, event, stream, topology

WINDOW = 5
NOW = 1_800_000_000_000_000_000


def released(*counts: int, of: str = "visits") -> list[Outgoing]:
    """What is published of releases with these totals, the entries of the ledger among it."""
    records = [record(at, stream=of, counts={"a": one}, error=10.0) for at, one in enumerate(counts, 1)]
    entries = [Outgoing("app-ledger", orjson.dumps({"stream": of, "fresh": True})) for _ in counts]
    return [*entries, *(Outgoing(f"{of}.sanitized", one) for one in records)]


def observation(one: Stream | None = None) -> Observation:
    made = Observation(topology(one or stream(window=WINDOW)))
    partials = TopicPartition("app-partials", 0)
    made.assigned = frozenset({partials})
    view = PartitionView(5, 5, False, {"visits": StreamView(2, spent=0.5)}, made.beat)
    made.partitions = {partials: view}
    made.started = 0.0
    return made


def look(seen: Observation) -> tuple[str, list[str], list[str]]:
    """All that anybody can see without raw rights."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(seen, False))
    # Delays are of the wall clock, and would differ between two looks.
    with (
        patch.object(metrics.time, "time_ns", return_value=NOW),
        patch.object(metrics.time, "monotonic", return_value=seen.beat),
    ):
        told = generate_latest(registry).decode()
    return told, seen.obstacles(seen.beat), seen.obstacles(seen.beat, True)


def test_releases_without_counts_are_warned_of_once_and_their_end_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = observation()
    with caplog.at_level(logging.INFO):
        seen.counting.published(released(3, -4))
        assert seen.counting.states() == {"visits": "unknown"}
        seen.counting.published(released(5, -1, 2, 4))
        assert seen.counting.states() == {"visits": "nothing"}
        (warning,) = caplog.messages
        assert "stream visits: its last 3 releases are indistinguishable from noise" in warning
        assert "`eventveil doctor TOPOLOGY`" in warning
        assert 'eventveil_counting_state{state="nothing",stream="visits"} 1.0' in look(seen)[0]
        seen.counting.published(released(900))
        assert seen.counting.states() == {"visits": "counting"}
        assert len(caplog.messages) == 1
        seen.counting.published(released(*[900] * (WINDOW - 1)))
    assert caplog.messages[1:] == ["stream visits: its releases show again that events count"]


def test_counts_that_are_near_what_noise_hides_are_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    seen = observation()
    states = set()
    with caplog.at_level(logging.INFO):
        # The sum of five errs by 22: what is above 45 can be told from noise.
        for _ in range(20):
            for total in (50, 0, 0, 0, 0, -10):
                seen.counting.published(released(total))
                states |= {*seen.counting.states().values()}
    assert states == {"unknown", "nothing", "counting"}
    assert len(caplog.messages) == 1


def test_only_who_releases_a_stream_now_tells_its_state() -> None:
    seen = observation()
    seen.counting.published(released(0, 0, 0))
    assert "eventveil_counting_state{" in look(seen)[0]
    seen.partitions = {}
    assert "eventveil_counting_state{" not in look(seen)[0]


def test_less_than_half_of_what_is_expected_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    seen = observation(stream(window=WINDOW, expected=1000))
    with caplog.at_level(logging.INFO):
        seen.counting.published(released(*[200] * WINDOW))
    assert seen.counting.states() == {"visits": "much-less"}
    assert "show less than half of what counts.expected says" in caplog.messages[0]


def test_only_the_last_window_is_looked_at() -> None:
    seen = observation()
    seen.counting.published(released(*[900] * 50, *[0] * WINDOW))
    assert seen.counting.states() == {"visits": "nothing"}


values = st.one_of(
    st.builds(event, st.sampled_from(["ann", "bob", "", 7]), st.sampled_from(["a", "b", "c", 1]),
              st.sampled_from([1000, 1005, 1030, 5000, "yesterday", None])),
    st.sampled_from([None, b"{", b"[]", b"x" * 200]),
)  # fmt: skip


def judged(seen: Observation, records: Sequence[bytes | None]) -> None:
    """Let a worker judge records and make the verdicts durable."""
    made = aggregator(stream(window=WINDOW))
    made.process(chunk([(1001, one) for one in records]))
    if batch := made.dead_letter_batch():
        seen.judged(batch.outcomes, batch.dead_letters, 1)


@given(others=st.lists(values, max_size=20), one_user=st.lists(values, max_size=200), counts=st.lists(
    st.integers(-50, 500), max_size=12))  # fmt: skip
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_two_worlds_that_differ_in_one_user_look_the_same_but_for_their_releases(
    caplog: pytest.LogCaptureFixture,
    others: list[bytes | None],
    one_user: list[bytes | None],
    counts: list[int],
) -> None:
    """Whatever a user sends, and however much of it does not count."""
    here, there = observation(), observation()
    there.beat = here.beat
    logs = []
    for seen, records in ((here, others), (there, [*others, *one_user])):
        caplog.clear()
        with caplog.at_level(logging.DEBUG):
            judged(seen, records)
            seen.counting.published(released(*counts))
        logs.append(list(caplog.messages))
    assert look(here) == look(there)
    assert logs[0] == logs[1]


def test_who_asked_for_raw_data_is_told_the_reason_and_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    seen = observation()
    seen.losses = Losses(seen.topology)
    with caplog.at_level(logging.INFO):
        judged(seen, [event(column="elsewhere")] * 120 + [b"{"] * 30)
    (told,) = caplog.messages
    assert "stream visits: of 150 events none counts; the most common reason is unknown-column (120)" in told
    assert "list it if it is public knowledge" in told


@pytest.mark.parametrize("keyed", [True, False], ids=["by the user", "by a session"])
def test_users_that_are_in_other_partitions_are_told_with_how_they_came_there(
    keyed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    partitions = 20
    letters = []
    for number in range(200):
        user = f"c-{number % 50}"
        key = user.encode() if keyed else b"s-%d" % number
        headers = {
            "eventveil.reason": b"wrong-partition",
            "eventveil.stream": b"visits",
            "eventveil.partition": b"%d" % crc32_partition(key, partitions),
        }
        letters.append(Outgoing("visits.dead", event(user), key, None, [*headers.items()]))
    losses = Losses(topology(stream(window=WINDOW)))
    outcomes = Counter({Reason.WRONG_PARTITION.value: 200, "counted": 11})
    with caplog.at_level(logging.INFO):
        losses.judged({"visits": outcomes}, letters, partitions)
    (told,) = caplog.messages
    assert "of 211 events 200 do not count" in told
    if keyed:
        assert "crc32 puts them (librdkafka's default, consistent_random); the file says murmur2" in told
        assert "If all producers use it, name it as the partitioner; if not, correct these producers" in told
    else:
        assert "no partitioner of a topology explains (random: many values are" in told
        assert "Set repartition: true" in told


def test_a_stream_is_told_of_again_after_a_while_and_never_where_little_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = count(0, 200)
    losses = Losses(topology(stream(window=WINDOW)), lambda: float(next(clock)))
    with caplog.at_level(logging.INFO):
        for _ in range(30):
            losses.judged({"visits": Counter({"counted": 95, "late": 5})}, (), 1)
        assert caplog.messages == []
        for _ in range(9):
            losses.judged({"visits": Counter({"counted": 5, "late": 95})}, (), 1)
    assert 2 <= len(caplog.messages) <= 3
    assert "raise lateness" in caplog.messages[0]


def test_what_a_start_would_refuse_makes_a_worker_not_ready_once_two_looks_agree() -> None:
    seen = observation()
    answers: list[list[str] | Exception] = [
        [], ["topic raw: retention.ms is 1"], ["topic raw: retention.ms is 1"], KafkaException("away"), [],
    ]  # fmt: skip

    def inspect() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    surroundings = Surroundings(inspect, seen)
    told = []
    for _ in range(5):
        surroundings.look()
        told.append(look(seen)[1])
    mistake = ["topic raw: retention.ms is 1"]
    assert told == [[], [], mistake, mistake, []]


def test_brokers_that_do_not_answer_are_told_once_and_that_they_answer_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = KafkaException(KafkaError(KafkaError._TRANSPORT))
    answers: list[list[str] | Exception] = [[], away, [], away, away, away, [], []]

    def inspect() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    surroundings = Surroundings(inspect, observation())
    caplog.set_level("INFO")
    for _ in range(8):
        surroundings.look()
    assert caplog.messages == [
        "topic check not possible, trying again: Local: Broker transport failure (_TRANSPORT)",
        "topic check is possible again",
    ]
