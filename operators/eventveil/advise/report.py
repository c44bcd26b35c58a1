"""What was found, in words: for the terminal, and for the page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eventveil.advise.choices import NORMAL, Bounding, Candidate, Question
from eventveil.advise.reading import ReadEvents
from eventveil.advise.scoring import HOPELESS, pooled, sizes, within
from eventveil.advise.searching import OTHER, Findings
from eventveil.describe.guarantee import count, duration_words
from eventveil.topology.periods import DAY, HOUR

#: Said before anything else: what advice costs.
LEAKS = (
    "A choice that was made on people's events reveals something about them, which no epsilon covers, if"
    " counts of the same people are released. Choose on older or generated events (eventveil generate)."
)
RAW = "All figures here are computed from true counts without noise: raw data, as private as the events."
#: Advice on events over fewer times the protected span is called that.
_ENOUGH = 2
_UNITS = {HOUR: "hour", DAY: "day", 7 * DAY: "week"}


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A choice and its errors, in parts: of large, middle and small columns, of all; NaN: there are none."""

    choice: Candidate
    interval: str
    window: int
    large: float
    middle: float
    small: float
    every: float
    left_out: float
    best: bool


def unit_words(milliseconds: int) -> str:
    """A length of time as somebody asks for it: hour, day, week, or its length."""
    return _UNITS.get(milliseconds, duration_words(milliseconds))


def a_unit(milliseconds: int) -> str:
    """The same with its article."""
    unit = unit_words(milliseconds)
    return f"an {unit}" if unit == "hour" else f"a {unit}"


def percent(part: float) -> str:
    """A part of a whole for people; a dash where there is none."""
    if math.isnan(part):
        return "-"
    if part >= 9.995 or 0 < part < 0.0005:
        return "> 999 %" if part > 1 else "< 0.1 %"
    text = f"{100 * part:.0f}" if part >= 0.0995 else f"{100 * part:.1f}".removesuffix(".0")
    return f"{text} %"


def rows(findings: Findings) -> list[ErrorRow]:
    """One for each interval, kind, noise and roll-up, with the bound and minimum that did best.

    The best first.
    """
    found: dict[tuple[int, str, bool, bool], ErrorRow] = {}
    best = findings.best
    order = sorted(findings.scores, key=lambda one: (one != best, findings.scores[one].pooled))
    for choice in order:
        # What was run once was only to find the bounds worth a second run.
        if findings.scores[choice].runs > 1:
            place = choice.interval, choice.kind, choice.normal, choice.rolled
            found.setdefault(place, _row(findings, choice))
    return [*found.values()]


def _row(findings: Findings, choice: Candidate) -> ErrorRow:
    one, totals = findings.scores[choice], findings.totals(choice)
    large, middle, small = (pooled(one, totals, group) for group in _groups(findings, choice))
    return ErrorRow(
        choice,
        duration_words(choice.interval),
        choice.window(findings.question),
        large,
        middle,
        small,
        one.pooled,
        findings.lost(choice),
        choice == findings.best,
    )


def _groups(findings: Findings, choice: Candidate) -> list[NDArray[np.int64]]:
    """Large, middle and small columns as the choice has them; what is rolled up is small."""
    groups = sizes(findings.tally.totals())
    if not choice.rolled or findings.kept is None:
        return [groups.large, groups.middle, groups.small]
    kept = findings.kept
    apart = [np.flatnonzero(np.isin(kept, group)) for group in (groups.large, groups.middle, groups.small)]
    return [*apart[:2], np.append(apart[2], len(kept))]


