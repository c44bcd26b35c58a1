"""What many users have in their events: nothing else is proposed, because a topology is public.

So are fields whose values tell the records that a stream can count from those that it cannot. A topic may
hold events of several kinds, and those of one kind have what the stream asks for. Fields of many values, such
as users, tell nothing of kinds; nor do fields that both sorts of records have alike. A value that few users
have may tell of one of them, and is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eventveil.decoding.places import Envelope, Find, compile_field, compile_first, is_there
from eventveil.decoding.rules import Rejection, parse
from eventveil.doctor.sample import SourceSample
from eventveil.model import fields
from eventveil.model.topology import Source

#: What fewer users of a sample have is not proposed: it may tell of one of them.
LEAST_USERS = 10
#: A field of more values than these in a sample is not one of kinds.
_KINDS = 20
#: This share of the records on either side has to be told right.
_SURE = 0.98


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record's document and what is around it, whose it is (None if that cannot be read), its bytes."""

    document: Any
    around: Envelope
    user: str | None
    size: int


def read(sample: SourceSample, source: Source, user: str | None = None) -> Iterator[ReadRecord]:
    """The records that can be read, however large; users are those at ``source.user``, or at ``user``."""
    find = compile_first(fields.listed(source.user if user is None else user))
    for record in sample.records:
        size = len(record.value or b"")
        document = parse(record.value, size, source.format, sample.schemas)
        if not isinstance(document, Rejection):
            yield ReadRecord(document, record.around, _user(find(document, record.around)), size)


def is_of_many(sample: SourceSample, source: Source, pointer: str, user: str | None = None) -> bool:
    """Whether many users have something at ``pointer``."""
    find = compile_field(pointer)
    users = {one.user for one in read(sample, source, user) if is_there(find(one.document, one.around))}
    return len(users - {None}) >= LEAST_USERS


def comes_again(sample: SourceSample, source: Source, pointer: str) -> bool:
    """Whether what is at ``pointer`` may name users: many values come again, in most records.

    Of the records that have one, half or more must share theirs with another. Ids of events come once: with
    one as the user, each event would be of a user of its own.
    """
    return _come_again(Counter(one.user for one in read(sample, source, pointer) if one.user is not None))


def that_come_again(sample: SourceSample, source: Source, pointers: Iterable[str]) -> list[str]:
    """Those of ``pointers`` of which the same holds, and which have more values than a field of kinds."""
    finds = {pointer: compile_field(pointer) for pointer in pointers}
    values = {pointer: Counter[str]() for pointer in finds}
    for record in read(sample, source):
        for pointer, find in finds.items():
            if (value := _user(find(record.document, record.around))) is not None:
                values[pointer][value] += 1
    return [pointer for pointer, found in values.items() if len(found) > _KINDS and _come_again(found)]


def _come_again(values: Counter[str]) -> bool:
    again = _again(values)
    return len(again) >= LEAST_USERS and 2 * sum(again) >= values.total()


def _again(users: Counter[str]) -> list[int]:
    """How often those came that came more than once."""
    return [number for number in users.values() if number > 1]


def key_may_be_user(sample: SourceSample, source: Source, pointers: Iterable[str]) -> bool:
    """Whether keys may name users: most records have one that comes again, and many of these do.

    Ids of events come once. What ``pointers`` find under a name of its own, such as a session, is no user.
    """
    records = [*read(sample, source, fields.KEY)]
    keys = Counter(one.user for one in records if one.user is not None)
    again = _again(keys)
    if len(again) < LEAST_USERS or 2 * sum(again) < len(records):
        return False

    def is_key(find: Find) -> bool:
        found = ((_user(find(one.document, one.around)), one.user) for one in records)
        return sum(user is not None and user == key for user, key in found) >= _SURE * keys.total()

    return not any(is_key(compile_field(pointer)) for pointer in pointers if pointer != fields.KEY)


def size_of_many(sample: SourceSample, source: Source) -> int | None:
    """The largest size that the largest records of many users have, in bytes; None if there are too few."""
    largest: dict[str, int] = {}
    for one in read(sample, source):
        if one.user is not None and one.size > source.max_bytes:
            largest[one.user] = max(one.size, largest.get(one.user, 0))
    sizes = sorted(largest.values(), reverse=True)
    return sizes[LEAST_USERS - 1] if len(sizes) >= LEAST_USERS else None


def _user(found: Any) -> str | None:
    return str(found) if isinstance(found, str | int) and found != "" else None


def separating(
    sample: SourceSample, source: Source, pointers: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    """Fields with the values that nearly all records have in which ``source.column`` is, and no others.

    ``pointers`` are the candidates, which hold texts. Each value is one that many users have.
    """
    records = [one for one in read(sample, source) if one.size <= source.max_bytes]
    has_column = _has(source.column)
    good = [one for one in records if has_column(one)]
    bad = [one for one in records if not has_column(one)]
    if not good or not bad:
        return
    for pointer in pointers:
        find = compile_field(pointer)
        values = _of_many(find, good)
        inside, outside = (
            sum(find(one.document, one.around) in values for one in _with_text(find, some))
            for some in (good, bad)
        )
        if (
            0 < len(values) <= _KINDS < len(good)
            and inside >= _SURE * len(good)
            and outside <= (1 - _SURE) * len(bad)
        ):
            yield pointer, sorted(values)


def _with_text(find: Find, records: Iterable[ReadRecord]) -> list[ReadRecord]:
    return [one for one in records if isinstance(find(one.document, one.around), str)]


def _of_many(find: Find, records: Iterable[ReadRecord]) -> set[str]:
    """The texts that records of many users have."""
    users: dict[str, set[str]] = {}
    for one in _with_text(find, records):
        if one.user is not None:
            users.setdefault(find(one.document, one.around), set()).add(one.user)
    return {text for text, some in users.items() if len(some) >= LEAST_USERS}


def _has(column: str) -> Callable[[ReadRecord], bool]:
    """Whether a record has all that names its column."""
    finds = [compile_field(one) for one in fields.listed(column)]
    return lambda one: all(isinstance(find(one.document, one.around), str | int) for find in finds)
