"""The per-timestamp table: partial counts of the source partitions, merged once all of them are there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.counter import Partial
from eventveil.decoding.rules import LARGEST_COUNT
from eventveil.model.errors import StateRefused

_FOREIGN = (
    "Find out who else writes to this topic and revoke the right. Then delete the topic, create it with "
    "`eventveil topics TOPOLOGY --create`, and have what was not released counted again with `eventveil "
    "migrate TOPOLOGY --apply`"
)
#: A run of empty partials spans at most this many offsets: what a successor may have to read again.
_RUN_OFFSETS = 10_000


@dataclass(slots=True)
class _EmptyRun:
    """Empty partials of the timestamps ``first`` to ``last``; none was read from below ``offset``."""

    first: int
    last: int
    offset: int


class _Sum:
    """Counts of public columns, added up."""

    def __init__(self, columns: int) -> None:
        self._counts = np.zeros(columns, dtype=np.int64)

    def add(self, partial: Partial) -> None:
        """Add a partial that was checked."""
        self._counts[partial.columns] += partial.counts

    def taken(self) -> Merged:
        """What was added up, none above LARGEST_COUNT; it begins anew."""
        counts, self._counts = np.minimum(self._counts, LARGEST_COUNT), np.zeros_like(self._counts)
        return Merged(counts)


class _NamedSum:
    """Counts of columns that are found in the data, by their names, added up."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, partial: Partial) -> None:
        """Add a partial that was checked."""
        for name, count in zip(partial.names, partial.counts.tolist(), strict=True):
            self._counts[name] = self._counts.get(name, 0) + count

    def taken(self) -> Merged:
        """What was added up; it begins anew."""
        counts, self._counts = self._counts, {}
        return Merged(_NOTHING, counts)


@dataclass(frozen=True, slots=True)
class Merged:
    """The counts of a timestamp: int64 of shape (columns,), or by name if columns are found in the data."""

    counts: NDArray[np.int64]
    named: Mapping[str, int] = field(default_factory=dict)


_NOTHING = np.zeros(0, np.int64)


class _Pieces:
    """Parts of one partial that are here, some still missing. No record holds a line feed."""

    def __init__(self, of: int) -> None:
        self.of = of
        self._here: dict[int, _Piece] = {}

    def add(self, partial: Partial, value: bytes, offset: int) -> bool:
        """Keep a part, a second time too; whether it is the same as the one that is here, if one is."""
        piece = _Piece(value, offset, partial.names[0], partial.names[-1])
        return self._here.setdefault(partial.piece, piece).value == value

    @property
    def whole(self) -> bytes | None:
        """The records one after the other, None as long as one is missing."""
        if len(self._here) < self.of:
            return None
        return _BETWEEN.join(one.value for one in self._in_order)

    @property
    def ascending(self) -> bool:
        """Whether no name of a part is in a later one too, or after its names."""
        return all(one.last < other.first for one, other in pairwise(self._in_order))

    @property
    def first_offset(self) -> int:
        """The lowest offset of a part."""
        return min(one.offset for one in self._here.values())

    @property
    def _in_order(self) -> list[_Piece]:
        return [self._here[one] for one in sorted(self._here)]


@dataclass(frozen=True, slots=True)
class _Piece:
    """The record of a part of a partial, and the first and the last of its names."""

    value: bytes
    offset: int
    first: str
    last: str


#: Stands between the records of parts.
_BETWEEN = b"\n"


class _Reports:
    """What one source partition has reported of the timestamps that are not taken yet.

    After downtime, or in a replay, one partition may be millions of timestamps ahead of another, most of
    them empty: consecutive empty ones cost nothing.
    """

    __slots__ = ("_counts", "_empty")

    def __init__(self) -> None:
        self._counts: dict[int, tuple[bytes, int]] = {}
        self._empty: deque[_EmptyRun] = deque()  # in order of time

    def find(self, timestamp: int) -> bytes | None:
        """The record of a timestamp, empty bytes for an empty partial, None if there is none."""
        if timestamp in self._counts:
            return self._counts[timestamp][0]
        if not self._empty or timestamp > self._empty[-1].last:
            return None
        return b"" if any(run.first <= timestamp <= run.last for run in self._empty) else None

    def add(self, timestamp: int, value: bytes, offset: int) -> None:
        """Keep the record of a timestamp that has none, empty bytes for an empty partial."""
        if value:
            self._counts[timestamp] = value, offset
            return
        last = self._empty[-1] if self._empty else None
        if last is not None and timestamp == last.last + 1 and offset - last.offset < _RUN_OFFSETS:
            last.last = timestamp
            return
        self._empty.append(_EmptyRun(timestamp, timestamp, offset))
        if last is not None and timestamp < last.first:
            self._empty = deque(sorted(self._empty, key=lambda run: run.first))

    def has(self, first: int) -> bool:
        """Whether there is a record of ``first``, before which there is none."""
        return first in self._counts or bool(self._empty and self._empty[0].first == first)

    def take(self, first: int) -> bytes:
        """Remove and return the record of ``first``, before which there is none."""
        if first in self._counts:
            return self._counts.pop(first)[0]
        run = self._empty[0]
        run.first += 1
        if run.first > run.last:
            self._empty.popleft()
        return b""

    @property
    def first(self) -> int | None:
        """The first timestamp of which there is a record, None if there is none."""
        return min([*self._counts, *(run.first for run in self._empty)], default=None)

    @property
    def counts(self) -> int:
        """How many records are here that are not empty."""
        return len(self._counts)

    @property
    def first_offset(self) -> int | None:
        """An offset below which nothing here was read, the lowest up to a run; None if nothing is here."""
        offsets = [run.offset for run in self._empty]
        # Records come in order of their offsets, so the oldest has the lowest.
        offsets += [offset for _, offset in list(self._counts.values())[:1]]
        return min(offsets, default=None)


