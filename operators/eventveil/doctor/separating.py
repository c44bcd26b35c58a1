"""Which value of a field tells the records that a stream can count from those that it cannot.

A topic may hold events of several kinds, and those of one kind have what the stream asks for. Fields of many
values, such as users, tell nothing of kinds; nor do fields that both sorts of records have alike. A value
that few users have may tell of one of them, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from eventveil.decoding.places import NO_ENVELOPE, Find, compile_field
from eventveil.doctor.people import LEAST_USERS, Read, read
from eventveil.doctor.sample import Sample
from eventveil.model import fields
from eventveil.model.topology import Source

#: A field of more values than these in a sample is not one of kinds.
_KINDS = 20
#: This share of the records on either side has to be told right.
_SURE = 0.98


def separating(sample: Sample, source: Source, pointers: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Fields with the values that nearly all records have in which ``source.column`` is, and no others.

    ``pointers`` are the candidates, which hold texts. Each value is one that many users have.
    """
    records = [one for one in read(sample, source) if one.size <= source.max_bytes]
    has_column = _has(source.column)
    good = [one for one in records if has_column(one.document)]
    bad = [one for one in records if not has_column(one.document)]
    if not good or not bad:
        return
    for pointer in pointers:
        find = compile_field(pointer)
        values = _of_many(find, good)
        inside, outside = (
            sum(find(one.document, NO_ENVELOPE) in values for one in _with_text(find, some))
            for some in (good, bad)
        )
        if (
            0 < len(values) <= _KINDS < len(good)
            and inside >= _SURE * len(good)
            and outside <= (1 - _SURE) * len(bad)
        ):
            yield pointer, sorted(values)


def _with_text(find: Find, records: Iterable[Read]) -> list[Read]:
    return [one for one in records if isinstance(find(one.document, NO_ENVELOPE), str)]


def _of_many(find: Find, records: Iterable[Read]) -> set[str]:
    """The texts that records of many users have."""
    users: dict[str, set[str]] = {}
    for one in _with_text(find, records):
        if one.user is not None:
            users.setdefault(find(one.document, NO_ENVELOPE), set()).add(one.user)
    return {text for text, some in users.items() if len(some) >= LEAST_USERS}


def _has(column: str) -> Callable[[Any], bool]:
    """Whether a document has all that names its column."""
    finds = [compile_field(one) for one in fields.listed(column)]
    return lambda document: all(isinstance(find(document, NO_ENVELOPE), str | int) for find in finds)
