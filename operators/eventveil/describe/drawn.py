"""How a release came about, in a word."""

from __future__ import annotations

from typing import Literal

from eventveil.mechanisms.registry import known


def how_drawn(mechanism: str, *, fresh: bool, exhausted: bool) -> Literal["fresh", "predicted", "repeated"]:
    """Of a release that is not fresh: predicted by a kind that does so, until its horizon has passed."""
    if fresh:
        return "fresh"
    kind = known(mechanism)
    return "predicted" if kind is not None and kind.predicts and not exhausted else "repeated"
