"""What a stream promises, in plain words. What streams cost together is in ``sums.py``.

**What the neighbours say.** Neighbours by `add-remove` differ in one user, who at each differing timestamp is
there with all events in one of them and with none in the other: epsilon covers whether, and when, a user was
there. Two histories in which that user is there in both and does something else, in another column or less
often, need not be neighbours. Each is a neighbour of the history without the user's events, so they are two
steps apart: 2 epsilon. Neighbours by `substitute` differ in whatever one user did: one step, at twice the
sensitivity. In a single column one step is enough in any case: a user moves its count by any number from 0 to
``contributions``, so the counts of any two histories are those of some neighbours by `add-remove`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING

from eventveil.describe.events import one_user, which_events
from eventveil.mechanisms.sizes import Room
from eventveil.privacy import discovery, gaussian

if TYPE_CHECKING:  # eventveil.topology needs this module, so at run time it needs nothing of theirs
    from eventveil.mechanisms.base import Guarantee
    from eventveil.model.topology import Level, Stream

_DAY = 86_400_000
SMALL_DELTA, GOOD_DELTA = Fraction(1, 10**8), Fraction(1, 10**9)
"""What is larger than the former is worth a word; the latter is far below one in a million users."""
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000), ("millisecond", 1))


def steps_apart(stream: Stream) -> int:
    """How many steps from neighbour to neighbour lead between two histories with different things a user did.

    One step by `substitute`; and in a single column, where the counts of any two histories differ as much as
    those of neighbours. Else two.
    """
    single = len(stream.counts.labels) == 1 and stream.counts.discover is None
    return 1 if single or stream.mechanism.adjacency == "substitute" else 2


def group_delta(epsilon: Fraction, delta: Fraction, size: int) -> float:
    """The delta of ``size`` values together, each of which is (epsilon, delta)-private; for display only.

    k steps of P <= e^epsilon P' + delta are P <= e^(k epsilon) P' + delta (1 + e^epsilon + ... +
    e^((k - 1) epsilon)).
    """
    rate = float(epsilon)
    exponent = math.log(delta) + (size - 1) * rate + _log_rest(size * rate) - _log_rest(rate)
    return math.exp(exponent) if exponent < 700 else math.inf


def _log_rest(exponent: float) -> float:
    """ln(1 - e^-exponent)."""
    return math.log(-math.expm1(-exponent))


def void_from(epsilon: Fraction, delta: Fraction) -> int:
    """The least number of values, each (epsilon, delta)-private, that together have a delta of 1 or more."""
    rate = float(epsilon)
    # Not above the root of the exact equation; a large e^epsilon is no number, and then one value is near it.
    size = max(1, math.floor((math.log1p(math.expm1(rate) / float(delta)) if rate < 300 else rate) / rate))
    while group_delta(epsilon, delta, size) < 1:
        size += 1
    return size


def half_width(scale: Fraction, confidence: float = 0.95) -> int:
    """The smallest m such that discrete Laplace noise of ``scale`` stays within +-m with the confidence.

    P(|x| > m) = 2 a^(m+1) / (1 + a) with a = e^(-1/scale). For display only: computed in floating point.
    """
    inverse = float(1 / scale)
    log_tail = math.log((1 - confidence) / 2) + math.log1p(math.exp(-inverse))
    return max(0, math.ceil(-log_tail / inverse) - 1)


def describe(
    stream: Stream,
    guarantee: Guarantee,
    counted: str | None = None,
    rules: Iterable[str] = (),
    whose: Iterable[str] | None = None,
) -> tuple[str, ...]:
    """The guarantee of a stream in plain words, a sentence or two per line.

    What its kind says of it (``eventveil.kinds``), by default as of events that are counted here: ``counted``
    is what bounds a user, ``rules`` are added, and ``whose`` says who one user is.
    """
    guarantee = replace(guarantee, epsilon=stream.epsilon)
    return (
        _what_is_protected(stream, guarantee),
        _neighbours(stream, guarantee.level),
        _sensitivity(stream, guarantee, counted or which_count(stream)),
        *_releases(stream, guarantee),
        _noise(guarantee),
        *_delta(guarantee),
        *_contributions(stream, guarantee),
        *_discovery(stream),
        *_options(stream),
        *rules,
        *which_events(stream.source),
        *((one_user(stream.source),) if whose is None else whose),
    )


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
    return count(milliseconds // size, name)


def count(amount: int, noun: str) -> str:
    """An amount of something, its first word in the plural if need be."""
    first, _, rest = noun.partition(" ")
    return f"{amount} {first}{'' if amount == 1 else 's'}{' ' if rest else ''}{rest}"


def consecutive(window: int) -> str:
    """This number of consecutive timestamps."""
    return "one timestamp" if window == 1 else f"{window} consecutive timestamps"


#: What neighbours by add-remove differ in, at each level of counts.
_PRESENCE: dict[Level, str] = {
    "w-event": "at which of them a user was present",
    "event": "whether a user was present at it",
    "user": "at which of them a user was present",
}


def _what_is_protected(stream: Stream, guarantee: Guarantee) -> str:
    epsilon, interval = stream.mechanism.epsilon_text, duration_words(stream.timeline.interval)
    covered = duration_words(guarantee.window * stream.timeline.interval)
    effect = _effect(stream, guarantee)
    if guarantee.delta is not None:
        epsilon = f"{epsilon} with delta {float(guarantee.delta):.3g}"
    if stream.counts.discover is not None:
        epsilon = f"{number(guarantee.epsilon)} with delta {float(stream.counts.discover.delta):.3g}"
    if guarantee.level == "event":
        return (
            f"Epsilon {epsilon} for any one timestamp of {covered}: {effect}"
            f" {_longer(guarantee, 'For a user who is present at n timestamps', stream)}"
        )
    if guarantee.level == "user":
        horizon = f"a horizon of {guarantee.window} timestamps of {interval} ({covered})"
        return f"Epsilon {epsilon} for {horizon}: {effect}"
    return (
        f"Epsilon {epsilon} for any {consecutive(guarantee.window)} of {interval} ({covered}):"
        f" {effect} {_longer(guarantee, 'For a user who is present for n times as long', stream)}"
    )


def _longer(guarantee: Guarantee, whom: str, stream: Stream) -> str:
    """What a longer presence costs."""
    from eventveil.mechanisms.registry import find

    if guarantee.level == "w-event" and stream.counts.discover is not None:
        return f"{whom}, epsilon and delta are n times as large."
    if guarantee.delta is None:
        return f"{whom}, epsilon is n times as large."
    mu_squared, mechanism = gaussian.mu_squared(guarantee.epsilon, guarantee.delta), stream.mechanism
    times = [find(mechanism.kind).squares(n, mechanism.options) for n in (2, 10)]
    twice, ten = (number(gaussian.epsilon(n * mu_squared, guarantee.delta)) for n in times)
    grows = "mu squared is n times as large"
    if times != [2, 10]:
        grows = "mu is up to n times as large, its square up to n^2 times, because their noise is correlated"
    return f"{whom}, {grows}, so that with the same delta epsilon is {twice} for n = 2, {ten} for n = 10."


def _effect(stream: Stream, guarantee: Guarantee) -> str:
    """By how much the probability of an output can change, for exactly what the neighbours differ in."""
    changes = "changes the probability of any output by a factor of at most"
    once, twice = _factor(guarantee.epsilon), _factor(2 * guarantee.epsilon)
    if guarantee.delta is not None:
        mu_squared, beside = gaussian.mu_squared(guarantee.epsilon, guarantee.delta), ", plus delta"
        once += beside
        twice = _factor(gaussian.epsilon(2 * mu_squared, guarantee.delta)) + beside
    if (how := stream.counts.discover) is not None:
        both = f"{group_delta(how.epsilon, how.delta, 2):.3g}, delta times (1 + e^{number(how.epsilon)})"
        once, twice = f"{once}, plus delta", f"{twice}, plus {both}"
    if steps_apart(stream) == 1:
        return f"whatever a user did there {changes} {once}."
    return (
        f"{_PRESENCE[guarantee.level]} {changes} {once}. A change in what a user who was present"
        " did (another column, or fewer events) is"
        f" {'two such steps' if guarantee.delta is None else 'more'}: {twice}."
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
            else "After the horizon the budget is gone: the last release is repeated, marked as exhausted."
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
    more = "twice the noise" if stream.mechanism.delta is None else "1.41 times the noise"
    wider = f" `adjacency: substitute` covers what a user did as well, for {more}."
    return (
        f"Neighbours (add-remove): two streams that differ in one user {_WITHIN[level]}; at each differing"
        " timestamp all of the user's events are present in one and none in the other."
        f"{wider * (steps_apart(stream) > 1)}"
    )


def which_count(stream: Stream) -> str:
    """Which events of a user count in a timestamp, where it is decided here."""
    bound, per_column = stream.counts.contributions, stream.counts.per_column
    if per_column is not None:
        return (
            f"of a user the first {per_column} of each column are left, and of these the first {bound} count"
        )
    return "the first event of a user counts" if bound == 1 else f"the first {bound} events of a user count"


def _sensitivity(stream: Stream, guarantee: Guarantee, counted: str) -> str:
    moved = ", and may be in another column instead" if stream.mechanism.adjacency == "substitute" else ""
    return (
        f"Sensitivity: {guarantee.sensitivity}, the most that one user changes in the counts of a timestamp:"
        f" {counted}{moved}."
    )


def _noise(guarantee: Guarantee) -> str:
    what = "a timestamp's count, which window sums add up" if guarantee.level == "event" else "a fresh count"
    if guarantee.combines:
        what = "each draw (a release adds up several)"
    spread = _spread if guarantee.delta is None else _normal_spread
    if guarantee.worst_scale == guarantee.best_scale:
        return f"Noise of {what}: {spread(guarantee.best_scale)}."
    worst = "without bound" if guarantee.worst_scale is None else spread(guarantee.worst_scale)
    return f"Noise of {what}: at best {spread(guarantee.best_scale)}; at worst {worst}."


def _delta(guarantee: Guarantee) -> Iterator[str]:
    """What delta means, and when it is large."""
    if guarantee.delta is None:
        return
    delta, mu_squared = float(guarantee.delta), gaussian.mu_squared(guarantee.epsilon, guarantee.delta)
    large = ""
    if guarantee.delta > SMALL_DELTA:
        more = math.sqrt(mu_squared / gaussian.mu_squared(guarantee.epsilon, GOOD_DELTA))
        large = (
            f" Of a million users the promise may fail for {delta * 1e6:.3g}: delta 1e-9 costs"
            f" {more:.2f} times the noise."
        )
    yield (
        f"Delta {delta:.3g}: the promise of epsilon may fail with this probability, over the noise and for"
        f" any one user, and then nothing is promised. It should be far below 1/n for n users.{large}"
    )


def _contributions(stream: Stream, guarantee: Guarantee) -> Iterator[str]:
    """What noise makes of several contributions, where that depends on what noise there is."""
    bound, per_column = stream.counts.contributions, stream.counts.per_column
    if per_column is not None:
        alone = " without roll-ups" if stream.mechanism.options.get("rollups") else ""
        root = f"{math.sqrt(gaussian.largest_square(bound, per_column)):.4g}"
        noise = f"but Laplace noise scales with all {bound}; Gaussian noise would scale with {root}"
        if guarantee.delta is not None:
            noise = (
                f"so Gaussian noise of a count{alone} is in proportion to {root}, the root of their squares"
                f" added up, and not to {bound}"
            )
        yield (
            f"Contributions: at most {per_column} of the {bound} events of a user are in one column, {noise}."
        )
    elif bound > 1 and guarantee.delta is not None:
        yield (
            f"Contributions: all {bound} events of a user may be in one column, so"
            " Gaussian noise is in proportion to their number, as Laplace noise is."
        )


def _discovery(stream: Stream) -> Iterator[str]:
    """How columns are found in the data, at what cost."""
    how = stream.counts.discover
    if how is None:
        return
    window, rest = stream.mechanism.window, stream.counts.labels[0]
    test = discovery.test_of(how.epsilon, how.delta, stream.sensitivity, window)
    block = duration_words(window * stream.timeline.interval)
    fit = Room(stream).about(how.longest)
    room = ""
    if fit < how.most:
        room = f", or as many as fit into the state (about {fit} with names of {how.longest} bytes)"
    yield (
        f"Columns are found in the data, at most {how.most}{room}, for epsilon {number(how.epsilon)} and"
        f" delta {float(how.delta):.3g} of these; the mechanism has epsilon"
        f" {number(stream.mechanism.epsilon)}. At the end of each block of {consecutive(window)} ({block}) a"
        " column is released from the next one on"
        f" if what the block counted of it reaches {test.threshold}, which is"
        f" {math.ceil(test.threshold / window)} a timestamp, with Laplace noise of scale"
        f" {float(test.scale):.6g}. Until then its events are in the column {rest}."
    )
    if how.forget is not None:
        yield (
            f"After {count(how.forget, 'block')} in a row in which its releases add up to less than their"
            " errors do, a column is forgotten: its events are in that column again, and it may be found"
            " anew. This costs nothing, because it depends on releases alone."
        )
    large = ""
    if how.delta > SMALL_DELTA:
        large = (
            f" Of a million users it may be shown of {float(how.delta) * 1e6:.3g}: 1e-9 costs little more."
        )
    yield (
        f"Delta {float(how.delta):.3g}: the probability with which a window may show that there is a column"
        f" which only one user has. It should be far below 1/n for n users.{large}"
    )


def _options(stream: Stream) -> Iterator[str]:
    """What the options that few streams need mean for them."""
    rules = stream.timeline
    if "periods" in stream.mechanism.options and rules.interval < _DAY and _DAY % rules.interval:
        yield (
            f"A day is not a multiple of {duration_words(rules.interval)}, so no daily season"
            " is expected unless `periods` has one."
        )
    if stream.source.append_time == "boundary":
        yield (
            "Late (append_time: boundary): an event is late if it is appended after the worker has marked the"
            " end of its timestamp in the partition, which it does"
            f" {duration_words(rules.lateness + rules.clock_skew)} past that end by its clock. While no"
            " worker runs, nothing is marked, and later events still count. After an outage longer than"
            f" {duration_words(rules.max_ahead)} (max_ahead), the newest events of the outage do not count."
        )
    if stream.source.raw is not None:
        between = (
            ""
            if stream.source.append_time == "broker"
            else ", as far as boundaries tell (between two, by partition and offset)"
        )
        yield (
            "Re-keying (repartition: true): events go through an internal topic that is keyed by user. If a"
            " user has more events than may count, those that were appended first count, whatever their"
            f" partition{between}."
        )
    if rules.grace is not None:
        yield (
            "Missing partitions (on_missing: release): a partition that was seen without a leader from before"
            f" a timestamp was due until {duration_words(rules.grace)} after is left out of it. Its"
            " users count zero in it, permanently, and the release names it. The stream waits for any other,"
            " however long that takes."
        )


def _normal_spread(sigma: Fraction) -> str:
    within = math.ceil(NormalDist().inv_cdf(0.975) * float(sigma))
    return f"Gaussian, standard deviation {float(sigma):.6g}, within +-{within} 95 % of the time"


def _spread(scale: Fraction) -> str:
    return f"scale {float(scale):.6g}, within +-{half_width(scale)} 95 % of the time"
