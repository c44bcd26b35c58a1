"""Where in the documents of a sample a field may be that its pointer does not find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eventveil.decoding.places import Instant, pointer_tokens
from eventveil.decoding.rules import Rejection, parse
from eventveil.doctor.sample import Record
from eventveil.model.records import NO_SCHEMAS, Schemas
from eventveil.model.timeline import parse_rfc3339
from eventveil.model.topology import Format

#: A field counts as one that events have if this share of them has it.
_MANY = 0.5
#: A field holds times if this share of what is in it can be read as one.
_MOST = 0.8
_DEEPEST, _WIDEST = 6, 200
#: Times in epoch milliseconds: from 2001 to 2286.
_LIKE_TIMES = range(10**12, 10**13)


@dataclass(frozen=True, slots=True)
class Field:
    """A place in most documents: how many have a text there, a whole number, or a time that can be read.

    ``decimals`` are other numbers.
    """

    pointer: str
    texts: int
    integers: int
    times: int
    decimals: int = 0

    @property
    def all(self) -> int:
        """How many documents have it."""
        return self.texts + self.integers + self.decimals

    @property
    def in_array(self) -> bool:
        """Whether it is in the first element of an array."""
        return "0" in pointer_tokens(self.pointer)

    @property
    def kind(self) -> str:
        """What it mostly holds, in a word."""
        if self.times >= _MOST * self.all:
            return "time"
        return "text" if 2 * self.texts >= self.all else "number"


def fields_of(
    records: Sequence[Record], max_bytes: int, form: Format = "json", schemas: Schemas = NO_SCHEMAS
) -> list[Field]:
    """The places where most of the documents have a text or a number, in the order of the first one.

    Of an array of objects the first is looked at.
    """
    seen: dict[str, Counter[str]] = {}
    documents = 0
    for record in records:
        document = parse(record.value, max_bytes, form, schemas)
        if isinstance(document, Rejection):
            continue
        documents += 1
        for pointer, value in leaves(document):
            if pointer in seen or len(seen) < _WIDEST:
                seen.setdefault(pointer, Counter()).update(_kinds(value))
    found = [
        Field(one, kinds["text"], kinds["integer"], kinds["time"], kinds["decimal"])
        for one, kinds in seen.items()
    ]
    return [one for one in found if 0 < one.all >= _MANY * documents]


def leaves(document: Any, pointer: str = "", depth: int = _DEEPEST) -> Iterator[tuple[str, Any]]:
    """The texts, numbers and truth values of a document below ``pointer``, each with its place."""
    if isinstance(document, dict) and depth:
        for name, value in document.items():
            yield from leaves(value, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}", depth - 1)
    elif isinstance(document, list) and depth and document and isinstance(document[0], dict):
        yield from leaves(document[0], f"{pointer}/0", depth - 1)
    elif type(document) in (str, int, float, bool, Instant):
        yield pointer, document


def _kinds(value: str | int | float) -> Iterator[str]:
    if type(value) is bool:
        return
    if isinstance(value, float):
        yield "decimal"
        return
    if isinstance(value, int):
        yield "integer"
        if type(value) is Instant or value in _LIKE_TIMES:
            yield "time"
        return
    yield "text"
    try:
        parse_rfc3339(value)
    except ValueError:
        return
    yield "time"


def likely(fields: Sequence[Field], pointer: str, *, time: bool = False) -> list[str]:
    """Which fields ``pointer`` may have meant: those with most of its end; for a ``time``, else all times."""
    fitting = [one for one in fields if one.times >= _MOST * one.all or (not time and _names(one))]
    # An array may be empty, and its order may mean nothing: its first element only where nothing else fits.
    outside = [one for one in fitting if not one.in_array]
    return _ending(outside, pointer, time=time) or _ending(fitting, pointer, time=time)


def _names(field: Field) -> bool:
    """Whether it may name a user or a column, which no number with decimals does."""
    return field.texts + field.integers > field.decimals


def _ending(fitting: Sequence[Field], pointer: str, *, time: bool) -> list[str]:
    common = {one.pointer: _common(one.pointer, pointer) for one in fitting}
    most = max(common.values(), default=0)
    if most:
        return [one for one, number in common.items() if number == most]
    return [*common] if time else []


def _common(pointer: str, other: str) -> int:
    """With how many names both end, whatever their case and punctuation."""
    number = 0
    for one, two in zip(reversed(pointer_tokens(pointer)), reversed(pointer_tokens(other)), strict=False):
        if plain(one) != plain(two):
            break
        number += 1
    return number


def plain(name: str) -> str:
    """A name without what is often written in another way: its case and punctuation."""
    return "".join(filter(str.isalnum, name)).casefold()
