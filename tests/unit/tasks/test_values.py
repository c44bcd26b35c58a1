"""Perturbing a partition of values: places, batches, what each transaction holds, states."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import orjson
import pytest

from eventveil.model.errors import StateRefused
from eventveil.model.reach import Reach
from eventveil.model.records import Chunk, TopicPartition
from eventveil.model.topology import ReadingStream
from eventveil.privacy.noise import SeededNoise
from eventveil.tasks.values import NOTHING_PENDING, PartitionPerturber, PerturberState, StreamPerturber
from tests.unit.values.streams import INSTANCE, event, perturber, readings

KINDS = pytest.mark.parametrize("kind", ["tops", "pak"])
EVENTS = [event(3 * i % 150) for i in range(70)]


def chunk(start: int, values: list[bytes | None], after: int | None = None) -> Chunk:
    """Records of consecutive offsets."""
    count = len(values)
    end = start + count if after is None else after
    return Chunk("raw", 1, 1, start, range(start, start + count), [0] * count, [None] * count, values, end)


def partition(*streams: StreamPerturber) -> PartitionPerturber:
    ledgers = {one.stream.name: TopicPartition("ledger", 3) for one in streams}
    changelog = TopicPartition("changelog", 7)
    return PartitionPerturber(ledgers, changelog, {one.stream.name: one for one in streams})


def released(one: StreamPerturber, batches: list[list[bytes]]) -> list[bytes]:
    """The records of all batches."""
    offset, records = 0, []
    for batch in batches:
        one.step(range(offset, offset + len(batch)), batch, offset + len(batch))
        records += one.records()
        one.published()
        offset += len(batch)
    return records


def test_what_cannot_be_read_is_0_in_its_place_and_counted_by_reason() -> None:
    odd: dict[bytes | None, str] = {
        None: "tombstone", b"7" * 101: "too-large", b"{": "not-json", b"7": "missing-field",
        b'{"x": 1}': "missing-field", event('"7"'): "wrong-type", event("true"): "wrong-type",
        event("null"): "wrong-type",
    }  # fmt: skip
    batch = perturber(readings()).step(range(10), [event(3), *odd, event(12.3)], 10)
    assert batch.truth == (6, *[0] * len(odd), 25)
    assert batch.outcomes == Counter(["read", "read", *odd.values()])


def test_values_are_cut_off_at_0_and_the_maximum() -> None:
    batch = perturber(readings()).step(range(4), [event(-1), event(100), event(100.3), event(1e300)], 4)
    assert batch.truth == (0, 200, 200, 200)
    assert batch.outcomes == {"read": 4}


def test_batches_change_no_record_of_tops() -> None:
    one = released(perturber(readings()), [EVENTS])
    assert released(perturber(readings()), [EVENTS[:7], EVENTS[7:31], EVENTS[31:], []]) == one
    assert [json.loads(record)["position"] for record in one] == list(range(70))
    assert [json.loads(record)["reading"] is None for record in one] == [True] * 10 + [False] * 60


@KINDS
def test_a_successor_publishes_the_same_bytes_and_goes_on_as_the_first_would_have(kind: str) -> None:
    stream = readings(kind)
    first = perturber(stream, noise=SeededNoise(1))
    first.step(range(28), EVENTS[:28], 29)
    state = PerturberState.decode(first.state.encode(), "here")
    second = perturber(stream, state, SeededNoise(2))
    assert list(second.records()) == list(first.records())
    assert list(second.entries()) == list(first.entries())
    assert [json.loads(entry)["purpose"] for entry in second.entries()] == ["threshold", "tree", "tree"]
    assert (second.state.published, second.state.published_charge, second.state.resume) == (0, 0, 29)
    assert second.state == first.state

    # What the first drew for the values to come is in its state: here the noise of two more leaves.
    for one in (first, second):
        one.published()
        one.step([29, 30], EVENTS[28:30], 31)
    same = list(second.records()) == list(first.records())
    assert same == (kind == "tops"), "PAK draws its noise when a node is complete"


def test_a_batch_is_decided_only_when_the_one_before_it_is_public() -> None:
    one = perturber(readings())
    one.step([0], EVENTS[:1], 1)
    with pytest.raises(ValueError, match="has not been published"):
        one.step([1], EVENTS[1:2], 2)


def test_transaction_a_is_private_and_b_shows_charges_before_readings() -> None:
    both = partition(perturber(readings()), perturber(readings(name="other")))
    assert both.decide() == []
    both.process(chunk(0, list(EVENTS[:12])))
    decided = both.decide()
    assert [(one.topic, one.partition, one.key) for one in decided] == [
        ("changelog", 7, b"minutes"), ("changelog", 7, b"other")
    ]  # fmt: skip
    published = both.publish()
    assert both.publishing(published).readings == {"minutes": 12, "other": 12}
    mine = [(one.topic, one.partition) for one in published if one.key == b"minutes"]
    assert mine == [("ledger", 3)] * 2 + [("minutes.sink", 1)] * 12 + [("changelog", 7)]
    both.published()
    assert both.publish() == []
    state = PerturberState.decode(published[-1].value or b"", "here")
    assert (state.pending, state.position, state.charged, state.resume) == (NOTHING_PENDING, 12, 26, 12)


def test_states_carry_how_far_the_log_was_read_in_which_epoch() -> None:
    one = partition(perturber(readings()))
    one.process(chunk(0, list(EVENTS[:12])))
    one.note(Reach(3, 12))
    (decided,) = one.decide()
    assert [*decided.headers] == [*one.publish()[-1].headers] == [("eventveil.reach", b"3/12")]


def test_control_markers_alone_move_the_offset_to_resume_from() -> None:
    one = partition(perturber(readings()))
    one.process(chunk(0, [], after=5))
    (record,) = one.decide()
    assert PerturberState.decode(record.value or b"", "here").resume == 5
    assert one.publish() == []
    one.published()
    assert (one.resume, one.decide()) == (5, [])


def test_records_that_were_seen_are_passed_over_and_missing_ones_are_noticed() -> None:
    one = partition(perturber(readings()))
    one.process(chunk(0, list(EVENTS[:4])))
    one.process(chunk(2, list(EVENTS[2:6])))
    one.decide()
    assert one.publishing(one.publish()).readings == {"minutes": 6}
    one.published()
    with pytest.raises(ValueError, match="the chunk starts at 7, the position is 6"):
        one.process(chunk(7, list(EVENTS[:1])))


def test_a_stream_that_began_later_reads_nothing_of_before() -> None:
    late = perturber(readings(name="late"), PerturberState(INSTANCE, 1, 4))
    both = partition(perturber(readings()), late)
    both.process(chunk(0, list(EVENTS[:3])))
    assert [one.key for one in both.decide()] == [b"minutes"]
    both.published()
    both.process(chunk(3, list(EVENTS[3:6])))
    both.decide()
    assert both.publishing(both.publish()).readings == {"minutes": 3, "late": 2}


def state_of(**changes: Any) -> bytes:
    one = perturber(readings())
    one.step(range(30), EVENTS[:30], 30)
    fields = json.loads(one.state.encode())
    pending = {**fields["pending"], **changes.pop("pending", {})}
    return orjson.dumps({**fields, **changes, "pending": pending})


@pytest.mark.parametrize(
    "changes",
    [
        {"resume": -1},
        {"position": 3},
        {"position": 30.0},
        {"resume": 29},
        {"snapshot": None},
        {"charged": 41},
        {"pending": {"readings": []}},
        {"pending": {"readings": ["7"] * 30}},
        {"pending": {"offsets": [*range(29), 28]}},
        {"pending": {"charges": [["dinner", 0, 42, 3]]}},
        {"pending": {"charges": [["tree", 0]]}},
        {"version": 2},
        {"more": 1},
    ],
    ids=str,
)
def test_a_state_that_contradicts_itself_is_refused(changes: dict[str, Any]) -> None:
    assert PerturberState.decode(state_of(), "here").position == 30
    with pytest.raises(StateRefused, match="here"):
        PerturberState.decode(state_of(**changes), "here")


@pytest.mark.parametrize(
    "stream", [readings("pak"), readings(held=11), readings(chunk=20)], ids=["kind", "held", "chunk"]
)
def test_a_snapshot_of_another_stream_or_position_is_refused(stream: ReadingStream) -> None:
    state = PerturberState.decode(state_of(), "here")
    with pytest.raises(StateRefused, match="the state belongs to"):
        perturber(stream, state)
    with pytest.raises(StateRefused, match="its snapshot is of another position"):
        perturber(readings(), PerturberState(INSTANCE, 1, 31, 31, 42, state.snapshot, NOTHING_PENDING))
