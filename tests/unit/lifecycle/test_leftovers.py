"""What a name left behind is deleted only where no promise is forgotten with it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from eventveil.lifecycle.leftovers import KnownReleases, _end, _without_end
from eventveil.mechanisms.registry import KINDS, LOCAL_KINDS
from eventveil.model.topology import Budget
from tests.unit.support import stream, topology


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_only_promises_of_windows_and_single_timestamps_end(kind: str) -> None:
    assert (_without_end(frozenset({kind})) is None) == (KINDS[kind].level in {"w-event", "event"})


@pytest.mark.parametrize("kind", [*sorted(LOCAL_KINDS), "made:Up"])
def test_neither_do_those_that_producers_know_or_nobody_here(kind: str) -> None:
    assert _without_end(frozenset({"uniform", kind})) is not None


def test_a_span_of_the_budget_that_meets_a_release_counts_it_too() -> None:
    file = topology(stream())
    ((name, timeline),) = ((one.name, one.timeline) for one in file.streams)
    fields = {
        "timeline.interval": timeline.interval,
        "timeline.origin": timeline.origin,
        "mechanism.window": file.streams[0].mechanism.window,
    }
    released = KnownReleases(name, 7, file.streams[0].mechanism.window, frozenset({"uniform"}))
    begins = timeline.origin + 6 * timeline.interval
    file = replace(file, budget=None)
    assert _end(file, released, fields) == begins + fields["mechanism.window"] * timeline.interval
    span = 100 * timeline.interval
    capped = replace(file, budget=Budget(Fraction(2), span))
    assert _end(capped, released, fields) == begins + timeline.interval + span
