"""A chunk that takes long is judged in several turns, and comes to the same as in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.throughput.malformed import GOOD, costs
from eventveil.model.records import Outgoing
from eventveil.process import kernel
from eventveil.tasks import aggregate
from eventveil.tasks.aggregate import PartitionAggregator
from tests.unit.support import aggregator, chunk, event, sparse, stream

KINDS = (
    event(), event("v", "b"), event("v", "zzz"), event("w", "a", 1030), event("w", "a", 900), event("", "a"),
    event("x", "a", "soon"), event("u", "b", 1012), b'{"user":', b"[]", None, b"\xff", b'{"user":"u"}',
    b'{"user":"u\\u0041","column":"a","time":1000}', b'{"user":"u","column":"a","time":1000,"x":' + b"[" * 99,
)  # fmt: skip


def turns(one: PartitionAggregator, records: Sequence[Any]) -> list[Outgoing]:
    """Judge a chunk; the dead letters of all turns."""
    letters: list[Outgoing] = []
    whole = chunk(records)
    while one.position < whole.next_offset:
        before = one.position
        one.process(whole)
        assert one.position > before, "a turn brings nothing on"
        if batch := one.dead_letter_batch():
            letters += batch.dead_letters
            for state in batch.states.values():
                assert state.judged == one.position
            one.durable(batch)
    return letters


@pytest.mark.parametrize("append_time", ["broker", "boundary"])
def test_however_a_chunk_is_divided_verdicts_and_dead_letters_are_the_same(
    append_time: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [stream(append_time=append_time), stream("other", append_time=append_time, contributions=2)]

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        st.lists(st.sampled_from(KINDS), min_size=1, max_size=40),
        st.integers(1, 9), st.integers(1, 200), st.integers(0, 5),
    )  # fmt: skip
    def any_chunk(values: list[bytes | None], portion: int, size: int, slow: int) -> None:
        records = [(1001 + number // 3, value) for number, value in enumerate(values)]
        found = []
        for bounds in ((10**6, 10**9, 10**6), (portion, size, slow)):
            for name, bound in zip(("_PORTION", "_PORTION_BYTES", "_SLOW"), bounds, strict=True):
                monkeypatch.setattr(aggregate, name, bound)
            one = aggregator(*streams)
            letters = sorted(turns(one, records), key=repr)
            one.capture_end(2000, len(records))
            batch = one.close(2000)
            assert batch is not None
            outcomes = {name: counter.outcomes for name, counter in one.counters.items()}
            found.append(
                (letters, [(it.stream, it.timestamp, sparse(it)) for it in batch.partials], outcomes)
            )
        assert found[0] == found[1]
        assert len(found[1][0]) == len({(one.topic, one.headers[5]) for one in found[1][0]}), "one twice"

    any_chunk()


def test_a_turn_ends_after_a_portion_with_many_records_that_take_long() -> None:
    one = aggregator(stream())
    records = [(1000, b'{"user":')] * 40_000
    one.process(chunk(records))
    assert one.position == aggregate._PORTION
    assert one.dead_letters == one.position
    assert len(turns(one, records)) == 40_000


def test_good_records_are_judged_in_one_turn() -> None:
    one = aggregator(stream())
    one.process(chunk([(1000, event(f"user {number}")) for number in range(40_000)]))
    assert one.position == 40_000


def test_portions_grow_until_a_record_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "_PORTION", 10)
    monkeypatch.setattr(aggregate, "_SLOW", 5)
    sizes: list[int] = []
    judge = PartitionAggregator._judge

    def judged(self: Any, portion: Any, origins: Any) -> int:
        sizes.append(len(portion.offsets))
        return judge(self, portion, origins)

    monkeypatch.setattr(PartitionAggregator, "_judge", judged)
    one = aggregator(stream())
    good = [(1000, event(f"user {number}")) for number in range(90)]
    turns(one, [*good, *[(1000, b'{"user":')] * 60, *good])
    # The turn after good ones may be larger; after one that took long none is, until a portion did not.
    assert sizes == [10, 40, 40, 40, 10, 10, 10, 40, 40]


def test_a_turn_takes_a_few_large_records_at_a_time() -> None:
    one = aggregator(stream())
    records = [(1000, b"[" + b" " * 900_000 + b"]")] * 20
    one.process(chunk(records))
    assert one.position == 2
    assert len(turns(one, records)) == 20


def test_no_kind_of_malformed_events_takes_much_more_than_good_ones_read_in_plain_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The compiled kernel makes good ones cheaper, and those that the rule refuses stay as they are."""
    found = {name: (min(seconds), right) for name, seconds, right in costs(3)}
    del found[GOOD]
    monkeypatch.setattr(kernel, "NATIVE", None)
    [(_, seconds, right)] = costs(3, {GOOD})
    assert right
    assert all(right for _, right in found.values())
    ratios = {name: round(one / min(seconds), 1) for name, (one, _) in found.items()}
    assert max(ratios.values()) < 4, ratios
