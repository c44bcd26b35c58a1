"""One stream in one source partition: verdicts, the bound, closing, and the state that survives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.counting.assigner import Rows
from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import CounterState, Partial, StreamCounter
from eventveil.counting.users import Users
from eventveil.decoding.bulk import BulkReader, fields_of
from eventveil.decoding.rules import Reason, Rejection
from eventveil.model.errors import StateRefused
from eventveil.model.records import NO_APPEND_TIME
from eventveil.model.topology import Counts, Source
from eventveil.process.memory import Held
from tests.unit.support import INSTANCE, USER_OF_PARTITION, counter_state, event, partial, sparse, stream


def counter(partitions: int = 1, state: CounterState | None = None, **changes: Any) -> StreamCounter:
    one, state = stream(**changes), state or counter_state()
    return StreamCounter(one, partitions, state, Users(one.source, partitions, state.partition))


@cache
def reader(source: Source, counts: Counts) -> BulkReader:
    return BulkReader(fields_of([(source, counts)]), 1_000_000)


def observe(one: StreamCounter, offset: int, append_time: int, value: bytes | None) -> Rejection | None:
    fields = reader(one.stream.source, one.stream.counts).read([value])
    rows = Rows(np.array([offset]), np.array([append_time]), [value], fields)
    return next((rejection for _, rejection in one.observe(rows)), None)


def judge(one: StreamCounter, offset: int, append_time: int, value: bytes | None) -> str:
    """The outcome that the counter books for a record; empty if it books none."""
    before = one.outcomes.copy()
    rejection = observe(one, offset, append_time, value)
    booked = list((one.outcomes - before).elements())
    assert len(booked) <= 1
    assert rejection is None or booked == [rejection.reason.value]
    return booked[0] if booked else ""


@pytest.mark.parametrize(
    ("append_time", "time", "outcome"),
    [
        (1000, 1000, "counted"),
        (1000, 999, Reason.BEFORE_ORIGIN),
        (1000, 1007, "counted"),  # ahead by exactly max_ahead
        (1000, 1008, Reason.TOO_FAR_AHEAD),
        (1014, 1009, "counted"),  # the last millisecond before the deadline
        (1015, 1009, Reason.LATE),
        (1016, 1009, Reason.LATE),
        (1015, 1010, "counted"),
        (1024, 1010, "counted"),
        (1025, 1019, Reason.LATE),
        (993, 1000, "counted"),
        (992, 1000, Reason.TOO_FAR_AHEAD),
        (0, 1000, Reason.TOO_FAR_AHEAD),
        (NO_APPEND_TIME, 1000, Reason.NO_APPEND_TIME),
    ],
)
def test_an_event_counts_by_its_own_time_and_the_time_the_broker_appended_it(
    append_time: int, time: int, outcome: str
) -> None:
    assert judge(counter(), 0, append_time, event(time=time)) == outcome


def test_an_event_counts_at_the_timestamp_of_its_own_time_and_not_of_its_append_time() -> None:
    one = counter(max_ahead=100)
    for offset, time in enumerate((1020, 1009, 1010)):
        assert judge(one, offset, 1010, event(user=str(offset), time=time)) == "counted"
    assert [sparse(one.close()) for _ in range(4)] == [{0: 1}, {0: 1}, {0: 1}, {}]


def test_a_timestamp_before_the_first_one_is_before_the_start() -> None:
    one = counter(state=counter_state(first=3, next=3))
    assert judge(one, 0, 1019, event(time=1019)) == Reason.BEFORE_START
    assert judge(one, 1, 1020, event(time=1020)) == "counted"


def test_an_event_on_time_that_became_readable_after_the_close_is_named_so() -> None:
    one = counter()
    one.close()
    assert judge(one, 0, 1014, event(time=1009)) == Reason.AFTER_CLOSE
    assert judge(one, 1, 1015, event(time=1009)) == Reason.LATE
    assert judge(one, 2, 1015, event(time=1010)) == "counted"


def test_a_user_must_fit_the_partition() -> None:
    here, there = USER_OF_PARTITION
    first, second = counter(2), counter(2, counter_state(partition=1))
    assert judge(first, 0, 1000, event(here)) == "counted"
    assert judge(first, 1, 1000, event(there)) == Reason.WRONG_PARTITION
    assert judge(second, 0, 1000, event(here)) == Reason.WRONG_PARTITION
    assert judge(second, 1, 1000, event(there)) == "counted"


def test_the_declared_partitioner_decides_where_a_user_fits() -> None:
    user = next(user for user in map(str, range(100)) if _owner("crc32", user) != _owner("murmur2", user))
    for partitioner in ("murmur2", "crc32"):
        state = counter_state(partition=_owner(partitioner, user))
        assert judge(counter(2, state, partitioner=partitioner), 0, 1000, event(user)) == "counted"


def _owner(partitioner: str, user: str) -> int:
    one = counter(2, partitioner=partitioner)
    return 0 if judge(one, 0, 1000, event(user)) == "counted" else 1


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_of_a_user_and_timestamp_the_first_events_count_up_to_the_bound(bound: int) -> None:
    one = counter(contributions=bound)
    outcomes = [judge(one, offset, 1000, event(column="ab"[offset % 2])) for offset in range(5)]
    assert outcomes == ["counted"] * bound + ["bounded"] * (5 - bound)
    columns = [offset % 2 for offset in range(bound)]
    assert sparse(one.close()) == {column: columns.count(column) for column in set(columns)}


def test_the_bound_holds_per_timestamp_and_per_user() -> None:
    one = counter()
    events = [("u", 1000), ("u", 1009), ("v", 1000), ("u", 1010), ("v", 1010), ("u", 1011)]
    outcomes = [
        judge(one, offset, 1010, event(user, time=time)) for offset, (user, time) in enumerate(events)
    ]
    assert outcomes == ["counted", "bounded", "counted", "counted", "counted", "bounded"]
    assert (one.contributions, one.held) == (4, Held(timestamps=2, contributions=4, users=2))
    one.close()
    assert (one.contributions, one.held) == (2, Held(timestamps=1, contributions=2, users=2))


_EVENTS = st.lists(st.tuples(st.sampled_from("uvw"), st.sampled_from("ab")), max_size=12)


@settings(deadline=None)
@given(
    _EVENTS, st.lists(st.sampled_from("ab"), max_size=5), st.randoms(use_true_random=False), st.integers(1, 3)
)
def test_one_user_changes_a_timestamp_by_the_declared_sensitivity_at_most(
    events: list[tuple[str, str]], instead: list[str], chance: Random, bound: int
) -> None:
    """Whatever the user x does, and wherever among the events of the others."""

    def counts(own: list[str]) -> np.ndarray[Any, Any]:
        mixed = list(events)
        for column in own:
            mixed.insert(chance.randrange(len(mixed) + 1), ("x", column))
        one = counter(contributions=bound)
        for offset, (user, column) in enumerate(mixed):
            judge(one, offset, 1000, event(user, column))
        found = sparse(one.close())
        return np.array([found.get(column, 0) for column in (0, 1)])

    def change(one: list[str], other: list[str]) -> int:
        return int(np.abs(counts(one) - counts(other)).sum())

    assert change([], instead) == min(len(instead), bound)
    assert change([], instead) <= stream(contributions=bound).sensitivity
    assert change(["a"] * bound, instead) <= stream(contributions=bound, adjacency="substitute").sensitivity
    assert (
        change(["a"] * bound, ["b"] * bound)
        == stream(contributions=bound, adjacency="substitute").sensitivity
    )


def test_neither_rejected_nor_ignored_events_use_up_a_contribution() -> None:
    one = counter(unknown="ignore")
    values = [event(column="zz"), event(column=1), event(time="x"), event(), event()]
    outcomes = [judge(one, offset, 1000, value) for offset, value in enumerate(values)]
    assert outcomes == ["ignored", Reason.WRONG_TYPE, Reason.TIME_UNREADABLE, "counted", "bounded"]


def test_an_ignored_event_is_still_late_if_it_is_late() -> None:
    assert judge(counter(unknown="ignore"), 0, 1015, event(column="zz")) == Reason.LATE


def test_an_ignored_event_opens_no_timestamp() -> None:
    one = counter(unknown="ignore")
    judge(one, 3, 1000, event(column="zz"))
    assert one.state_at(4) == counter_state(resume=4, judged=4)


def test_an_empty_timestamp_closes_with_an_empty_partial() -> None:
    one = counter(state=counter_state(first=2, next=5))
    closed = one.close()
    assert (closed.stream, closed.timestamp, closed.partition, closed.instance) == ("visits", 5, 0, INSTANCE)
    assert sparse(closed) == {}
    assert one.next == 6


def test_a_partial_is_sparse_with_ascending_columns() -> None:
    one = counter(labels=tuple("abcde"))
    for offset, column in enumerate("dbbd" + "a"):
        judge(one, offset, 1000, event(str(offset), column))
    closed = one.close()
    assert closed.columns.tolist() == [0, 1, 3]
    assert closed.counts.tolist() == [1, 2, 2]


def test_a_successor_resumes_at_the_first_event_of_the_oldest_open_timestamp() -> None:
    one = counter(max_ahead=100)
    for offset, time in ((10, 1025), (11, 1001), (12, 1015), (13, 1026)):
        judge(one, offset, 1001, event(str(offset), time=time))
    resumes = [one.state_at(14).resume]
    for _ in range(3):
        one.close()
        resumes.append(one.state_at(14).resume)
    assert resumes == [10, 10, 10, 14]


def test_the_last_timestamp_with_an_event_is_known_until_it_is_closed() -> None:
    one = counter(max_ahead=100)
    assert one.last_open is None
    for offset, time in enumerate((1015, 1000)):
        judge(one, offset, 1000, event(time=time))
    found = []
    for _ in range(3):
        found.append(one.last_open)
        one.close()
    assert found == [2, 2, None]


def test_state_says_what_was_closed_and_judged() -> None:
    one = counter(state=counter_state(first=2, next=4, resume=5, judged=8))
    judge(one, 8, 1035, event(time=1035))
    one.close()
    one.close()
    assert one.state_at(9) == counter_state(first=2, next=6, resume=9, judged=9)
    assert one.resume == 5
    one.resume_from(one.state_at(9))
    assert one.resume == 9


def test_below_the_judged_offset_events_are_counted_again_but_nothing_is_said() -> None:
    one = counter(state=counter_state(resume=5, judged=8))
    assert observe(one, 5, 1000, b"nonsense") is None
    assert judge(one, 6, 1000, event()) == ""
    assert judge(one, 7, 1000, event()) == ""
    assert judge(one, 8, 1000, event()) == "bounded"
    assert isinstance(observe(one, 9, 1000, b"nonsense"), Rejection)
    assert one.outcomes == {"bounded": 1, Reason.NOT_JSON: 1}
    assert sparse(one.close()) == {0: 1}


def test_below_the_resume_offset_nothing_counts() -> None:
    one = counter(state=counter_state(resume=5, judged=5))
    assert judge(one, 4, 1000, event()) == ""
    assert sparse(one.close()) == {}


def test_the_judged_offset_never_goes_back() -> None:
    one = counter(state=counter_state(resume=5, judged=8))
    assert one.state_at(6).judged == 8


def test_a_close_amid_re_reading_leaves_the_unread_events_to_the_successor() -> None:
    # A predecessor judged up to 8 and left timestamp 2 open with an event at 6. Here only 5 was read so far.
    one = counter(state=counter_state(resume=5, judged=8))
    judge(one, 5, 1009, event(time=1001))
    one.close()
    state = one.state_at(6)
    assert (state.next, state.judged) == (2, 8)
    assert state.resume <= 6


def test_a_close_amid_re_reading_does_not_drop_the_unread_events() -> None:
    one = counter(state=counter_state(resume=5, judged=8))
    judge(one, 5, 1009, event(time=1001))
    assert sparse(one.close()) == {0: 1}
    one.resume_from(one.state_at(6))
    judge(one, 6, 1015, event(time=1012))
    assert sparse(one.close()) == {0: 1}


ODD_TIMES = st.one_of(
    st.integers(-(2**53), 2**53),
    st.integers(-(2**63), 2**63 - 1),
    st.datetimes().map(lambda moment: f"{moment.isoformat()}+00:01"),
)


@settings(max_examples=300, deadline=None)
@given(ODD_TIMES, st.integers(0, 2**42))
def test_no_time_of_an_event_can_stop_the_partition(time: int | str, append_time: int) -> None:
    assert judge(counter(), 0, append_time, event(time=time)) != ""


@pytest.mark.parametrize("time", [-(2**53) + 1, -62135596800001, "0001-01-01T00:00:00+00:01"])
def test_a_time_before_the_year_1_is_a_dead_letter_and_not_a_crash(time: int | str) -> None:
    outcome = judge(counter(), 0, 1000, event(time=time))
    assert outcome in (Reason.BEFORE_ORIGIN, Reason.TIME_UNREADABLE)


def test_a_state_survives_its_bytes() -> None:
    state = counter_state(partition=3, first=2, next=7, resume=100, judged=2**40)
    assert CounterState.decode(state.encode(), "here") == state
    bounded = state.replace(boundaries=(Boundary(6, 90), Boundary(9, 90)))
    assert CounterState.decode(bounded.encode(), "here") == bounded
    assert b"boundaries" not in state.encode()


def _with(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda fields: {**fields, **changes}


BROKEN_STATES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an array": lambda fields: list(fields),
    "no object": lambda fields: 7,
    "a field short": lambda fields: {key: fields[key] for key in fields if key != "judged"},
    "a field too many": _with(extra=1),
    "text for a number": _with(next="2"),
    "a fraction": _with(resume=1.0),
    "a truth value": _with(first=True),
    "nothing": _with(judged=None),
    "below zero": _with(resume=-1),
    "timestamp zero": _with(first=0, next=0),
    "next before first": _with(first=3, next=2),
    "resume beyond judged": _with(resume=9, judged=8),
    "boundaries that are none": _with(boundaries=7),
    "a boundary of one number": _with(boundaries=[[1]]),
    "a boundary of texts": _with(boundaries=["ab"]),
    "boundaries that step back": _with(boundaries=[[1, 5], [2, 4]]),
    "two boundaries of one timestamp": _with(boundaries=[[1, 5], [1, 6]]),
}


@pytest.mark.parametrize("break_it", BROKEN_STATES.values(), ids=list(BROKEN_STATES))
def test_a_broken_state_is_refused(break_it: Callable[[dict[str, Any]], Any]) -> None:
    good = orjson.loads(counter_state(next=2, resume=3, judged=8).encode())
    CounterState.decode(orjson.dumps(good), "here")
    with pytest.raises(StateRefused, match=r"^here: "):
        CounterState.decode(orjson.dumps(break_it(good)), "here")


def test_a_state_that_is_cut_short_anywhere_is_refused() -> None:
    value = counter_state().encode()
    for length in range(len(value)):
        with pytest.raises(StateRefused):
            CounterState.decode(value[:length], "here")


@pytest.mark.parametrize("version", [2, 0, None, "1"])
def test_a_state_of_another_version_is_refused_with_the_remedy(version: Any) -> None:
    fields = {**orjson.loads(counter_state().encode()), "version": version}
    with pytest.raises(StateRefused, match="Run the version of Eventveil that wrote it"):
        CounterState.decode(orjson.dumps(fields), "here")


def test_a_partial_survives_its_bytes() -> None:
    one = partial(4, {0: 3, 7: 2**40}, partition=2)
    again = Partial.decode(one.encode(), "here")
    assert again.encode() == one.encode()
    assert (again.stream, again.timestamp, again.partition, sparse(again)) == (
        "visits",
        4,
        2,
        {0: 3, 7: 2**40},
    )


def test_a_partial_tells_its_boundary_where_there_is_one() -> None:
    assert Partial.decode(partial(boundary=17).encode(), "here").boundary == 17
    assert Partial.decode(partial().encode(), "here").boundary is None
    with pytest.raises(StateRefused):
        Partial.decode(partial(boundary="17").encode(), "here")


def test_an_empty_partial_has_these_bytes() -> None:
    assert partial().encode() == (
        b'{"stream":"visits","timestamp":1,"partition":0,"instance":"0123456789abcdef","columns":[],"counts":[]}'
    )


BROKEN_PARTIALS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no object": lambda fields: [fields],
    "a number": lambda fields: 7,
    "no counts": lambda fields: {key: fields[key] for key in fields if key != "counts"},
    "a field too many": _with(extra=987654),
    "text for a timestamp": _with(timestamp="1"),
    "a truth value for a partition": _with(partition=True),
    "a number for a stream": _with(stream=7),
    "beyond 64 bits": _with(counts=[2**63, 987654]),
    "nothing for a count": _with(counts=[None, 987654]),
    "a fraction for a count": _with(counts=[0.5, 987654]),
    "text for a count": _with(counts=["3", 987654]),
    "a truth value for a count": _with(counts=[True, 987654]),
    "a fraction for a column": _with(columns=[0.5, 1]),
}


@pytest.mark.parametrize("break_it", BROKEN_PARTIALS.values(), ids=list(BROKEN_PARTIALS))
def test_a_broken_partial_is_refused_without_a_word_about_its_counts(
    break_it: Callable[[dict[str, Any]], Any],
) -> None:
    good = orjson.loads(partial(1, {0: 987654, 1: 987654}).encode())
    Partial.decode(orjson.dumps(good), "here")
    with pytest.raises(StateRefused, match=r"^here: ") as refusal:
        Partial.decode(orjson.dumps(break_it(good)), "here")
    assert "987654" not in str(refusal.value)


def test_a_partial_that_is_cut_short_anywhere_is_refused() -> None:
    value = partial(1, {0: 5}).encode()
    for length in range(len(value)):
        with pytest.raises(StateRefused):
            Partial.decode(value[:length], "here")
