"""The same life on other ground, without Kafka: more partitions, other topics, lost records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import CounterState
from eventveil.formats.change import Change, Difference
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.lifecycle.migration import check_sound
from eventveil.lifecycle.relocation import (
    InputTopics,
    Log,
    Relocation,
    check_inputs,
    doubtful,
    relocate,
    settled,
)
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.partitioners import Growth
from eventveil.model.records import TopicPartition
from tests.unit.migrating import BUDGET, COUNTING, FIRST, Lifetime

#: Of the streams in ``tests.unit.support``.
ORIGIN, INTERVAL = 1000, 10
NOW = ORIGIN + 100 * INTERVAL
#: In which events may have been appended by then.
LAST = 101


def logs(partitions: int, **changes: Any) -> dict[int, Log]:
    fields = {"begin": 0, "end": 50, "again": 3, **changes}
    return {number: Log(place=TopicPartition(COUNTING, number), **fields) for number in range(partitions)}


def inputs(partitions: int = 2, **changes: Any) -> InputTopics:
    fields: dict[str, Any] = {"source_id": "id", "partials_id": "id", "now": NOW}
    fields |= {"partials_begin": 0, "partials_end": 400}
    return InputTopics(**{**fields, "logs": logs(partitions), **changes})


@pytest.fixture
def life() -> Lifetime:
    """Released up to timestamp 8; partition 1 has counted two timestamps more than partition 0."""
    made = Lifetime()
    made.release(4)
    made.count(TopicPartition(COUNTING, 1), FIRST + 6)
    return made


def moved(lifetime: Lifetime, inputs: InputTopics, since: int | None = None) -> Relocation | None:
    return relocate(lifetime.stream, lifetime.checkpoint, inputs, since)


def some(found: Relocation | None) -> Relocation:
    assert found is not None
    return found


def states(found: Relocation) -> list[CounterState]:
    return [state for _, (_, state) in sorted(found.counting.items())]


def apply(lifetime: Lifetime, found: Relocation, partitions: int) -> None:
    target = lifetime.target()
    fields = {**target.fields, "source.partitions": partitions}
    budget = {**target.budget_fields, "source.partitions": partitions}
    for place in found.counting:
        lifetime.tables.setdefault(place, {})
    lifetime.apply(found.records(lifetime.checkpoint, replace(target, fields=fields, budget_fields=budget)))


def test_on_the_same_ground_nothing_changes(life: Lifetime) -> None:
    assert moved(life, inputs()) is None


@pytest.mark.parametrize(("now", "since"), [(NOW, 100), (ORIGIN, FIRST + 6)])
def test_more_partitions_count_from_the_first_timestamp_that_is_not_due(
    life: Lifetime, now: int, since: int
) -> None:
    """By the clock, and not by what was read and closed; but never from one that is closed."""
    found = some(moved(life, inputs(4, now=now)))
    assert found.differences["source.partitions.since"] == Difference(None, since)


def test_more_partitions_are_judged_anew_from_a_timestamp_on(life: Lifetime) -> None:
    found = some(moved(life, inputs(4), FIRST + 6))
    growth = Growth(FIRST + 6, 2)
    assert {manifest.grown for manifest, _ in found.counting.values()} == {(growth,)}
    assert found.differences == {
        "source.partitions": Difference(2, 4),
        "source.partitions.since": Difference(None, FIRST + 6),
    }
    assert found.lost is None
    # Who is in a partition of somebody else now gets a dead letter: verdicts are given again.
    assert [(one.next, one.resume, one.judged) for one in states(found)] == [
        (FIRST + 4, 7, 7),
        (FIRST + 6, 7, 7),
        (FIRST + 4, 0, 0),
        (FIRST + 4, 0, 0),
    ]


def test_the_life_stays_the_same_and_the_ledger_tells(life: Lifetime) -> None:
    before = life.checkpoint
    apply(life, some(moved(life, inputs(4), FIRST + 9)), 4)
    after = life.tables
    for number in range(4):
        manifest = ManifestRecord.find(after[COUNTING, number], "visits", "here")
        state = manifest.counter_state(after[COUNTING, number], "here")
        assert (manifest.instance, manifest.partition, manifest.first) == ("instance-0", number, FIRST)
        assert (state.instance, state.partition) == ("instance-0", number)
        assert manifest.grown == (Growth(FIRST + 9, 2),)
    manifest = ManifestRecord.find(after[BUDGET, 0], "visits", "here")
    assert manifest.release_state(after[BUDGET, 0], "here") == before.state
    change = Change.read(orjson.loads(life.ledger[-1]))
    assert change is not None
    assert (change.start, change.restarts, change.before) == (FIRST + 4, False, change.after)
    assert change.fields["source.partitions.since"] == Difference(None, FIRST + 9)
    assert [report.findings for report in life.audit()] == [()]


def test_timestamps_that_are_counted_already_cannot_be_declared(life: Lifetime) -> None:
    with pytest.raises(StateRefused, match=f"events of timestamp {FIRST + 5} may be judged already"):
        moved(life, inputs(4), FIRST + 5)
    with pytest.raises(Unsettled, match="has 2 partitions as before"):
        moved(life, inputs(2), FIRST + 9)


def test_it_grows_again_before_the_first_growth_has_come(life: Lifetime) -> None:
    apply(life, some(moved(life, inputs(4), FIRST + 9)), 4)
    places = [TopicPartition(COUNTING, number) for number in range(4)]
    counting = {}
    for place in places:
        manifest = ManifestRecord.find(life.tables[place], "visits", "here")
        counting[place] = (manifest, manifest.counter_state(life.tables[place], "here"))
    budget = ManifestRecord.find(life.tables[BUDGET, 0], "visits", "here")
    now = replace(life.checkpoint, counting=counting, manifest=budget)
    with pytest.raises(StateRefused, match=f"events of timestamp {FIRST + 8} may be judged already"):
        relocate(life.stream, now, inputs(8), FIRST + 8)
    found = some(relocate(life.stream, now, inputs(8), FIRST + 9))
    assert {manifest.grown for manifest, _ in found.counting.values()} == {
        (Growth(FIRST + 9, 2), Growth(FIRST + 9, 4))
    }


def test_another_topic_is_read_from_its_beginning_and_what_was_not_released_may_lack_events(
    life: Lifetime,
) -> None:
    begins = logs(2, begin=2)
    found = some(moved(life, inputs(source_id="new", logs=begins)))
    assert {manifest.topic_id for manifest, _ in found.counting.values()} == {"new"}
    assert [(one.next, one.resume, one.judged) for one in states(found)] == [
        (FIRST + 4, 2, 2),
        (FIRST + 6, 2, 2),
    ]
    # All that may have events by now, which are max_ahead early.
    assert found.lost == (FIRST + 4, LAST)
    assert found.differences["source.topic_id"] == Difference("id", "new")
    assert found.differences["lost.from"] == Difference(None, FIRST + 4)
    assert found.differences["lost.until"] == Difference(None, LAST)


def test_a_log_that_begins_too_late_loses_what_was_not_read_and_nothing_else(life: Lifetime) -> None:
    cut = {**logs(2), 0: replace(logs(2)[0], begin=20)}
    found = some(moved(life, inputs(logs=cut)))
    assert [(one.next, one.resume, one.judged) for one in states(found)] == [
        (FIRST + 4, 20, 20),
        (FIRST + 6, 7, 9),
    ]
    assert found.lost == (FIRST + 4, LAST)
    # What is left of what was judged has had its verdict.
    cut = {**logs(2), 0: replace(logs(2)[0], begin=8)}
    first, _ = states(some(moved(life, inputs(logs=cut))))
    assert (first.resume, first.judged) == (8, 9)


def test_what_would_be_judged_anew_and_may_be_gone_is_lost_too(life: Lifetime) -> None:
    """What counts is there. A worker does not start if others might have counted by the rules of now."""
    cut = {**logs(2), 0: replace(logs(2)[0], begin=5, anew=4)}
    found = some(moved(life, inputs(logs=cut)))
    assert [(one.next, one.resume, one.judged) for one in states(found)] == [
        (FIRST + 4, 5, 9),
        (FIRST + 6, 7, 9),
    ]
    assert found.lost == (FIRST + 4, LAST)
    assert sorted(manifest.resume for manifest, _ in found.counting.values()) == [0, 5], "it is given up"
    whole = {number: replace(log, begin=5, anew=5 + number) for number, log in logs(2).items()}
    assert moved(life, inputs(logs=whole)) is None


def test_a_log_that_lost_its_end_begins_no_earlier_than_the_stream_did(life: Lifetime) -> None:
    place = TopicPartition(COUNTING, 1)
    manifest, _ = life.checkpoint.counting[place]
    life.tables[place][ManifestRecord.key("visits")] = manifest.replace(resume=4).encode()
    found = some(moved(life, inputs(logs={**logs(2), 1: replace(logs(2)[1], end=8, again=5)})))
    assert found.counting[place][0].resume == 4
    # Another topic has other offsets.
    assert some(moved(life, inputs(source_id="new"))).counting[place][0].resume == 0


def test_a_log_that_ends_too_early_is_read_again_from_where_events_may_be(life: Lifetime) -> None:
    short = {**logs(2), 1: replace(logs(2)[1], end=8, again=5)}
    found = some(moved(life, inputs(logs=short)))
    assert [(one.next, one.resume, one.judged) for one in states(found)] == [
        (FIRST + 4, 7, 9),
        (FIRST + 6, 5, 5),
    ]
    assert found.lost == (FIRST + 4, LAST)


def test_a_log_that_grew_again_beyond_what_was_read_is_read_again_too(life: Lifetime) -> None:
    """What was read reached farther than what the state has judged: that alone shows it."""
    assert moved(life, inputs(logs={**logs(2), 1: replace(logs(2)[1], end=9, reached=9)})) is None
    grown = {**logs(2), 1: replace(logs(2)[1], end=9, again=5, reached=12)}
    found = some(moved(life, inputs(logs=grown)))
    assert [(one.next, one.resume, one.judged) for one in states(found)] == [
        (FIRST + 4, 7, 9),
        (FIRST + 6, 5, 5),
    ]
    assert found.lost == (FIRST + 4, LAST)


def test_partial_counts_that_are_gone_are_made_again_and_nothing_is_lost(life: Lifetime) -> None:
    found = some(moved(life, inputs(partials_id="new", partials_end=4)))
    assert [(one.next, one.resume, one.judged) for one in states(found)] == [
        (FIRST + 4, 3, 9),
        (FIRST + 4, 3, 9),
    ]
    assert found.lost is None
    assert found.differences == {
        "partials.topic_id": Difference("id", "new"),
        "partials.again": Difference(None, FIRST + 4),
    }
    apply(life, found, 2)
    manifest = ManifestRecord.find(life.tables[BUDGET, 0], "visits", "here")
    assert manifest.topic_id == "new"
    # The end that they have now, as the life that follows has it.
    assert manifest.release_state(life.tables[BUDGET, 0], "here").resume == 100


@pytest.mark.parametrize(
    ("offsets", "cut"),
    [
        ({"resume": 200}, {"partials_begin": 201}),
        ({"resume": 200}, {"partials_end": 199}),
        ({"resume": 150, "read": 200}, {"partials_end": 199}),
    ],
    ids=["begins", "ends", "ends within a block"],
)
def test_so_are_those_that_a_log_has_lost(offsets: dict[str, int], cut: dict[str, int]) -> None:
    life = Lifetime()
    life.release(4)
    table = life.tables[BUDGET, 0]
    table[b"visits"] = life.checkpoint.state.replace(**offsets).encode()
    found = some(moved(life, inputs(**cut)))
    apply(life, found, 2)
    assert (life.checkpoint.state.resume, life.checkpoint.state.read) == (100, 0)
    assert found.differences == {"partials.again": Difference(None, FIRST + 4)}
    assert found.again


def test_they_are_lost_as_far_as_the_source_has_lost_the_events(life: Lifetime) -> None:
    """A search by time finds nothing below the beginning of a log, so what was there is not known."""
    cut = logs(2, begin=6, again=6)
    assert some(moved(life, inputs(partials_id="new", logs=cut))).lost == (FIRST + 4, LAST)
    whole = logs(2, begin=5, again=6)
    assert some(moved(life, inputs(partials_id="new", logs=whole))).lost is None


def test_boundaries_stay_with_their_topic() -> None:
    life = Lifetime(append_time="boundary")
    life.release(4)
    kept = (Boundary(FIRST + 2, 7), Boundary(FIRST + 5, 12))
    for place in life.places[:-1]:
        _, state = life.checkpoint.counting[place]
        life.tables[place][b"visits"] = state.replace(boundaries=kept).encode()
    (first, *_) = states(some(moved(life, inputs(4))))
    assert first.boundaries == kept
    cut = {**logs(2), 0: replace(logs(2)[0], begin=20)}
    assert states(some(moved(life, inputs(logs=cut))))[0].boundaries == kept
    short = {**logs(2), 0: replace(logs(2)[0], end=8, again=8)}
    assert states(some(moved(life, inputs(logs=short))))[0].boundaries == kept[:1]
    # All that was read is there, but not all that was there when the boundary was captured.
    shorter = {**logs(2), 0: replace(logs(2)[0], end=11, again=8)}
    found = some(moved(life, inputs(logs=shorter)))
    assert states(found)[0].boundaries == kept[:1]
    assert found.lost == (FIRST + 4, 101)
    assert states(some(moved(life, inputs(source_id="new"))))[0].boundaries == ()
    with pytest.raises(Unsettled, match="nothing else records what was late"):
        moved(life, inputs(partials_id="new"))


def test_marks_of_re_keyed_events_do_not_outlive_the_log_that_they_stood_in() -> None:
    """With them timestamps would close before the events in question had been read again."""
    life = Lifetime(raw="keyed otherwise")
    life.release(4)
    for place in life.places[:-1]:
        state = life.checkpoint.counting[place][1]
        life.tables[place][b"visits"] = state.replace(passed=(NOW, NOW)).encode()
    short = {**logs(2), 1: replace(logs(2)[1], end=8, again=5)}
    assert [one.passed for one in states(some(moved(life, inputs(logs=short))))] == [(NOW, NOW), ()]


@pytest.mark.parametrize("other", [inputs(4), inputs(source_id="new")], ids=["grown", "another topic"])
def test_re_keyed_events_have_one_ground_only(other: InputTopics) -> None:
    life = Lifetime(raw="keyed otherwise")
    with pytest.raises(Unsettled, match="its events are re-keyed"):
        moved(life, other)


def test_fewer_partitions_are_refused(life: Lifetime) -> None:
    with pytest.raises(Unsettled, match="fewer partitions"):
        moved(life, inputs(1))


def test_losses_are_accepted_by_name_and_other_settings_change_by_themselves(life: Lifetime) -> None:
    found = some(moved(life, inputs(source_id="new")))
    with pytest.raises(Unsettled, match=f"timestamps {FIRST + 4} to 101 may lack some") as doubt:
        check_inputs(life.checkpoint, found.differences, accepts_loss=False)
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in str(doubt.value.refusal)
    assert "new name" not in str(doubt.value.refusal)
    assert check_inputs(life.checkpoint, found.differences, accepts_loss=True) == found.differences
    sink = {**found.differences, "sink.topic": Difference("a", "b")}
    assert check_inputs(life.checkpoint, sink, accepts_loss=True) == sink
    with pytest.raises(StateRefused, match=r"mechanism\.epsilon changed along with"):
        check_inputs(life.checkpoint, {**sink, "mechanism.epsilon": Difference("1", "2")}, accepts_loss=True)


@pytest.mark.parametrize("kind", ["uniform", "time-unit", "shp-window"])
def test_the_ground_can_change_at_every_level(kind: str) -> None:
    """Nothing of the budget follows other rules; another setting is refused there as before."""
    life = Lifetime().checkpoint
    fields = {**life.manifest.fields, "mechanism.kind": kind}
    life = replace(life, manifest=life.manifest.replace(fields=fields))
    ground_only = {name: Difference(1, 2) for name in ("source.partitions", "sink.topic", "sink.topic_id")}
    check_sound(life, ground_only)
    if kind != "uniform":
        with pytest.raises(StateRefused, match="at event level and for a horizon"):
            check_sound(life, {**ground_only, "counts.unknown": Difference("a", "b")})


def test_what_a_broker_can_make_up_is_doubtful_and_partitions_that_were_added_are_not(life: Lifetime) -> None:
    def doubt(on: InputTopics) -> str:
        return str(doubtful("visits", some(moved(life, on)).differences))

    assert doubt(inputs(4)) == "None"
    assert "source.topic_id, lost.from changed" in doubt(inputs(source_id="new"))
    assert "partials.topic_id, partials.again changed" in doubt(inputs(partials_id="new"))
    short = {**logs(2), 1: replace(logs(2)[1], end=8, again=5)}
    assert "lost.from changed" in doubt(inputs(logs=short))


def test_a_change_that_is_another_one_by_now_is_not_made(life: Lifetime) -> None:
    found = some(moved(life, inputs(source_id="new"))).differences
    later = some(moved(life, inputs(source_id="new", now=NOW + 1000))).differences
    settled("visits", found, later)
    another = {**found, "source.topic_id": Difference("id", "3")}
    for other in ({}, {"sink.topic": Difference("a", "b")}, another):
        with pytest.raises(Unsettled, match="changed, but before that"):
            settled("visits", found, other)
