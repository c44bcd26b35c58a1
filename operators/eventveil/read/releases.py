"""The releases of one stream as arrays, aligned in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.read import estimates, frames, intervals, nesting
from eventveil.read.problems import ReadingError
from eventveil.read.tables import Table, is_wide, long_table, wide_table

if TYPE_CHECKING:
    from eventveil.read.summing import Sums

_SHOWN = 5
Groups = Mapping[str, Sequence[str]] | Callable[[str], str | None]
Form = Literal["long", "wide"]
Times = NDArray[np.datetime64]
Floats = NDArray[np.float64]


class Part(NamedTuple):
    """The terms of releases: kind of mechanism, epsilon as written, window and span in timestamps.

    ``minimum``: what counts below it were released as, so that totals are biased upwards; None where records
    do not say that. ``blocks``: in whose sums noise cancels, for kinds that have such; ``rollups``: numbers
    of columns for which it does. ``noise``: gaussian, or None for Laplace. Terms change within a stream where
    it was migrated, or its sink got another minimum.
    """

    mechanism: str
    epsilon: str
    window: int
    span: int
    minimum: int | None = None
    blocks: nesting.NestedBlocks | None = None
    noise: str | None = None
    rollups: tuple[int, ...] = ()

    def told(self, others: Sequence[Part]) -> str:
        """The kind, and whatever else is not the same in all of ``others``, in words."""
        named = zip(Part._fields, zip(*others, strict=True), self, strict=True)
        differing = [f"{name} {value}" for name, values, value in named if len({*map(str, values)}) > 1]
        return ", ".join([self.mechanism, *(one for one in differing if not one.startswith("mechanism "))])


def shown(what: str, starts: Times, ends: Times, columns: Sequence[str]) -> str:
    """Arrays over spans of time in a line, for a notebook: what they are, when, of which columns."""
    when = f" from {starts[0]}Z to {ends[-1]}Z" if len(starts) else ""
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return f"<{what}{when}: {', '.join(columns[:_SHOWN])}{more}>"


@dataclass(frozen=True, eq=False, repr=False)
class Releases:
    """T releases of d columns, in the order of time. A timestamp that is missing is a gap, not a zero.

    ``interval``: milliseconds of a timestamp. ``timestamps``: int64 (T,); ``starts``: datetime64[ms] (T,), in
    UTC. ``counts``: int64 (T, d); float64 if they were made non-negative, or columns were found or forgotten
    in between, which are NaN where they were not released. ``errors``: float64 (T, d), the expected standard
    deviation of each count around the true one, NaN where the record has none. ``scales``: float64 (T,), the
    scale of the noise of a release that is count + noise and nothing else, else NaN.
    ``fresh``: bool (T,). ``missing``: the partitions that do not count, by timestamp. ``parts`` are the terms
    that the stream had, and ``part_of``, int64 (T,), those of each timestamp. ``history``: at user level with
    a span, the counts of the window that ends at each timestamp. ``exhausted``: whether the horizon of each
    had passed; empty where that is not known. ``adjusted``: whether counts were made non-negative, so that
    sums of them would be biased.
    """

    stream: str
    columns: tuple[str, ...]
    interval: int
    timestamps: NDArray[np.int64]
    starts: Times
    counts: NDArray[np.int64] | Floats
    errors: Floats
    scales: Floats
    fresh: NDArray[np.bool_]
    missing: tuple[tuple[int, ...], ...]
    parts: tuple[Part, ...]
    part_of: NDArray[np.int64]
    history: tuple[tuple[int, ...], ...] = ()
    exhausted: tuple[bool, ...] = ()
    adjusted: bool = False

    def __len__(self) -> int:
        return len(self.timestamps)

    def __repr__(self) -> str:
        return shown(f"{len(self)} releases of {self.stream}", self.starts, self.ends, self.columns)

    @property
    def times(self) -> Times:
        """The first instant of each timestamp; the same as ``starts``."""
        return self.starts

    @property
    def ends(self) -> Times:
        """The first instant after each timestamp."""
        return self.starts + np.timedelta64(self.interval, "ms")

    @property
    def terms(self) -> Part:
        """The terms of all releases. Raises ReadingError if they changed."""
        if len(self.parts) > 1:
            told = "; ".join(f"{number}: {part.told(self.parts)}" for number, part in enumerate(self.parts))
            raise ReadingError(
                self.stream, f"its terms changed ({told})", "Choose one of them with `.part(number)`"
            )
        return self.parts[0]

    @property
    def mechanism(self) -> str:
        """The kind of the mechanism. Raises ReadingError if it changed."""
        return self.terms.mechanism

    @property
    def epsilon(self) -> str:
        """As the topology writes it. Raises ReadingError if the terms changed."""
        return self.terms.epsilon

    @property
    def window(self) -> int:
        """How many timestamps epsilon covers. Raises ReadingError if the terms changed."""
        return self.terms.window

    @property
    def span(self) -> int:
        """Over how many timestamps a release slides; 1 for most. Raises ReadingError if the terms changed."""
        return self.terms.span

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """The first and the last timestamp of each gap between the first release and the last."""
        at = np.flatnonzero(np.diff(self.timestamps) > 1)
        return tuple((int(self.timestamps[i]) + 1, int(self.timestamps[i + 1]) - 1) for i in at)

    @cached_property
    def heads(self) -> NDArray[np.int64]:
        """The place of the fresh release that each repeats or is predicted from; -1 if it is not there."""
        places = np.where(self.fresh, np.arange(len(self)), -1)
        heads: NDArray[np.int64] = np.maximum.accumulate(places)
        return heads

    def part(self, number: int) -> Releases:
        """The releases under one of the terms."""
        return self._rows(self.part_of == number)

    def between(self, start: Any = None, end: Any = None) -> Releases:
        """The releases of timestamps that lie in [start, end) as a whole.

        Both are what numpy.datetime64 takes, in UTC, or a datetime with a zone.
        """
        kept = np.ones(len(self), bool)
        if start is not None:
            kept &= self.starts >= instant(start)
        if end is not None:
            kept &= self.ends <= instant(end)
        return self._rows(kept)

    def select(self, columns: Sequence[str]) -> Releases:
        """Some columns, in that order. Raises ReadingError for one that there is not."""
        at = self._places(columns)
        apart = tuple(part._replace(rollups=()) for part in self.parts)  # which errs on the safe side
        return replace(
            self,
            columns=tuple(columns),
            counts=self.counts[:, at],
            errors=self.errors[:, at],
            history=(),
            parts=apart,
        )

    def bounds(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """The ends of an interval around each count, float64 (T, d); NaN where its error is not known."""
        heavy = np.where(np.isnan(self.scales) | ~self.fresh, 0.0, intervals.LAPLACE)
        for number, part in enumerate(self.parts):
            if part.blocks is not None:
                heavy[self.part_of == number] = nesting.kurtosis_of_one(part.blocks)
        half = intervals.quantile(level, heavy[:, np.newaxis]) * self.errors
        return self.counts - half, self.counts + half

    def non_negative(self) -> Releases:
        """The same with counts that are at least 0 and have the same sum in each release; float64.

        Free post-processing; ``eventveil.read.estimates`` says how, and what it does to small columns. There
        are no ``totals`` and ``averages`` of the result.
        """
        counts = self.counts.astype(float)
        released = ~np.isnan(counts)
        if released.all():
            return replace(self, counts=estimates.non_negative(counts), adjusted=True)
        known, which = np.unique(released, axis=0, return_inverse=True)
        for number, columns in enumerate(known):
            some = np.ix_(np.flatnonzero(which.reshape(-1) == number), np.flatnonzero(columns))
            counts[some] = estimates.non_negative(counts[some])
        return replace(self, counts=counts, adjusted=True)

    def totals(
        self,
        every: str | None = None,
        *,
        zone: str | None = None,
        groups: Groups | None = None,
        level: float = 0.95,
        partial: bool = False,
    ) -> Sums:
        """Sums over spans of time, such as "6h", "1d" or "1w", and over groups of columns, with intervals.

        A day begins at midnight in ``zone``, such as "Europe/Berlin", else in UTC; a week on Monday. None
        keeps timestamps apart, "all" takes them together. ``groups``: names and their columns, or a function
        from a column to the name of its group, None for none; without them columns are kept apart. A span
        that is not covered by releases as a whole has NaN, unless it may be ``partial``. Raises ReadingError
        if timestamps do not fit into spans, or counts were made non-negative.
        """
        from eventveil.read.summing import sums

        if self.adjusted:
            raise ReadingError(
                self.stream,
                "sums of counts that were made non-negative are biased (upwards in small columns), so"
                " their intervals would be wrong",
                "Add up the releases as they are, without non_negative()",
            )

        return sums(self, every, zone, self._groups(groups), level, partial)

    def averages(
        self,
        every: str | None = None,
        *,
        zone: str | None = None,
        groups: Groups | None = None,
        level: float = 0.95,
        partial: bool = False,
    ) -> Sums:
        """The same as ``totals``, divided by the number of timestamps: counts of a timestamp on average."""
        return self.totals(every, zone=zone, groups=groups, level=level, partial=partial).per_timestamp()

    def pieces(self, form: Form = "long", level: float = 0.95, rows: int = 2**16) -> Iterator[Table]:
        """The table of ``to_pandas`` in pieces of about ``rows`` rows, each column an array."""
        step = max(1, rows // (len(self.columns) if form == "long" else 1))
        for at in range(0, len(self), step):
            yield self._table(slice(at, at + step), form, level)

    def to_pandas(self, form: Form = "long", level: float = 0.95) -> Any:
        """A pandas.DataFrame: time, column, count, error, low, high, fresh; or wide, with a column each.

        Raises ReadingError if pandas is not installed.
        """
        return frames.pandas_frame(self._table(slice(None), form, level))

    def to_polars(self, form: Form = "long", level: float = 0.95) -> Any:
        """The same as a polars.DataFrame. Raises ReadingError if polars is not installed."""
        return frames.polars_frame(self._table(slice(None), form, level))

    def _table(self, rows: slice, form: Form, level: float) -> Table:
        fixed: Table = {"time": self.starts[rows]}
        if is_wide(form):
            return wide_table(fixed | {"fresh": self.fresh[rows]}, self.columns, self.counts[rows])
        low, high = self.bounds(level)
        values = {"count": self.counts, "error": self.errors, "low": low, "high": high}
        cells = {name: value[rows] for name, value in values.items()}
        return long_table(fixed, self.columns, cells, {"fresh": self.fresh[rows]})

    def _rows(self, kept: NDArray[np.bool_]) -> Releases:
        if not kept.any():
            raise ReadingError(self.stream, "no release is left", f"There are some {self._range()}")
        numbers = [*dict.fromkeys(self.part_of[kept].tolist())]
        at = np.flatnonzero(kept)
        return replace(
            self,
            timestamps=self.timestamps[kept],
            starts=self.starts[kept],
            counts=self.counts[kept],
            errors=self.errors[kept],
            scales=self.scales[kept],
            fresh=self.fresh[kept],
            missing=tuple(self.missing[i] for i in at),
            parts=tuple(self.parts[number] for number in numbers),
            part_of=np.searchsorted(numbers, self.part_of[kept])
            if numbers == sorted(numbers)
            else np.array([numbers.index(one) for one in self.part_of[kept].tolist()]),
            history=tuple(self.history[i] for i in at) if self.history else (),
            exhausted=tuple(self.exhausted[i] for i in at) if self.exhausted else (),
        )

    def _range(self) -> str:
        return f"from {self.starts[0]}Z to {self.ends[-1]}Z, of {len(self.parts)} terms"

    def _places(self, columns: Sequence[str]) -> list[int]:
        known = {column: at for at, column in enumerate(self.columns)}
        for column in columns:
            if column not in known:
                names = ", ".join(self.columns[:10]) + (", ..." if len(self.columns) > 10 else "")
                raise ReadingError(self.stream, f"it has no column {column}", f"Its columns: {names}")
        return [known[column] for column in columns]

    def _groups(self, groups: Groups | None) -> dict[str, list[int]]:
        """The places of the columns of each group. Raises ReadingError."""
        if groups is None:
            return {column: [at] for at, column in enumerate(self.columns)}
        if isinstance(groups, Mapping):
            return {str(name): self._unique(str(name), columns) for name, columns in groups.items()}
        found: dict[str, list[int]] = {}
        for at, column in enumerate(self.columns):
            if (name := groups(column)) is not None:
                found.setdefault(str(name), []).append(at)
        return found

    def _unique(self, name: str, columns: Sequence[str]) -> list[int]:
        if isinstance(columns, str):
            raise ReadingError(f"group {name}", f"its columns are a text, {columns}", "Give a list of names")
        at = self._places(columns)
        if len(set(at)) < len(at) or not at:
            what = "a column twice" if at else "no column"
            raise ReadingError(f"group {name}", f"it has {what}", "Name every column once")
        return at


def instant(value: Any) -> np.datetime64:
    """A moment in UTC, in milliseconds, of a text, a datetime or a numpy.datetime64.

    Raises ReadingError.
    """
    from datetime import UTC, datetime

    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    try:
        return np.datetime64(value.removesuffix("Z") if isinstance(value, str) else value, "ms")
    except (ValueError, TypeError) as error:
        raise ReadingError(
            "a time", f"{value!r} is none ({error})", "Write it like 2026-01-31T12:00:00Z"
        ) from None
