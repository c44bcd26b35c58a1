"""What the streams of a topology cost together, over any span of time.

**Sum over streams.** w-event privacy bounds what any ``window`` consecutive timestamps of one stream cost by
epsilon. Over a span of time S, timestamps of length I: an interval of length S overlaps at most
n = ceil(S / I) + 1 of them, because it may begin and end inside one. Those n consecutive timestamps are
covered by ceil(n / w) windows, which cost epsilon each, and independent streams over the same people add up
(sequential composition). So a span costs at most the sum of ceil(n / w) epsilon. At event level each of the
timestamps costs epsilon, n epsilon together. At user level a horizon costs epsilon, and if it renews, n
consecutive timestamps overlap at most 1 + ceil((n - 1) / T) horizons of T timestamps.

**Gaussian noise.** A stream of mu squared m costs n m over n windows: its ledger lets each spend no more, and
what neighbours differ by in all of them adds up as in one (``eventveil.privacy.gaussian``, the theorem). Of
``totals``, where noise of timestamps is correlated, it costs more (``Mechanism.squares``). Streams do not
read each other's releases, so mu squared adds up over Gaussian streams as well. Together they are (epsilon,
delta)-private with delta the sum of theirs, each once, and the epsilon that mu squared has for it: any delta
would do, for more windows cost epsilon here and not delta. To that the epsilons of pure streams are added
(basic composition). Where a user did something else, counts differ by the events of two users at most,
root(2) times as much in L2: twice mu squared, instead of twice the epsilon.

**Columns that are found** cost epsilon and delta a window (``eventveil.privacy.discovery``), and over n
windows n of each: a user's events in a block are those of a window at most, and what bounds delta is convex
in them. Where a user did something else, two steps of one test have twice its epsilon, and its delta
times 1 + e^epsilon. The tests are composed after that, and then with the mechanism, which has no delta: n
windows have n delta (1 + e^epsilon), epsilon that of the tests of a window without the mechanism's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from eventveil.describe.guarantee import count, duration_words, group_delta, number, steps_apart
from eventveil.privacy import gaussian

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
NO_PROMISE = " (no promise)"
"""What follows a delta that is too large for one."""


@dataclass(frozen=True, slots=True)
class Normal:
    """What a stream with Gaussian noise costs: ``number`` times the mu squared of epsilon and delta.

    ``number`` is that of the windows, or more (``Mechanism.squares``).
    """

    epsilon: Fraction
    delta: Fraction
    number: int = 1

    def times(self, number: int) -> Normal:
        """The same, this many times."""
        return replace(self, number=self.number * number)

    @property
    def mu_squared(self) -> Fraction:
        """What it all is."""
        return self.number * gaussian.mu_squared(self.epsilon, self.delta)


def together(pure: Iterable[Fraction], normal: Sequence[Normal]) -> Fraction:
    """The epsilon of all of it, at the sum of the deltas."""
    total = sum(pure, Fraction(0))
    if not normal:
        return total
    if len(normal) == 1 and normal[0].number == 1:
        return total + normal[0].epsilon
    delta = min(sum((one.delta for one in normal), Fraction(0)), Fraction(1, 4))
    return total + gaussian.epsilon(sum((one.mu_squared for one in normal), Fraction(0)), delta)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one stream costs over a span: it overlaps ``timestamps``, covered by ``windows`` windows.

    Each window, timestamp (event level) or horizon (user level) costs epsilon once. ``steps`` lie between two
    histories of a user who did different things. ``normal``: with Gaussian noise, of which epsilon follows.
    ``delta``: of columns that are found in the data, for all of the windows; ``instead_delta``: the same
    where a user did something else, for display.
    """

    stream: str
    timestamps: int
    windows: int
    epsilon: Fraction
    level: Level = "w-event"
    steps: int = 2
    normal: Normal | None = None
    delta: Fraction = Fraction(0)
    instead_delta: float = 0.0

    @property
    def whole_delta(self) -> Fraction:
        """Its delta: that of Gaussian noise once, that of columns that are found for all windows."""
        return self.delta if self.normal is None else self.normal.delta

    @property
    def instead(self) -> Fraction:
        """What it costs at most that a user did something else, and not only whether there was a user."""
        if self.normal is not None:
            return together((), (self.normal.times(self.steps),))
        return self.steps * self.epsilon


