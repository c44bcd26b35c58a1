"""What is kept of the newest releases of a stream, so that a page of them can be made at any time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.describe.drawn import how_drawn
from eventveil.model.topology import AnyStream, ReadingStream, Stream
from eventveil.read.following import assembled
from eventveil.read.health import Total, looked_at, total_of
from eventveil.read.problems import ReadingError
from eventveil.read.readings import Reading, reading_of
from eventveil.read.records import Record, decode
from eventveil.read.releases import Releases
from eventveil.read.status import ReleaseTerms, Status, status_from

#: Releases that are kept; of wide streams as few as have this many counts together.
LAST, _MOST_COUNTS = 48, 500_000
LEVEL = 0.95


class Row(NamedTuple):
    """A release of d ``columns``. ``start``: epoch ms. ``how``: in a word. Arrays (d,).

    The interval is NaN where it is not known. ``released``: which of the columns it has; None: all of them.
    """

    timestamp: int
    start: int
    fresh: bool
    how: str
    columns: tuple[str, ...]
    counts: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    released: NDArray[np.bool_] | None = None

    def has(self, column: int) -> bool:
        """Whether it has a column."""
        return self.released is None or bool(self.released[column])


def aligned(rows: Sequence[Row]) -> Sequence[Row]:
    """The same, all with the columns that any of them has: some may be found, or forgotten, in between."""
    places: dict[str, int] = {}
    for columns in dict.fromkeys(row.columns for row in rows):
        for one in columns:
            places.setdefault(one, len(places))
    names = tuple(places)
    return [row if row.columns == names else _spread(row, names, places) for row in rows]


def _spread(row: Row, names: tuple[str, ...], places: Mapping[str, int]) -> Row:
    at = np.array([places[one] for one in row.columns])
    counts, released = np.zeros(len(names), np.int64), np.zeros(len(names), bool)
    low, high = np.full((2, len(names)), np.nan)
    counts[at], low[at], high[at], released[at] = row.counts, row.low, row.high, True
    return row._replace(columns=names, counts=counts, low=low, high=high, released=released)


class Seen(NamedTuple):
    """A stream as its sink shows it. ``rows`` are in the order of time; ``unread``: what is left out."""

    newest: Record | None = None
    totals: tuple[Total, ...] = ()
    terms: tuple[ReleaseTerms, ...] = ()
    rows: tuple[Row, ...] = ()
    unread: str = ""

    def status(self, stream: Stream, now: int, first: int | None = None) -> Status:
        """At ``now``, epoch ms; ``first`` as in ``status_from``."""
        return status_from(stream, self.newest, self.totals, self.terms, now, first)


class Recent:
    """Takes the records of a sink in the order in which they were published."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        #: How many records of the sink are to be read at first.
        self.wanted = max(LAST, looked_at(stream.mechanism.window))
        self._kept = min(LAST, max(2, _MOST_COUNTS // max(1, stream.most_columns)))
        self._rows: dict[int, Row] = {}
        self._totals: deque[Total] = deque(maxlen=looked_at(stream.mechanism.window))
        self._terms: deque[ReleaseTerms] = deque(maxlen=looked_at(stream.mechanism.window))
        self._newest: Record | None = None
        self._unread: deque[tuple[int, str]] = deque(maxlen=self._kept)
        self._number = 0

    def take(self, record: bytes, place: str) -> None:
        """A committed record. One that is not a release of these columns is reported, not shown."""
        self._number += 1
        try:
            newest = decode(record, place)
            if newest.stream != self._stream.name:
                raise ReadingError(
                    place, f"a release of {newest.stream}", "Each stream has a sink of its own"
                )
            self._newest = newest
            self._terms.append(ReleaseTerms.of(newest))
            if (found := total_of(record)) is not None:
                self._totals.append(found[1])
            if (release := assembled(self._stream, record, place)) is not None:
                self._keep(_row(release))
        except ReadingError as error:
            self._unread.append((self._number, str(error)))

    def _keep(self, row: Row) -> None:
        self._rows.pop(row.timestamp, None)
        self._rows[row.timestamp] = row
        while len(self._rows) > self._kept:
            del self._rows[min(self._rows)]

    def seen(self) -> Seen:
        """As of now; it does not change any more."""
        rows = tuple(self._rows[one] for one in sorted(self._rows))
        unread = [text for number, text in self._unread if number > self._number - self._kept]
        told = f"{len(unread)} of the last {self._kept} records are not shown: {unread[-1]}" if unread else ""
        return Seen(self._newest, tuple(self._totals), tuple(self._terms), rows, told)


class SeenReadings(NamedTuple):
    """A stream of values as its sink shows it: the newest ``readings`` of each partition in turn.

    ``unread``: what is left out.
    """

    readings: tuple[Reading, ...] = ()
    unread: str = ""


class RecentReadings:
    """Takes the records of the sink of a stream of values in the order in which they were published."""

    wanted = LAST

    def __init__(self, stream: ReadingStream) -> None:
        self._stream = stream
        self._readings: dict[int, deque[Reading]] = {}
        self._unread = ""

    def take(self, record: bytes, place: str) -> None:
        """A committed record. One that is no reading of the stream is reported, not shown."""
        try:
            found = reading_of(self._stream, record, place)
            self._readings.setdefault(found.partition, deque(maxlen=LAST)).append(found)
        except ReadingError as error:
            self._unread = f"a record is not shown: {error}"

    def seen(self) -> SeenReadings:
        """As of now; it does not change any more."""
        newest = [self._readings[partition] for partition in sorted(self._readings)]
        in_turn = (one for some in zip_longest(*map(reversed, newest)) for one in some if one is not None)
        return SeenReadings(tuple(in_turn), self._unread)


def kept_of(stream: AnyStream) -> Recent | RecentReadings:
    """What keeps the newest records of a stream."""
    return RecentReadings(stream) if isinstance(stream, ReadingStream) else Recent(stream)


def _row(release: Releases) -> Row:
    low, high = release.bounds(LEVEL)
    return Row(
        int(release.timestamps[0]),
        int(release.starts[0].astype(np.int64)),
        bool(release.fresh[0]),
        how_drawn(release.mechanism, fresh=bool(release.fresh[0]), exhausted=any(release.exhausted)),
        release.columns,
        release.counts[0].astype(np.int64),
        low[0],
        high[0],
    )
