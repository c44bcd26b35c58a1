"""What a name left behind is deleted only where no promise is forgotten with it."""

from __future__ import annotations

import pytest

from eventveil.lifecycle.leftovers import _without_end
from eventveil.mechanisms.registry import KINDS, LOCAL_KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_only_promises_of_windows_and_single_timestamps_end(kind: str) -> None:
    assert (_without_end(frozenset({kind})) is None) == (KINDS[kind].level in {"w-event", "event"})


@pytest.mark.parametrize("kind", [*sorted(LOCAL_KINDS), "made:Up"])
def test_neither_do_those_that_producers_know_or_nobody_here(kind: str) -> None:
    assert _without_end(frozenset({"uniform", kind})) is not None