def table(lines: Sequence[ErrorRow]) -> Iterator[str]:
    """The rows as aligned text."""
    head = ("timestamp", "per user", "window", "kind", "large", "middle", "small", "all", "left out")
    cells = [
        (
            one.interval, bound_words(one.choice.bounding), str(one.window), kind_words(one.choice),
            *map(percent, (one.large, one.middle, one.small, one.every, one.left_out)),
        )
        for one in lines
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for cell in (head, *cells):
        yield "  ".join(
            text.ljust(width) if index in {0, 3} else text.rjust(width)
            for index, (text, width) in enumerate(zip(cell, widths, strict=True))
        ).rstrip()


def bound_words(bounding: Bounding) -> str:
    """How many events of a user count, and how many of them in one column if that is less."""
    return f"{bounding.bound}" + (f", {bounding.per_column} a column" if bounding.per_column else "")


def kind_words(choice: Candidate) -> str:
    """The kind, its noise, whether negative counts are released as 0 and small columns rolled up."""
    said = {
        ", gaussian": choice.normal,
        ", minimum 0": choice.clipped,
        ", small columns rolled up": choice.rolled,
    }
    return choice.kind + "".join(words for words, true in said.items() if true)


def recommendation(findings: Findings) -> Iterator[str]:
    """The best choice in sentences."""
    question, choice = findings.question, findings.best
    one, unit, a = findings.scores[choice], unit_words(question.unit), a_unit(question.unit)
    bound, left = choice.bound, findings.lost(choice)
    yield (
        f"Timestamps of {duration_words(choice.interval)}, kind {choice.kind}, epsilon {question.epsilon},"
        f" window {choice.window(question)}: any {unit_words(question.protect)} of a user costs epsilon"
        f" {question.epsilon}{f' with delta {question.delta}' if choice.normal else ''}."
    )
    yield from _noise(findings)
    counted = "the first event" if bound == 1 else f"the first {bound} events"
    if choice.per_column:
        counted += f", at most {choice.per_column} in one column,"
    yield (
        f"Of each user {counted} in {duration_words(choice.interval)} count{'s' if bound == 1 else ''}."
        f" Bounding leaves out {percent(left)} of all events, which no release has;"
        " the errors here include that."
    )
    if choice.clipped:
        yield (
            "Negative counts are released as 0 (`minimum: 0` of the sink, which costs no budget). Sums of"
            " releases are biased upwards where counts are small; the errors here include that."
        )
    if choice.rolled:
        apart = {*findings.labels(choice)}
        rolled = [label for label in question.labels if label not in apart]
        yield f"Too small to be released alone, and counted in `{OTHER}`: {named(rolled)}."
    totals = findings.totals(choice)
    first = largest(findings, choice)
    verdict = "within" if one.columns[first] <= question.accuracy else "not within"
    yield (
        f"The total of {a} of the largest column, {findings.labels(choice)[first]}, is off by"
        f" {percent(float(one.columns[first]))} on average, and by at most {percent(float(one.worst[first]))}"
        f" {'on' if unit == 'day' else 'in'} 95 % of {unit}s: {verdict} the {percent(question.accuracy)} that"
        " are wanted."
    )
    enough = within(one, question.accuracy)
    yield (
        f"{enough} of {count(totals.shape[1], 'column')} {'is' if enough == 1 else 'are'} within"
        f" {percent(question.accuracy)}."
    )
    if one.columns[first] > question.accuracy:
        yield f"What helps: {', '.join(_helpful(question))}, or more users."


def _helpful(question: Question) -> Iterator[str]:
    """What would make errors smaller and is not asked for already."""
    if question.unit < DAY:
        yield "days instead of hours"
    if question.protect > HOUR:
        yield "a shorter time to protect"
    yield "more epsilon"


def _noise(findings: Findings) -> Iterator[str]:
    """What Gaussian noise gains or does not, and what its delta means, if one was allowed."""
    delta, scores = findings.question.delta, findings.scores
    if delta is None:
        return
    pure, normal = (
        min(one.pooled for choice, one in scores.items() if choice.normal is noise and one.runs > 1)
        for noise in (False, True)
    )
    apart = (
        f"the best choice with it has an error of {percent(normal)} of all events, with pure epsilon "
        f"{percent(pure)}"
    )
    if not findings.best.normal:
        yield (
            f"Gaussian noise with delta {delta} was tried: {apart}. That is no gain here, and pure epsilon is"
            " the stronger promise, which never fails."
        )
        return
    yield (
        f"Noise is Gaussian, with delta {delta}: {apart}. What that costs: for any one user the promise of"
        f" epsilon may fail with probability {delta}, over the noise, and then nothing is promised. Delta"
        " should be far below 1/n for n users (1e-9 for a million). Without --delta only pure"
        " epsilon is tried."
    )


def largest(findings: Findings, choice: Candidate) -> int:
    """The index of the column with the most events, of those that are not rolled up, if there are any."""
    totals = findings.totals(choice).sum(axis=0)
    return int(totals[: len(totals) - choice.rolled].argmax()) if len(totals) > 1 else 0


def impossible(findings: Findings) -> Iterator[str]:
    """What cannot be had at this epsilon, whatever is chosen."""
    labels = findings.question.labels
    least = best_errors(findings)
    lost = [label for label, error in zip(labels, least, strict=True) if not error <= HOPELESS]
    missed = [
        label
        for label, error in zip(labels, least, strict=True)
        if findings.question.accuracy < error <= HOPELESS
    ]
    unit = unit_words(findings.question.unit)
    if lost:
        yield (
            f"{named(lost)}: off by more than half of the {unit}'s total, or without any event, whatever was"
            " chosen."
        )
    if missed:
        wanted = percent(findings.question.accuracy)
        yield f"Not within {wanted} with any choice that was tried, but readable: {named(missed)}."
    if not lost and not missed:
        yield f"Nothing: every column is within {percent(findings.question.accuracy)} with some choice."


def best_errors(findings: Findings) -> list[float]:
    """Of each column the least error that any choice has which leaves it apart; NaN without events."""
    apart = [one.columns for choice, one in findings.scores.items() if not choice.rolled and one.runs > 1]
    return [min(float(columns[index]) for columns in apart) for index in range(len(findings.question.labels))]


def named(labels: Sequence[str], most: int = 8) -> str:
    """The labels, or the first of many and how many more there are."""
    shown = ", ".join(labels[:most])
    return shown if len(labels) <= most else f"{shown} and {len(labels) - most} more"


def outcomes(found: Counter[str]) -> str:
    """What became of the events that were read."""
    words = {**dict.fromkeys(found), "read": "can count"}
    return ", ".join(f"{number:,} {words[one] or one}" for one, number in found.most_common()) or "none"


def events(findings: Findings, read: ReadEvents) -> str:
    """What was read: raw data."""
    tally, question = findings.tally, findings.question
    text = (
        f"{tally.events:,} events in {count(len(question.labels), 'column')} over"
        f" {count(tally.units, unit_words(question.unit))} (read: {outcomes(read.outcomes)})."
    )
    if len(read.apart):
        text += (
            f" {len(read.apart):,} others are left out: their times, from {_days(read.apart)}, are separated"
            f" from those from {_days(read.events.times)} by more than a year without events. Such times are"
            " mostly of wrong clocks, or not set."
        )
    if tally.units * tally.unit >= _ENOUGH * question.protect:
        return text
    return (
        f"{text} That is too short for good advice: epsilon covers {duration_words(question.protect)}, and"
        f" kinds that learn have learned next to nothing. Give {_ENOUGH} times that, or more."
    )


def _days(times: NDArray[np.int64]) -> str:
    """The first day and the last one, of whatever year."""
    first, last = (
        np.datetime64(int(one), "ms").astype("datetime64[D]") for one in (times.min(), times.max())
    )
    return f"{first} to {last}"


def tried(findings: Findings) -> str:
    """What the search has tried."""
    runs = sum(one.runs for choice, one in findings.scores.items() if not choice.clipped)
    spans = sorted({choice.interval for choice in findings.scores})
    bounds = sorted({choice.bound for choice in findings.scores})
    kinds = list(dict.fromkeys(choice.kind for choice in findings.scores))
    text = (
        f"{len(findings.scores)} choices in {runs} runs: timestamps of"
        f" {', '.join(map(duration_words, spans))}; {', '.join(map(str, bounds))} events a user;"
        f" {', '.join(kinds)}; where counts can be negative, with `minimum: 0` and without."
    )
    if findings.question.delta is not None:
        able = ", ".join(kind for kind in kinds if kind in NORMAL)
        limits = sorted({choice.per_column for choice in findings.scores} - {0})
        text += f" {able} also with Gaussian noise and delta {findings.question.delta}"
        text += f", and with at most {', '.join(map(str, limits))} in one column." if limits else "."
    if findings.skipped:
        text += f" Left out, for lack of time: {', '.join(map(duration_words, findings.skipped))}."
    return text