class Combiner:
    """Collects the partials of one stream from ``partitions`` partitions, timestamp ``next`` onwards.

    A partition reports its timestamps in order. ``missing`` has the first and the last of those that were
    taken without it, by partition, as far as its partials have not come since. ``given_up`` are partitions
    with the first and last timestamp that are going to be taken without them.
    """

    def __init__(
        self,
        stream: str,
        columns: int,
        partitions: int,
        instance: str,
        next_timestamp: int,
        missing: Mapping[int, tuple[int, int]] | None = None,
        given_up: Iterable[tuple[int, int, int]] = (),
        *,
        named: bool = False,
    ) -> None:
        """``named``: columns are found in the data, and partials have their names."""
        self._stream = stream
        self._columns, self._named = columns, named
        #: Partials of which some pieces are here, by timestamp and partition.
        self._pieces: dict[tuple[int, int], _Pieces] = {}
        self._instance = instance
        #: The timestamp that is taken next.
        self.next = next_timestamp
        self._reports = [_Reports() for _ in range(partitions)]
        # Of the next timestamp: what has been added up as it came, and from which partitions.
        self._sum: _Sum | _NamedSum = _NamedSum() if named else _Sum(columns)
        self._added: set[int] = set()
        self._given_up = {*given_up}
        self._on_hold: dict[int, int] = {}
        self.missing = dict(missing or {})
        #: How many partials timestamps were taken without, whether they came or not: that depends on data.
        self.discarded = 0

    def add(self, partial: Partial, value: bytes, offset: int) -> None:
        """Keep a partial (``value`` is its record, at ``offset`` of the partials topic).

        Offsets must not fall from call to call. One of a timestamp that was taken is passed over, and counted
        if it was taken without this partition; the same partial a second time is passed over, too. Raises
        StateRefused if the partial is foreign, malformed or contradicts one that was committed before.
        """
        self._check(partial)
        if partial.timestamp < self.next:
            self._pass_over(partial)
            return
        reports, value = self._reports[partial.partition], value if partial.columns.size else b""
        known = reports.find(partial.timestamp)
        if partial.of > 1:
            self._add_piece(partial, value, offset, known)
        elif known is None:
            if (partial.timestamp, partial.partition) in self._pieces:
                raise self._two(partial)
            reports.add(partial.timestamp, value, offset)
            if partial.timestamp == self.next:
                self._add_up(partial.partition, [partial] if value else [])
        elif known != value:
            raise self._two(partial)

    def _add_piece(self, partial: Partial, value: bytes, offset: int, known: bytes | None) -> None:
        """Keep a part of a partial; it is one when all of them are here."""
        place = partial.timestamp, partial.partition
        if known is not None:
            whole = known.split(_BETWEEN)
            if len(whole) != partial.of or whole[partial.piece] != value:
                raise self._two(partial)
            return
        pieces = self._pieces.setdefault(place, _Pieces(partial.of))
        if pieces.of != partial.of or not pieces.add(partial, value, offset):
            raise self._two(partial)
        if not pieces.ascending:
            raise self._malformed(partial)
        together = pieces.whole
        if together is None:
            return
        del self._pieces[place]
        self._reports[partial.partition].add(partial.timestamp, together, pieces.first_offset)
        if partial.timestamp == self.next:
            self._add_up(partial.partition, self._parts(together))

    def _two(self, partial: Partial) -> StateRefused:
        return StateRefused(
            self._place(partial),
            "two different partial counts were committed",
            "A second application with this name may be running; find it before you start again",
        )

    def _parts(self, value: bytes) -> Iterator[Partial]:
        """The partials of the records of a timestamp, none of an empty one."""
        for piece in value.split(_BETWEEN) if value else ():
            yield Partial.decode(piece, self._stream)

    def _add_up(self, partition: int, parts: Iterable[Partial]) -> None:
        for one in parts:
            self._sum.add(one)
        self._added.add(partition)

    def _pass_over(self, partial: Partial) -> None:
        first, last = self.missing.get(partial.partition, (0, -1))
        if first <= partial.timestamp <= last:
            self.missing[partial.partition] = (partial.timestamp + 1, last)
            if partial.timestamp == last:
                del self.missing[partial.partition]

    def _malformed(self, partial: Partial) -> StateRefused:
        return StateRefused(self._place(partial), "its columns or counts are malformed", _FOREIGN)

    def _check(self, partial: Partial) -> None:
        if partial.instance != self._instance:
            raise StateRefused(
                self._place(partial), "it was counted for another instance of the stream", _FOREIGN
            )
        partitions = len(self._reports)
        if not 0 <= partial.partition < partitions:
            raise StateRefused(
                self._place(partial), f"the source is recorded with {partitions} partitions", _FOREIGN
            )
        columns, counts = partial.columns, partial.counts
        well_formed = (
            columns.ndim == 1
            and columns.shape == counts.shape
            and (
                columns.size == 0
                or bool(
                    (counts > 0).all()
                    and (np.diff(columns) > 0).all()
                    and columns[0] >= 0
                    and (columns[-1] < self._columns or self._named)
                )
            )
            and self._well_named(partial)
        )
        if not well_formed:
            raise self._malformed(partial)

    def _well_named(self, partial: Partial) -> bool:
        names, pieces = partial.names, 0 <= partial.piece < partial.of
        if not self._named:
            return not names and pieces and partial.of == 1
        ascending = all(one < other for one, other in pairwise(names))
        filled = all(names[:1]) and (partial.of == 1 or bool(names))
        return len(names) == len(partial.columns) and ascending and filled and pieces

    def _place(self, partial: Partial) -> str:
        return (
            f"partials of stream {self._stream}, timestamp {partial.timestamp}, partition {partial.partition}"
        )

    def give_up(self, partition: int, first: int, last: int) -> bool:
        """Take the timestamps from ``first`` to ``last`` without this partition; whether that is news.

        Also where its partial is there, or comes before they are taken: whether it does depends on data.
        """
        first = max(first, self.next)
        if first > last:
            return False
        touching = {
            one
            for one in self._given_up
            if one[0] == partition and one[1] <= last + 1 and first <= one[2] + 1
        }
        spans = [(first, last), *((begin, end) for _, begin, end in touching)]
        whole = (partition, min(begin for begin, _ in spans), max(end for _, end in spans))
        news = whole not in self._given_up
        self._given_up = self._given_up - touching | {whole}
        return news

    def hold(self, partitions: Mapping[int, int]) -> None:
        """Take no timestamp from the given one of a partition on before it is told again whether to."""
        self._on_hold = dict(partitions)

    @property
    def given_up(self) -> tuple[tuple[int, int, int], ...]:
        """Partitions with the first and last timestamp, from the next on, that go without them."""
        return tuple(sorted(one for one in self._given_up if one[2] >= self.next))

    @property
    def left_out(self) -> list[int]:
        """The partitions that the next timestamp goes without, ascending."""
        return sorted({one for one, first, last in self._given_up if first <= self.next <= last})

    def complete(self) -> bool:
        """Whether every partition has reported on the next timestamp and none is on hold, or was given up."""
        left_out = self.left_out
        return all(
            partition in left_out
            or (reports.has(self.next) and self._on_hold.get(partition, self.next + 1) > self.next)
            for partition, reports in enumerate(self._reports)
        )

    def lacks_next(self) -> bool:
        """Whether a partition has reported a later timestamp and not the next one, which never comes then.

        One that was given up is not needed.
        """
        firsts = ((partition, reports.first) for partition, reports in enumerate(self._reports))
        later = {partition for partition, first in firsts if first is not None and first > self.next}
        some = {partition for timestamp, partition in self._pieces if timestamp == self.next}
        return not later <= {*some, *self.left_out}

    def take(self) -> Merged:
        """The merged counts of the next timestamp; then the following is next.

        None is above LARGEST_COUNT. An engine's can add up to more, and no mechanism takes them; what is cut
        off never raises the sensitivity, because it brings two sums no further apart.
        A partition that was given up contributes nothing, now or later.
        """
        left_out = self.left_out
        if not self._added.isdisjoint(left_out):
            self._sum.taken()
            self._added = set()
        for partition, reports in enumerate(self._reports):
            reported = reports.has(self.next)
            value = reports.take(self.next) if reported else b""
            if partition in left_out:
                self._leave_out(partition, reported)
            elif value and partition not in self._added:
                self._add_up(partition, self._parts(value))
        merged, self._added = self._sum.taken(), set()
        if self._pieces:
            # Of a partition that was given up: what is still to come of them is passed over.
            self._pieces = {place: one for place, one in self._pieces.items() if place[0] > self.next}
        self.next += 1
        self._given_up = {*self.given_up}
        return merged

    def _leave_out(self, partition: int, reported: bool) -> None:
        self.discarded += 1
        if not reported:
            first, _ = self.missing.get(partition, (self.next, 0))
            self.missing[partition] = (first, self.next)

    @property
    def waiting(self) -> int:
        """How many partials are held, empty ones left out."""
        return sum(reports.counts for reports in self._reports)

    @property
    def first_offset(self) -> int | None:
        """An offset of the partials topic below which nothing is needed, None if nothing is held.

        It may lie _RUN_OFFSETS below the first one that is needed.
        """
        offsets = [reports.first_offset for reports in self._reports]
        offsets += [pieces.first_offset for pieces in self._pieces.values()]
        return min((offset for offset in offsets if offset is not None), default=None)
