"""Streams whose counts an engine makes: they come with their numbers, and are released as counts are."""

from __future__ import annotations

from eventveil.counting.engine import ENGINE_OUTCOMES
from eventveil.kinds.counts import CountsKind


class Engine(CountsKind):
    """Also closed as counts are, by the clock and where asked for by watermarks."""

    name = "engine"
    keyed_by = "column"
    outcomes = ENGINE_OUTCOMES
