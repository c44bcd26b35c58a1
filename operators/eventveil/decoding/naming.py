"""From what an event holds at the fields of a column to the name of the column."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from eventveil.decoding.places import Envelope, compile_field
from eventveil.model import fields
from eventveil.model.topology import NameMap, Source


class Unnamed:
    """Why there is no name: the field at fault, and what it holds (MISSING if it is not there)."""

    __slots__ = ("field", "found")

    def __init__(self, field: str, found: Any) -> None:
        self.field, self.found = field, found


class Namer:
    """Names the combinations of a stream's column, as tuples with a part for each field."""

    def __init__(self, source: Source, *, integers: bool) -> None:
        """``integers``: a column of one field without a map is an integer, and else a text."""
        listed = fields.listed(source.column)
        maps = {one.field: Renamer(one) for one in source.maps}
        alone = len(listed) == 1
        self._parts = [
            (field, compile_field(field), maps.get(field), _types(alone and field not in maps, integers))
            for field in listed
        ]

    def __call__(self, document: Any, envelope: Envelope) -> tuple[str, ...] | Unnamed:
        """The parts of the name, or what is wrong with the first field that has none."""
        parts: list[str] = []
        for field, find, rename, types in self._parts:
            found = find(document, envelope)
            if type(found) not in types:
                return Unnamed(field, found)
            parts.append(str(found) if rename is None else rename(str(found)))
        return tuple(parts)

    def expected(self, field: str) -> str:
        """What a field should hold, in words."""
        types = next(types for one, _, _, types in self._parts if one == field)
        return " or ".join(_WORDS[one] for one in types)


_WORDS = {str: "a string", int: "an integer"}


def _types(strict: bool, integers: bool) -> tuple[type, ...]:
    """In a combination, and where a map gives the names, 7 is the same as "7"."""
    if strict:
        return (int,) if integers else (str,)
    return (str, int)


#: What no column that is found may have, for good: controls, what turns the direction of text, line and
#: paragraph separators, what is invisible (soft hyphen, joiners, marks, fillers, tags), what is no character,
#: and halves of characters, which no UTF-8 has.
_REFUSED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


class Names:
    """Numbers for the texts of columns that are found in the data, anew for each chunk.

    A text is no column, and has the number None, if it is empty, longer than ``longest`` characters, or has a
    character that is refused: a rule that no version of Unicode changes.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._numbers: dict[str, int] = {}

    def clear(self) -> None:
        """Forget all: another chunk comes."""
        self._numbers = {}

    def number(self, text: str) -> int | None:
        """The number of a text, the next one if it is new."""
        if not 0 < len(text) <= self._longest or _REFUSED.search(text):
            return None
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> list[str]:
        """Those of the numbers, in order."""
        return [*self._numbers]


class Renamer:
    """A map of a topology: whole texts, then prefixes, the longest first."""

    def __init__(self, table: NameMap) -> None:
        self._values = dict(table.values)
        self._prefixes = dict(table.prefixes)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        self._otherwise = table.otherwise

    def __call__(self, text: str) -> str:
        """The name of a text."""
        name = self._values.get(text)
        if name is not None:
            return name
        for length in self._lengths:
            name = self._prefixes.get(text[:length])
            if name is not None:
                return name
        return text if self._otherwise is None else self._otherwise


def index_of(labels: Iterable[str], parts: int) -> dict[tuple[str, ...], int]:
    """The place of each column by the parts of its name; one that has another number of parts has none.

    No part holds what stands between them, so that no two combinations have one name.
    """
    split = ((label,) if parts == 1 else tuple(label.split(fields.BETWEEN)) for label in labels)
    return {name: place for place, name in enumerate(split) if len(name) == parts}
