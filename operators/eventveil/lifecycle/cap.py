"""What the budget of a topology allows where streams have released in several generations.

``check`` sums up what the streams of a file cost as they are. What generations that have ended released stays
released: over the same people and times it adds up with that. So wherever a stream begins, begins again or
gets other terms, all of it is checked against the cap: the streams of the file, and every generation of them
that one span of the budget overlaps together with what begins.

Streams that are no longer in the file are in no sum: the ledger does not say over which people they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import attrgetter

from eventveil.audit.history import History
from eventveil.describe.guarantee import duration_words, number
from eventveil.describe.sums import (
    Cost,
    Normal,
    PopulationCost,
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

#: Epsilon over delta.
_WELL_ABOVE = 100


def check_cap(
    topology: Topology, histories: Mapping[str, History], since: int, again: str | None = None
) -> None:
    """Raise StateRefused if streams and their earlier generations exceed the budget of the topology.

    ``histories``: what the ledger says of the streams, by name. ``since``: from when on (epoch ms) something
    is other than before. ``again``: the stream of which another generation begins then. Each generation
    counts with the shortest window and the largest epsilon that it has had; the topology's terms are those of
    the newest.
    """
    for total in totals(in_sums(topology), topology.budget):
        if total.cap is None:
            continue
        streams = {stream.name: stream for stream in in_sums(topology)}
        known = [(cost, streams[cost.stream], histories.get(cost.stream)) for cost in total.costs]
        earlier = tuple(
            cost
            for _, stream, history in known
            if history is not None
            for cost in _earlier(stream, history, total.span, since, ends=stream.name == again)
        )
        # Of a stream that begins again, the generation so far is among the earlier ones.
        now = tuple(
            one
            for cost, stream, history in known
            for one in (
                [cost]
                if history is None or stream.name == again
                else _across(cost, stream, history, total.span, since)
            )
        )
        for costs in {total.costs, now} if earlier else {now} - {total.costs}:
            _check(replace(total, costs=costs), replace(total, costs=earlier), again)


def _across(cost: Cost, stream: Stream, history: History, span: int, since: int) -> Iterator[Cost]:
    """What a stream costs at most over a span that may also overlap timestamps from before its present terms.

    With one kind of noise, as many of the shortest windows as cover the span, each at the largest epsilon
    that it can overlap: the shortest window lies in one of each width, and none has more, even across a
    change. The dearest of the terms alone can be exceeded: 3 for 3 timestamps and then 2 for 2 are 7 in six
    timestamps, and 6 under either. If the span includes both kinds of noise, windows of pure epsilon and mu
    squared of the others can cost more than all windows do under any of the terms, but no more than all of
    them under pure epsilon, the largest: n times mu squared have at most n times the epsilon
    where that is well above delta. Elsewhere both are added.
    """
    settings = stream.mechanism
    now = Terms(settings.kind, settings.epsilon, settings.window, 1, settings.delta)
    met = {
        one._replace(units=1) for one, end in history.regimes if start_of(stream.timeline, end) + span > since
    }
    if met <= {now}:
        yield cost
        return
    pure = _widened([one for one in (*met, now) if one.delta is None])
    normal = _widened([one for one in (*met, now) if one.delta is not None])
    dearest = [
        max((_cost(stream, one, span) for one in part), key=attrgetter("epsilon"))
        for part in (pure, normal)
        if part
    ]
    if len(dearest) == 1:
        yield max(cost, *dearest, key=attrgetter("epsilon"))
        return
    window, epsilon = (min(one.window for one in (*met, now)), max(one.epsilon for one in (*met, now)))
    windows, delta = periods(cost.level, cost.timestamps, window), normal[0].delta or Fraction(0)
    yield replace(cost, windows=windows, epsilon=windows * epsilon, normal=None, delta=delta)
    if epsilon < _WELL_ABOVE * delta:
        yield dearest[1]


def _check(total: PopulationCost, earlier: PopulationCost, again: str | None) -> None:
    whole = replace(total, costs=(*total.costs, *earlier.costs))
    place = f"the streams over {total.population}" if again is None else f"stream {again}"
    names = ", ".join(dict.fromkeys(cost.stream for cost in earlier.costs))
    give_up = "change nothing" if again is None else "give up the reset"
    if total.cap is not None and whole.epsilon > total.cap:
        before = f"earlier generations ({names}) cost epsilon {number(earlier.epsilon)}"
        first, wait = f"{before}, with all streams as they are now", ""
        if not names:
            wait = f" (for {duration_words(total.span)} after the change is enough)"
            first = f"any {duration_words(total.span)} may still include former terms, and then cost epsilon"
        raise StateRefused(
            place,
            f"{first} {number(whole.epsilon)}, above the cap of {number(total.cap)}",
            f"Raise budget.epsilon, if you may raise it{wait}, or {give_up}",
        )
    if total.delta_cap is not None and whole.delta > total.delta_cap:
        raise StateRefused(
            place,
            f"earlier generations ({names}) have delta {float(earlier.delta):.3g}, with all streams as they"
            f" are now {float(whole.delta):.3g}, above the cap of {float(total.delta_cap):.3g}",
            f"Raise budget.delta, if you may raise it, or {give_up}",
        )


def _earlier(stream: Stream, history: History, span: int, since: int, *, ends: bool) -> Iterator[Cost]:
    """What each generation that has ended, or ``ends`` now, cost at most within a span of ``since``.

    One that went over to Gaussian noise counts with the terms before that, and with those after it.
    """
    over = [*history.ended, history.next] if ends else history.ended
    for generation, (terms, end) in enumerate(zip(history.lives, over, strict=False), 1):
        if start_of(stream.timeline, end) + span > since:
            kinds = (
                [one for one in terms if one.delta is None],
                [one for one in terms if one.delta is not None],
            )
            for part in map(_widened, kinds):
                if part:
                    dearest = max((_cost(stream, one, span) for one in part), key=attrgetter("epsilon"))
                    yield replace(dearest, stream=f"{stream.name}, generation {generation}")


def _widened(terms: Sequence[Terms]) -> list[Terms]:
    """Terms of one kind of noise, each with what windows across a change may have had."""
    epsilon = max((each.epsilon for each in terms), default=Fraction(0))
    delta = max((each.delta for each in terms if each.delta is not None), default=None)
    return [one._replace(epsilon=epsilon, delta=delta) for one in terms]


def _cost(stream: Stream, terms: Terms, span: int) -> Cost:
    """What a stream cost at most over any ``span`` (ms) under other terms.

    Of a horizon these do not say that it does not renew, and of a plug-in that is not in use any more
    nothing: the dearest is assumed.
    """
    mechanism, settings = known(terms.mechanism), stream.mechanism
    if mechanism is not None and mechanism.level == "event":
        # Nothing but the sink changes there, and terms do not tell what correlated noise costs.
        return cost_of(stream, span)
    level: Level = "event" if mechanism is None else mechanism.level
    met = timestamps_met(span, stream.timeline.interval)
    covering = periods(level, met, terms.window, renews=True)
    if terms.delta is None:
        return Cost(stream.name, met, covering, terms.epsilon * covering, level)
    squares = covering**2 if mechanism is None else mechanism.squares(covering, settings.options)
    normal = Normal(terms.epsilon, terms.delta, squares)
    return Cost(stream.name, met, covering, together((), (normal,)), level, normal=normal)
