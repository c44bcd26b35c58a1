"""What bulk decoding is sure of must be what one-by-one decoding finds, wherever the values lie."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from eventveil.decoding.binary_array import Packed
from eventveil.decoding.bulk import IGNORED, UNSURE, BulkReader, ColumnFinder, fields_of
from eventveil.decoding.columns import UNSURE_TIME, Fields
from eventveil.decoding.rules import Decoder, Event, Rejection, parse
from eventveil.decoding.templates import Spans
from tests.unit.support import stream

MAX_BYTES = 5000
#: Streams that between them use every way of reading a field.
STREAMS = (
    stream(),
    stream(labels=("a", "7"), unknown="ignore"),
    stream(user_type="integer", column_type="integer", labels=("7", "-7", "07"), unknown="ignore"),
    stream(user_type="integer", unknown="column", unknown_column=1),
    stream(column="/page/section", user="/page/n"),
    stream(column="/page/section", unknown="column", unknown_column=0),
    stream(user="/user", column="/user", unknown="ignore"),
    stream(user="", column="/0", time="/time/0"),
)


class Comparison:
    """Compares the two decoders of one stream, and counts what bulk decoding was sure of."""

    def __init__(self, one: Any) -> None:
        self._pointer = one.source.user
        self._time = one.source.time
        wanted = fields_of([(one.source, one.counts)])
        self._reader, self._packed_reader = (BulkReader(wanted, MAX_BYTES) for _ in range(2))
        self._chance = Random(1)
        self._find_columns = ColumnFinder(one.source, one.counts)
        self._decoder = Decoder(one.source, one.counts)
        #: This many values bulk decoding was sure of, and this many of these because of their shape.
        self.sure = self.shaped = 0

    def check(self, values: Sequence[bytes | None]) -> None:
        """Raise AssertionError, naming the value, where they differ."""
        parts = self._reader.read(values)
        self._check_packed(parts, packed(values, self._chance))
        rows = [row for part in parts for row in part.rows.tolist()]
        assert len({*rows}) == len(rows), "a value was read twice"
        for part in parts:
            before = self.sure
            self._check(part, values)
            self.shaped += (self.sure - before) * isinstance(part, Spans)

    def _check_packed(self, parts: Sequence[Fields], values: Packed) -> None:
        found = self._packed_reader.read(values)
        for one, other in zip(parts, found, strict=True):
            assert type(one) is type(other)
            assert one.rows.tolist() == other.rows.tolist()
            assert one.values(self._pointer) == other.values(self._pointer)
            assert np.array_equal(self._find_columns(one), self._find_columns(other))
            assert np.array_equal(one.times(self._time), other.times(self._time))

    def _check(self, fields: Fields, values: Sequence[bytes | None]) -> None:
        found = zip(
            fields.rows.tolist(),
            fields.values(self._pointer),
            self._find_columns(fields).tolist(),
            fields.times(self._time).tolist(),
            strict=True,
        )
        for row, user, column, time in found:
            if column == UNSURE or time == UNSURE_TIME or not is_user(user):
                continue
            self.sure += 1
            quick = Event(
                user.encode() if type(user) is str else b"%d" % user,
                None if column == IGNORED else column,
                time,
            )
            document = parse(values[row], MAX_BYTES)
            slow = document if isinstance(document, Rejection) else self._decoder.decode(document)
            assert quick == slow, f"{values[row]!r}: {quick} in bulk, {slow} alone"


def packed(values: Sequence[bytes | None], chance: Random) -> Packed:
    """The values in one text, with gaps of one kind between them that would mislead a reader."""
    shortest, longest = chance.choice(((0, 9), (7, 60), (8, 8), (8, 60), (8, 60), (8, 300)))
    parts, starts, at = [], [], 0
    for value in values:
        size = chance.randint(shortest, longest)
        gap = chance.choice((b'"', b"\\", b'"}\n{"', b"\xff\0", b"7", b'","user":"'))
        parts += [(gap * size)[:size], value or b""]
        starts.append(at + size)
        at = starts[-1] + len(value or b"")
    lengths = [-1 if value is None else len(value) for value in values]
    return Packed(b"".join((*parts, b'"')), np.array(starts, np.int64), np.array(lengths, np.int64))


def is_user(user: Any) -> bool:
    """Whether a user that was read in bulk can be one."""
    return user != "" if type(user) is str else type(user) is int and -(2**63) <= user < 2**63
