"""The records of Kafka's record batches (format 2), read by the compiled kernel where it is installed.

The kernel walks from record to record and checks every length, that offsets ascend, and that batches have
as many records as they say. Wherever anything is unusual, damage included, nothing is read here, and
aiokafka walks. aiokafka refuses a batch for one header name that is not UTF-8, which brokers take from any
producer: ``walk`` reads such a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from aiokafka.errors import CorruptRecordException
from aiokafka.record.util import decode_varint
from numpy.typing import NDArray

from eventveil.decoding.bulk import Packed, packed_in
from eventveil.decoding.packing import PackedHeaders
from eventveil.model.records import Headers
from eventveil.process import kernel


class Body(NamedTuple):
    """The records of a batch, uncompressed: their number, and the offset that theirs are relative to.

    ``data`` may be anything that shows its bytes and has a length.
    """

    data: Any
    number: int
    base_offset: int


class RecordColumns(NamedTuple):
    """Records of batches, in columns; ``headers`` is empty if no record has any.

    ``deltas`` are from the first timestamp of a batch to those of its records, in ms; None if not asked for.
    """

    offsets: NDArray[np.int64]
    keys: Packed
    values: Packed
    headers: Sequence[Headers]
    deltas: NDArray[np.int64] | None


def read(bodies: Sequence[Body], *, deltas: bool = False) -> RecordColumns | None:
    """The records of consecutive batches; None if they must be read record by record."""
    if kernel.NATIVE is None:
        return None
    data = b"".join(body.data for body in bodies)
    batches = [(len(body.data), body.number, body.base_offset) for body in bodies]
    found = kernel.NATIVE.walk(data, batches, deltas)
    if found is None:
        return None
    offsets, keys, values, headers, times = found
    places = np.frombuffer(offsets, np.int64)
    told = () if headers is None else PackedHeaders(headers, np.arange(len(places)))
    after = None if times is None else np.frombuffer(times, np.int64)
    return RecordColumns(places, packed_in(data, *keys), packed_in(data, *values), told, after)


class Walked(NamedTuple):
    """As a record of aiokafka. Bytes of header names that are not UTF-8 are replaced, as by Java's client."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def walk(batch: Any, body: Body) -> Iterator[Walked]:
    """The records of a batch of aiokafka. Raises CorruptRecordException where they do not fill its body."""
    text = _Text(bytes(body.data))
    try:
        for _ in range(body.number):
            stop = text.number() + text.place
            yield _walked(batch, text)
            if text.place != stop:
                raise ValueError(f"a record ends at byte {text.place}, not at {stop}")
        if text.place != len(text.data):
            raise ValueError(f"{len(text.data) - text.place} bytes follow the last record")
    except (ValueError, IndexError) as error:
        raise CorruptRecordException(f"Found invalid record structure: {error}") from error


def _walked(batch: Any, text: _Text) -> Walked:
    text.number()  # attributes, which nobody uses
    later, offset = text.number(), batch.base_offset + text.number()
    key, value = text.span(), text.span()
    headers = [(_name(text), text.span()) for _ in range(text.number())]
    time = batch.max_timestamp if batch.timestamp_type else batch.first_timestamp + later
    return Walked(offset, time, batch.timestamp_type, key, value, headers)  # type: ignore[arg-type]


def _name(text: _Text) -> str:
    if (name := text.span()) is None:
        raise ValueError("a header has no name")
    return name.decode(errors="replace")


class _Text:
    """Reads from ``place`` on. Raises ValueError or IndexError at the end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def number(self) -> int:
        number: int
        number, self.place = decode_varint(self.data, self.place)
        return number

    def span(self) -> bytes | None:
        """A length and as many bytes; None for a length of -1."""
        if (length := self.number()) < 0:
            return None
        begin, self.place = self.place, self.place + length
        if self.place > len(self.data):
            raise ValueError("a record extends beyond the end of its batch")
        return self.data[begin : self.place]
