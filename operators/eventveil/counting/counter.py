"""Counting one stream in one source partition: place, bound, count, and close timestamp by timestamp.

A pure state machine. Its durable state is small: the next timestamp to close, the resume offset (the first
record that an open timestamp needs), the judged offset (records below it have had their verdict) and, in a
source without append times, the boundaries that verdicts rest on. Counts of open timestamps live in memory
and are rebuilt by reading again from the resume offset, silently below the judged offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.counting.assigner import AssignedRows, Assigner, Placed, Rows
from eventveil.counting.boundaries import Boundaries, Boundary
from eventveil.counting.bounding_by_column import ColumnContributions
from eventveil.counting.bounding_by_origin import EarliestContributions
from eventveil.counting.rejections import Rejections
from eventveil.counting.users import Contributions, Users
from eventveil.decoding.bulk import FILTERED, IGNORED
from eventveil.decoding.rules import Reason
from eventveil.model.durable import Durable, Natural, Positive
from eventveil.model.errors import StateRefused
from eventveil.model.partitioners import Growth
from eventveil.model.records import Mark
from eventveil.model.topology import Stream
from eventveil.process import kernel
from eventveil.process.memory import Held

#: Of re-keyed events, texts beyond these and twice the events that count are looked through.
_FORGETS = 1024
_NONE = np.zeros(0, dtype=np.int64)
#: About how many bytes a piece of a partial has at most; every cluster takes records of twice as many.
_PIECE = 4_000_000
#: The bytes of a character in JSON at most, and those around a name: quotes, commas, and its count.
_CHARACTER, _AROUND = 6, 24
#: An event of a pan-private stream for whose timestamp there is no budget, or one that was given up.
DISCARDED = "discarded"
#: What can become of a record: it counts, is left out by a declared rule, or is a dead letter.
OUTCOMES = ("counted", "bounded", "ignored", "filtered", DISCARDED, *(reason.value for reason in Reason))


class CounterState(Durable, frozen=True):
    """What the counting changelog holds for one stream and source partition.

    ``instance`` is the identity that the stream got at its genesis. ``first`` is the first timestamp of the
    stream, ``next`` the next one to close. ``resume`` and ``judged`` are offsets of the source partition.
    ``boundaries`` are those that a successor needs; there are none where the broker tells append times.
    ``passed`` are the times of the last marks of re-keyed events, one per partition of the topic of events
    (``eventveil.tasks.repartition``).
    """

    instance: str
    partition: Natural
    first: Positive
    next: Positive
    resume: Natural
    judged: Natural
    passed: tuple[Natural, ...] = ()
    boundaries: tuple[Boundary, ...] = ()

    def waiting_for(self, partitions: int) -> CounterState:
        """The state that waits for marks of this many partitions or more; further ones have left none yet."""
        return self.replace(passed=(*self.passed, *(0,) * (partitions - len(self.passed))))

    def judging_from(self, offset: int, *, keeps_marks: bool) -> CounterState:
        """The state from which records are judged again from ``offset`` on, if it resumes behind it.

        ``resume`` depends on which events count. So where a record may be judged in another way than before,
        all that can belong to timestamps to come are judged again: else one that did not count before would
        count only if an event of somebody else lies before it. What was judged gets no second dead letter.
        A watermark is met again with the records; marks of re-keyed events hold as they did.
        """
        if self.resume <= offset:
            return self
        return self.replace(resume=offset, passed=self.passed if keeps_marks else ())

    def contradiction(self) -> str | None:
        """See ``Durable.contradiction``."""
        ascending = all(
            one.last < other.last and one.offset <= other.offset for one, other in pairwise(self.boundaries)
        )
        sound = self.first <= self.next and self.resume <= self.judged and ascending
        return None if sound else "its timestamps or offsets contradict each other"


@dataclass(frozen=True, slots=True)
class Partial:
    """The counts of one timestamp in one source partition, sparse: ``columns`` ascending, ``counts`` > 0.

    ``boundary`` is that of the timestamp, None where the broker tells append times. Where columns are found
    in the data, ``names`` are those that were counted, ascending, and ``columns`` count them from 0 on; of
    many names a record has some (``pieces``): it is ``piece`` (from 0 on) of ``of``.
    """

    stream: str
    timestamp: int
    partition: int
    instance: str
    columns: NDArray[np.int64]
    counts: NDArray[np.int64]
    boundary: int | None = None
    names: tuple[str, ...] = ()
    piece: int = 0
    of: int = 1

    def pieces(self) -> Iterator[Partial]:
        """The partial, or parts of it that fit into records."""
        sizes = np.cumsum([_CHARACTER * len(one) + _AROUND for one in self.names])
        if not self.names or sizes[-1] <= _PIECE:
            yield self
            return
        ends = sizes // _PIECE
        cuts = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(self.names)]
        for piece, (begin, end) in enumerate(pairwise(cuts)):
            yield replace(
                self,
                columns=np.arange(end - begin),
                counts=self.counts[begin:end],
                names=self.names[begin:end],
                piece=piece,
                of=len(cuts) - 1,
            )

    def encode(self) -> bytes:
        """JSON bytes, equal for equal partials."""
        boundary: dict[str, Any] = {} if self.boundary is None else {"boundary": self.boundary}
        if self.names:
            boundary["names"] = self.names
        if self.of > 1:
            boundary |= {"piece": self.piece, "of": self.of}
        return orjson.dumps(
            {
                "stream": self.stream,
                "timestamp": self.timestamp,
                "partition": self.partition,
                "instance": self.instance,
                "columns": _NONE if self.names else self.columns,
                "counts": self.counts,
                **boundary,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    @classmethod
    def decode(cls, value: bytes, place: str) -> Partial:
        """Read a partial back. Raises StateRefused, naming ``place``, if the bytes are none."""
        try:
            written = _PARTIAL.decode(value)
            columns, counts = _as_array(written.columns), _as_array(written.counts)
            if written.names:
                columns = np.arange(len(written.names)) if not written.columns else _NONE
        except (msgspec.DecodeError, UnicodeDecodeError, OverflowError):
            # No detail: it could quote exact counts.
            remedy = (
                "Find out who else writes to this topic and revoke the right. Anyone with read access to the"
                " topic can identify the record by its value: all others are JSON objects with stream,"
                " timestamp and counts"
            )
            raise StateRefused(place, "a record is not a partial count", remedy) from None
        return cls(
            written.stream, written.timestamp, written.partition, written.instance, columns, counts,
            written.boundary, written.names, written.piece, written.of,
        )  # fmt: skip


def _as_array(numbers: list[int]) -> NDArray[np.int64]:
    # ``np.array`` looks through all of them first for what they could be.
    return np.fromiter(numbers, np.int64, len(numbers))


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    """A partial count as it is in the log."""

    stream: str
    timestamp: int
    partition: int
    instance: str
    columns: list[int]
    counts: list[int]
    boundary: int | None = None
    names: tuple[str, ...] = ()
    piece: int = 0
    of: int = 1


_PARTIAL = msgspec.json.Decoder(_Written)


class _OpenTimestamp:
    """What is known so far of a timestamp that is not closed."""

    __slots__ = ("_counts", "contributions", "first_offset")

    def __init__(self, stream: Stream, offset: int) -> None:
        bound, per_column = stream.bound, stream.counts.per_column
        columns, rekeyed = len(stream.counts.labels), stream.source.raw is not None
        self.contributions: EarliestContributions | ColumnContributions | Contributions
        if rekeyed:
            self.contributions = EarliestContributions(bound, columns, per_column)
        elif per_column is not None:
            self.contributions = ColumnContributions(bound, per_column)
        else:
            self.contributions = Contributions(bound)
        self._counts = np.zeros(0 if rekeyed else columns, dtype=np.int64)
        self.first_offset = offset

    def admit(self, placed: AssignedRows, origins: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        """Count events as the bounds allow; for which the number of events that count has grown."""
        if isinstance(self.contributions, EarliestContributions):
            if origins is None:
                raise ValueError("re-keyed events come without their origins")
            return self.contributions.admit(placed.users, origins[placed.rows], placed.columns)
        if isinstance(self.contributions, ColumnContributions):
            counted = self.contributions.admit(placed.users, placed.columns)
        else:
            counted = self.contributions.admit(placed.users)
        np.add.at(self._counts, placed.columns[counted], 1)
        return counted

    def counts(self) -> NDArray[np.int64]:
        """The number of events that count, by column."""
        if isinstance(self.contributions, EarliestContributions):
            return self.contributions.counts()
        return self._counts


class _OpenInKernel:
    """What is known so far of a timestamp that is not closed, where the kernel has it in its ``Tally``."""

    __slots__ = ("_tally", "_timestamp", "_users", "first_offset")

    def __init__(self, tally: Any, timestamp: int, offset: int) -> None:
        self._tally, self._timestamp, self._users = tally, timestamp, 0
        self.first_offset = offset

    def has(self, users: int) -> None:
        """Take note of how many distinct users have contributed: metrics ask while another thread counts."""
        self._users = users

    @property
    def contributions(self) -> _OpenInKernel:
        """The users who have contributed: what ``Contributions`` says of them."""
        return self

    def __len__(self) -> int:
        return self._users

    def users(self) -> NDArray[np.int64]:
        """See ``Contributions.users``."""
        return np.frombuffer(self._tally.users(self._timestamp), np.int64)

    def renumber(self, new_numbers: NDArray[np.int64]) -> None:
        """See ``Contributions.renumber``."""
        self._tally.renumber(self._timestamp, new_numbers)

    def counts(self) -> NDArray[np.int64]:
        """The number of events that count, by column."""
        return np.frombuffer(self._tally.counts(self._timestamp), np.int64)

    def close(self) -> NDArray[np.int64]:
        """The same; the kernel forgets it."""
        return np.frombuffer(self._tally.close(self._timestamp), np.int64)


class _OpenNames:
    """What is known so far of a timestamp that is not closed, where columns are found in the data.

    It holds no text that no admitted event has: a user adds as many as the bound lets count, at most.
    """

    __slots__ = ("_counts", "contributions", "first_offset")

    def __init__(self, bound: int, offset: int) -> None:
        self.contributions = Contributions(bound)
        self._counts: dict[str, int] = {}
        self.first_offset = offset

    def admit(self, placed: AssignedRows, texts: Sequence[str]) -> NDArray[np.bool_]:
        """As of ``_OpenTimestamp``; ``texts`` are those of the columns' numbers."""
        counted = self.contributions.admit(placed.users)
        numbers, counts = np.unique(placed.columns[counted], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            text = texts[number]
            self._counts[text] = self._counts.get(text, 0) + count
        return counted

    def named(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """The columns that were counted, in the order of their texts, and their counts."""
        names = tuple(sorted(self._counts))
        return names, np.fromiter((self._counts[one] for one in names), np.int64, len(names))

    def __len__(self) -> int:
        """How many columns there are."""
        return len(self._counts)


class _OpenNamesByOrigin:
    """The same of re-keyed events, of which one that was counted may give way to an earlier one.

    Texts that no event has any more are forgotten before they are as many as those that count.
    """

    __slots__ = ("_numbers", "contributions", "first_offset")

    def __init__(self, bound: int, offset: int) -> None:
        self.contributions = EarliestContributions(bound, None)
        self._numbers: dict[str, int] = {}
        self.first_offset = offset

    def admit(
        self, placed: AssignedRows, texts: Sequence[str], origins: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """As of ``_OpenNames``; ``origins`` are rows of append time, partition and offset."""
        numbers, places = np.unique(placed.columns, return_inverse=True)
        own = [self._numbers.setdefault(texts[one], len(self._numbers)) for one in numbers.tolist()]
        columns = np.array(own, np.int64)[places]
        grown = self.contributions.admit(placed.users, origins[placed.rows], columns)
        if len(self._numbers) > 2 * self.contributions.size + _FORGETS:
            self._forget()
        return grown

    def _forget(self) -> None:
        """Forget the texts that no event that counts has."""
        counts = self.contributions.counts(len(self._numbers))
        new_numbers = np.cumsum(counts > 0) - 1
        self.contributions.renumber_columns(new_numbers)
        kept = [text for text, number in self._numbers.items() if counts[number]]
        self._numbers = {text: number for number, text in enumerate(kept)}

    def named(self) -> tuple[tuple[str, ...], NDArray[np.int64]]:
        """See ``_OpenNames.named``."""
        counts = self.contributions.counts(len(self._numbers))
        names = tuple(sorted(text for text, number in self._numbers.items() if counts[number]))
        return names, np.fromiter((counts[self._numbers[one]] for one in names), np.int64, len(names))

    def __len__(self) -> int:
        """How many columns there are, or were."""
        return len(self._numbers)


_Opened = _OpenTimestamp | _OpenInKernel | _OpenNames | _OpenNamesByOrigin


class StreamCounter:
    """Counts one stream in one of ``partitions`` source partitions, from a durable state onwards.

    ``users`` may be shared with other streams whose users are in the same field. ``grown`` tells when the
    source had fewer partitions.
    """

    def __init__(
        self, stream: Stream, partitions: int, state: CounterState, users: Users, grown: Sequence[Growth] = ()
    ) -> None:
        self.stream, self.users = stream, users
        self.next = state.next
        #: What became of the records judged by this object: "counted", "bounded", "ignored", "filtered" or a
        #: Reason.
        self.outcomes: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._state = state
        self._assigner = Assigner(stream, partitions, state.partition, state.first, users, grown)
        if self._assigner.names is not None and stream.counts.per_column is not None:
            raise ValueError("columns that are found in the data have no bound of their own")
        self._open: dict[int, _Opened] = {}
        #: Counts in the kernel; None where it is not installed, or has no counts of this kind.
        self._tally: Any = None
        if kernel.NATIVE is not None and self._assigner.names is None and stream.source.raw is None:
            counts = stream.counts
            self._tally = kernel.NATIVE.Tally(stream.bound, len(counts.labels), counts.per_column)
        #: Of columns that are found in the data, those of the chunk that is being counted.
        self._texts: Sequence[str] = ()
        #: Of re-keyed events: the time of the last mark of each partition.
        self.passed = state.passed
        if stream.source.raw is not None and not state.passed:
            self.passed = (0,) * partitions
        #: None where the broker tells append times.
        self.boundaries: Boundaries | None = None
        if stream.source.has_boundaries:
            self.boundaries = Boundaries(stream.timeline, state.first, state.boundaries)

    @property
    def resume(self) -> int:
        """The first offset that a successor would have to read."""
        return self._state.resume

    @property
    def judged(self) -> int:
        """The offset below which every record has had its verdict."""
        return self._state.judged

    def observe(self, rows: Rows) -> Rejections:
        """Count records, and say which rows cannot count, and why. Re-keyed ones have ``origins``.

        They must come in offset order. A record that the bound, the filter or ``unknown: ignore``
        leaves out is no rejection. Nothing is said of records below the judged offset: their dead letters
        are out already.
        """
        start, told = np.searchsorted(rows.offsets, (self._state.resume, self._state.judged)).tolist()
        placed, rejections = self._assigner.place(rows, start, self.next, self.boundaries)
        self._texts = () if self._assigner.names is None else self._assigner.names.texts
        self._take(rows, placed, told)
        self._texts = ()
        rejections = rejections.since(told)
        if len(rejections):
            self.outcomes.update(rejections.outcomes())
        return rejections

    def _take(self, rows: Rows, placed: Placed, told: int) -> None:
        """Count events, and book those from row ``told`` on."""
        if self._tally is not None:
            self._tally_up(rows, placed, told)
            return
        events = placed.merged()
        counts = events.columns >= 0
        grown = self._count(rows, events.where(counts)) if counts.any() else np.zeros(0, bool)
        news = grown[events.rows[counts] >= told]
        self._book("counted", news)
        self._book("bounded", ~news)
        self._book("ignored", events.rows[events.columns == IGNORED] >= told)
        self._book("filtered", events.rows[events.columns == FILTERED] >= told)

    def _tally_up(self, rows: Rows, placed: Placed, told: int) -> None:
        """The same in the kernel."""
        numbers, touched = self._tally.take(*placed.for_kernel(), told)
        for outcome, number in zip(("counted", "bounded", "ignored", "filtered"), numbers, strict=True):
            if number:
                self.outcomes[outcome] += number
        for timestamp, users, first in touched:
            if first is not None:
                self._open[timestamp] = _OpenInKernel(self._tally, timestamp, int(rows.offsets[first]))
            opened = self._open[timestamp]
            assert isinstance(opened, _OpenInKernel), "arrays count what the kernel does not"
            opened.has(users)

    def _book(self, outcome: str, events: NDArray[np.bool_]) -> None:
        if number := int(np.count_nonzero(events)):
            self.outcomes[outcome] += number

    def _count(self, rows: Rows, placed: AssignedRows) -> NDArray[np.bool_]:
        """Count events with a column, in order; for which the number of events that count has grown."""
        first, last = int(placed.timestamps.min()), int(placed.timestamps.max())
        if first == last:
            return self._admit(first, rows, placed)
        grown = np.empty(len(placed.rows), bool)
        order = np.argsort(placed.timestamps, kind="stable")
        edges = np.flatnonzero(np.diff(placed.timestamps[order])) + 1
        for indices in np.split(order, edges):
            part = placed.where(indices)
            grown[indices] = self._admit(int(part.timestamps[0]), rows, part)
        return grown

    def _admit(self, timestamp: int, rows: Rows, placed: AssignedRows) -> NDArray[np.bool_]:
        """Count events of one timestamp."""
        opened = self._open.get(timestamp)
        if opened is None:
            opened = self._open[timestamp] = self._opened(int(rows.offsets[placed.rows[0]]))
        assert not isinstance(opened, _OpenInKernel), "the kernel counts what arrays do not"
        if isinstance(opened, _OpenNames):
            return opened.admit(placed, self._texts)
        if isinstance(opened, _OpenNamesByOrigin):
            assert rows.origins is not None, "re-keyed events come with their origins"
            return opened.admit(placed, self._texts, rows.origins)
        return opened.admit(placed, rows.origins)

    def _opened(self, first_offset: int) -> _OpenTimestamp | _OpenNames | _OpenNamesByOrigin:
        """What counts a timestamp of which nothing is known yet."""
        if self._assigner.names is None:
            return _OpenTimestamp(self.stream, first_offset)
        if self.stream.source.raw is None:
            return _OpenNames(self.stream.bound, first_offset)
        return _OpenNamesByOrigin(self.stream.bound, first_offset)

    def contributors(self) -> Iterator[NDArray[np.int64]]:
        """The numbers of the users of each open timestamp."""
        return (opened.contributions.users() for opened in self._open.values())

    def renumber(self, new_numbers: NDArray[np.int64]) -> None:
        """Users have new numbers, found at their old ones."""
        for opened in self._open.values():
            opened.contributions.renumber(new_numbers)

    def new_outcomes(self) -> Counter[str]:
        """What ``outcomes`` has gained since the last call."""
        gained, self._told = self.outcomes - self._told, self.outcomes.copy()
        return gained

    def close(self) -> Partial:
        """Close the next timestamp and return its partial count, an empty one included."""
        timestamp, self.next = self.next, self.next + 1
        boundary = None if self.boundaries is None else self.boundaries.of(timestamp)
        if self.stream.counts.discover is not None:
            return self._close_names(timestamp, boundary)
        found = self._take_counts(timestamp)
        columns = _NONE if found is None else np.flatnonzero(found)
        return Partial(
            stream=self.stream.name,
            timestamp=timestamp,
            partition=self._state.partition,
            instance=self._state.instance,
            columns=columns,
            counts=_NONE if found is None else found[columns],
            boundary=boundary,
        )

    def _close_names(self, timestamp: int, boundary: int | None) -> Partial:
        opened = self._open.pop(timestamp, None)
        names, counts = tuple[str, ...](), _NONE
        if isinstance(opened, _OpenNames | _OpenNamesByOrigin):
            names, counts = opened.named()
        return Partial(
            self.stream.name, timestamp, self._state.partition, self._state.instance,
            np.arange(len(names)), counts, boundary, names,
        )  # fmt: skip

    def _take_counts(self, timestamp: int) -> NDArray[np.int64] | None:
        """The counts of a timestamp, which is no longer open; None if nothing counted."""
        opened = self._open.pop(timestamp, None)
        if isinstance(opened, _OpenInKernel):
            return opened.close()
        return opened.counts() if isinstance(opened, _OpenTimestamp) else None

    def _first_offsets(self) -> Iterator[int]:
        """The first offset that each open timestamp needs."""
        return (opened.first_offset for opened in self._open.values())

    def state_at(self, position: int) -> CounterState:
        """The durable state once every record below ``position`` has been judged here.

        While records below the judged offset are read again, those from ``position`` on are still to come:
        a successor needs them too.
        """
        unread = max(position, self._state.resume)
        resume = min(self._first_offsets(), default=unread)
        needed = () if self.boundaries is None else self.boundaries.needed(self.next, resume).captured
        judged = max(position, self._state.judged)
        return self._state.replace(
            next=self.next, resume=resume, judged=judged, boundaries=needed, passed=self.passed
        )

    def resume_from(self, state: CounterState) -> None:
        """Take ``state``, which is durable now, as the state that a successor would continue from."""
        self._state = state
        if self.boundaries is not None:
            self.boundaries = replace(self.boundaries, captured=state.boundaries)

    def mark(self, mark: Mark) -> None:
        """Take note of how far a partition of re-keyed events has been passed on."""
        one, time = mark
        # Of a partition that was added the first mark may be the first that is heard.
        self.passed = (*self.passed, *(0,) * (one + 1 - len(self.passed)))
        self.passed = (*self.passed[:one], max(time, self.passed[one]), *self.passed[one + 1 :])

    def read_again(self, position: int) -> bool:
        """Whether all that a predecessor had judged has been read here."""
        return position >= self._state.judged

    @property
    def completed(self) -> int | None:
        """The last timestamp that a watermark has completed; None where none has to."""
        return None

    @property
    def undurable(self) -> bool:
        """Whether a boundary was captured that the durable state does not hold."""
        return self.boundaries is not None and self.boundaries.captured[-1:] != self._state.boundaries[-1:]

    @property
    def last_open(self) -> int | None:
        """The last timestamp that has counted an event and is not closed, if there is one."""
        return max(self._open, default=None)

    @property
    def contributions(self) -> int:
        """The number of (user, open timestamp) pairs held in memory."""
        # A list, at once: metrics may ask while another thread counts.
        return sum(len(opened.contributions) for opened in list(self._open.values()))

    @property
    def held(self) -> Held:
        """What is in memory, of ``users`` all that the streams sharing them have met."""
        return Held(len(self._open), self.contributions, len(self.users))
