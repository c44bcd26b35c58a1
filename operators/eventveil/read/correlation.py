"""What a sum of counts errs by, when every count says what it errs by itself.

**Stretches.** A release that is not fresh repeats the fresh one before it, or is predicted from it: the noise
that both have is the same, so it adds up as k times one deviation, not as sqrt(k) times. A *stretch* goes
from one fresh release to the next.

**Rule.** The variance of a count's error is split. One part is new at every timestamp: where a count is not
exactly count + noise, the true counts scatter around what a forecast can know, as Poisson counts do at
least, with a variance of the released count. The rest is shared:
within a stretch fully, between stretches r^n for stretches n apart, where r is 0 for kinds that release
count + noise, and measured for kinds that filter (``RULES``). Between columns, noise is independent; what
moves all of them at once has a correlation that is measured too.

docs/reading.md has how often the intervals cover that come of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.read.intervals import LAPLACE

if TYPE_CHECKING:
    from eventveil.read.releases import Releases

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rule:
    """How errors of one kind hang together.

    ``scatter``: the variance that is new at each timestamp, over the released count. ``between``: the
    correlation of the rest from a stretch to the next. ``columns``: that of the sums of two columns.
    """

    scatter: float
    between: float
    columns: float


NOISY = Rule(0.0, 0.0, 0.0)
"""Count + noise at every publication, which the releases that follow repeat."""
FILTERED = Rule(1.0, 0.5, 0.05)
"""Estimates and predictions from all publications so far."""
UNKNOWN = Rule(0.0, 1.0, 0.0)
"""Of a kind that is not known: the worst within a column."""
RULES = {
    "uniform": NOISY,
    "sample": NOISY,
    "budget-distribution": NOISY,
    "budget-absorption": NOISY,
    "time-unit": NOISY,
    "shp-point": NOISY,
    "shp-window": NOISY,
    "topl": NOISY,
    "fast": FILTERED,
    "paced": FILTERED,
    "seasonal": FILTERED,
    "shp-adaptive": FILTERED,
}


class Errors(NamedTuple):
    """Expected standard deviations and excess kurtosis of errors, float64 (spans, groups)."""

    deviations: Floats
    kurtosis: Floats


class _Moments(NamedTuple):
    """Of the errors of sums of each column: variance, and the fourth cumulant of noise, (spans, columns)."""

    variance: Floats
    fourth: Floats


def errors_of_sums(
    releases: Releases,
    span_of: NDArray[np.int64],
    spans: int,
    used: NDArray[np.bool_],
    groups: Sequence[Sequence[int]],
) -> Errors:
    """The errors of the sums of the ``used`` releases over spans and groups of columns.

    ``span_of``: the span of each release, from 0 up, ascending.
    """
    deviations, kurtosis = np.zeros((spans, len(groups))), np.zeros((spans, len(groups)))
    moments = _moments(releases, span_of, spans, used)
    shared = _between_columns(releases, span_of, spans)
    for number, places in enumerate(groups):
        variances = moments.variance[:, places]
        own, together = variances.sum(axis=1), np.sqrt(variances).sum(axis=1) ** 2
        variance = (1 - shared) * own + shared * together
        deviations[:, number] = np.sqrt(variance)
        with np.errstate(invalid="ignore", divide="ignore"):
            kurtosis[:, number] = np.nan_to_num(moments.fourth[:, places].sum(axis=1) / variance**2)
    return Errors(deviations, kurtosis)


def _moments(releases: Releases, span_of: NDArray[np.int64], spans: int, used: NDArray[np.bool_]) -> _Moments:
    shape = (spans, len(releases.columns))
    variance, fourth = np.zeros(shape), np.zeros(shape)
    shared = np.zeros(shape[1])
    last = -1
    for span, head, rows in _stretches(releases, span_of, used):
        rule = _rule(releases, int(rows[0]))
        if span != last:
            shared, last = np.zeros(shape[1]), span
        own, common = _split(releases, rows, rule)
        shared = shared * rule.between
        variance[span] += own + common * (common + 2 * shared)
        shared += common
        if head is not None and rule is NOISY and not np.isnan(releases.scales[head]):
            fourth[span] += LAPLACE * (len(rows) * releases.errors[head]) ** 4
    return _Moments(variance, fourth)


def _rule(releases: Releases, row: int) -> Rule:
    return RULES.get(releases.parts[releases.part_of[row]].mechanism, UNKNOWN)


def _stretches(
    releases: Releases, span_of: NDArray[np.int64], used: NDArray[np.bool_]
) -> Iterator[tuple[int, int | None, NDArray[np.int64]]]:
    """The span, the fresh release if there is one, and the releases of each stretch, or part of one."""
    rows = np.flatnonzero(used)
    number = np.cumsum(releases.fresh)[rows]
    heads = np.flatnonzero(releases.fresh)
    begins = np.flatnonzero((np.diff(number) != 0) | (np.diff(span_of[rows]) != 0)) + 1
    for some in np.split(rows, begins):
        if len(some):
            at = int(np.searchsorted(heads, some[0], side="right")) - 1
            yield int(span_of[some[0]]), int(heads[at]) if at >= 0 else None, some


def _is_exact(releases: Releases) -> NDArray[np.bool_]:
    """Which releases are count + noise and nothing else."""
    exact: NDArray[np.bool_] = releases.fresh & ~np.isnan(releases.scales)
    return exact


def _split(releases: Releases, rows: NDArray[np.int64], rule: Rule) -> tuple[Floats, Floats]:
    """Of each column: the variance that is new at each timestamp, summed, and the shared deviation."""
    squares = releases.errors[rows] ** 2
    exact = _is_exact(releases)[rows, np.newaxis]
    own = np.where(exact, 0.0, np.minimum(rule.scatter * np.maximum(releases.counts[rows], 0), squares))
    return own.sum(axis=0), np.sqrt(squares - own).sum(axis=0)


def _between_columns(releases: Releases, span_of: NDArray[np.int64], spans: int) -> Floats:
    """The correlation between columns in each span: the largest of the rules that apply there."""
    rules = np.array([RULES.get(part.mechanism, UNKNOWN).columns for part in releases.parts])
    of_each = np.where(_is_exact(releases), 0.0, rules[releases.part_of])
    found = np.zeros(spans)
    np.maximum.at(found, span_of, of_each)
    return found
