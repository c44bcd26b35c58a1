"""How many users have what a proposal would take from their events: a topology is public, events are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eventveil.decoding.places import NO_ENVELOPE, Envelope, compile_field, compile_first, is_there
from eventveil.decoding.rules import Rejection, parse
from eventveil.doctor.sample import Record, Sample
from eventveil.model import fields
from eventveil.model.topology import Source

#: What fewer users of a sample have is not proposed: it may tell of one of them.
LEAST_USERS = 10


@dataclass(frozen=True, slots=True)
class Read:
    """A record's document, whose it is (None if that cannot be read), and how many bytes its value has."""

    document: Any
    user: str | None
    size: int


def read(sample: Sample, source: Source, user: str | None = None) -> Iterator[Read]:
    """The records that can be read, however large; users are those at ``source.user``, or at ``user``."""
    find = compile_first(fields.listed(source.user if user is None else user))
    for record in sample.records:
        size = len(record.value or b"")
        document = parse(record.value, size, source.format, sample.schemas)
        if not isinstance(document, Rejection):
            yield Read(document, _user(find(document, _around(record))), size)


def is_of_many(sample: Sample, source: Source, pointer: str, user: str | None = None) -> bool:
    """Whether many users have something at ``pointer``."""
    find = compile_field(pointer)
    users = {one.user for one in read(sample, source, user) if is_there(find(one.document, NO_ENVELOPE))}
    return len(users - {None}) >= LEAST_USERS


def size_of_many(sample: Sample, source: Source) -> int | None:
    """The largest size that the largest records of many users have, in bytes; None if there are too few."""
    largest: dict[str, int] = {}
    for one in read(sample, source):
        if one.user is not None and one.size > source.max_bytes:
            largest[one.user] = max(one.size, largest.get(one.user, 0))
    sizes = sorted(largest.values(), reverse=True)
    return sizes[LEAST_USERS - 1] if len(sizes) >= LEAST_USERS else None


def _user(found: Any) -> str | None:
    return str(found) if isinstance(found, str | int) and found != "" else None


def _around(record: Record) -> Envelope:
    return Envelope(record.key, record.headers)
