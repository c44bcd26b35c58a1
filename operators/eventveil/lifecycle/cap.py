"""What the budget of a topology allows where streams have released in several generations.

``check`` sums up what the streams of a file cost as they are. What generations that have ended released stays
released: over the same people and times it adds up with that. So wherever a stream begins, begins again or
gets other terms, all of it is held against the cap: the streams of the file, and every generation of them
that a span of the budget meets together with what begins.

Streams that are no longer in the file are in no sum: the ledger does not say over which people they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eventveil.audit.history import History
from eventveil.describe.guarantee import number
from eventveil.describe.sums import (
    Cost,
    Normal,
    Total,
    cost_of,
    periods,
    timestamps_met,
    together,
    totals,
)
from eventveil.formats.change import Terms
from eventveil.kinds.registry import in_sums
from eventveil.mechanisms.registry import known
from eventveil.model.errors import StateRefused
from eventveil.model.timeline import start_of
from eventveil.model.topology import Level, Stream, Topology


def check_cap(
    topology: Topology, histories: Mapping[str, History], since: int, again: str | None = None
) -> None:
    """Raise StateRefused if streams and their earlier generations exceed the budget of the topology.

    ``histories``: what the ledger says of the streams, by name. ``since``: from when on (epoch ms) something
    is other than before. ``again``: the stream of which another generation begins then. Each generation
    counts with the dearest terms that it has had; the topology's are those of the newest.
    """
    for total in totals(in_sums(topology), topology.budget):
        if total.cap is None:
            continue
        names = {cost.stream for cost in total.costs}
        members = [stream for stream in in_sums(topology) if stream.name in names]
        costs = [
            cost
            for stream in members
            if (history := histories.get(stream.name)) is not None
            for cost in _earlier(stream, history, total.span, since, ends=stream.name == again)
        ]
        if costs:
            _check(total, replace(total, costs=tuple(costs)), again)


def _check(total: Total, earlier: Total, again: str | None) -> None:
    whole = replace(total, costs=(*total.costs, *earlier.costs))
    place = f"the streams over {total.population}" if again is None else f"stream {again}"
    names = ", ".join(dict.fromkeys(cost.stream for cost in earlier.costs))
    give_up = "change nothing" if again is None else "give up the reset"
    if total.cap is not None and whole.epsilon > total.cap:
        raise StateRefused(
            place,
            f"earlier generations ({names}) cost epsilon {number(earlier.epsilon)}, with all streams as they"
            f" are now {number(whole.epsilon)}, above the cap of {number(total.cap)}",
            f"Raise budget.epsilon, if it is yours to raise, or {give_up}",
        )
    if total.delta_cap is not None and whole.delta > total.delta_cap:
        raise StateRefused(
            place,
            f"earlier generations ({names}) have delta {float(earlier.delta):.3g}, with all streams as they"
            f" are now {float(whole.delta):.3g}, above the cap of {float(total.delta_cap):.3g}",
            f"Raise budget.delta, if it is yours to raise, or {give_up}",
        )


def _earlier(stream: Stream, history: History, span: int, since: int, *, ends: bool) -> Iterator[Cost]:
    """The dearest cost of each generation that has ended, or ``ends`` now, within a span of ``since``."""
    over = [*history.ended, history.next] if ends else history.ended
    for generation, (terms, end) in enumerate(zip(history.generations, over, strict=False), 1):
        if start_of(stream.timeline, end) + span > since:
            dearest = max((_cost(stream, one, span) for one in terms), key=lambda cost: cost.epsilon)
            yield replace(dearest, stream=f"{stream.name}, generation {generation}")


def _cost(stream: Stream, terms: Terms, span: int) -> Cost:
    """What a stream cost at most over any ``span`` (ms) under other terms.

    Of a horizon these do not say that it does not renew, and of a plug-in that is not in use any more
    nothing: the dearest is assumed. Noise and delta of a stream never change.
    """
    mechanism, settings = known(terms.mechanism), stream.mechanism
    if mechanism is not None and mechanism.level == "event":
        # Nothing but the sink changes there, and terms do not tell what Gaussian noise costs.
        return cost_of(stream, span)
    level: Level = "event" if mechanism is None else mechanism.level
    met = timestamps_met(span, stream.timeline.interval)
    covering = periods(level, met, terms.window, renews=True)
    if settings.delta is None:
        return Cost(stream.name, met, covering, terms.epsilon * covering, level)
    squares = covering**2 if mechanism is None else mechanism.squares(covering, settings.options)
    normal = Normal(terms.epsilon, settings.delta, squares)
    return Cost(stream.name, met, covering, together((), (normal,)), level, normal=normal)
