"""Many records at once that certainly cannot count, with the reasons and details of ``Placer.verdict``.

A client that sends one malformed event may send a hundred thousand. Nobody else must wait for them much
longer than for as many good ones. Bulk decoding has read fields of the right kinds; what is wrong with such
an event is the first of: its column, its time, its partition, where its time lies. Where that is not certain,
nothing is said, and the record is put to the rule.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.boundaries import Boundaries, latest_times
from eventveil.counting.rejections import Rejections
from eventveil.counting.users import Users
from eventveil.decoding.bulk import UNSURE
from eventveil.decoding.columns import UNSURE_TIME, Fields
from eventveil.decoding.rules import Decoder, Reason, Rejection, unknown_column
from eventveil.model import timeline
from eventveil.model.records import NO_APPEND_TIME
from eventveil.model.topology import Stream

#: Why events were refused by their time, by append times and by boundaries.
AHEAD, LATE = "%d ms ahead of the append time", "appended %d ms after the deadline of %d"
BEYOND = "%d ms beyond max_ahead after the next boundary"
BEHIND = "appended behind the boundary of %d"

_Array = NDArray[np.int64]


class Read:
    """What bulk decoding has read of some rows of a chunk, found at ``at`` in the fields of a part."""

    def __init__(
        self, fields: Fields, at: _Array, columns: _Array, times: _Array, offsets: _Array, appended: _Array
    ) -> None:
        """``columns`` and ``times`` are those of the part, ``offsets`` and ``appended`` of the chunk."""
        self.fields, self.at = fields, at
        self._all = columns, times, offsets, appended

    def where(self, chosen: NDArray[np.bool_]) -> Read:
        """Those that a mask chooses."""
        return Read(self.fields, self.at[chosen], *self._all)

    @property
    def rows(self) -> _Array:
        """Their places in the chunk."""
        return self.fields.rows[self.at]

    @property
    def columns(self) -> _Array:
        """Their columns, UNSURE where bulk decoding has found none."""
        return self._all[0][self.at]

    @property
    def times(self) -> _Array:
        """Their times, UNSURE_TIME where bulk decoding has found none."""
        return self._all[1][self.at]

    @property
    def offsets(self) -> _Array:
        """Their offsets."""
        return self._all[2][self.rows]

    @property
    def appended(self) -> _Array:
        """Their append times."""
        return self._all[3][self.rows]


class Refuser:
    """Judges for one stream in one source partition.

    ``first`` is the first timestamp of the stream; before ``grown`` the source had fewer partitions.
    """

    def __init__(self, stream: Stream, first: int, grown: int, decoder: Decoder, users: Users) -> None:
        self._stream, self._first, self._grown = stream, first, grown
        self._captured = stream.source.append_time == "boundary"
        self._decoder, self._users = decoder, users

    def __call__(self, read: Read, following: int, boundaries: Boundaries | None) -> Iterator[Rejections]:
        """The rows that certainly cannot count; ``following`` is the next timestamp to close."""
        named = self._users.are_some(read.fields)[read.at]
        if boundaries is None:
            named &= read.appended != NO_APPEND_TIME
        read = read.where(named)
        unsure = read.columns == UNSURE
        if unsure.any():
            yield self._by_column(read.where(unsure))
            read = read.where(~unsure)
        unsure = read.times == UNSURE_TIME
        if unsure.any():
            yield self._by_time(read.where(unsure))
            read = read.where(~unsure)
        if self._grown:
            read = read.where(timeline.timestamp_of(self._stream.timeline, read.times) >= self._grown)
        here = self._users.belong(self._users.of(read.fields)[read.at])
        if not here.all():
            yield self._by_partition(read.where(~here))
            read = read.where(here)
        if read.at.size:
            yield from self._by_place(read, following, boundaries)

    def _by_column(self, read: Read) -> Rejections:
        labels = read.fields.at(self._stream.source.column, read.at)
        return Rejections.alike(
            read.rows, Reason.UNKNOWN_COLUMN, [unknown_column(str(one)) for one in labels]
        )

    def _by_time(self, read: Read) -> Rejections:
        known: dict[str | int, int | Rejection] = {}
        found: list[tuple[int, Rejection]] = []
        for row, value in zip(
            read.rows.tolist(), read.fields.at(self._stream.source.time, read.at), strict=True
        ):
            # Of an integer beyond 64 bits the rule makes a float.
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                continue
            verdict = known.get(value)
            if verdict is None:
                verdict = known[value] = self._decoder.timed(value)
            if isinstance(verdict, Rejection):
                found.append((row, verdict))
        return Rejections.of(found)

    def _by_partition(self, read: Read) -> Rejections:
        users = self._users.canonical(read.fields, read.at)
        owners = self._users.partitions(users).tolist()
        details = {owner: wrong_partition(self._stream, owner) for owner in {*owners}}
        return Rejections.alike(read.rows, Reason.WRONG_PARTITION, [details[owner] for owner in owners])

    def _by_place(self, read: Read, following: int, boundaries: Boundaries | None) -> Iterator[Rejections]:
        """As ``Placer.verdict``: too far ahead, before the origin, before the start, then too late."""
        rules = self._stream.timeline
        if boundaries is None:
            latest = latest_times(self._stream, self._first, read.appended)
        else:
            latest = boundaries.latest_times(read.offsets)
        text, since = (BEYOND, latest) if self._captured else (AHEAD, read.appended)
        far = read.times > latest
        yield _told(read.where(far), Reason.TOO_FAR_AHEAD, text, (read.times - since)[far])
        read = read.where(~far)
        timestamps = timeline.timestamp_of(rules, read.times)
        before = timestamps < 1
        early = read.where(before)
        yield _told(early, Reason.BEFORE_ORIGIN, "%d ms before the origin", rules.origin - early.times)
        read, timestamps = read.where(~before), timestamps[~before]
        before = timestamps < self._first
        text = f"timestamp %d is before {self._first}"
        yield _told(read.where(before), Reason.BEFORE_START, text, timestamps[before])
        read, timestamps = read.where(~before), timestamps[~before]
        if boundaries is None:
            yield from self._too_late(read, timestamps, following)
        else:
            late = (timestamps < following) | (read.offsets >= boundaries.ends_of(timestamps))
            yield _told(read.where(late), Reason.LATE, BEHIND, timestamps[late])

    def _too_late(self, read: Read, timestamps: _Array, following: int) -> Iterator[Rejections]:
        after = read.appended - timeline.deadline_of(self._stream.timeline, timestamps)
        late = after >= 0
        if self._captured:
            yield _told(read.where(late), Reason.LATE, BEHIND, timestamps[late])
        else:
            yield _told(read.where(late), Reason.LATE, LATE, after[late], timestamps[late])
        closed = ~late & (timestamps < following)
        text = "timestamp %d was closed before this was readable"
        yield _told(read.where(closed), Reason.AFTER_CLOSE, text, timestamps[closed])


def _told(read: Read, reason: Reason, text: str, *numbers: _Array) -> Rejections:
    """Rows with one reason, and a text with numbers of each."""
    columns = [column.tolist() for column in numbers]
    return Rejections.alike(read.rows, reason, [text % told for told in zip(*columns, strict=True)])


def wrong_partition(stream: Stream, owner: int) -> str:
    """What is wrong with an event of a user who belongs to another partition, or with a count."""
    if stream.source.count is not None:
        return (
            f"{stream.source.partitioner} of the column field gives partition {owner}; the engine must key by"
            " the column, with the partitioner of the topology"
        )
    return (
        f"{stream.source.partitioner} of the user field gives partition {owner}; "
        "producers must key by the user, with the partitioner of the topology"
    )
