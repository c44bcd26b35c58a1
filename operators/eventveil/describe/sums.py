"""What the streams of a topology cost together, over any span of time.

**Sum over streams.** w-event privacy bounds what any ``window`` consecutive timestamps of one stream cost by
epsilon. Over a span of time S, timestamps of length I: an interval of length S meets at most
n = ceil(S / I) + 1 of them, for it may begin and end inside one. Those n consecutive timestamps are covered
by ceil(n / w) windows, which cost epsilon each, and independent streams over the same people add up
(sequential composition). So a span costs at most the sum of ceil(n / w) epsilon. At event level each of the
timestamps costs epsilon, n epsilon together. At user level a horizon costs epsilon, and if it renews, n
consecutive timestamps meet at most 1 + ceil((n - 1) / T) horizons of T timestamps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from eventveil.describe.guarantee import count, duration_words, number, steps_apart

if (
    TYPE_CHECKING
):  # eventveil.topology checks budgets with this module, so at run time it needs nothing of theirs
    from eventveil.model.topology import Adjacency, Budget, Level, Stream

PERIOD: dict[Level, str] = {
    "w-event": "window",
    "event": "timestamp at epsilon each",
    "user": "horizon",
    "local": "report at epsilon each",
}
"""What costs epsilon once, at each level."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one stream costs over a span: it meets ``timestamps``, covered by ``windows`` windows.

    Each window, timestamp (event level) or horizon (user level) costs epsilon once. ``steps`` lie between two
    histories of a user who did different things.
    """

    stream: str
    timestamps: int
    windows: int
    epsilon: Fraction
    level: Level = "w-event"
    steps: int = 2

    @property
    def instead(self) -> Fraction:
        """What it costs at most that a user did something else, and not only whether there was a user."""
        return self.steps * self.epsilon


@dataclass(frozen=True, slots=True)
class Total:
    """What the streams of one population cost together over any ``span`` milliseconds.

    ``adjacency`` is the weakest of the streams': the sum protects no more than that. ``cap`` is None where
    no budget limits the population.
    """

    population: str
    span: int
    costs: tuple[Cost, ...]
    adjacency: Adjacency
    cap: Fraction | None

    @property
    def epsilon(self) -> Fraction:
        """The sum."""
        return sum((cost.epsilon for cost in self.costs), Fraction(0))

    @property
    def instead(self) -> Fraction:
        """The sum for two histories in which a user did different things."""
        return sum((cost.instead for cost in self.costs), Fraction(0))


@dataclass(frozen=True, slots=True)
class Unbounded:
    """A stream that is in no sum: it costs ``epsilon`` and ``delta`` for each ``unit``, a value or a report.

    Nothing bounds how many a user has, and that there is one is not protected at all.
    """

    stream: str
    kind: str
    unit: Literal["value", "report"]
    epsilon: Fraction
    delta: Fraction


def timestamps_met(span: int, interval: int) -> int:
    """The largest number of timestamps of length ``interval`` that an interval of length ``span`` meets.

    Both in milliseconds, at least 1; the interval may begin anywhere, also between two milliseconds.
    """
    return -(-span // interval) + 1


def periods(level: Level, timestamps: int, window: int, *, renews: bool = False) -> int:
    """How many windows or horizons of ``window`` timestamps this many consecutive timestamps can meet."""
    if level == "w-event":
        return -(-timestamps // window)
    if level in ("event", "local"):
        return timestamps
    return 1 + -(-(timestamps - 1) // window) if renews else 1


def cost(
    epsilon: Fraction,
    window: int,
    interval: int,
    span: int,
    level: Level = "w-event",
    *,
    renews: bool = False,
) -> Fraction:
    """What a stream costs at most over any ``span`` (ms)."""
    return epsilon * periods(level, timestamps_met(span, interval), window, renews=renews)


def cost_of(stream: Stream, span: int) -> Cost:
    """What a stream costs at most over any ``span`` (ms)."""
    from eventveil.mechanisms.registry import find

    met = timestamps_met(span, stream.timeline.interval)
    settings = stream.mechanism
    level = find(settings.kind).level
    covering = periods(level, met, settings.window, renews=settings.options.get("on_horizon") == "renew")
    return Cost(stream.name, met, covering, settings.epsilon * covering, level, steps_apart(stream))


def totals(streams: Sequence[Stream], budget: Budget | None) -> tuple[Total, ...]:
    """The sums of all populations, in the order of their first streams.

    The span is the budget's; without a budget it is the longest window of the population's streams.
    ``eventveil.kinds.registry`` knows which streams have a sum.
    """
    return tuple(
        _total(population, members, budget) for population, members in _by_population(streams).items()
    )


def totals_over(streams: Sequence[Stream], span: int) -> tuple[Total, ...]:
    """The sums of all populations over any ``span`` (ms), without a cap; in the order of ``totals``."""
    return tuple(
        replace(
            _total(population, members, None), span=span, costs=tuple(cost_of(one, span) for one in members)
        )
        for population, members in _by_population(streams).items()
    )


def _by_population(streams: Sequence[Stream]) -> dict[str, list[Stream]]:
    populations: dict[str, list[Stream]] = {}
    for stream in streams:
        populations.setdefault(stream.source.population, []).append(stream)
    return populations


def _total(population: str, streams: list[Stream], budget: Budget | None) -> Total:
    span = budget.span if budget else max(s.mechanism.window * s.timeline.interval for s in streams)
    weakest: Adjacency = "substitute"
    if any(stream.mechanism.adjacency == "add-remove" for stream in streams):
        weakest = "add-remove"
    cap = budget.epsilon if budget and budget.population == population else None
    return Total(population, span, tuple(cost_of(stream, span) for stream in streams), weakest, cap)


def describe_total(total: Total, beside: Sequence[Unbounded] = ()) -> tuple[str, ...]:
    """A sum over streams in plain words, and what is ``beside`` it for the same users."""
    span = duration_words(total.span)
    lines = [
        f"{cost.stream}: any {span} meet at most {count(cost.timestamps, 'timestamp')}, "
        f"{count(cost.windows, PERIOD[cost.level])}, epsilon {number(cost.epsilon)}"
        for cost in total.costs
    ]
    cap = "no cap is set" if total.cap is None else f"within the cap of {number(total.cap)}"
    without = ", without what is not in this sum" * bool(beside)
    lines.append(f"together at most epsilon {number(total.epsilon)} over any {span}{without}; {cap}")
    instead = (
        f": what a user did instead costs at most epsilon {number(total.instead)}"
        if total.adjacency == "add-remove"
        else ""
    )
    lines.append(f"weakest adjacency: {total.adjacency}{instead}")
    return (*lines, *(f"not in this sum: {describe_unbounded(one)}" for one in beside))


def describe_unbounded(one: Unbounded) -> str:
    """Why a stream is in no sum, and what it costs, in plain words."""
    delta = f" and delta {float(one.delta):.3g}" if one.delta else ""
    deltas = ", delta as its own lines say" if one.delta else ""
    return (
        f"{one.stream} ({one.kind}), epsilon {number(one.epsilon)}{delta} for each"
        f" {one.unit}; nothing bounds how many {one.unit}s a user has, and k of them add k times that"
        f" epsilon{deltas}. That there is a {one.unit} is not protected"
    )
