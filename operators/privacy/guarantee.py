"""What a topology promises, in numbers and in plain words.

**Sum over streams.** w-event privacy bounds what any ``window`` consecutive timestamps of one stream cost by
epsilon. Over a span of time S, timestamps of length I: an interval of length S meets at most
n = ceil(S / I) + 1 of them, for it may begin and end inside one. Those n consecutive timestamps are covered
by ceil(n / w) windows, which cost epsilon each, and independent streams over the same people add up
(sequential composition). So a span costs at most the sum of ceil(n / w) epsilon. At event level each of the
timestamps costs epsilon, n epsilon together. At user level a horizon costs epsilon, and if it renews, n
consecutive timestamps meet at most 1 + ceil((n - 1) / T) horizons of T timestamps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if (
    TYPE_CHECKING
):  # operators.topology checks budgets with this module, so at run time it needs nothing of theirs
    from operators.mechanisms.base import Guarantee
    from operators.topology.model import Adjacency, Budget, Level, Stream

PERIOD: dict[Level, str] = {
    "w-event": "window",
    "event": "timestamp at epsilon each",
    "user": "horizon",
    "local": "report at epsilon each",
}
"""What costs epsilon once, at each level."""

_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("millisecond", 1))


@dataclass(frozen=True, slots=True)
class Cost:
    """What one stream costs over a span: it meets ``timestamps``, covered by so many ``windows``.

    Each window, timestamp (event level) or horizon (user level) costs epsilon once.
    """

    stream: str
    timestamps: int
    windows: int
    epsilon: Fraction
    level: Level = "w-event"


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


def timestamps_met(span: int, interval: int) -> int:
    """The largest number of timestamps of length ``interval`` that an interval of length ``span`` meets.

    Both in milliseconds, at least 1; the interval may begin anywhere, also between two milliseconds.
    """
    return -(-span // interval) + 1


def periods(level: Level, timestamps: int, window: int, *, renews: bool = False) -> int:
    """How many windows or horizons of ``window`` timestamps so many consecutive timestamps can meet."""
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
    from operators.mechanisms import find

    met = timestamps_met(span, stream.timeline.interval)
    settings = stream.mechanism
    level = find(settings.kind).level
    covering = periods(level, met, settings.window, renews=settings.options.get("on_horizon") == "renew")
    return Cost(stream.name, met, covering, settings.epsilon * covering, level)


def totals(streams: Sequence[Stream], budget: Budget | None) -> tuple[Total, ...]:
    """The sums of all populations, in the order of their first streams.

    The span is the budget's; without a budget it is the longest window of the population's streams. Streams
    of local reports are in none of them, for nothing bounds how many reports a user sends.
    """
    populations: dict[str, list[Stream]] = {}
    for stream in streams:
        if stream.is_local:
            continue
        populations.setdefault(stream.source.population, []).append(stream)
    return tuple(_total(population, members, budget) for population, members in populations.items())


def _total(population: str, streams: list[Stream], budget: Budget | None) -> Total:
    span = budget.span if budget else max(s.mechanism.window * s.timeline.interval for s in streams)
    weakest: Adjacency = "substitute"
    if any(stream.mechanism.adjacency == "add-remove" for stream in streams):
        weakest = "add-remove"
    cap = budget.epsilon if budget and budget.population == population else None
    return Total(population, span, tuple(cost_of(stream, span) for stream in streams), weakest, cap)


def half_width(scale: Fraction, confidence: float = 0.95) -> int:
    """The smallest m such that discrete Laplace noise of ``scale`` stays within +-m with the confidence.

    P(|x| > m) = 2 a^(m+1) / (1 + a) with a = e^(-1/scale). For display only: computed in floating point.
    """
    inverse = float(1 / scale)
    log_tail = math.log((1 - confidence) / 2) + math.log1p(math.exp(-inverse))
    return max(0, math.ceil(-log_tail / inverse) - 1)


def describe(stream: Stream, guarantee: Guarantee) -> tuple[str, ...]:
    """The guarantee of a stream in plain words, a sentence or two per line."""
    return (
        _what_is_protected(stream, guarantee),
        _neighbours(stream, guarantee.level),
        _sensitivity(stream, guarantee),
        *_releases(stream, guarantee),
        _noise(guarantee),
        *_options(stream),
        "A user is whoever shares one value of "
        f"{stream.source.user} ({stream.source.user_type}); several values for one person are several users.",
    )


def describe_total(total: Total) -> tuple[str, ...]:
    """A sum over streams in plain words."""
    span = duration_words(total.span)
    lines = [
        f"{cost.stream}: any {span} meet at most {_count(cost.timestamps, 'timestamp')}, "
        f"{_count(cost.windows, PERIOD[cost.level])}, epsilon {number(cost.epsilon)}"
        for cost in total.costs
    ]
    cap = "no cap is set" if total.cap is None else f"within the cap of {number(total.cap)}"
    lines.append(f"together at most epsilon {number(total.epsilon)} over any {span}; {cap}")
    lines.append(f"weakest adjacency: {total.adjacency}")
    return tuple(lines)


def number(value: Fraction) -> str:
    """A rational as an exact decimal where there is one, else as a fraction."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return str(value)
    digits = max(0, value.denominator.bit_length())
    text = f"{value.numerator * 10**digits // value.denominator:0{digits + 1}d}"
    return f"{text[:-digits]}.{text[-digits:]}".rstrip("0").rstrip(".") if digits else text


