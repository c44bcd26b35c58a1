"""``eventveil mechanisms``: the kinds of mechanism, what they guarantee, their options."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import click

from operators.mechanisms import KINDS
from operators.mechanisms.base import Guarantee, Mechanism
from operators.privacy.noise import SystemNoise
from operators.topology.layout import EXTENT, OPTIONS
from operators.topology.model import MechanismSettings

_WINDOW = 100
_LEVELS = {
    "w-event": "w-event: epsilon for whatever a user does within any `window` consecutive timestamps",
    "event": "event level: epsilon for whatever a user does within any one timestamp",
    "user": "user level: epsilon for whatever a user does within a `horizon` of timestamps",
}


@click.command()
def mechanisms() -> None:
    """List the kinds of mechanism with their guarantees and options."""
    click.echo("\n".join(describe_kinds()))


def describe_kinds() -> Iterator[str]:
    """The lines that are printed: a paragraph per kind."""
    for kind, mechanism in KINDS.items():
        yield f"{kind}: {mechanism.summary}"
        yield from (f"  {line}" for line in _describe(mechanism))
        yield ""
    yield "`eventveil check` says what a topology's own settings mean, in words and numbers."


def _describe(mechanism: type[Mechanism]) -> Iterator[str]:
    guarantee = _example(mechanism)
    yield f"guarantee: {_LEVELS[guarantee.level]}"
    extent = EXTENT.get(guarantee.level)
    setting = f", {extent} {_WINDOW}" if extent else ""
    yield f"noise of a fresh count, at epsilon 1{setting}, one contribution: {_noise(guarantee)}"
    if not mechanism.options:
        yield "options: none"
    for option in sorted(mechanism.options):
        yield f"option {option} (default {OPTIONS[option].text}): {OPTIONS[option].help}"


def _example(mechanism: type[Mechanism]) -> Guarantee:
    window = _WINDOW if mechanism.level in EXTENT else 1
    settings = MechanismSettings(mechanism.kind, Fraction(1), "1", window)
    return mechanism(settings, columns=1, sensitivity=1, noise=SystemNoise()).guarantee


def _noise(guarantee: Guarantee) -> str:
    best, worst = guarantee.best_scale, guarantee.worst_scale
    if worst == best:
        return f"scale {float(best):.6g}"
    at_worst = "without bound" if worst is None else f"{float(worst):.6g}"
    return f"scale {float(best):.6g} at best, {at_worst} at worst"