@dataclass(frozen=True, slots=True)
class PopulationCost:
    """What the streams of one population cost together over any ``span`` milliseconds.

    ``adjacency`` is the weakest of the streams': the sum protects no more than that. ``cap``, on epsilon, is
    None where no budget limits the population, ``delta_cap`` also where that budget does not limit delta.
    """

    population: str
    span: int
    costs: tuple[Cost, ...]
    adjacency: Adjacency
    cap: Fraction | None
    delta_cap: Fraction | None = None

    @property
    def epsilon(self) -> Fraction:
        """The sum, at ``delta``."""
        pure = (cost.epsilon for cost in self.costs if cost.normal is None)
        return together(pure, [cost.normal for cost in self.costs if cost.normal is not None])

    @property
    def instead(self) -> Fraction:
        """The sum for two histories in which a user did different things."""
        pure = (cost.instead for cost in self.costs if cost.normal is None)
        normal = [cost.normal.times(cost.steps) for cost in self.costs if cost.normal is not None]
        return together(pure, normal)

    @property
    def delta(self) -> Fraction:
        """The sum of those of streams with Gaussian noise, or whose columns are found; 0 if there is none."""
        return sum((cost.whole_delta for cost in self.costs), Fraction(0))

    @property
    def instead_delta(self) -> float:
        """That which ``instead`` is at, for display. Gaussian noise has more mu squared at the same delta."""
        normal = sum(float(cost.normal.delta) for cost in self.costs if cost.normal is not None)
        return normal + sum(cost.instead_delta for cost in self.costs)


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
    """The largest number of timestamps of length ``interval`` that an interval of length ``span`` overlaps.

    Both in milliseconds, at least 1; the interval may begin anywhere, also between two milliseconds.
    """
    return -(-span // interval) + 1


def periods(level: Level, timestamps: int, window: int, *, renews: bool = False) -> int:
    """How many windows or horizons of ``window`` timestamps this many consecutive timestamps can overlap."""
    if level == "w-event":
        return -(-timestamps // window)
    if level in ("event", "local"):
        return timestamps
    return 1 + -(-(timestamps - 1) // window) if renews else 1


def cost_of(stream: Stream, span: int) -> Cost:
    """What a stream costs at most over any ``span`` (ms)."""
    from eventveil.mechanisms.registry import find

    met = timestamps_met(span, stream.timeline.interval)
    settings = stream.mechanism
    kind = find(settings.kind)
    level = kind.level
    covering = periods(level, met, settings.window, renews=settings.options.get("on_horizon") == "renew")
    if settings.delta is None:
        how = stream.counts.discover
        steps = steps_apart(stream)
        pure = Cost(stream.name, met, covering, stream.epsilon * covering, level, steps)
        if how is None:
            return pure
        instead = covering * group_delta(how.epsilon, how.delta, steps)
        return replace(pure, delta=how.delta * covering, instead_delta=instead)
    normal = Normal(settings.epsilon, settings.delta, kind.squares(covering, settings.options))
    return Cost(stream.name, met, covering, together((), (normal,)), level, steps_apart(stream), normal)


def totals(
    streams: Sequence[Stream], budget: Budget | None, span: int | None = None
) -> tuple[PopulationCost, ...]:
    """The sums of all populations over any ``span`` (ms), in the order of their first streams.

    By default the span is the budget's; without a budget it is the longest window of the population's
    streams. ``eventveil.kinds.registry`` knows which streams have a sum.
    """
    populations: dict[str, list[Stream]] = {}
    for stream in streams:
        populations.setdefault(stream.source.population, []).append(stream)
    return tuple(_total(name, members, budget, span) for name, members in populations.items())


def _total(population: str, streams: list[Stream], budget: Budget | None, span: int | None) -> PopulationCost:
    if span is None:
        span = budget.span if budget else max(s.mechanism.window * s.timeline.interval for s in streams)
    weakest: Adjacency = "substitute"
    if any(stream.mechanism.adjacency == "add-remove" for stream in streams):
        weakest = "add-remove"
    costs = tuple(cost_of(stream, span) for stream in streams)
    if budget is None or budget.population != population:
        return PopulationCost(population, span, costs, weakest, None)
    return PopulationCost(population, span, costs, weakest, budget.epsilon, budget.delta)


def describe_total(total: PopulationCost, beside: Sequence[Unbounded] = ()) -> tuple[str, ...]:
    """A sum over streams in plain words, and what is ``beside`` it for the same users."""
    span = duration_words(total.span)
    lines = [
        f"{cost.stream}: over any {span} at most {count(cost.timestamps, 'timestamp')}, "
        f"{count(cost.windows, PERIOD[cost.level])}, epsilon {number(cost.epsilon)}{_delta_of(cost)}"
        for cost in total.costs
    ]
    cap = "no cap is set" if total.cap is None else f"within the cap of {number(total.cap)}"
    if total.cap is not None and total.delta:
        capped = "nothing caps delta" if total.delta_cap is None else f"{float(total.delta_cap):.3g} on delta"
        cap += f" on epsilon; {capped}"
    without = ", without what is not in this sum" * bool(beside)
    delta = f" and delta {delta_text(total.delta)}" if total.delta else ""
    lines.append(f"together at most epsilon {number(total.epsilon)}{delta} over any {span}{without}; {cap}")
    also = f" and delta {delta_text(total.instead_delta)}" if total.instead_delta else ""
    instead = (
        f": what a user did instead costs at most epsilon {number(total.instead)}{also}"
        if total.adjacency == "add-remove"
        else ""
    )
    lines.append(f"weakest adjacency: {total.adjacency}{instead}")
    return (*lines, *(f"not in this sum: {describe_unbounded(one)}" for one in beside))


def delta_text(delta: Fraction | float) -> str:
    """A delta to three digits, and whether it is too large to promise anything; more than 1 is 1."""
    return f"{min(1.0, float(delta)):.3g}{NO_PROMISE if delta > gaussian.LARGEST_DELTA else ''}"


def _delta_of(cost: Cost) -> str:
    if cost.delta:
        return f" and delta {delta_text(cost.delta)}"
    if cost.normal is None:
        return ""
    return f" and delta {float(cost.normal.delta):.3g} (mu squared {float(cost.normal.mu_squared):.3g})"


def describe_unbounded(one: Unbounded) -> str:
    """Why a stream is in no sum, and what it costs, in plain words."""
    delta = f" and delta {float(one.delta):.3g}" if one.delta else ""
    deltas = ", delta as its own lines say" if one.delta else ""
    return (
        f"{one.stream} ({one.kind}), epsilon {number(one.epsilon)}{delta} for each"
        f" {one.unit}; nothing bounds how many {one.unit}s a user has, and k of them add k times that"
        f" epsilon{deltas}. The existence of a {one.unit} is not protected"
    )
