"""Re-keyed events whose topic gets partitions, is replaced or loses records, without Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.formats.change import Difference
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.lifecycle.rerouting import RawLog, RawTopic, Rerouting, Stage, reroute
from eventveil.model.errors import Unsettled
from eventveil.model.records import Mark
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.tasks.repartition import Capture, RekeyerState, fingerprint
from tests.unit.support import INSTANCE, chunk, counter_state, event
from tests.unit.tasks.test_repartition import (
    COUNTED,
    EVENTS,
    HERE,
    LAST,
    VISITS,
    Event,
    Pipeline,
    passed_on,
    rekeyer,
    truth,
)


def stage(partitions: int = 2, position: int = 20) -> Stage:
    fields = fingerprint(VISITS.source, partitions, "target", 2)
    record = ManifestRecord(VISITS.source.topic, INSTANCE, fields, "raw", "id", 0, 1, 0, 0)
    return {
        one: (record.replace(partition=one), RekeyerState(INSTANCE, one, position, 1005))
        for one in range(partitions)
    }


def inputs(partitions: int = 2, topic_id: str = "id", begin: int = 0, end: int = 50) -> RawTopic:
    return RawTopic(topic_id, "target", 2, {one: RawLog(begin, end) for one in range(partitions)})


def moved(inputs: RawTopic, known: Stage | None = None) -> Rerouting:
    found = reroute(VISITS.source, known or stage(), inputs)
    assert found is not None
    return found


def positions(found: Rerouting) -> list[tuple[int, int]]:
    """Where each partition reads on, and up to when it has been passed on."""
    return [(state.position, state.passed) for _, (_, state) in sorted(found.stage.items())]


def test_on_the_same_ground_nothing_changes() -> None:
    assert reroute(VISITS.source, stage(), inputs()) is None


def test_partitions_that_are_added_are_read_from_their_beginning_and_have_left_no_mark() -> None:
    found = moved(inputs(3))
    assert positions(found) == [(20, 1005), (20, 1005), (0, 0)]
    assert not found.lost
    assert found.differences == {"source.partitions.events": Difference(2, 3)}
    for number, (manifest, state) in found.stage.items():
        assert (manifest.partition, state.partition, manifest.instance) == (number, number, INSTANCE)
        # Users stay in their partitions, and a worker that would move them is refused.
        assert manifest.fields["repartition.partitions"] == 2
        assert manifest.fields["source.partitions"] == 3
    assert reroute(VISITS.source, found.stage, inputs(3)) is None
    assert moved(inputs(4), found.stage).differences == {"source.partitions.events": Difference(3, 4)}


def test_another_topic_is_read_from_its_beginning_and_what_was_not_passed_on_is_lost() -> None:
    found = moved(inputs(3, topic_id="new", begin=7))
    assert positions(found) == [(7, 1005), (7, 1005), (7, 0)]
    assert {manifest.topic_id for manifest, _ in found.stage.values()} == {"new"}
    assert found.lost
    assert found.differences["source.topic_id"] == Difference("id", "new")


def test_a_log_that_begins_too_late_loses_what_was_not_passed_on_and_nothing_else() -> None:
    found = moved(inputs(begin=21))
    assert positions(found) == [(21, 1005)] * 2
    assert (found.lost, found.differences) == (True, {})
    assert reroute(VISITS.source, stage(), inputs(begin=20)) is None


def test_a_log_that_ends_too_early_goes_on_where_it_ends() -> None:
    found = moved(inputs(end=19))
    assert positions(found) == [(19, 1005)] * 2
    assert found.lost


def test_a_log_that_grew_again_goes_on_where_the_rest_of_the_old_one_ends() -> None:
    logs = {one: RawLog(0, 19, 25) for one in range(2)}
    found = moved(replace(inputs(), logs=logs))
    assert positions(found) == [(19, 1005)] * 2
    assert found.lost
    logs = {one: RawLog(0, 20, 20) for one in range(2)}
    assert reroute(VISITS.source, stage(), replace(inputs(), logs=logs)) is None


def test_captures_of_a_log_that_got_shorter_or_of_another_one_are_gone() -> None:
    captures = (Capture(1018, 10), Capture(1028, 40))
    known = {one: (manifest, state.replace(captures=captures)) for one, (manifest, state) in stage().items()}
    assert reroute(VISITS.source, known, inputs(end=40)) is None
    shorter, other = moved(inputs(end=39), known), moved(inputs(topic_id="new"), known)
    assert positions(shorter) == [(20, 1005)] * 2
    assert shorter.lost
    assert {state.captures for _, state in shorter.stage.values()} == {captures[:1]}
    assert {state.captures for _, state in other.stage.values()} == {()}
    assert reroute(VISITS.source, shorter.stage, inputs(end=39)) is None


def test_a_new_partition_that_has_lost_its_beginning_may_lack_events() -> None:
    logs = {**inputs(3).logs, 2: RawLog(5, 9)}
    found = moved(replace(inputs(3), logs=logs))
    assert positions(found)[2] == (5, 0)
    assert found.lost


def test_fewer_partitions_are_a_doubt() -> None:
    with pytest.raises(Unsettled, match="raw has fewer partitions than its state"):
        reroute(VISITS.source, stage(), inputs(1))


def test_a_counter_waits_for_partitions_that_were_added_and_keeps_the_marks_that_it_has() -> None:
    state = counter_state().replace(passed=(7, 9))
    assert state.waiting_for(4).passed == (7, 9, 0, 0)
    assert state.waiting_for(1) == state
    assert counter_state().waiting_for(0).passed == ()


def test_a_record_without_a_user_goes_to_a_partition_that_there_is() -> None:
    added = rekeyer(RekeyerState(INSTANCE, 3, 0))
    added.process(chunk([(1000, b"{"), (1001, event(HERE))], partition=3))
    assert [one.partition for one in passed_on(added)] == [1, 0]


def test_a_counter_that_does_not_know_a_partition_waits_for_it_from_its_first_mark_on() -> None:
    (counter,) = PartitionAggregator(2, {"visits": (COUNTED, counter_state())}).counters.values()
    counter.mark(Mark(2, 1005))
    assert counter.passed == (0, 0, 1005)


class Growing(Pipeline):
    """Re-keying and counting while the topic of events gets a third partition at time ``grows``."""

    def __init__(self, events: Sequence[Event], chance: Any, grows: int) -> None:
        super().__init__(events, chance)
        self.grows, self.added = grows, [one for one in events if one[0] == 2]

    def grow(self) -> None:
        """What `migrate` does, between two lives of the workers."""
        known = {
            one: (stage()[one][0].replace(fields=fingerprint(VISITS.source, 2, "target", 2)), state)
            for one, state in enumerate(self.states)
        }
        found = moved(inputs(3, end=1000), known)
        self.raw.append(self.added)
        self.states = [state for _, (_, state) in sorted(found.stage.items())]
        self.rekeyers = [rekeyer(state) for state in self.states]
        self.counters = [state.waiting_for(3) for state in self.counters]
        self.aggregators = [self.aggregator(at) for at in (0, 1)]

    def run(self) -> Counter[tuple[int, int]]:
        for _ in range(60):
            self.now += self.chance.randrange(6)
            if self.now >= self.grows and len(self.raw) == 2:
                self.grow()
            passes = self.chance.random() < 0.5
            at = self.chance.randrange(len(self.raw) if passes else 2)
            (self.pass_on if passes else self.count)(at, self.chance.randrange(5), self.chance.random() < 0.8)
        if len(self.raw) == 2:
            self.grow()
        self.now = LAST
        for _ in range(3):
            for at in range(3):
                self.pass_on(at, 1000, survives=True)
            for at in (0, 1):
                self.count(at, 1000, survives=True)
        assert set(self.closed.values()) == {1}, "a timestamp was closed twice"
        assert sorted(self.closed) == [(at, timestamp) for at in (0, 1) for timestamp in range(1, 20)]
        assert len(self.letters) == len(set(self.letters)), "a dead letter was written twice"
        return self.counts


def spread(events: list[Event], grows: int, chance: Any) -> list[Event]:
    """Of what is appended from then on, some is in a third partition."""
    return [(2, *one[1:]) if one[1] >= grows and chance.random() < 0.5 else one for one in events]


def test_every_event_counts_once_while_the_topic_of_events_gets_a_partition() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(EVENTS, st.integers(1000, 1040), st.randoms(use_true_random=False))
    def any_run(events: list[Event], grows: int, chance: Any) -> None:
        events = spread(events, grows, chance)
        pipeline = Growing(events, chance, grows)
        counts, dead = truth(events)
        assert pipeline.run() == counts
        assert len(pipeline.letters) == dead
        seen.update(added=len(pipeline.added), counted=sum(counts.values()), crashes=pipeline.crashes)

    any_run()
    assert min(seen.values()) > 20, seen
