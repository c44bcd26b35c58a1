"""Records of one topic in columns: many that are written at once, and headers of many that were read.

With the compiled kernel neither needs objects for a record; without it, and wherever it is not sure, records
are made one by one, with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.bulk import as_parts, lengths_of, packed_in, picked
from eventveil.decoding.places import last_of
from eventveil.model.fields import HEADERS, KEY
from eventveil.model.partitioners import murmur2_partitions
from eventveil.model.records import NO_KEY, Chosen, Columns, Headers, Outgoing
from eventveil.process import kernel

_Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Header:
    """A header of many records, in the order of these: texts by their places among some, or numbers.

    A record whose text is None has no such header.
    """

    name: str
    numbers: _Integers
    texts: Sequence[bytes | None] | None = None

    def where(self, chosen: Chosen) -> Header:
        """That of the chosen records: no more texts than there are of these, or than there were."""
        numbers = self.numbers[chosen]
        if self.texts is None or len(self.texts) <= len(numbers):
            return Header(self.name, numbers, self.texts)
        return Header(self.name, np.arange(len(numbers)), picked(self.texts, numbers))

    @property
    def is_everywhere(self) -> bool:
        """Whether no text is None."""
        return self.texts is None or None not in self.texts

    def __iter__(self) -> Iterator[tuple[str, bytes] | None]:
        if self.texts is not None:
            made = [None if text is None else (self.name, text) for text in self.texts]
            return map(made.__getitem__, self.numbers.tolist())
        return ((self.name, b"%d" % number) for number in self.numbers.tolist())


class PackedHeaders(Sequence[Headers]):
    """The headers of records that the kernel has read: ``found`` has them, ``records`` are their numbers."""

    def __init__(self, found: Any, records: _Integers) -> None:
        self.found, self.records = found, records

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, index: int) -> Headers: ...
    @overload
    def __getitem__(self, index: slice) -> PackedHeaders: ...
    def __getitem__(self, index: int | slice) -> Headers | PackedHeaders:
        if isinstance(index, slice):
            return type(self)(self.found, self.records[index])
        return self._of(int(self.records[index]))

    def _of(self, record: int) -> Headers:
        headers: Headers = self.found.of(record)
        return headers

    def texts(self, name: str) -> Sequence[bytes | None]:
        """The value of the last header of each record with this name; None without one, or if it is null."""
        return packed_in(self.found.data, *self.found.last(self.records, name))

    def sizes(self, more: int) -> _Integers:
        """The bytes of all names and values of each record, and ``more`` for each header."""
        return np.frombuffer(self.found.sizes(self.records, more), np.int64)


def texts_at(
    field: str, keys: Sequence[bytes | None], headers: Sequence[Headers | None], number: int
) -> Sequence[bytes | None]:
    """The texts of a number of records at ``$key`` or ``$headers/NAME``; there may be no keys or headers."""
    name = field.removeprefix(HEADERS)
    found = keys if field == KEY else headers
    if not len(found):
        return [None] * number
    if field == KEY:
        return keys
    if isinstance(headers, PackedHeaders):
        return headers.texts(name)
    return [last_of(one or (), name) for one in headers]


def partitions_of(keys: Sequence[bytes | None], count: int) -> _Integers:
    """The partition of each key among ``count``, as the Java client finds it, or NO_KEY."""
    if kernel.NATIVE is not None:
        return np.frombuffer(kernel.NATIVE.partitions(as_parts(keys), count), np.int64)
    found = np.full(len(keys), NO_KEY)
    found[[key is not None for key in keys]] = murmur2_partitions(
        [key for key in keys if key is not None], count
    )
    return found


class PackedRecords(Columns):
    """Records of ``topic``: keys, values and headers of equal length.

    ``carried`` are further headers of each, which are written behind ``prefix``; those that are null are not.
    """

    def __init__(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Header],
        carried: Sequence[Headers | None] = (),
        prefix: str = "",
    ) -> None:
        self.topic = topic
        self._keys, self._values, self._headers = keys, values, headers
        self._carried, self._prefix = carried, prefix
        self._sizes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Outgoing]:
        columns = self._keys, self._values, self._each_partition(), self._every_header()
        for key, value, partition, headers in zip(*columns, strict=True):
            # What the class calls to make one: half of its time is spent on the way there.
            yield tuple.__new__(Outgoing, (self.topic, value, key, partition, headers))

    def _each_partition(self) -> Iterator[int | None]:
        return repeat(None, len(self))

    def _every_header(self) -> Iterator[Sequence[Any]]:
        every: Iterator[Sequence[Any]] = zip(*self._headers, strict=True)
        if not all(one.is_everywhere for one in self._headers):
            every = (tuple(filter(None, headers)) for headers in every)
        if self._carried:
            return (
                (*headers, *((self._prefix + name, text) for name, text in more or ()))
                for headers, more in zip(every, self._carried, strict=True)
            )
        return every

    def sizes(self) -> NDArray[np.int64]:
        """See ``Columns.sizes``."""
        if self._sizes is None:
            self._sizes = lengths_of(self._keys) + lengths_of(self._values)
        return self._sizes

    def partitions(self, count: int) -> _Integers:
        """See ``Columns.partitions``."""
        return partitions_of(self._keys, count)

    def where(self, chosen: Chosen) -> PackedRecords:
        """See ``Columns.where``."""
        return PackedRecords(*self._chosen(chosen))

    def _chosen(self, chosen: Chosen) -> tuple[Any, ...]:
        """What the chosen ones are made of, in the order of the arguments."""
        # Where places are chosen, by no more work than there are of them.
        are_places = isinstance(chosen, np.ndarray) and chosen.dtype != bool
        rows: _Integers = np.asarray(chosen, np.int64) if are_places else np.arange(len(self))[chosen]
        carried: Sequence[Headers | None] = ()
        if isinstance(self._carried, PackedHeaders):
            carried = PackedHeaders(self._carried.found, self._carried.records[chosen])
        elif self._carried:
            carried = [self._carried[row] for row in rows.tolist()]
        headers = [header.where(chosen) for header in self._headers]
        keys, values = picked(self._keys, rows), picked(self._values, rows)
        return self.topic, keys, values, headers, carried, self._prefix

    @property
    def packs(self) -> bool:
        """See ``Columns.packs``."""
        return kernel.NATIVE is not None and (not self._carried or isinstance(self._carried, PackedHeaders))

    def pack(self, most: int, take: Callable[[bytes, int], object]) -> None:
        """See ``Columns.pack``."""
        kept = None
        if isinstance(self._carried, PackedHeaders):
            kept = self._carried.found, np.ascontiguousarray(self._carried.records), self._prefix
        headers = [
            (one.name, None if one.texts is None else as_parts(one.texts), np.ascontiguousarray(one.numbers))
            for one in self._headers
        ]
        kernel.NATIVE.records(as_parts(self._keys), as_parts(self._values), headers, most, take, kept)