def duration_words(milliseconds: int) -> str:
    """A duration in words, in its largest whole unit."""
    name, size = next((name, size) for name, size in _UNITS if milliseconds % size == 0)
    return _count(milliseconds // size, name)


def _count(amount: int, noun: str) -> str:
    first, _, rest = noun.partition(" ")
    return f"{amount} {first}{'' if amount == 1 else 's'}{' ' if rest else ''}{rest}"


def _what_is_protected(stream: Stream, guarantee: Guarantee) -> str:
    epsilon = stream.mechanism.epsilon_text
    covered = duration_words(guarantee.window * stream.timeline.interval)
    if guarantee.level == "event":
        return (
            f"Epsilon {epsilon} for any one timestamp of {covered}: whatever a user did within it changes the"
            f" probability of any output by a factor of at most {_factor(guarantee.epsilon)}. A user who is"
            " present at n timestamps is protected by n times that epsilon only."
        )
    if guarantee.level == "user":
        return (
            f"Epsilon {epsilon} for a horizon of {guarantee.window} timestamps of"
            f" {duration_words(stream.timeline.interval)} ({covered}): whatever a user did within it changes"
            f" the probability of any output by a factor of at most {_factor(guarantee.epsilon)}."
        )
    return (
        f"Epsilon {epsilon} for any {guarantee.window} consecutive timestamps of"
        f" {duration_words(stream.timeline.interval)} ({covered}): whatever a user did within"
        f" them changes the probability of any output by a factor of at most {_factor(guarantee.epsilon)}."
    )


def _releases(stream: Stream, guarantee: Guarantee) -> Iterator[str]:
    """What a release covers, and what comes after a horizon, where that is not plain."""
    span = stream.mechanism.options.get("span", 1)
    if span != 1:
        covered = duration_words(int(span) * stream.timeline.interval)
        what = "counts are sums over them" if guarantee.level == "event" else "with history and groups"
        yield f"Each release covers the last {span} timestamps ({covered}): {what}."
    if guarantee.level == "user":
        yield (
            "After the horizon a new one begins and costs epsilon again; a user in both pays both."
            if guarantee.renews
            else "After the horizon the budget is gone: the last release is repeated for ever, as exhausted."
        )


def _factor(epsilon: Fraction) -> str:
    value = math.exp(float(epsilon)) if epsilon < 10 else math.inf
    return f"e^{number(epsilon)}" + (f", about {value:.3g}" if value < math.inf else "")


_WITHIN: dict[Level, str] = {
    "w-event": "within such a window",
    "event": "at one timestamp",
    "user": "within such a horizon",
    "local": "in one report",
}


def _neighbours(stream: Stream, level: Level) -> str:
    if stream.mechanism.adjacency == "substitute":
        return (
            f"Neighbours (substitute): two streams that differ in one user's events {_WITHIN[level]},"
            " in whether they happened, how many, and where."
        )
    return (
        f"Neighbours (add-remove): two streams that differ in one user {_WITHIN[level]}; at each differing"
        " timestamp all of the user's events are present in one and none in the other."
    )


def _sensitivity(stream: Stream, guarantee: Guarantee) -> str:
    bound = stream.counts.contributions
    counted = (
        "the first event of a user counts" if bound == 1 else f"the first {bound} events of a user count"
    )
    if stream.is_pan_private:
        counted = "every event counts, and the producer guarantees one of a user"
    moved = ", and may be in another column instead" if stream.mechanism.adjacency == "substitute" else ""
    return (
        f"Sensitivity: {guarantee.sensitivity}, the most that one user changes in the counts of a timestamp:"
        f" {counted}{moved}."
    )


def _noise(guarantee: Guarantee) -> str:
    what = "a timestamp's count, which window sums add up" if guarantee.level == "event" else "a fresh count"
    if guarantee.worst_scale == guarantee.best_scale:
        return f"Noise of {what}: {_spread(guarantee.best_scale)}."
    worst = "without bound" if guarantee.worst_scale is None else _spread(guarantee.worst_scale)
    return f"Noise of {what}: at best {_spread(guarantee.best_scale)}; at worst {worst}."


def _options(stream: Stream) -> Iterator[str]:
    """What the options that few streams need mean for them."""
    rules = stream.timeline
    if stream.source.append_time == "boundary":
        yield (
            "Late (append_time: boundary): what is appended to its partition after the worker first saw the"
            f" clock {duration_words(rules.lateness + rules.clock_skew)} past the end of its timestamp. An"
            " outage lets later events count, for the next worker sets the boundary; after one longer than"
            f" {duration_words(rules.max_ahead)} (max_ahead), the newest events it delayed do not count."
        )
    if stream.source.raw is not None:
        yield (
            "Re-keying (repartition: true): events go through an internal topic that is keyed by user; of a"
            " user's those count that were appended first, in whatever partition."
        )
    if stream.is_pan_private:
        read = 1 + (rules.lateness + rules.clock_skew + rules.max_ahead) / rules.interval
        yield f"One timestamp at a time: an event is read up to {read:.3g} times, and judged once."
    if rules.grace is not None:
        yield (
            "Missing partitions (on_missing: release): one that has had no leader for"
            f" {duration_words(rules.grace)} is left out of the timestamps that are due; its users count zero"
            " in them, for good, and the release names it."
        )


def _spread(scale: Fraction) -> str:
    return f"scale {float(scale):.6g}, within +-{half_width(scale)} 95 % of the time"
