"""The section ``budget``: whether the streams of its users keep the cap over its span.

Every rule looks only at what could be read, so that one mistake never hides another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from eventveil.describe import guarantee, sums
from eventveil.mechanisms import registry
from eventveil.mechanisms.registry import options_of
from eventveil.model.spelling import suggestion
from eventveil.privacy.gaussian import LARGEST_DELTA, LEAST_DELTA
from eventveil.topology.build import all_streams_of, local_streams_of, parts_of, value_streams_of
from eventveil.topology.document import shorten
from eventveil.topology.fields import Section
from eventveil.topology.options import covered, option_of
from eventveil.topology.scalars import duration_text

#: Streams that a message names at most.
_SHOWN = 3


def check_budget(file: Section) -> None:
    """Note a cap on epsilon or delta that the streams of its users exceed over its span."""
    budget = file.get("budget")
    if budget is None or None in (budget.get("epsilon"), budget.get("span"), budget.get("users")):
        return
    span, cap = budget.get("span"), budget.get("epsilon")
    members = [
        (name, stream)
        for name, stream, source in parts_of(file, "source")
        if source.get("users") == budget.get("users") and name not in local_streams_of(file)
    ]
    costs = [(name, _cost(stream, span)) for name, stream in members]
    spent = [(name, cost) for name, cost in costs if cost is not None]
    _check_population(file, budget)
    _check_delta(budget, members)
    total = _sum([cost for _, cost in spent])
    if total > cap.value:
        overlaps = [*_overlaps(members, span)]
        shorter = _short_enough(span, lambda length: _total(members, length) <= cap.value)
        parts = ", ".join(f"{name} {guarantee.number(_sum([cost]))}" for name, cost in spent)
        budget.wrong(
            "epsilon",
            f"over any {duration_text(span)} the streams of {budget.get('users')} cost"
            f" {guarantee.number(total)} together ({parts}), expected at most {cap.text}"
            f"{_explained(overlaps, span)}{_keeps(_wide_enough(overlaps, total, cap.value), shorter)}"
            " lower their epsilon, widen their windows, or raise the cap",
        )


@dataclass(frozen=True, slots=True)
class _Overlap:
    """Of a stream with a w-event guarantee: a span overlaps ``timestamps``, covered by ``windows``."""

    name: str
    timestamps: int
    windows: int
    window: int
    epsilon: Fraction
    pure: bool

    def __str__(self) -> str:
        windows = guarantee.count(self.windows, "window")
        verb = "is" if self.windows == 1 else "are"
        return f"{self.timestamps} timestamps of {self.name}, which {verb} {windows} of {self.window}"


def _explained(overlaps: Sequence[_Overlap], span: int) -> str:
    """Why a span costs more than one window, if it overlaps several of a stream."""
    several = [str(one) for one in overlaps if one.windows > 1]
    if not several:
        return ""
    more = f", and timestamps of {len(several) - _SHOWN} other streams" if len(several) > _SHOWN else ""
    told = ", and ".join(several[:_SHOWN])
    return f"; a span of {duration_text(span)} that begins within a timestamp overlaps {told}{more}"


def _overlaps(members: Sequence[tuple[str, Section]], span: int) -> Iterator[_Overlap]:
    for name, stream in members:
        timeline, mechanism = stream.get("timeline"), stream.get("mechanism")
        if timeline is None or mechanism is None or _cost(stream, span) is None:
            continue
        window = covered(mechanism)
        if registry.find(mechanism.get("kind")).level != "w-event" or window is None:
            continue
        met = sums.timestamps_met(span, timeline.get("interval"))
        pure = mechanism.get("noise") != "gaussian"
        windows = sums.periods("w-event", met, window)
        yield _Overlap(name, met, windows, window, mechanism.get("epsilon").value, pure)


def _wide_enough(overlaps: Sequence[_Overlap], total: Fraction, cap: Fraction) -> str:
    """The smallest windows with which the cap holds: of one stream if that is enough, else of all."""
    pure = [one for one in overlaps if one.pure]
    for one in pure:
        windows = int((cap - total) / one.epsilon + one.windows)
        if windows >= 1:
            return f"window: {-(-one.timestamps // windows)}" + (f" of {one.name}" if len(pure) > 1 else "")
    if total - sum(((one.windows - 1) * one.epsilon for one in pure), Fraction(0)) > cap:
        return ""
    wide = [f"{one.timestamps} of {one.name}" for one in pure if one.windows > 1]
    return f"window: {' and '.join(wide)}" if len(wide) <= _SHOWN else ""


def _short_enough(span: int, holds: Callable[[int], bool]) -> str:
    """The longest span below ``span`` with which the cap holds, by halving: costs grow with the span."""
    low, high = 0, span
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return f"span: {duration_text(low)}" if low else ""


def _keeps(*ways: str) -> str:
    """The remedies that there are, before those that can always be had."""
    known = " or ".join(way for way in ways if way)
    return f"; {known} keeps the cap, or" if known else ";"


def _check_delta(budget: Section, members: Sequence[tuple[str, Section]]) -> None:
    span, cap = budget.get("span"), budget.get("delta")
    deltas = [(name, _delta(stream, span)) for name, stream in members]
    total = sum((delta for _, delta in deltas), Fraction(0))
    if cap is not None and cap.value > LARGEST_DELTA:
        budget.wrong(
            "delta",
            f"found {cap.text}, expected at most {guarantee.number(LARGEST_DELTA)}; with that probability"
            " nothing is promised to a user, so choose it far below 1/n for n users",
        )
    elif cap is not None and total > cap.value:
        parts = ", ".join(f"{name} {float(delta):.3g}" for name, delta in deltas if delta)
        charged = [one for one, (_, delta) in zip(members, deltas, strict=True) if delta]
        found = [one for one in _overlaps(charged, span) if one.pure]
        shorter = _short_enough(
            span, lambda length: sum(_delta(one, length) for _, one in members) <= cap.value
        )
        budget.wrong(
            "delta",
            f"over any {duration_text(span)} the deltas of the streams of {budget.get('users')} are"
            f" {float(total):.3g} together ({parts}), expected at most {cap.text}"
            f"{_explained(found, span)}{_keeps(shorter)} lower them, or raise the cap",
        )


def check_uncapped(file: Section) -> None:
    """Nothing bounds how many values a user has, or reports, so no cap can hold for such a stream."""
    budget = file.get("budget")
    capped = budget.get("users") if budget is not None else None
    values, local = value_streams_of(file), local_streams_of(file)
    for name, stream in {**values, **local}.items():
        source, mechanism = stream.get("source"), stream.get("mechanism")
        if capped is not None and source is not None and source.get("users") == capped:
            mechanism.wrong(
                "kind",
                f"{mechanism.get('kind')} cannot be under a cap: a user with k"
                f" {'reports' if name in local else 'values'} pays k epsilon, and nothing bounds k; name"
                f" another population in {source.name('users')} (the cap is on {capped}), or remove the"
                " budget",
            )


def _check_population(file: Section, budget: Section) -> None:
    """A cap on people whom no stream counts is a slip of the pen, and caps nothing."""
    sources = [stream.get("source") for stream in all_streams_of(file).values()]
    populations = [source.get("users") for source in sources if source is not None]
    capped = budget.get("users")
    if capped in populations or None in populations or len(populations) < len(sources) or not sources:
        return
    near = suggestion(capped, set(populations))
    budget.wrong(
        "users",
        f"found {shorten(capped)}, expected the users of a source, because the cap would limit nothing;"
        f" {near}",
    )


def _total(members: Sequence[tuple[str, Section]], span: int) -> Fraction:
    costs = [_cost(stream, span) for _, stream in members]
    return _sum([cost for cost in costs if cost is not None])


def _sum(costs: Sequence[Fraction | sums.Normal]) -> Fraction:
    pure = [cost for cost in costs if isinstance(cost, Fraction)]
    return sums.together(pure, [cost for cost in costs if isinstance(cost, sums.Normal)])


def _cost(stream: Section, span: int) -> Fraction | sums.Normal | None:
    """What a stream costs over a span, or None if one of the settings could not be read."""
    timeline, mechanism = stream.get("timeline"), stream.get("mechanism")
    if timeline is None or mechanism is None:
        return None
    kind, epsilon, window = mechanism.get("kind"), mechanism.get("epsilon"), covered(mechanism)
    interval = timeline.get("interval")
    if interval is None or kind is None or epsilon is None or window is None:
        return None
    level, renews = registry.find(kind).level, mechanism.get("on_horizon") == "renew"
    windows = sums.periods(level, sums.timestamps_met(span, interval), window, renews=renews)
    if mechanism.get("noise") == "gaussian":
        return _normal(mechanism, kind, windows)
    return Fraction(epsilon.value) * windows


def _delta(stream: Section, span: int) -> Fraction:
    """The delta of a stream over a span, as ``sums.Cost`` has it; 0 where a setting could not be read."""
    timeline, mechanism, counts = (stream.get(name) for name in ("timeline", "mechanism", "counts"))
    if mechanism is None:
        return Fraction(0)
    if mechanism.get("noise") == "gaussian":
        delta = mechanism.get("delta")
        return Fraction(0) if delta is None else delta.value
    columns = counts.get("columns") if counts is not None else None
    interval: int | None = timeline.get("interval") if timeline is not None else None
    window, kind = covered(mechanism), mechanism.get("kind")
    if columns is None or columns.discover is None or interval is None or window is None or kind is None:
        return Fraction(0)
    windows = sums.periods(registry.find(kind).level, sums.timestamps_met(span, interval), window)
    return windows * Fraction(columns.discover.get("delta").value)


def _normal(mechanism: Section, kind: str, windows: int) -> sums.Normal | None:
    """What Gaussian noise costs; None if ``_check_noise`` or the mechanism says that there is none."""
    epsilon, delta = mechanism.get("epsilon"), mechanism.get("delta")
    if delta is None or not LEAST_DELTA <= delta.value <= LARGEST_DELTA:
        return None
    options = {name: option_of(name).value(mechanism.get(name)) for name in options_of(kind)}
    try:
        squares = registry.find(kind).squares(windows, options)
    except ValueError:
        return None
    return sums.Normal(epsilon.value, delta.value, squares)
