"""Columns that are found in re-keyed events: from a topic of events to partial counts, and a model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.counting import counter
from eventveil.counting.assigner import AssignedRows
from eventveil.counting.counter import Partial
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Discover, Stream
from eventveil.replay.log import MemoryLog
from eventveil.tasks.repartition import Rekeyer, RekeyerState
from tests.unit.support import INSTANCE, aggregator, chunk, event, stream

HOW = Discover(Fraction(1, 10), Fraction(1, 10**9), Fraction(1, 10), 50, 20)
PARTITIONS = 2
TARGET = TopicPartition("raw", 0)


class Sent(NamedTuple):
    """An event of timestamp 1, appended in a partition at a time."""

    partition: int
    user: int
    column: str
    appended: int


def finding(contributions: int) -> Stream:
    return stream(raw="events", labels=("other",), discover=HOW, contributions=contributions)


def counted(sent: Sequence[Sent], contributions: int, order: random.Random) -> Partial:
    """What the re-keying stage and a task make of it, its partitions read in pieces, in any order."""
    one, log = finding(contributions), MemoryLog()
    log.create(TARGET.topic)
    rekeyers = [
        Rekeyer(one.source, [one.timeline], 1, RekeyerState(INSTANCE, partition, 0), TopicPartition("", 0))
        for partition in range(PARTITIONS)
    ]
    task, read = aggregator(one), 0
    waiting = [[event for event in sent if event.partition == partition] for partition in range(PARTITIONS)]
    while any(waiting):
        partition = order.choice([one for one in range(PARTITIONS) if waiting[one]])
        size = order.randint(1, 3)
        some, waiting[partition] = waiting[partition][:size], waiting[partition][size:]
        records = [(one.appended, event(f"user {one.user}", one.column, 1001)) for one in some]
        start = rekeyers[partition].position
        rekeyers[partition].process(chunk(records, start=start, topic="events", partition=partition))
        done = rekeyers[partition].next(0)
        assert done is not None
        log.append([one for one in done.records if one.topic == TARGET.topic])
        rekeyers[partition].committed(done)
        task.process(log.read(TARGET, read))
        read = task.position
    return task.counters["visits"].close()


def expected(sent: Sequence[Sent], contributions: int) -> Counter[str]:
    """Of each user the earliest, by append time, partition and offset."""
    offsets = Counter[int]()
    of_user: dict[int, list[tuple[int, int, int, str]]] = {}
    for one in sent:
        place = (one.appended, one.partition, offsets[one.partition])
        of_user.setdefault(one.user, []).append((*place, one.column))
        offsets[one.partition] += 1
    return Counter(column for events in of_user.values() for *_, column in sorted(events)[:contributions])


EVENTS = st.lists(
    st.builds(
        Sent,
        st.integers(0, PARTITIONS - 1),
        st.integers(0, 4),
        st.sampled_from([f"column {number}" for number in range(6)]),
        st.integers(1001, 1005),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("forgets", [0, 1024])
@settings(max_examples=60, deadline=None)
@given(sent=EVENTS, contributions=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_the_earliest_events_of_each_user_count_with_the_texts_of_their_columns(
    forgets: int, sent: list[Sent], contributions: int, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counter, "_FORGETS", forgets)
        found = counted(sent, contributions, random.Random(seed))
    assert dict(zip(found.names, found.counts.tolist(), strict=True)) == expected(sent, contributions)


@settings(max_examples=60, deadline=None)
@given(sent=EVENTS, contributions=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_a_user_changes_all_counts_together_by_the_bound_at_most(
    sent: list[Sent], contributions: int, seed: int
) -> None:
    """All others count as before, although their events are read at other moments without the user."""
    without = [one for one in sent if one.user != sent[0].user]
    whole = counted(sent, contributions, random.Random(seed))
    rest = counted(without, contributions, random.Random(seed + 1))
    difference = Counter(dict(zip(whole.names, whole.counts.tolist(), strict=True)))
    difference.subtract(dict(zip(rest.names, rest.counts.tolist(), strict=True)))
    assert all(number >= 0 for number in difference.values())
    assert difference.total() <= contributions


def test_texts_that_gave_way_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user sends a new text with each event, each earlier than the one before."""
    monkeypatch.setattr(counter, "_FORGETS", 10)
    made, zero = counter._OpenNamesByOrigin(1, 0), np.zeros(1, np.int64)
    for number in range(100):
        one = AssignedRows(rows=zero, users=zero + 1, columns=zero, timestamps=zero + 1)
        made.admit(one, [f"text {number}"], np.array([[1000 - number, 0, number]]))
        assert len(made) <= 13
    assert made.named()[0] == ("text 99",)
