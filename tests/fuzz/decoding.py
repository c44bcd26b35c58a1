"""What bulk decoding is sure of must be what one-by-one decoding finds, wherever the values lie."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from eventveil.decoding.bulk import (
    IGNORED,
    UNSURE,
    UNSURE_TIME,
    BulkReader,
    ColumnFinder,
    Fields,
    Packed,
    as_array,
    fields_of,
)
from eventveil.decoding.rules import NO_JSON, Decoder, Event, Reason, Rejection, parse
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
    """Compares bulk decoding of one stream with the rules, and counts what it was sure of.

    It reads in the way that is chosen when this is made (``tests.fuzz.ways``).
    """

    def __init__(self, one: Any) -> None:
        self._user, self._time = one.source.user, one.source.time
        self._reader = BulkReader(fields_of([(one.source, one.counts)]), MAX_BYTES)
        self._chance = Random(1)
        self._find_columns = ColumnFinder(one.source, one.counts)
        self._decoder = Decoder(one.source, one.counts)
        #: This many values bulk decoding was sure of, this many of them that they are no JSON, and this many
        #: are none by the rules.
        self.sure = self.refused = self.broken = 0

    def check(self, values: Sequence[bytes | None]) -> None:
        """Raise AssertionError, naming the value, where they differ."""
        parts = self._reader.read(values)
        self._check_packed(parts, packed(values, self._chance))
        rows = [row for part in parts for row in (*part.rows.tolist(), *part.broken.tolist())]
        assert len(rows) == len({*rows}), "a value was read twice"
        for part in parts:
            self._check(part, values)
            self._check_broken(part, values)

    def _check_broken(self, fields: Fields, values: Sequence[bytes | None]) -> None:
        documents = [parse(value, MAX_BYTES) for value in values]
        wrong = {row for row, one in enumerate(documents) if one == (Reason.NOT_JSON, NO_JSON)}
        told = {*fields.broken.tolist()}
        assert told <= wrong, f"JSON by the rules: {[values[row] for row in told - wrong]!r}"
        self.refused += len(told)
        self.broken += len(wrong)

    def _check_packed(self, parts: Sequence[Fields], values: Packed) -> None:
        found = self._reader.read(values)
        for one, other in zip(parts, found, strict=True):
            assert type(one) is type(other)
            assert one.rows.tolist() == other.rows.tolist()
            assert one.broken.tolist() == other.broken.tolist()
            for pointer in (self._user, self._time):
                assert everything(one, pointer) == everything(other, pointer)
            assert np.array_equal(*(as_array(self._find_columns(each)) for each in (one, other)))
            assert np.array_equal(one.times(self._time), other.times(self._time))

    def _check(self, fields: Fields, values: Sequence[bytes | None]) -> None:
        users = fields.canonical(self._user, np.arange(len(fields.rows)))
        assert [*map(bool, users)] == fields.filled(self._user).tolist()
        found = zip(
            fields.rows.tolist(),
            users,
            as_array(self._find_columns(fields)).tolist(),
            fields.times(self._time).tolist(),
            strict=True,
        )
        for row, user, column, time in found:
            if column == UNSURE or time == UNSURE_TIME or not user:
                continue
            self.sure += 1
            quick = Event(user, None if column == IGNORED else column, time)
            document = parse(values[row], MAX_BYTES)
            slow = document if isinstance(document, Rejection) else self._decoder.decode(document)
            assert quick == slow, f"{values[row]!r}: {quick} in bulk, {slow} alone"


def everything(fields: Fields, pointer: str) -> list[Any]:
    """All that was read at a pointer."""
    return [*fields.at(pointer, np.arange(len(fields.rows)))]


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
