"""Ready means that every assigned partition is served; alive, that the event loop runs."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest

from eventveil.model.records import TopicPartition
from eventveil.tasks.task import StreamView
from eventveil.worker.observe.observation import (
    DEAD_SECONDS,
    SILENT_SECONDS,
    STALL_SECONDS,
    Observation,
    PartitionView,
)
from tests.unit.support import stream, topology

SOURCE, OTHER, PARTIALS = (
    TopicPartition("raw", 0),
    TopicPartition("raw", 1),
    TopicPartition("app-partials", 0),
)
#: Timestamp 1 of the stream is due at this wall clock time.
DUE = 1018


def view(position: int = 5, next_timestamp: int = 1, **fields: Any) -> PartitionView:
    streams = {"visits": StreamView(next_timestamp)}
    return PartitionView(**{"position": position, "end": None, "busy": False, "streams": streams, **fields})


def observation(*assigned: TopicPartition) -> Observation:
    made = Observation(topology())
    made.assigned = frozenset(assigned)
    made.look({}, 0.0, 0)
    return made


def test_before_the_group_has_assigned_anything_it_is_not_ready_but_alive() -> None:
    made = Observation(topology())
    made.beat = 100.0
    assert made.alive(100.0)
    assert made.obstacles(100.0) == ["waiting for the consumer group to assign partitions"]


def test_a_stand_by_worker_without_partitions_is_ready() -> None:
    assert observation().obstacles(1.0) == []


@pytest.mark.parametrize("raw", [False, True])
def test_an_outage_is_the_first_reason(raw: bool) -> None:
    made = observation(SOURCE)
    made.outage = "kafka-1:9092: nothing listens there"
    first, _ = made.obstacles(1.0, raw)
    assert first == "no broker answers: kafka-1:9092: nothing listens there"


@pytest.mark.parametrize("raw", [False, True])
def test_a_quota_that_delays_releases_is_a_reason_and_how_long_is_not_told(raw: bool) -> None:
    made = observation()
    made.throttled = 4.9
    assert made.obstacles(1.0, raw) == []
    made.throttled = 7.3
    assert made.obstacles(1.0, raw) == [
        "brokers throttle this client for 5 s or more: raise its quota (see the log)"
    ]


def test_every_assigned_partition_must_be_owned_and_the_others_are_counted_by_topic() -> None:
    made = observation(SOURCE, OTHER, PARTIALS)
    made.gave_up(OTHER, RuntimeError("no broker"), False)
    made.look({}, 1.0, 0)
    assert made.obstacles(1.0) == [
        "app-partials: 1 partition being taken over",
        "raw: 1 partition being taken over",
        "raw: 1 partition being taken over again after a failure (see the log)",
    ]
    made.look({SOURCE: view(), OTHER: view(), PARTIALS: view()}, 2.0, 0)
    assert made.obstacles(2.0) == []
    made.taken_over(OTHER)
    made.look({PARTIALS: view()}, 3.0, 0)
    assert made.obstacles(3.0) == ["raw: 2 partitions being taken over"]


def test_only_who_asked_for_raw_data_learns_which_partitions_and_after_which_error() -> None:
    made = observation(SOURCE, OTHER, PARTIALS)
    made.gave_up(OTHER, RuntimeError("no broker"), False)
    made.look({SOURCE: view()}, 1.0, 0)
    assert made.obstacles(1.0, raw=True) == [
        "app-partials, partition 0: is being taken over",
        "raw, partition 1: is being taken over again after: no broker",
    ]


def test_two_worlds_that_differ_in_where_and_for_how_long_load_holds_up_a_worker_look_the_same() -> None:
    told = set()
    for place, failed_at, waited in ((SOURCE, 17, 60), (OTHER, 4711, 900)):
        made = observation(SOURCE, OTHER, PARTIALS)
        made.gave_up(PARTIALS, RuntimeError(f"offset {failed_at}"), False)
        busy = {tp: view(busy=tp == place) for tp in (SOURCE, OTHER)}
        for second in range(waited + 1):
            made.look(busy, float(second), DUE)
        assert len(made.obstacles(float(waited), raw=True)) == 2
        told.add(tuple(made.obstacles(float(waited))))
    assert len(told) == 1


def test_what_it_releases_next_is_told_with_the_time_at_which_it_is_due() -> None:
    made = observation(SOURCE, PARTIALS)
    made.look({SOURCE: view(next_timestamp=7), PARTIALS: view(next_timestamp=1)}, 1.0, 0)
    assert made.upcoming() == ["timestamp 1 of visits, due at 1970-01-01T00:00:01.018Z"]
    made.look({SOURCE: view()}, 1.0, 0)
    assert made.upcoming() == []


STUCK = {
    "busy": (SOURCE, view(busy=True), DUE),
    "unread": (SOURCE, view(end=6), DUE),
    "overdue": (SOURCE, view(), DUE + 1),
    "busy releasing": (PARTIALS, view(busy=True), DUE),
    "partials unread": (PARTIALS, view(end=6), DUE),
}
IDLE = {
    "nothing due": (SOURCE, view(end=5), DUE),
    "partials of others are missing": (PARTIALS, view(end=5), DUE + 1_000_000),
}


def looked_at(
    made: Observation, place: TopicPartition, seen: PartitionView, clock: int, until: float
) -> list[str]:
    for second in range(int(until) + 1):
        made.look({place: seen}, float(second), clock)
    return made.obstacles(until, raw=True)


@pytest.mark.parametrize("case", STUCK)
def test_work_without_progress_is_a_stall(case: str) -> None:
    place, seen, clock = STUCK[case]
    made = observation(place)
    assert looked_at(made, place, seen, clock, STALL_SECONDS - 1) == []
    (reason,) = looked_at(made, place, seen, clock, STALL_SECONDS)
    assert reason == f"{place.topic}, partition 0: no progress for {STALL_SECONDS:.0f} s"
    (reason,) = made.obstacles(STALL_SECONDS)
    assert reason == f"{place.topic}: 1 partition without progress for {STALL_SECONDS:.0f} s or more"
    made.look({place: view(6, busy=True)}, STALL_SECONDS + 1, clock)
    assert made.obstacles(STALL_SECONDS + 1) == []


@pytest.mark.parametrize("case", IDLE)
def test_idleness_is_no_stall(case: str) -> None:
    place, seen, clock = IDLE[case]
    assert looked_at(observation(place), place, seen, clock, 3 * STALL_SECONDS) == []


def test_closing_timestamps_without_reading_is_progress() -> None:
    made = observation(SOURCE)
    for second in range(int(3 * STALL_SECONDS)):
        made.look({SOURCE: view(next_timestamp=1 + second)}, float(second), 10**9)
    assert made.obstacles(3 * STALL_SECONDS) == []


def fetched(made: Observation, seconds: int, answers: dict[TopicPartition, int | None]) -> None:
    """Looks, one a second from 0, in which these are the last answers to fetches."""
    for second in range(seconds + 1):
        made.beat = float(second)
        made.look({tp: view(end=5, answer=answer) for tp, answer in answers.items()}, float(second), DUE)


@pytest.mark.parametrize("answer", [0, 1_795_976_899_000])
def test_a_partition_whose_fetches_are_not_answered_is_not_ready_though_nothing_is_due(answer: int) -> None:
    """The first may never come."""
    made, until = observation(SOURCE), SILENT_SECONDS
    fetched(made, int(until), {SOURCE: answer})
    assert made.obstacles(until - 1) == []
    assert made.silent(until) == [SOURCE]
    assert made.obstacles(until) == ["raw: 1 partition without an answered fetch for 60 s or more"]
    assert made.obstacles(until, raw=True) == ["raw, partition 0: no fetch answered for 60 s"]
    made.look({SOURCE: view(end=5, answer=answer + 1)}, until + 1, DUE)
    assert made.obstacles(until + 1) == []
    assert made.heard == until + 1


def test_one_answer_is_that_of_its_partition_only() -> None:
    made = observation(SOURCE, OTHER)
    for second in range(int(SILENT_SECONDS) + 1):
        made.look({SOURCE: view(answer=7), OTHER: view(answer=second)}, float(second), 0)
    assert made.silent(SILENT_SECONDS) == [SOURCE]


def test_a_partition_of_which_nothing_is_asked_is_not_silent() -> None:
    """It rests, or what came of it waits to be counted; so do its last answer and the time before."""
    made = observation(SOURCE)
    fetched(made, 300, {SOURCE: None})
    assert made.silent(300.0) == []
    made.look({SOURCE: view(answer=7)}, 301.0, 0)
    assert made.silent(359.0) == []
    assert made.heard != 301.0


def test_a_process_that_stood_still_blames_no_broker() -> None:
    """It was suspended, or stopped, and reads its first answer in a moment."""
    made = observation(SOURCE)
    fetched(made, 30, {SOURCE: 7})
    made.look({SOURCE: view(answer=7)}, 3_600.0, 0)
    assert made.silent(3_600.0) == []


def test_an_event_loop_that_stands_still_is_neither_alive_nor_ready() -> None:
    made = observation()
    assert made.alive(DEAD_SECONDS - 1)
    assert not made.alive(DEAD_SECONDS)
    assert made.obstacles(DEAD_SECONDS) == ["the event loop has not run for 30 s or more"]


def test_delays_count_from_the_due_time() -> None:
    made = observation()
    assert [made.delay("visits", 1, DUE + late) for late in (-1, 0, 1)] == [0, 0, 1]
    assert made.delay("visits", 2, DUE + 1010) == 1000


def test_a_release_is_told_of_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    made = observation(PARTIALS)
    with caplog.at_level(logging.INFO):
        for second, following in enumerate((1, 1, 3, 4)):
            made.look({PARTIALS: view(next_timestamp=following)}, float(second), DUE + 2000)
    assert caplog.messages == [
        "released (from now on logged once an hour): timestamp 2 of visits, until 1970-01-01T00:00:01.020Z"
    ]


def test_counters_add_up() -> None:
    made = observation()
    for _ in range(2):
        made.judged({"visits": Counter(counted=3, late=1)})
        made.released("visits", fresh=False)
        made.gave_up(PARTIALS, RuntimeError("fenced"), True)
        made.gave_up(SOURCE, RuntimeError("lost"), False)
    assert made.events == {("visits", "counted"): 6, ("visits", "late"): 2}
    assert made.releases == {("visits", False): 2}
    assert made.failures == {"sanitize": 2, "aggregate": 2}
    assert +made.fenced == {"sanitize": 2}


def test_a_transaction_that_hides_the_end_of_a_partition_is_told_of_after_a_while() -> None:
    made, hidden = observation(SOURCE), view(end=5, hides=True)
    for second in range(5):
        made.look({SOURCE: hidden}, float(second), 0)
        assert made.holds(float(second)) == {}
    assert made.holds(5.0) == {SOURCE: "open-transaction"}
    assert made.obstacles(5.0) == ["raw: 1 partition held up by a transaction that was left open"]
    assert made.obstacles(5.0, raw=True) == ["raw, partition 0: held up by a transaction that was left open"]
    made.look({SOURCE: view(6, end=6, hides=True)}, 6.0, 0)
    assert made.holds(6.0) == {}, "another transaction hides something else"
    made.look({SOURCE: view(6, end=9, hides=True)}, 20.0, 0)
    assert made.holds(20.0) == {}, "there is something to be read"


def test_nobody_is_told_to_abort_a_transaction_of_a_worker() -> None:
    """In these topics it may be committed already, and its counts would be gone."""
    made = Observation(topology(stream(topic="app-repartition-raw", raw="raw")))
    own = [made.topology.partials, *made.topology.rekeyed.values()]
    assert len(own) == 2
    for topic in own:
        told = made.undo(TopicPartition(topic, 0), "open-transaction")
        assert "Never abort it" in told
        assert "find-hanging" not in told
    assert "find-hanging, then abort" in made.undo(SOURCE, "open-transaction")
    assert made.undo(TopicPartition(own[0], 0), "watermark").startswith("a timestamp is due")


def test_a_timestamp_that_is_due_and_has_no_watermark_holds_its_partition_up() -> None:
    made, due = observation(SOURCE), 1018

    def marked(completed: int | None, following: int = 1) -> PartitionView:
        streams = {"visits": StreamView(following, completed=completed)}
        return PartitionView(5, 5, False, streams)

    for second in range(6):
        made.look({SOURCE: marked(0)}, float(second), due)
        assert made.holds(float(second)) == {}, "the clock says only now that it is overdue"
    for second in range(6, 11):
        made.look({SOURCE: marked(0)}, float(second), due + 1)
        assert made.holds(float(second)) == {}
    made.look({SOURCE: marked(0)}, 11.0, due + 1)
    assert made.holds(11.0) == {SOURCE: "watermark"}
    (reason,) = made.obstacles(11.0)
    assert reason.startswith("raw: 1 partition held up by an engine that has not marked a due timestamp")
    for done in (marked(1), marked(None), marked(1, following=2)):
        made.look({SOURCE: done}, 12.0, due + 1)
        assert made.holds(30.0) == {}


def test_records_without_append_times_are_told_of_at_once() -> None:
    made = observation(SOURCE, OTHER)
    made.look({SOURCE: view(untimed=True), OTHER: view()}, 1.0, 0)
    assert made.holds(1.0) == {SOURCE: "append-time"}
    (reason,) = made.obstacles(1.0)
    assert reason.startswith("raw: 1 partition held up by records without the broker's append time")


def test_a_clock_that_is_behind_is_told_of_and_hides_no_delay() -> None:
    made = observation(SOURCE, OTHER)
    made.look({SOURCE: view(behind=1_500), OTHER: view(untimed=True, behind=1_400)}, 1.0, DUE)
    assert made.holds(1.0) == {SOURCE: "clock", OTHER: "append-time"}
    reason = "held up by the clock of this machine, which is behind the brokers' by more than clock_skew"
    assert f"raw: 1 partition {reason}" in made.obstacles(1.0)
    assert f"raw, partition 0: {reason}" in made.obstacles(1.0, raw=True)
    assert made.delay("visits", 1, DUE) == 1_500
    made.look({SOURCE: view(behind=1_500)}, 1.0 + STALL_SECONDS, DUE)
    assert "raw: 1 partition without progress for 60 s or more" in made.obstacles(1.0 + STALL_SECONDS)
    made.look({SOURCE: view(), OTHER: view()}, 70.0, DUE)
    assert made.obstacles(70.0) == []
    assert made.delay("visits", 1, DUE) == 0


def test_a_schema_registry_that_is_waited_for_is_told_of_at_once() -> None:
    made = observation(SOURCE, OTHER)
    made.look({SOURCE: view(unread=True), OTHER: view()}, 1.0, 0)
    assert made.holds(1.0) == {SOURCE: "schema-registry"}
    (reason,) = made.obstacles(1.0)
    assert reason == "raw: 1 partition held up by a schema registry that cannot be queried"
