"""What a sum of counts errs by, when every count says what it errs by itself.

**Stretches.** A release that is not fresh repeats the fresh one before it, or is predicted from it, and has
the same noise: in a sum it counts k times, not sqrt(k) times. A *stretch* goes from a fresh release to the
next.

**Parts.** The variance of a count's error has two parts. One is *new* at each timestamp: the true counts
scatter around what anybody can know of them. The other is *shared* with other timestamps.

*Kinds that release count + noise.* Noise is shared within a stretch, fully, and with no other. What a
repeated release errs by beyond its noise is how far counts have moved: the fresh count scatters as the one of
now does, so half of that is shared, within the stretch, and half new.

*Kinds that filter* (seasonal, paced, fast, shp-adaptive). Counts scatter like Poisson numbers at least, so a
variance of the released count is new. The rest is the error of an estimate. Where releases are flat it is one
of the level: shared within a stretch, and ``between`` of it with the next. Where they go up and down it is
one of the season too, and changes its sign with it: shared with what is near in time, with a range of an
eighth of a day (of a week, for timestamps of a day or about that). How flat they are is seen in the releases
of the span. ``lasting`` of it never ends, where releases are flat: what is wrong in a season changes its
sign. A column that is released as 0 errs by its true count, always in the same direction. The mean m of
Poisson numbers with the mean square e^2 has m^2 + m = e^2: the scatter m is new, and all of the rest lasts.

*Columns.* Noise is independent between them, or cancels in blocks of them (``rollups``), exactly; what counts
have moved by and estimates have ``columns`` as correlation, because what moves one moves others. Of a group
that is learned from its releases (``together``), but not of what columns err by that are released as 0.

*Kinds whose noise cancels in blocks of timestamps* (totals). The variance of the noise of a sum follows from
the blocks, exactly (``eventveil.read.nesting``); there is nothing else.

*Clipped counts* (sink option ``minimum``) of kinds that release count + noise are too large on average, by
half the scale of the noise where the true count is 0; that is shared with everything.

The numbers of the rules are measured, by ``python -m benchmarks.reading``; docs/reading.md has how often the
intervals cover.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.read.intervals import LAPLACE
from eventveil.read.nesting import NestedBlocks, Noise, noise_of, of_columns
from eventveil.read.together import correlation, of_predictions, season

if TYPE_CHECKING:
    from eventveil.read.releases import Releases

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
_RANGE = 1 / 8
"""Of a period: how far the error of a season reaches."""
_LEAST_MEAN = 0.25
"""Below this released mean, counts are not called unsteady for their unsteadiness alone."""


@dataclass(frozen=True)
class Rule:
    """How the errors of a kind are correlated; see the module.

    ``filters``: whether it releases estimates. ``between``: correlation of one stretch with the next.
    ``unsteady``: how much of it the unsteadiness of releases takes away. ``lasting``: what never ends.
    ``columns``: the correlation of two columns.
    """

    filters: bool
    between: float
    unsteady: float = 0.0
    lasting: float = 0.0
    columns: float = 0.0


NOISY = Rule(filters=False, between=0.0, columns=0.3)
FILTERED = Rule(filters=True, between=0.8, unsteady=3.0, lasting=0.05, columns=0.1)
UNKNOWN = Rule(filters=False, between=1.0)
"""Of a kind that is not known: the worst that can be within a column."""
RULES = {
    **dict.fromkeys(("uniform", "sample", "budget-distribution", "budget-absorption"), NOISY),
    **dict.fromkeys(("time-unit", "totals", "shp-point", "shp-window", "topl"), NOISY),
    **dict.fromkeys(("fast", "paced", "seasonal", "shp-adaptive"), FILTERED),
}


class Errors(NamedTuple):
    """Expected standard deviations and excess kurtosis of errors, float64 (spans, groups)."""

    deviations: Floats
    kurtosis: Floats


class _Moments(NamedTuple):
    """Of the errors of sums of each column: their variance, how much of it is noise of count + noise, and
    what lasts while the column is released as 0; the deviation that all columns share, and the fourth
    cumulant of noise, (spans, columns)."""

    variance: Floats
    noise: Floats
    hidden: Floats
    common: Floats
    fourth: Floats


def errors_of_sums(
    releases: Releases, span_of: NDArray[np.int64], spans: int, used: Flags, groups: Sequence[Sequence[int]]
) -> Errors:
    """The errors of the sums of the ``used`` releases over spans and groups of columns.

    ``span_of``: the span of each release, from 0 up, ascending.
    """
    deviations, kurtosis = np.zeros((spans, len(groups))), np.zeros((spans, len(groups)))
    moments = _moments(releases, span_of, spans, used)
    assumed = _between_columns(releases, span_of, spans)
    for number, places in enumerate(groups):
        rho = learned(releases, places, assumed)
        noise, hidden = moments.noise[:, places], moments.hidden[:, places]
        rest = np.maximum(moments.variance[:, places] - noise - hidden, 0)
        alike = _between_noises(releases, places)
        variance = alike.variance * noise.sum(axis=1)
        variance += _of_a_sum(rest, rho) + _of_a_sum(hidden, assumed)
        variance += moments.common[:, places].sum(axis=1) ** 2
        deviations[:, number] = np.sqrt(variance)
        with np.errstate(invalid="ignore", divide="ignore"):
            kurtosis[:, number] = np.nan_to_num(
                alike.fourth * moments.fourth[:, places].sum(axis=1) / variance**2
            )
    return Errors(deviations, kurtosis)


def _of_a_sum(variances: Floats, rho: Floats) -> Floats:
    """The variance of the sum over columns, (spans,), of which any two have the correlation ``rho``."""
    own, together = variances.sum(axis=1), np.sqrt(variances).sum(axis=1) ** 2
    variance: Floats = (1 - rho) * own + rho * together
    return variance


def _moments(releases: Releases, span_of: NDArray[np.int64], spans: int, used: Flags) -> _Moments:
    shape = (spans, len(releases.columns))
    found = _Moments(*(np.zeros(shape) for _ in _Moments._fields))
    steady, bias = _steadiness(releases, span_of, spans), _bias(releases, span_of, spans)
    nearness = np.exp(-releases.interval / _range(releases.interval))
    for span, rows in _by_span(span_of, used):
        adding = _Adding(releases, steady[span], nearness)
        nested = _noise_in_blocks(releases, rows)
        for row in rows:
            if releases.parts[releases.part_of[row]].blocks is None:
                adding.add(int(row))
        adding.end_stretch()
        found.hidden[span] = adding.hidden * (adding.hidden + 2 * adding.lasting)
        found.variance[span] = adding.variance + adding.lasting**2 + found.hidden[span]
        found.common[span] = len(rows) * bias[span]
        found.variance[span] += nested.variance
        found.noise[span] = adding.noise + nested.variance
        found.fourth[span] = adding.fourth + nested.fourth
    return found


def _noise_in_blocks(releases: Releases, rows: NDArray[np.int64]) -> Noise:
    """Of the releases among these whose noise cancels in blocks."""
    some: dict[NestedBlocks, NDArray[np.int64]] = {}
    for number, part in enumerate(releases.parts):
        if part.blocks is not None:
            some[part.blocks] = releases.timestamps[rows[releases.part_of[rows] == number]]
    return noise_of(some)


def _between_noises(releases: Releases, places: Sequence[int]) -> Noise:
    """What noise of columns has in their sum, of what independent noise had: the most under any terms."""
    columns = len(releases.columns)
    found = [
        of_columns(part.rollups, columns, places) if part.rollups else Noise(1.0, 1.0)
        for part in releases.parts
    ]
    return Noise(max(one.variance for one in found), max(one.fourth for one in found))


def _by_span(span_of: NDArray[np.int64], used: Flags) -> Iterator[tuple[int, NDArray[np.int64]]]:
    rows = np.flatnonzero(used)
    for some in np.split(rows, np.flatnonzero(np.diff(span_of[rows])) + 1):
        if len(some):
            yield int(span_of[some[0]]), some


class _Adding:
    """The sum of the errors of a span so far, release by release; arrays of shape (columns,).

    ``variance``, ``noise`` and ``fourth`` are as in ``_Moments``, without ``lasting`` and ``hidden``: these
    are deviations of what never ends, of counts that are shown and of those that are released as 0.
    """

    def __init__(self, releases: Releases, steady: Floats, nearness: float) -> None:
        self._releases, self._steady, self._nearness = releases, steady, nearness
        nothing = np.zeros(len(releases.columns))
        self._stretch = self._near = self._repeated = nothing
        self._is_laplace = False
        self.variance = self.lasting = self.hidden = self.noise = self.fourth = nothing

    def add(self, row: int) -> None:
        releases = self._releases
        rule = _rule(releases, row)
        if releases.fresh[row]:
            self._stretch = self._stretch * rule.between
            self.end_stretch()
        new, shared = _parts(releases, row, rule)
        if rule.filters:
            empty = releases.counts[row] <= 0
            self.hidden = self.hidden + np.where(empty, shared, 0.0)
            shared = np.where(empty, 0.0, shared)
        self._near = self._near * self._nearness
        steady = self._steady if rule.unsteady else 1.0
        before = steady * self._stretch + (1 - steady) * self._near
        lasting = rule.lasting * steady
        self.variance = self.variance + new + (1 - lasting) * shared * (shared + 2 * before)
        self.lasting = self.lasting + np.sqrt(lasting) * shared
        self._stretch, self._near = self._stretch + shared, self._near + shared
        if rule is NOISY and (head := releases.heads[row]) >= 0:
            self._repeated = self._repeated + releases.errors[head]
            self._is_laplace = not np.isnan(releases.scales[head])

    def end_stretch(self) -> None:
        """The noise that was repeated is all that there is of it."""
        self.noise = self.noise + self._repeated**2
        if self._is_laplace:
            self.fourth = self.fourth + LAPLACE * self._repeated**4
        self._repeated = 0.0 * self._repeated


def _parts(releases: Releases, row: int, rule: Rule) -> tuple[Floats, Floats]:
    """The variance that is new at a timestamp, and the deviation that is shared with others."""
    squares = releases.errors[row] ** 2
    if rule.filters:
        poisson = (np.sqrt(1 + 4 * squares) - 1) / 2
        new = np.where(releases.counts[row] <= 0, poisson, np.minimum(releases.counts[row], squares))
    elif rule is NOISY and (head := releases.heads[row]) >= 0:
        new = np.maximum(squares - releases.errors[head] ** 2, 0) / 2
    else:
        new = np.zeros_like(squares)
    return new, np.sqrt(squares - new)


def _rule(releases: Releases, row: int) -> Rule:
    return RULES.get(releases.parts[releases.part_of[row]].mechanism, UNKNOWN)


def _range(interval: int) -> float:
    """How far the error of a season reaches, in milliseconds."""
    return _RANGE * season(interval)


def _steadiness(releases: Releases, span_of: NDArray[np.int64], spans: int) -> Floats:
    """How flat the releases of each span are, (spans, columns): 1 if they do not change, else less."""
    counts = releases.counts
    mean = _mean(counts, span_of, spans)
    variance = np.maximum(_mean(counts.astype(np.float64) ** 2, span_of, spans) - mean**2, 0)
    relative = variance / np.maximum(mean, _LEAST_MEAN) ** 2
    steady: Floats = 1 / (1 + FILTERED.unsteady**2 * relative)
    return steady


def _mean(values: NDArray[np.int64] | Floats, span_of: NDArray[np.int64], spans: int) -> Floats:
    """Over the releases of each span, of which each has some."""
    begins = np.searchsorted(span_of, np.arange(spans))
    sums = np.add.reduceat(values.astype(np.float64), begins, axis=0)
    mean: Floats = sums / np.diff(np.r_[begins, len(span_of)])[:, np.newaxis]
    return mean


def _bias(releases: Releases, span_of: NDArray[np.int64], spans: int) -> Floats:
    """How much too large counts may be on average because those below 0 were clipped, (spans, columns).

    max(c + Z, 0) is too large by scale / 2 * e^(-c / scale). Records say whether they were clipped. Earlier
    versions did not; of theirs, those of known noise were not, nor those of terms under which some release
    was negative.
    """
    clipped = np.array([_may_be_clipped(releases, number) for number in range(len(releases.parts))])
    concerned = clipped[releases.part_of, np.newaxis]
    scales = np.where(concerned, releases.errors / sqrt(2), 0.0)
    scale, mean = _mean(scales, span_of, spans), _mean(releases.counts, span_of, spans)
    with np.errstate(divide="ignore", invalid="ignore"):
        decay = np.exp(-np.maximum(mean - scale / 2, 0) / scale)
    return np.where(scale == 0, 0.0, scale / 2 * decay)


def _may_be_clipped(releases: Releases, number: int) -> bool:
    if releases.parts[number].blocks is not None:
        return False
    rows = releases.part_of == number
    known = ~np.isnan(releases.scales[rows])
    noisy = RULES.get(releases.parts[number].mechanism, UNKNOWN) is NOISY
    if not noisy or releases.parts[number].minimum is not None:
        return noisy
    if releases.parts[number].noise is not None:
        return False  # no version without ``minimum`` had other noise than Laplace
    return not known.any() and bool((releases.counts[rows] >= 0).all())


def learned(releases: Releases, places: Sequence[int], assumed: Floats) -> Floats:
    """The correlation of the columns of a group in each span, where ``assumed`` is what is known before."""
    rules = {RULES.get(part.mechanism, UNKNOWN) for part in releases.parts}
    if len(places) < 2 or len(rules) > 1:
        return assumed
    if rules == {NOISY}:
        return np.full_like(assumed, correlation(releases, places, NOISY.columns))
    if rules == {FILTERED}:
        return np.full_like(assumed, of_predictions(releases, places, FILTERED.columns))
    return assumed


def _between_columns(releases: Releases, span_of: NDArray[np.int64], spans: int) -> Floats:
    """The correlation between columns in each span: the largest of the rules that apply there."""
    rules = np.array([RULES.get(part.mechanism, UNKNOWN).columns for part in releases.parts])
    found = np.zeros(spans)
    np.maximum.at(found, span_of, rules[releases.part_of])
    return found
