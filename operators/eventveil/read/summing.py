"""Sums over spans of time and groups of columns, with what they err by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.read import frames, intervals
from eventveil.read.calendar import Spans, spans
from eventveil.read.correlation import errors_of_sums
from eventveil.read.problems import ReadingError
from eventveil.read.releases import Form, Releases, Times, shown
from eventveil.read.tables import Table, is_wide, long_table, wide_table

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Sums:
    """Totals, or averages, of g groups of columns over S spans of time.

    ``what`` is total or average. ``starts`` and ``ends``: datetime64[ms] (S,), in UTC. ``values``, ``errors``
    (expected standard deviations), ``low`` and ``high`` (an interval): float64 (S, g); NaN where a span is
    not covered as a whole, or its error not known. ``timestamps``: int64 (S,), how many
    releases there are; ``complete``: bool (S,), whether they cover the span; ``without_partition``: int64
    (S,), how many of these releases leave out a partition (``Releases.missing``).
    """

    what: str
    stream: str
    groups: tuple[str, ...]
    starts: Times
    ends: Times
    values: Floats
    errors: Floats
    low: Floats
    high: Floats
    timestamps: NDArray[np.int64]
    complete: NDArray[np.bool_]
    without_partition: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        return shown(f"{len(self)} {self.what}s of {self.stream}", self.starts, self.ends, self.groups)

    def per_timestamp(self) -> Sums:
        """Averages over the timestamps of each span."""
        by = self.timestamps[:, np.newaxis]
        names = ("values", "errors", "low", "high")
        return replace(self, what="average", **{name: getattr(self, name) / by for name in names})

    def pieces(self, form: Form = "long", rows: int = 2**16) -> Iterator[Table]:
        """The table of ``to_pandas`` in pieces of about ``rows`` rows, each column an array."""
        step = max(1, rows // (len(self.groups) if form == "long" else 1))
        for at in range(0, len(self), step):
            yield self._table(slice(at, at + step), form)

    def to_pandas(self, form: Form = "long") -> Any:
        """A pandas.DataFrame: time, end, column, total or average, error, low, high, timestamps, complete,
        without_partition; or wide, with a column for each group instead of the five in the middle.

        Raises ReadingError if pandas is not installed.
        """
        return frames.pandas_frame(self._table(slice(None), form))

    def to_polars(self, form: Form = "long") -> Any:
        """The same as a polars.DataFrame. Raises ReadingError if polars is not installed."""
        return frames.polars_frame(self._table(slice(None), form))

    def _table(self, rows: slice, form: Form) -> Table:
        fixed: Table = {"time": self.starts[rows], "end": self.ends[rows]}
        about = {name: getattr(self, name)[rows] for name in ("timestamps", "complete", "without_partition")}
        if is_wide(form):
            return wide_table(fixed | about, self.groups, self.values[rows])
        values = {self.what: self.values, "error": self.errors, "low": self.low, "high": self.high}
        cells = {name: value[rows] for name, value in values.items()}
        return long_table(fixed, self.groups, cells, about)


def sums(
    releases: Releases,
    every: str | None,
    zone: str | None,
    groups: Mapping[str, list[int]],
    level: float,
    partial: bool,
) -> Sums:
    """See ``Releases.totals``; ``groups`` are places of columns. Raises ReadingError."""
    if not groups:
        raise ReadingError(releases.stream, "there is no group of columns", "Name one, or leave groups out")
    found = spans(releases.starts.astype(np.int64), releases.interval, every, zone)
    used = _used(releases, found, partial)
    values = _values(releases, found, used, groups)
    errors = errors_of_sums(releases, found.of, len(found.starts), used, [*groups.values()])
    covered, complete = _coverage(releases, found)
    if not partial:
        values[~complete], errors.deviations[~complete] = np.nan, np.nan
    half = intervals.quantile(level, errors.kurtosis) * errors.deviations
    without = np.array([bool(one) for one in releases.missing], np.int64)
    return Sums(
        "total",
        releases.stream,
        tuple(groups),
        found.starts.astype("datetime64[ms]"),
        found.ends.astype("datetime64[ms]"),
        values,
        errors.deviations,
        values - half,
        values + half,
        covered,
        complete,
        np.bincount(found.of, without, len(found.starts)).astype(np.int64),
    )


def _coverage(releases: Releases, found: Spans) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """How many timestamps each span has, and whether they cover it."""
    covered = np.bincount(found.of, minlength=len(found.starts))
    return covered, covered * releases.interval == found.ends - found.starts


def _values(
    releases: Releases, found: Spans, used: NDArray[np.bool_], groups: Mapping[str, list[int]]
) -> Floats:
    values = np.zeros((len(found.starts), len(groups)))
    for number, places in enumerate(groups.values()):
        grouped = releases.counts[:, places].sum(axis=1, dtype=np.float64) * used
        values[:, number] = np.bincount(found.of, grouped, len(found.starts))
    return values


def _used(releases: Releases, found: Spans, partial: bool) -> NDArray[np.bool_]:
    """Which releases add up to each span: all, or, where each is a sum over several timestamps, the last of
    each group of these, which do not overlap."""
    used = np.ones(len(releases), bool)
    slides = [part.span for part in releases.parts if part.span > 1 and not _has_history(releases)]
    if not slides:
        return used
    span = releases.span
    covered, complete = _coverage(releases, found)
    if partial or (covered[complete] % span).any():
        raise ReadingError(
            releases.stream,
            f"a release is a sum over {span} timestamps, and sums that overlap do not add up",
            f"Take whole spans of {span} timestamps or a multiple of that"
            f" ({span * releases.interval // 1000} s), not partial",
        )
    _, firsts = np.unique(found.of, return_index=True)
    places: NDArray[np.int64] = np.arange(len(releases)) - firsts[found.of]
    last: NDArray[np.bool_] = (places + 1) % span == 0
    return last


def _has_history(releases: Releases) -> bool:
    """Whether, although they have a span, counts are of one timestamp: at user level."""
    return any(releases.history)
