"""Whole chunks of a partition: verdicts, counts and states are those of one record after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eventveil.counting import assigner, users
from eventveil.counting.assigner import Rows
from eventveil.counting.boundaries import Boundaries
from eventveil.counting.users import Contributions
from eventveil.decoding import bulk, packing
from eventveil.decoding.bulk import CombinedFinder, Sieve
from eventveil.decoding.rules import Decoder
from tests.fuzz.counting import compare
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import aggregator, chunk, event


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("free", [8, 65_536], ids=["forgetful", "with a long memory"])
def test_random_chunks_come_to_the_same_as_their_records_one_by_one(
    free: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "_FREE", free)
    with read_by(way):
        outcomes = sum((compare(seed) for seed in range(60)), Counter())
    assert {"counted", "bounded", "ignored", "filtered", "late", "after-close", "wrong-partition"} <= set(
        outcomes
    )
    assert outcomes["bounded"] > 300


def _off_by_one(admit: Any) -> Any:
    return lambda self, offsets, times, timestamps: admit(self, offsets - 1, times, timestamps)


def _later(columns: Any) -> Any:
    """The same for what the kernel gets."""

    def found(self: Boundaries) -> Any:
        lasts, ends = columns.func(self)
        return lasts, ends + (ends < 2**62)

    return property(found)


def _loose(admit: Any) -> Any:
    return lambda self, events: admit(self, events) | (np.arange(len(events)) % 7 == 3)


def _apart(for_kernel: Any) -> Any:
    """As if users of events that were judged one by one had no others."""

    def found(self: Any) -> Any:
        certain, judged = for_kernel(self)
        if judged is None:
            return certain, None
        rows, users, *others = judged
        return certain, (rows, users + 1000, *others)

    return found


def _eager(certain: Any) -> Any:
    """As if nothing were late."""
    return lambda self, rows, *rest: certain(self, replace(rows, append_times=rows.append_times - 1), *rest)


def _lenient(sieve: Any) -> Any:
    """As if what is not sure passed."""
    return lambda self, *values: (~sieve(self, *values)[1], sieve(self, *values)[1])


def _strict(sieve: Any) -> Any:
    """As if what is not sure failed."""
    return lambda self, *values: (sieve(self, *values)[0], ~sieve(self, *values)[0])


def _by_first(last_of: Any) -> Any:
    """As if of several headers with one name the first counted."""
    return lambda headers, name: last_of([*headers][::-1], name)


def _always(times: Any) -> Any:
    """As if `$time` were the append time."""
    return lambda self, source: times(self, replace(source, own_time=False))


def _unlike(passes: Any) -> Any:
    """As if the test of a condition did not matter."""
    return lambda condition, texts: passes(replace(condition, test="in"), texts)


def _shifted(forget: Any) -> Any:
    """As if users who stay had other numbers."""

    def found(self: Any, needed: Any) -> Any:
        numbers = forget(self, needed)
        return None if numbers is None else numbers + 1

    return found


def _absent(texts: Any) -> Any:
    """As if no record had the header."""
    return lambda self, name: [None] * len(self)


def _anything(unframed: Any) -> Any:
    """As if every value began with a prefix."""
    return lambda values: (np.arange(len(values)), [(one or b"")[5:] for one in values])


def _in_other_units(times_of: Any) -> Any:
    return lambda values, unit="ms": times_of(values, "ms")


def _known(found: Any) -> Any:
    """As if there were no unknown combinations."""
    return lambda self, fields: np.maximum(found(self, fields), 0)


@pytest.mark.parametrize(
    ("way", "owner", "name", "mutate"),
    [
        ("plain", Boundaries, "admit", _off_by_one),
        ("kernel", Boundaries, "columns", _later),
        ("plain", Contributions, "admit", _loose),
        ("kernel", assigner.Placed, "for_kernel", _apart),
        ("plain", assigner.Assigner, "_certain", _eager),
        ("kernel", assigner.Assigner, "_certain", _eager),
        ("plain", Sieve, "__call__", _lenient),
        ("kernel", Sieve, "__call__", _strict),
        ("plain", packing, "last_of", _by_first),
        ("kernel", packing, "last_of", _by_first),
        ("plain", Rows, "times", _always),
        ("kernel", Rows, "times", _always),
        ("kernel", assigner, "passes_beside", _unlike),
        ("plain", users.Users, "forget", _shifted),
        ("kernel", users.Users, "forget", _shifted),
        ("kernel", packing.PackedHeaders, "texts", _absent),
        ("kernel", bulk, "_unframed", _anything),
        ("plain", bulk, "times_of", _in_other_units),
        ("kernel", CombinedFinder, "__call__", _known),
    ],
)
def test_the_comparison_sees_a_rule_that_is_broken_in_bulk_only(
    way: str, owner: Any, name: str, mutate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mutate(owner.__dict__[name]))
    with read_by(way), pytest.raises(AssertionError):
        sum((compare(seed) for seed in range(500)), Counter())


@pytest.mark.parametrize("way", WAYS)
def test_a_time_that_comes_often_is_judged_once_and_details_stay_with_their_events(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Any] = []
    timed = Decoder.timed
    monkeypatch.setattr(
        Decoder, "timed", lambda self, value, **more: judged.append(value) or timed(self, value, **more)
    )
    times = ["soon", "later", "soon", 1005, "soon", "later"]
    columns = ["a", "a", "y", "z", "a", "y"]
    values = [event("u", column, time) for column, time in zip(columns, times, strict=True)]
    with read_by(way):
        one = aggregator()
        one.process(chunk([(1000, value) for value in (*values, b"{", b"[")]))
        batch = one.dead_letter_batch()
    assert batch is not None
    assert sorted(judged) == ["later", "soon"]
    told = [dict(letter.headers)["eventveil.detail"].decode() for letter in batch.dead_letters]
    wanted = ["'soon':", "'later':", "'y'", "'z'", "'soon':", "'y'", "the", "the"]
    assert [text.split()[0] for text in told] == wanted
