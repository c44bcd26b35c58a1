"""What a person who is always there pays over a day, a month and a year."""

from __future__ import annotations

from dataclasses import dataclass

from eventveil.describe.guarantee import consecutive, duration_words, number
from eventveil.describe.sums import NO_PROMISE, PopulationCost, delta_text, describe_unbounded, totals
from eventveil.kinds.registry import in_sums, unbounded
from eventveil.mechanisms.registry import find
from eventveil.model.topology import Stream, Topology
from eventveil.privacy.gaussian import LARGEST_DELTA

_DAY = 86_400_000
SPANS = {"any day": _DAY, "any 31 days": 31 * _DAY, "any 366 days": 366 * _DAY}
"""The columns of the table: the longest month and the longest year."""


@dataclass(frozen=True, slots=True)
class StreamCost:
    """A stream: what it promises for which period, and epsilon over each of ``SPANS`` at most."""

    stream: str
    promise: str
    epsilons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Population:
    """The streams over the same people.

    ``together`` is the sum over each of ``SPANS``, ``instead`` the same for what a person did and not only
    whether there was one (None where that is no more); ``deltas`` and ``instead_deltas`` are the delta that
    goes with each of these, None if all is pure. ``cap`` says what the budget of the file allows, ``beside``
    what no sum has.
    """

    name: str
    lines: tuple[StreamCost, ...]
    together: tuple[str, ...]
    deltas: tuple[str, ...] | None
    instead: tuple[str, ...] | None
    instead_deltas: tuple[str, ...] | None
    cap: str
    beside: tuple[str, ...]


def populations(topology: Topology) -> tuple[Population, ...]:
    """Those of a topology, in the order of their first streams; those without any sum last."""
    streams = in_sums(topology)
    others = {name: tuple(map(describe_unbounded, ones)) for name, ones in unbounded(topology).items()}
    spans = [totals(streams, None, span) for span in SPANS.values()]
    promises = {stream.name: _promise(stream) for stream in streams}
    found = [
        _population(topology, sums, promises, others.pop(sums[0].population, ()))
        for sums in zip(*spans, strict=True)
    ]
    alone = [
        Population(name, (), (), None, None, None, _cap(topology, name), ones)
        for name, ones in others.items()
    ]
    return (*found, *alone)


def _population(
    topology: Topology, sums: tuple[PopulationCost, ...], promises: dict[str, str], beside: tuple[str, ...]
) -> Population:
    costs = zip(*(total.costs for total in sums), strict=True)
    lines = tuple(
        StreamCost(one[0].stream, promises[one[0].stream], tuple(number(cost.epsilon) for cost in one))
        for one in costs
    )
    together = tuple(number(total.epsilon) for total in sums)
    instead = tuple(number(total.instead) for total in sums)
    name = sums[0].population
    deltas = tuple(delta_text(total.delta) for total in sums) if sums[0].delta else None
    others = tuple(delta_text(total.instead_delta) for total in sums) if sums[0].delta else None
    more = instead != together
    cap = _cap(topology, name, _delta_of_cap(topology, name))
    if any(NO_PROMISE in delta for delta in (*(deltas or ()), *(others or ()))):
        cap += (
            f" A delta above {number(LARGEST_DELTA)} promises nothing: with that probability anything may"
            " become known about a user. Over such a span, only the promises of the single streams hold."
        )
    return Population(
        name, lines, together, deltas, instead if more else None, others if more else None,
        cap, beside,
    )  # fmt: skip


def _delta_of_cap(topology: Topology, name: str) -> str | None:
    """The delta that goes with the capped epsilon: over the span of the budget."""
    if topology.budget is None:
        return None
    found = totals(in_sums(topology), None, topology.budget.span)
    (total,) = (one for one in found if one.population == name)
    return delta_text(total.delta) if total.delta else None


def _promise(stream: Stream) -> str:
    settings = stream.mechanism
    covered = duration_words(settings.window * stream.timeline.interval)
    per = {
        "event": f"any one timestamp of {covered}",
        "user": f"a horizon of {settings.window} timestamps ({covered})",
    }.get(find(settings.kind, settings.options).level, f"any {consecutive(settings.window)} ({covered})")
    delta, how = settings.delta, stream.counts.discover
    epsilon = settings.epsilon_text
    if how is not None:
        epsilon, delta = number(stream.epsilon), how.delta
    told = "" if delta is None else f" and delta {float(delta):.3g}"
    return f"{epsilon}{told} for {per}"


def _cap(topology: Topology, population: str, delta: str | None = None) -> str:
    budget = topology.budget
    if budget is None:
        return "The file has no budget: nothing caps what its streams cost together."
    if budget.population != population:
        return f"The budget of the file caps the population {budget.population}; this one is outside it."
    capped = "nothing caps" if budget.delta is None else f"is capped at {delta_text(budget.delta)}"
    return (
        f"The file caps the sum at epsilon {number(budget.epsilon)} over any {duration_words(budget.span)};"
        " it is refused above that."
        + ("" if delta is None else f" That epsilon is at delta {delta}, which {capped}.")
    )
