"""How users and keys of a sample got into their partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eventveil.counting.written import Written, written
from eventveil.decoding.rules import UserFinder
from eventveil.doctor.sample import SampledRecord, SourceSample
from eventveil.model.records import NO_SCHEMAS, Schemas
from eventveil.model.topology import Stream


@dataclass(frozen=True, slots=True)
class Keys:
    """What the sample says of keys.

    ``users`` and ``keys``: where the distinct ones are. ``readable`` records have a user that can be read,
    of these ``equal`` have it as their key; ``differing`` is one of the others, its user and its key.
    """

    users: Written
    keys: Written
    readable: int
    equal: int
    differing: tuple[bytes, bytes | None] | None


def keys_of(stream: Stream, sample: SourceSample) -> Keys | None:
    """None of a file, which has no keys."""
    if sample.is_file:
        return None
    find = user_finder(stream, sample.schemas)
    found = [(one, user) for one in sample.records if (user := find(one)) is not None]
    equal = sum(one.key == user for one, user in found)
    differing = next(((user, one.key) for one, user in found if one.key != user), None)
    return Keys(
        written(((user, one.partition) for one, user in found), sample.partitions),
        written(((one.key, one.partition) for one in sample.records if one.key), sample.partitions),
        len(found),
        equal,
        differing,
    )


def user_finder(stream: Stream, schemas: Schemas = NO_SCHEMAS) -> Callable[[SampledRecord], bytes | None]:
    """The user of a record in canonical bytes; None if it has none that counts."""
    find = UserFinder(stream.source)
    return lambda record: find.read(record.value, record.around, schemas)
