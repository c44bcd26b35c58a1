"""The newest records of a source, as they are: raw data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eventveil.decoding.places import Envelope
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, NO_SCHEMAS, Chunk, Headers, Schemas
from eventveil.model.topology import Stream


class SampledRecord(NamedTuple):
    """``time`` is the record's own in epoch milliseconds, ``appended`` whether the broker has stamped it.

    A judge may put another ``time`` in its place, and leaves ``own_time`` as it was read. ``lacks_headers``:
    it has some that cannot be read here (``headers_of``).
    """

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    time: int = NO_APPEND_TIME
    appended: bool = False
    own_time: int = NO_OWN_TIME
    lacks_headers: bool = False

    @property
    def around(self) -> Envelope:
        """What is around its value. Times are not asked for by the fields that are looked for."""
        return Envelope(self.key, self.headers)


@dataclass(frozen=True)
class SourceSample:
    """What was read of ``source``, a topic, or a file if there are ``rules``, by which a file is judged.

    ``held`` is how many records the source has in all, as far as its offsets tell. ``settings`` are those of
    the topic, None where nobody may ask, ``mistakes`` what ``eventveil topics`` would say of them.
    ``schemas`` are those that values name.
    """

    source: str
    partitions: int
    records: Sequence[SampledRecord]
    held: int
    settings: Mapping[str, str] | None = None
    mistakes: Sequence[str] = ()
    notes: Sequence[str] = ()
    rules: Callable[[Stream], Stream] | None = None
    schemas: Schemas = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """Whether nothing is known of keys, partitions and append times."""
        return self.rules is not None

    @property
    def stamps(self) -> bool:
        """Whether the broker stamps what is written now, whatever records are from before."""
        return (self.settings or {}).get("message.timestamp.type") == "LogAppendTime"


def chunk(
    records: Iterable[SampledRecord], *, partition: int, renumber: bool, schemas: Schemas = NO_SCHEMAS
) -> tuple[Chunk, dict[int, SampledRecord]]:
    """Records as a chunk of a partition in the order of their offsets, and each by its offset there.

    ``renumber``: records of several partitions as one, in the order of their times; offsets are then their
    places in it.
    """
    order = sorted(records, key=lambda one: (one.time, one.partition, one.offset) if renumber else one.offset)
    offsets = [*range(len(order))] if renumber else [one.offset for one in order]
    made = Chunk(
        topic="",
        partition=partition,
        generation=0,
        start=0,
        offsets=offsets,
        append_times=[one.time if one.appended else NO_APPEND_TIME for one in order],
        keys=[one.key for one in order],
        values=[one.value for one in order],
        next_offset=offsets[-1] + 1 if offsets else 0,
        headers=[one.headers for one in order],
        schemas=schemas,
        own_times=[one.own_time for one in order],
    )
    return made, dict(zip(offsets, order, strict=True))


def by_partition(records: Iterable[SampledRecord]) -> Mapping[int, list[SampledRecord]]:
    """The records of each partition."""
    found: defaultdict[int, list[SampledRecord]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return found
