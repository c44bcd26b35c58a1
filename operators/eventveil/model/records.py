"""What travels: a chunk of consecutive records of one raw partition, and a record to be written.

A chunk is columnar, so that decoding and counting can work on whole columns and a faster fetcher can fill
it without one object per record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

#: The largest record that Eventveil writes or reads: budget state and releases of 100,000 named columns fit.
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
#: What managed services take at most.
MANAGED_MESSAGE_BYTES = 8 * 1024 * 1024
#: A transaction carries at most about this many bytes of releases.
BATCH_BYTES = 2_000_000
#: The most that a number takes in a state or a release, a float64 at its longest, with a comma or bracket.
NUMBER_BYTES = 25
#: The append time of a record whose topic does not stamp records with LogAppendTime.
NO_APPEND_TIME = -1
#: The own time of a record that carries none, as Kafka writes it.
NO_OWN_TIME = -1
#: The leader epoch of records where it is unknown, as Kafka writes it.
NO_EPOCH = -1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}"

    def at(self, offset: int) -> str:
        """A record of it in words."""
        return f"{self}, offset {offset}"

    def record(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> Outgoing:
        """A record to be written to it."""
        return Outgoing(self.topic, value, key, self.partition, headers)


class Mark(NamedTuple):
    """Every event of ``partition`` that was appended before ``passed`` (epoch ms) has been passed on."""

    partition: int
    passed: int


Headers = Sequence[tuple[str, bytes]]


class Schema(Protocol):
    """What values are written by; ``form`` is the format of a source that can have it, None for any."""

    form: str | None

    def read(self, body: bytes) -> Any:
        """The record in what follows the id of the schema, as JSON would have it. Raises ValueError."""


#: By id, the schemas that values name; None: the registry does not know it.
Schemas = Mapping[int, Schema | None]
NO_SCHEMAS: Schemas = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one partition in offset order; the four sequences have equal length.

    ``append_times`` are broker times in epoch milliseconds, or NO_APPEND_TIME. ``start`` is the position
    before the chunk and ``next_offset`` the one after it: past its last record and past the control markers,
    aborted and compacted records that follow. A chunk without records reports a position alone.
    ``generation`` tells the chunks of one take-over of the partitions from those of the next. ``headers`` are
    those of the records, or nothing where nobody reads them. ``schemas`` has every schema that a value names,
    where values are written by schemas: who brings the chunk has asked for them, so that no verdict waits.

    ``own_times`` are the timestamps that the records carry, written by the producer (CreateTime) or
    the broker (LogAppendTime), in epoch milliseconds, or NO_OWN_TIME; nothing where no stream asks for them
    (``Source.own_time``). They are claims about events, as fields of values are. No rule on when something
    was appended may look at them: those have ``append_times``, in which a producer's time never stands.

    ``epoch`` is the leader epoch of the last record batch in it, passed over or not, or NO_EPOCH.
    """

    topic: str
    partition: int
    generation: int
    start: int
    offsets: Sequence[int]
    append_times: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    next_offset: int
    headers: Sequence[Headers | None] = ()
    schemas: Schemas = field(default_factory=dict)
    own_times: Sequence[int] = ()
    epoch: int = NO_EPOCH

    def since(self, position: int) -> Chunk:
        """The records from offset ``position`` on; those below it have been seen.

        Raises ValueError if records between the position and the chunk are missing.
        """
        if self.start > position:
            raise ValueError(f"the chunk starts at {self.start}, the position is {position}")
        first = bisect_left(self.offsets, position)
        if first == 0:
            return self
        return replace(
            self,
            start=max(self.start, position),
            offsets=self.offsets[first:],
            append_times=self.append_times[first:],
            keys=self.keys[first:],
            values=self.values[first:],
            headers=self.headers[first:],
            own_times=self.own_times[first:],
        )

    def first(self, records: int) -> Chunk:
        """The first records, where there are more."""
        return replace(
            self,
            offsets=self.offsets[:records],
            append_times=self.append_times[:records],
            keys=self.keys[:records],
            values=self.values[:records],
            headers=self.headers[:records],
            own_times=self.own_times[:records],
            next_offset=self.offsets[records - 1] + 1,
        )


class Outgoing(NamedTuple):
    """A record to be written. ``partition`` None lets the key choose."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Headers = ()


#: Which records of many: a mask, their places, or a slice.
Chosen = slice | NDArray[np.bool_] | NDArray[np.int64]


class Columns(ABC):
    """Many records of one topic that are written without an object for each.

    ``partition`` is None where keys choose partitions, and somebody has to know how many there are.
    """

    topic: str
    partition: int | None = None

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def __iter__(self) -> Iterator[Outgoing]:
        """The same one by one."""

    @abstractmethod
    def sizes(self) -> NDArray[np.int64]:
        """The bytes of key and value of each."""

    @abstractmethod
    def partitions(self, count: int) -> NDArray[np.int64]:
        """The partition of each among ``count``, as the Java client finds it, or NO_KEY."""

    @abstractmethod
    def where(self, chosen: Chosen) -> Columns:
        """Those that are chosen, in the order of their places."""

    @property
    @abstractmethod
    def packs(self) -> bool:
        """Whether they can be had together; if not, they are written one by one."""

    @abstractmethod
    def pack(self, most: int, take: Callable[[bytes, int], object]) -> None:
        """Call ``take`` with what follows the header of a batch, and the number of its records, in order.

        With the header each has fewer than ``most`` bytes, or one record; all have the time of the batch.
        """


#: Where a record has no key that chooses a partition.
NO_KEY = -1


class Records(Iterable[Outgoing]):
    """Records to be written, some of them in columns: all are met one by one, or those as they are."""

    def __init__(self, parts: Iterable[Outgoing | Columns]) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[Outgoing]:
        for part in self.parts:
            if isinstance(part, Columns):
                yield from part
            else:
                yield part


def parts_of(records: Iterable[Outgoing]) -> Iterable[Outgoing | Columns]:
    """Records, those that are in columns as they are."""
    return records.parts if isinstance(records, Records) else records
