"""From records, in any order and perhaps twice, to the releases of one stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.formats.another_file import other_columns
from eventveil.model.timeline import format_rfc3339, parse_rfc3339
from eventveil.read.nesting import NestedBlocks, nested
from eventveil.read.problems import ReadingError
from eventveil.read.records import Record, decode
from eventveil.read.releases import Part, Releases
from eventveil.topology.columns import columns_digest

_DISTRIBUTION = "distribution"


class _Row(NamedTuple):
    """A release as arrays; ``scale``: of its noise, NaN where it is not known exactly."""

    start: int
    counts: NDArray[np.int64]
    errors: NDArray[np.float64]
    scale: float
    fresh: bool
    missing: tuple[int, ...]
    part: Part
    history: tuple[int, ...]
    columns: tuple[str, ...]
    exhausted: bool


class Assembly:
    """Takes records one by one and keeps those of one stream and range of time.

    ``stream``: its name; None takes the only one that there is. ``columns``: the names of the columns, needed
    where records hold arrays. ``start`` and ``end``: epoch milliseconds; a timestamp is kept if it lies
    between them as a whole. Every method raises ReadingError.
    """

    def __init__(
        self,
        source: str,
        stream: str | None = None,
        columns: Sequence[str] | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        self._source, self._stream, self._start, self._end = source, stream, start, end
        self._columns = None if columns is None else tuple(columns)
        self._given = columns is not None
        self._digest = None if columns is None else columns_digest(columns)
        self._rows: dict[int, _Row] = {}
        self._seen: dict[int, tuple[bytes, str]] = {}
        self._streams: dict[str, None] = {}
        #: Equal columns are one object.
        self._same: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._interval = self._origin = 0

    def add(self, value: bytes | None, place: str) -> None:
        """Take the bytes of a record; ``place`` is where they were found."""
        record = decode(value, place)
        self._streams[record.stream] = None
        if record.stream != (self._stream or next(iter(self._streams))):
            return
        if self._is_known(value, record, place):
            return
        start, end = _instant(record.start, "start", place), _instant(record.end, "end", place)
        self._check_times(record, start, end, place)
        if record.phase == _DISTRIBUTION or not self._is_wanted(start, end):
            return
        self._rows[record.timestamp] = self._row(record, start, place)

    def releases(self) -> Releases:
        """What was taken, in the order of time."""
        if self._stream is None and len(self._streams) > 1:
            names = ", ".join(self._streams)
            raise ReadingError(self._source, f"it holds the streams {names}", "Name one as `stream`")
        if not self._rows:
            raise ReadingError(self._source, self._nothing(), self._where())
        timestamps = sorted(self._rows)
        rows = [self._rows[one] for one in timestamps]
        parts = tuple(dict.fromkeys(row.part for row in rows))
        columns = _all_columns([row.columns for row in rows])
        places = [_places(row.columns, columns) for row in rows]
        return Releases(
            stream=self._stream or next(iter(self._streams)),
            columns=columns,
            interval=self._interval,
            timestamps=np.array(timestamps, np.int64),
            starts=np.array([row.start for row in rows], "datetime64[ms]"),
            counts=_aligned([row.counts for row in rows], places, len(columns)),
            errors=_aligned([row.errors for row in rows], places, len(columns)),
            scales=np.array([row.scale for row in rows]),
            fresh=np.array([row.fresh for row in rows], bool),
            missing=tuple(row.missing for row in rows),
            parts=parts,
            part_of=np.array([parts.index(row.part) for row in rows]),
            history=tuple(row.history for row in rows),
            exhausted=tuple(row.exhausted for row in rows),
        )

    def _nothing(self) -> str:
        if self._stream is not None and self._stream not in self._streams:
            return f"there is no release of {self._stream}"
        if self._seen:
            return "no release lies in that range, or none has sums yet"
        return "there is no release"

    def _where(self) -> str:
        if self._streams:
            streams = f"stream{'s' * (len(self._streams) != 1)} {', '.join(self._streams)}"
            return f"It has {len(self._seen)} of {streams}"
        return "A sink gets its first one when the first timestamp is over"

    def _is_known(self, value: bytes | None, record: Record, place: str) -> bool:
        """Whether the same bytes were there before. Two different releases of a timestamp are refused."""
        found = sha256(value or b"").digest()
        known, where = self._seen.setdefault(record.timestamp, (found, place))
        if where == place:
            return False
        if known != found:
            raise ReadingError(
                place,
                f"timestamp {record.timestamp} of {record.stream} has another release at {where}",
                "A sink has one release of each timestamp: `eventveil ledger` says what was charged for."
                " Files of two replays, or of two generations, are read one by one",
            )
        return True

    def _check_times(self, record: Record, start: int, end: int, place: str) -> None:
        """All timestamps are equally long and lie side by side."""
        if end <= start:
            raise ReadingError(place, f"end {record.end} is not after start {record.start}", _DAMAGED)
        if not self._interval:
            self._interval, self._origin = end - start, start - (record.timestamp - 1) * (end - start)
        if end - start != self._interval or start != self._origin + (record.timestamp - 1) * self._interval:
            expected = format_rfc3339(self._origin + (record.timestamp - 1) * self._interval)
            raise ReadingError(
                place,
                f"timestamp {record.timestamp} lies at {record.start} to {record.end}, not at "
                f"{expected} like those before",
                "Records of streams with other timelines cannot be read together; take them apart",
            )

    def _is_wanted(self, start: int, end: int) -> bool:
        return (self._start is None or start >= self._start) and (self._end is None or end <= self._end)

    def _row(self, record: Record, start: int, place: str) -> _Row:
        counts = self._counts(record, place)
        columns = tuple(record.counts) if isinstance(record.counts, dict) else self._columns or ()
        columns = self._same.setdefault(columns, columns)
        return _Row(
            start,
            counts,
            self._errors(record, columns, place),
            np.nan if record.noise_scale is None else record.noise_scale,
            record.fresh,
            tuple(record.missing or ()),
            self._part(record, place),
            tuple(record.history or ()),
            columns,
            record.exhausted,
        )

    def _part(self, record: Record, place: str) -> Part:
        terms = Part(
            record.mechanism, record.epsilon, record.window, record.span, record.minimum, noise=record.noise
        )
        if record.rollups:
            rollups = tuple(record.rollups)
            if not nested(rollups) or len(record.counts) % rollups[-1]:
                raise ReadingError(place, f"rollups of {rollups} are not nested in the columns", _DAMAGED)
            terms = terms._replace(rollups=rollups)
        if record.blocks is None:
            return terms
        lengths = tuple(record.blocks.lengths)
        if not nested(lengths) or record.blocks.at > lengths[-1]:
            raise ReadingError(place, f"blocks of {lengths} are not nested, or at is none of them", _DAMAGED)
        begin = (record.timestamp - record.blocks.at) % lengths[-1] + 1
        is_normal = record.noise == "gaussian"
        return terms._replace(blocks=NestedBlocks(lengths, begin, record.blocks.scale, is_normal))

    def _counts(self, record: Record, place: str) -> NDArray[np.int64]:
        if isinstance(record.counts, dict):
            self._check_columns(tuple(record.counts), place, found=record.discovery is not None)
            return np.array([*record.counts.values()], np.int64)
        if self._columns is None:
            raise ReadingError(
                place,
                f"counts is an array of {len(record.counts)} numbers without names",
                "Give the names in their order as `columns`, or read with the topology",
            )
        if record.columns_digest is None:
            self._digest = self._digest or columns_digest(self._columns)
        elif record.columns_digest != (self._digest or columns_digest(self._columns)):
            raise ReadingError(
                place, other_columns(record.counts, record.columns_digest, self._columns), _WHICH_FILE
            )
        if len(record.counts) != len(self._columns):
            raise ReadingError(
                place, f"counts has {len(record.counts)} numbers for {len(self._columns)} columns", _DAMAGED
            )
        return np.array(record.counts, np.int64)

    def _check_columns(self, columns: tuple[str, ...], place: str, *, found: bool) -> None:
        """``found``: columns are found in the data, and may be forgotten, all but the first."""
        if self._columns is None:
            self._columns, self._digest = columns, columns_digest(columns)
        if found and columns[:1] == self._columns[:1]:
            return
        if columns != self._columns and self._given:
            told = other_columns(dict.fromkeys(columns), None, self._columns)
            raise ReadingError(place, told, _WHICH_FILE)
        if columns != self._columns:
            other = sorted(set(columns) ^ set(self._columns)) or ["another order"]
            raise ReadingError(
                place, f"counts has other columns than those before: {', '.join(other[:5])}", _DAMAGED
            )

    def _errors(self, record: Record, columns: tuple[str, ...], place: str) -> NDArray[np.float64]:
        error, size = record.error, len(record.counts)
        if isinstance(error, Mapping):
            if isinstance(record.counts, dict) and error.keys() != record.counts.keys():
                raise ReadingError(place, "error has other columns than counts", _DAMAGED)
            return np.array([error[column] for column in columns])
        if isinstance(error, list):
            if len(error) != size:
                raise ReadingError(place, f"error has {len(error)} numbers for {size} columns", _DAMAGED)
            return np.array(error, float)
        return np.full(size, np.nan if error is None else error)


def _all_columns(rows: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Those of any of the rows, each where it first came. Columns that are found later come later."""
    return tuple(dict.fromkeys(one for columns in dict.fromkeys(rows) for one in columns))


def _places(own: tuple[str, ...], columns: tuple[str, ...]) -> NDArray[np.int64] | None:
    """Where the columns of a row are among all of them; None: they are the same."""
    if own == columns:
        return None
    number = {one: at for at, one in enumerate(columns)}
    return np.array([number[one] for one in own], np.int64)


def _aligned(
    rows: Sequence[NDArray[Any]], places: Sequence[NDArray[np.int64] | None], columns: int
) -> NDArray[Any]:
    """The rows as one array, with NaN where a row has no such column."""
    if all(at is None for at in places):
        return np.array(rows)
    aligned = np.full((len(rows), columns), np.nan)
    for row, at, own in zip(aligned, places, rows, strict=True):
        row[slice(None) if at is None else at] = own
    return aligned


_WHICH_FILE = (
    "Is it the file that the workers run? Names that are given as `columns` have to be those of the releases"
)
_DAMAGED = "The record is damaged, or of another stream of that name: `eventveil ledger` audits a sink"


def _instant(text: str, field: str, place: str) -> int:
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise ReadingError(place, f"{field}: {text!r} is {error}", _DAMAGED) from None
