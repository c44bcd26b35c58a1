"""Why rows of a chunk do not count, in columns, and the dead letters that tell it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.binary_array import picked
from eventveil.decoding.rules import Reason, Rejection
from eventveil.model.records import Chunk, Headers, Outgoing
from eventveil.model.topology import Stream

_Rows = NDArray[np.int64]

REASONS = tuple(Reason)
#: By identity, for the hash of a member of an enumeration is a call.
_CODES = {id(reason): code for code, reason in enumerate(REASONS)}
_NONE = np.zeros(0, np.int64)
#: A key and value that are larger than this are not copied into their dead letter.
_LARGEST_LETTER = 8_000_000


class Rejections:
    """Rows, each with a reason (its place in REASONS) and a detail."""

    __slots__ = ("codes", "details", "rows")

    def __init__(self, rows: _Rows = _NONE, codes: _Rows = _NONE, details: Sequence[str] = ()) -> None:
        self.rows, self.codes, self.details = rows, codes, details

    @classmethod
    def of(cls, rejections: Sequence[tuple[int, Rejection]]) -> Rejections:
        """These rows with what is wrong with each."""
        return cls(
            np.array([row for row, _ in rejections], np.int64),
            np.array([_CODES[id(rejection.reason)] for _, rejection in rejections], np.int64),
            [rejection.detail for _, rejection in rejections],
        )

    @classmethod
    def alike(cls, rows: _Rows, reason: Reason, details: Sequence[str]) -> Rejections:
        """Rows with one reason."""
        return cls(rows, np.full(len(rows), _CODES[id(reason)]), details)

    @classmethod
    def merged(cls, parts: Iterable[Rejections]) -> Rejections:
        """All of them, in the order of their rows."""
        parts = [part for part in parts if len(part)]
        if len(parts) <= 1:
            return parts[0] if parts else cls()
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows)
        details = [detail for part in parts for detail in part.details]
        codes = np.concatenate([part.codes for part in parts])
        return cls(rows[order], codes[order], [details[at] for at in order.tolist()])

    def since(self, row: int) -> Rejections:
        """Those from a row on; they are in the order of their rows."""
        first = int(np.searchsorted(self.rows, row))
        return Rejections(self.rows[first:], self.codes[first:], self.details[first:]) if first else self

    def outcomes(self) -> Counter[str]:
        """How many there are, by reason."""
        counts = np.bincount(self.codes, minlength=len(REASONS)).tolist()
        return Counter({reason.value: count for reason, count in zip(REASONS, counts, strict=True) if count})

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, Rejection]]:
        for row, code, detail in zip(self.rows.tolist(), self.codes.tolist(), self.details, strict=True):
            yield row, Rejection(REASONS[code], detail)


class Letters:
    """The dead letters of one stream and chunk, each made when it is asked for: there may be very many.

    ``origins`` are those of re-keyed records, rows of append time, partition and offset.
    """

    def __init__(self, stream: Stream, chunk: Chunk, rejections: Rejections, origins: _Rows | None) -> None:
        self._stream, self._chunk, self._rejections, self._origins = stream, chunk, rejections, origins

    def __len__(self) -> int:
        return len(self._rejections)

    def __iter__(self) -> Iterator[Outgoing]:
        return self._made(self._rejections)

    def _made(self, rejections: Rejections) -> Iterator[Outgoing]:
        stream, rows = self._stream, rejections.rows
        reasons = [("eventveil.reason", reason.value.encode()) for reason in REASONS]
        name = ("eventveil.stream", stream.name.encode())
        topic = ("eventveil.topic", stream.source.topic_of_events.encode())
        columns = (
            picked(self._chunk.keys, rows),
            picked(self._chunk.values, rows),
            rejections.codes.tolist(),
            rejections.details,
            self._places(rows),
        )
        for key, value, code, detail, (append_time, partition, offset) in zip(*columns, strict=True):
            headers: Headers = (
                reasons[code],
                ("eventveil.detail", detail.encode()),
                name,
                topic,
                ("eventveil.partition", b"%d" % partition),
                ("eventveil.offset", b"%d" % offset),
                ("eventveil.timestamp", b"%d" % append_time),
            )
            if len(key or b"") + len(value or b"") > _LARGEST_LETTER:
                # It could never be written, and the partition would be stuck behind one event.
                key, value = None, None
                left_out = f"{detail}; left out here for its size".encode()
                headers = (headers[0], ("eventveil.detail", left_out), *headers[2:])
            yield Outgoing(stream.dead_letter, value, key, None, headers)

    def _places(self, rows: _Rows) -> Iterator[tuple[int, int, int]]:
        """Append time, partition and offset of the original records."""
        if self._origins is not None:
            times, partitions, offsets = self._origins[rows].T
            return zip(times.tolist(), partitions.tolist(), offsets.tolist(), strict=True)
        times, offsets = np.array(self._chunk.append_times)[rows], np.array(self._chunk.offsets)[rows]
        return zip(times.tolist(), repeat(self._chunk.partition, len(rows)), offsets.tolist(), strict=True)


class DeadLetters:
    """Dead letters of several streams and chunks, made while somebody goes through them."""

    def __init__(self, parts: Iterable[Letters]) -> None:
        self._parts = [*parts]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Outgoing]:
        return chain.from_iterable(self._parts)
