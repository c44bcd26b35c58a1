"""Decoding many values at once: the same verdicts as ``eventveil.decoding.rules``, at a fraction of the time.

The quick way only ever says "this value is an event, with these fields" or "not sure", and what is
not sure is put to ``eventveil.decoding.rules``. Each value is parsed by a call of its own, never joined with
others: with ``[`` + ``,`` between them two crafted values can close and open each other's objects, and a
decoder of lines takes two documents on one line for one on each of two.

The compiled kernel reads values if it is installed (``eventveil.decoding.kernel``), and else orjson does, the
parser of ``eventveil.decoding.rules``. ``tests/unit/decoding/test_bulk.py`` and ``python -m tests.fuzz``
compare both with the rules.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from orjson import JSONDecodeError, loads

from eventveil.decoding import kernel
from eventveil.decoding.columns import Documents, Fields, Kind, NativeFields, Packed, numbers
from eventveil.decoding.naming import Names
from eventveil.decoding.places import compile_pointer, pointer_tokens
from eventveil.model.topology import Counts, Source

#: Column of an event that ``unknown: ignore`` leaves out, and of one that ``eventveil.decoding.rules`` must
#: judge.
IGNORED, UNSURE = -1, -2
#: That of a record which its stream's filter leaves out. It has no user and no timestamp either.
FILTERED = -3
_TYPES: dict[Kind, set[type]] = {"string": {str}, "integer": {int}, "time": {int, str}}


def fields_of(sources: Iterable[tuple[Source, Counts]]) -> dict[str, Kind] | None:
    """The pointers that streams need and what each is wanted as; None if two want the same differently.

    Streams whose rules ask for more than single fields of the value read nothing here (``Source.plain``).
    """
    wanted: dict[str, Kind] = {}
    for source, counts in sources:
        if not source.plain or source.user_type == "either":
            continue
        own: tuple[tuple[str, Kind], ...] = (
            (source.user, source.user_type), (source.column, counts.column_type), (source.time, "time"),
        )  # fmt: skip
        if any(wanted.setdefault(pointer, kind) != kind for pointer, kind in own):
            return None
    return wanted


class Columnar(Sequence[bytes | None]):
    """Values that were columns before; a value becomes JSON only when somebody asks for it."""

    @abstractmethod
    def fields(self, wanted: Mapping[str, Kind], max_bytes: int) -> Fields:
        """As ``BulkReader.read`` would find them in the JSON."""


class BulkReader:
    """Reads fields of JSON values, ``wanted`` as from ``fields_of``; above ``max_bytes`` it is unsure."""

    def __init__(self, wanted: Mapping[str, Kind] | None, max_bytes: int) -> None:
        self._wanted, self._max_bytes = wanted or {}, max_bytes
        self._read = _native(self._wanted, max_bytes) or _plain(self._wanted, max_bytes)

    def read(self, values: Sequence[bytes | None]) -> list[Fields]:
        """The fields of all values that are sure; nothing if there are none to read."""
        if isinstance(values, Columnar):
            return [values.fields(self._wanted, self._max_bytes)]
        return [self._read(values)] if self._wanted and values else []


_Read = Callable[[Sequence[bytes | None]], Fields]


def _native(wanted: Mapping[str, Kind], max_bytes: int) -> _Read | None:
    """The kernel's reader; None if there is no kernel, or if no object can have all of these fields."""
    if kernel.NATIVE is None:
        return None
    try:
        reader = kernel.NATIVE.Reader(
            [(pointer_tokens(one), kind) for one, kind in wanted.items()], max_bytes
        )
    except ValueError:
        return None

    def read(values: Sequence[bytes | None]) -> Fields:
        if isinstance(values, Packed):
            rows, columns = reader.read_parts(values.data, values.starts, values.lengths)
        else:
            rows, columns = reader.read(values if isinstance(values, list) else [*values])
        return NativeFields(rows, dict(zip(wanted, columns, strict=True)))

    return read


def _plain(wanted: Mapping[str, Kind], max_bytes: int) -> _Read:
    """One value after the other, by orjson."""
    find = _finder([*wanted])

    def read(values: Sequence[bytes | None]) -> Fields:
        rows: list[int] = []
        found: list[Any] = []
        for row, value in enumerate(values):
            if value is None or len(value) > max_bytes:
                continue
            try:
                # No document is kept, and no tuple: the garbage collector would look through all of them.
                found.extend(find(loads(value)))
            except (JSONDecodeError, LookupError, TypeError):
                continue
            rows.append(row)
        columns = {pointer: found[place :: len(wanted)] for place, pointer in enumerate(wanted)}
        for pointer, column in [*columns.items()]:
            types = _TYPES[wanted[pointer]]
            if not {*map(type, column)} <= types:
                sure = [type(one) in types for one in columns[pointer]]
                rows = [*compress(rows, sure)]
                columns = {one: [*compress(column, sure)] for one, column in columns.items()}
        return Documents(np.array(rows, np.int64), columns)

    return read


def _finder(pointers: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What a document has at pointers; it raises LookupError or TypeError."""
    finds = [compile_pointer(pointer) for pointer in pointers]
    paths = ["".join(f"[{token!r}]" for token in pointer_tokens(pointer)) for pointer in pointers]
    # In objects of objects, as nearly all are: a fifth of the time of the functions above.
    quick = eval(f"lambda one: ({''.join(f'one{path},' for path in paths)})")

    def find(document: Any) -> tuple[Any, ...]:
        try:
            found: tuple[Any, ...] = quick(document)
        except (LookupError, TypeError):
            return tuple(find(document) for find in finds)
        return found

    return find


class NameFinder:
    """Gives the columns of one stream's events their numbers, where columns are found in the data."""

    def __init__(self, source: Source, names: Names) -> None:
        self._pointer, self._names = source.column, names

    def __call__(self, fields: Fields) -> NDArray[np.int64]:
        """The number of the column of each row, or UNSURE."""
        found, new = numbers(0).of(fields.column(self._pointer))
        known = (self._names.number(str(one)) for one in fields.at(self._pointer, new))
        numbered = np.fromiter((UNSURE if one is None else one for one in known), np.int64, len(new))
        # New ones come in the order of their numbers.
        columns: NDArray[np.int64] = numbered[found]
        return columns


class ColumnFinder:
    """Finds the columns of one stream's events among the fields that were read."""

    def __init__(self, source: Source, counts: Counts) -> None:
        self._pointer = source.column
        ignored = IGNORED if counts.unknown_column is None else counts.unknown_column
        unknown = UNSURE if counts.unknown == "dead-letter" else ignored
        index = {label: place for place, label in enumerate(counts.labels)}
        if counts.column_type == "integer":
            # Labels that no integer is written as, such as 07, are the column of none.
            index = {int(label): place for label, place in index.items() if _is_written(label)}  # type: ignore[misc]
        self._numbers, self._columns = numbers(0), np.array([*index.values(), unknown], np.int64)
        self._numbers.of([*index])

    def __call__(self, fields: Fields) -> NDArray[np.int64]:
        """The index of the column of each row, IGNORED or UNSURE."""
        return self._columns[self._numbers.find(fields.column(self._pointer))]


def _is_written(label: str) -> bool:
    """Whether an integer is written like this."""
    try:
        return str(int(label)) == label
    except ValueError:
        return False
