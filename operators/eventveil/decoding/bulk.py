"""Decoding many values at once: the same verdicts as ``eventveil.decoding.rules``, at a fraction of the time.

The quick way only ever says "this value is an event, with these fields", "this is not JSON" or "not sure",
and what is not sure is put to ``eventveil.decoding.rules``. Each value is parsed by a call of its own, never
joined with others: with ``[`` + ``,`` between them two crafted values can close and open each other's
objects, and a decoder of lines takes two documents on one line for one on each of two.

The compiled kernel reads values if it is installed (``eventveil.process.kernel``), and else orjson does, the
parser of ``eventveil.decoding.rules``. ``tests/unit/decoding/test_bulk.py`` and ``python -m tests.fuzz``
compare both with the rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, compress, repeat
from math import inf
from operator import itemgetter
from typing import Any, Literal, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from orjson import JSONDecodeError, loads

from eventveil.decoding import schemas as by_schema
from eventveil.decoding.places import (
    TIME_LIMIT,
    TIME_UNITS,
    Instant,
    as_text,
    compile_pointer,
    pointer_tokens,
)
from eventveil.decoding.rules import Names, Renamer, check_memory, index_of
from eventveil.model.fields import TIME, in_envelope, listed
from eventveil.model.records import NO_SCHEMAS, Schemas
from eventveil.model.timeline import parse_rfc3339
from eventveil.model.topology import BY_SCHEMA, Condition, Counts, Format, Source, TimeUnit
from eventveil.process import kernel

_Integers = NDArray[np.int64]


class Packed(Sequence[bytes | None]):
    """Parts of ``data``, in its order and apart, from ``starts`` on; a length of -1 is None."""

    def __init__(self, data: bytes, starts: _Integers, lengths: _Integers) -> None:
        self.data, self.starts, self.lengths = data, starts, lengths

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[bytes | None]:
        # A length of -1 must not reach from its start to the end of all the data.
        ends = self.starts + np.maximum(self.lengths, 0)
        parts = map(self.data.__getitem__, map(slice, self.starts.tolist(), ends.tolist()))
        if self.lengths.size and self.lengths.min() >= 0:
            return parts
        return (
            part if length >= 0 else None for part, length in zip(parts, self.lengths.tolist(), strict=True)
        )

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> Packed: ...
    def __getitem__(self, index: int | slice) -> bytes | Packed | None:
        starts, lengths = self.starts[index], self.lengths[index]
        if isinstance(index, slice):
            return Packed(self.data, starts, lengths)
        return self.data[starts : starts + lengths] if lengths >= 0 else None


def picked(values: Sequence[bytes | None], rows: _Integers) -> Sequence[bytes | None]:
    """Those in these rows."""
    if isinstance(values, Packed):
        return Packed(values.data, values.starts[rows], values.lengths[rows])
    return [values[row] for row in rows.tolist()]


def packed_in(data: bytes, starts: bytes, lengths: bytes) -> Packed:
    """Parts of ``data``, by int64 of starts and lengths."""
    return Packed(data, np.frombuffer(starts, np.int64), np.frombuffer(lengths, np.int64))


def are_some(values: Sequence[bytes | None]) -> bool:
    """Whether any is not None."""
    if isinstance(values, Packed):
        return bool((values.lengths >= 0).any())
    return any(value is not None for value in values)


def as_parts(values: Sequence[bytes | None]) -> Any:
    """Values as the kernel takes them."""
    if isinstance(values, Packed):
        return values.data, values.starts, values.lengths
    return values if isinstance(values, list) else [*values]


def lengths_of(values: Sequence[bytes | None]) -> _Integers:
    """The length of each, 0 of None."""
    if isinstance(values, Packed):
        return np.maximum(values.lengths, 0)
    try:
        return np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
    except TypeError:
        return np.fromiter((len(value or b"") for value in values), np.int64, len(values))


def as_array(numbers: Any) -> _Integers:
    """Integers as an array, where the kernel may have them."""
    if isinstance(numbers, np.ndarray):
        return numbers
    return np.frombuffer(numbers.bytes(), np.int64)


class Numbers(Protocol):
    """A dictionary for whole columns, of ``Fields`` or lists: of strings, or of integers.

    What it is asked for is told apart by all of its bytes, and never by a hash alone.
    """

    def of(self, column: Any) -> tuple[_Integers, _Integers]:
        """The number of each, and the places of the new ones, whose numbers are the next ones."""

    def translate(self, column: Any, meanings: _Integers) -> Any:
        """What the number of each stands for in ``meanings``, whose last one is that of values without one.

        For ``as_array``. Raises ValueError if these are not one more than there are numbers.
        """


def numbers(first: int) -> Numbers:
    """Numbers from ``first`` on, of columns as ``eventveil.decoding.bulk`` reads them."""
    return PlainNumbers(first) if kernel.NATIVE is None else NativeNumbers(first)


class _Known(dict[Any, int]):
    """Gives a key that is not there the next number."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


class PlainNumbers:
    """See ``Numbers``: for lists."""

    def __init__(self, first: int) -> None:
        self._first, self._known = first, _Known()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, column: Sequence[str | int]) -> tuple[_Integers, _Integers]:
        """See ``Numbers.of``."""
        size = len(self._known)
        found = np.fromiter(map(self._known.__getitem__, column), np.int64, len(column))
        late = np.flatnonzero(found >= size)
        new = late[np.unique(found[late], return_index=True)[1]]
        return found + self._first, new

    def translate(self, column: Sequence[str | int], meanings: _Integers) -> _Integers:
        """See ``Numbers.translate``."""
        if len(meanings) != len(self) + 1:
            raise ValueError(f"{len(meanings)} meanings of {len(self)}")
        found = map(self._known.get, column, repeat(-1))
        return meanings[np.fromiter(found, np.int64, len(column))]

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget all but those, a flag for each; they are numbered anew, in the same order."""
        known = _Known()
        for one in compress(self._known, kept.tolist()):
            known[one] = len(known)
        self._known = known


class NativeNumbers:
    """See ``Numbers``: for columns of the kernel, and lists."""

    def __init__(self, first: int) -> None:
        self._numbers: Any = kernel.NATIVE.Numbers(first)

    def of(self, column: Any) -> tuple[_Integers, _Integers]:
        """See ``Numbers.of``."""
        found, new = self._numbers.of(column)
        return np.frombuffer(found, np.int64), np.frombuffer(new, np.int64)

    def translate(self, column: Any, meanings: _Integers) -> Any:
        """See ``Numbers.translate``."""
        return self._numbers.translate(column, meanings)


_Value = TypeVar("_Value")

#: What a field is wanted as; "either" is a string or an integer, which is the same as its digits. A unit is a
#: time: a text, or an integer in it.
Kind = Literal["string", "integer", "either"] | TimeUnit

#: Time of an event that ``eventveil.decoding.rules`` must judge; no readable time is so early.
UNSURE_TIME = np.iinfo(np.int64).min

_REMEMBERED, _LONGEST_PART = 100_000, 40
_NONE = np.zeros(0, np.int64)


def distinct(values: Sequence[_Value]) -> tuple[NDArray[np.int64], list[_Value]]:
    """Of each value its place among the distinct ones, and those, in the order in which they come first."""
    first = dict.fromkeys(values)
    if len(first) == len(values):
        return np.arange(len(values)), [*values]
    places = {one: place for place, one in enumerate(first)}
    return np.fromiter(map(places.__getitem__, values), np.int64, len(values)), [*places]


class Fields(ABC):
    """What was read of a chunk: the fields of those values that are sure, at ``rows``, ascending.

    At ``broken``, ascending, are values that are certainly no JSON.
    """

    def __init__(self, rows: NDArray[np.int64], broken: NDArray[np.int64] = _NONE) -> None:
        self.rows, self.broken = rows, broken
        #: What others made of them, under keys of their own, for the next question.
        self.known: dict[Any, Any] = {}
        self._times: dict[str, NDArray[np.int64]] = {}

    @abstractmethod
    def column(self, pointer: str) -> Any:
        """The fields at a pointer, one for each of ``rows``, as ``Numbers`` take them."""

    @abstractmethod
    def at(self, pointer: str, places: NDArray[np.int64]) -> Sequence[str | int]:
        """Those at these places among ``rows``; of a time that is sure, its milliseconds will do."""

    def distinct(
        self, pointer: str, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Sequence[str | int]]:
        """Those at these places as ``distinct`` has them: the place of each, and the distinct ones."""
        return distinct(self.at(pointer, places))

    @abstractmethod
    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        """As ``times``, or beyond +-TIME_LIMIT."""

    def canonical(self, pointer: str, places: NDArray[np.int64]) -> list[bytes]:
        """Those at these places in canonical bytes: UTF-8 of a string, decimal digits of an integer."""
        return [str(one).encode() for one in self.at(pointer, places)]

    def quoted(self, pointer: str, places: NDArray[np.int64], end: str, most: int) -> Packed | None:
        """``repr`` of those at these places, each with ``end`` behind it, where that is certain.

        None if one has more than ``most`` characters, or if it takes Python to tell.
        """
        return None

    def filled(self, pointer: str) -> NDArray[np.bool_]:
        """Which of the fields at a pointer are no empty strings."""
        return np.fromiter((one != "" for one in self.column(pointer)), bool, len(self.rows))

    def times(self, pointer: str) -> NDArray[np.int64]:
        """Epoch milliseconds, or UNSURE_TIME."""
        if pointer not in self._times:
            times = self._read_times(pointer)
            readable = (times > -TIME_LIMIT) & (times < TIME_LIMIT)
            self._times[pointer] = np.where(readable, times, UNSURE_TIME)
        return self._times[pointer]

    def timed(self, pointer: str) -> Any:
        """As ``times``, in an array or as the kernel has them."""
        return self.times(pointer)


class Documents(Fields):
    """Fields as lists of strings and integers, one for each pointer."""

    def __init__(
        self,
        rows: NDArray[np.int64],
        columns: Mapping[str, list[Any]],
        broken: NDArray[np.int64] = _NONE,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        super().__init__(rows, broken)
        self._columns, self._kinds = columns, kinds or {}

    def column(self, pointer: str) -> list[Any]:
        """See ``Fields.column``."""
        return self._columns.get(pointer, [])

    def at(self, pointer: str, places: NDArray[np.int64]) -> Sequence[str | int]:
        """See ``Fields.at``."""
        column = self.column(pointer)
        return [column[place] for place in places.tolist()]

    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        return times_of(self.column(pointer), self._kinds.get(pointer, "ms"))


class NativeFields(Fields):
    """Fields as columns of the kernel."""

    def __init__(self, rows: bytes, broken: bytes, columns: Mapping[str, Any]) -> None:
        super().__init__(np.frombuffer(rows, np.int64), np.frombuffer(broken, np.int64))
        self._columns = columns

    def column(self, pointer: str) -> Any:
        """See ``Fields.column``."""
        return self._columns[pointer]

    def at(self, pointer: str, places: NDArray[np.int64]) -> Sequence[str | int]:
        """See ``Fields.at``."""
        found: list[str | int] = self._columns[pointer].at(places)
        return found

    def distinct(
        self, pointer: str, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Sequence[str | int]]:
        """See ``Fields.distinct``."""
        which, values = self._columns[pointer].distinct(places)
        return np.frombuffer(which, np.int64), values

    def canonical(self, pointer: str, places: NDArray[np.int64]) -> list[bytes]:
        """See ``Fields.canonical``."""
        found: list[bytes] = self._columns[pointer].canonical(places)
        return found

    def quoted(self, pointer: str, places: NDArray[np.int64], end: str, most: int) -> Packed | None:
        """See ``Fields.quoted``."""
        found = self._columns[pointer].quoted(places, end, most)
        if found is None:
            return None
        lengths = np.frombuffer(found[1], np.int64)
        return Packed(found[0], np.cumsum(lengths) - lengths, lengths)

    def filled(self, pointer: str) -> NDArray[np.bool_]:
        """See ``Fields.filled``."""
        return np.frombuffer(self._columns[pointer].filled(), bool)

    def timed(self, pointer: str) -> Any:
        """See ``Fields.timed``."""
        return self._columns[pointer]

    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        return np.frombuffer(self._columns[pointer].integers(), np.int64)


def times_of(values: Sequence[str | int], unit: str = "ms") -> NDArray[np.int64]:
    """Times in epoch milliseconds, beyond +-TIME_LIMIT where there is none; numbers are in a unit."""
    if {*map(type, values)} == {int}:
        with suppress(OverflowError):
            return _in_milliseconds(np.array(values, np.int64), unit)
    return np.fromiter(map(_as_time, values, repeat(unit)), np.int64, len(values))


def _in_milliseconds(numbers: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    if unit == "s":
        # Without an overflow: what is cut off is beyond the limit still.
        return np.clip(numbers, -TIME_LIMIT, TIME_LIMIT) * 1000
    return numbers // TIME_UNITS[unit][1]


def _as_time(value: str | int, unit: str) -> int:
    # Minutes and what follows them are looked up apart and add up, because neither bears on the other, except
    # at the ends of the years 1 and 9999, which are left to the rules.
    if isinstance(value, str):
        return _MINUTES[value[:17]] + _SECONDS[value[17:]]
    time = value * 1000 if unit == "s" else value // TIME_UNITS[unit][1]
    return time if -TIME_LIMIT < time < TIME_LIMIT else UNSURE_TIME


class _Memory(dict[str, int]):
    """Parts of times: those of a chunk are few."""

    def __init__(self, read: Callable[[str], int]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, part: str) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        try:
            found = self._read(part)
        except ValueError:
            found = _NO_TIME
        if len(part) <= _LONGEST_PART:
            # A client that sends long ones could fill the memory.
            self[part] = found
        return found


def _minute(part: str) -> int:
    return parse_rfc3339(f"{part}00Z") if "0002" <= part[:4] <= "9998" else _NO_TIME


def _seconds(part: str) -> int:
    return parse_rfc3339(f"{_SOME_MINUTE}{part}") - parse_rfc3339(f"{_SOME_MINUTE}00Z")


#: No sum with it is a time.
_NO_TIME = -(2**60)
_SOME_MINUTE = "2000-01-01T00:00:"
_MINUTES, _SECONDS = _Memory(_minute), _Memory(_seconds)

#: Column of an event that ``unknown: ignore`` leaves out, and of one that ``eventveil.decoding.rules`` must
#: judge.
IGNORED, UNSURE = -1, -2
#: That of a record which its stream's filter leaves out. It has no user and no timestamp either.
FILTERED = -3
_TYPES: dict[Kind, set[type]] = {
    "string": {str},
    "integer": {int},
    "either": {int, str},
    # What a schema says is a moment is one in milliseconds.
    "ms": {int, str, Instant},
    "s": {int, str},
    "us": {int, str},
    "ns": {int, str},
}


def fields_of(sources: Iterable[tuple[Source, Counts]]) -> dict[str, Kind] | None:
    """The fields that streams need and what each is wanted as; None if two want the same differently.

    Streams whose rules ask for more read nothing here (``Source.in_bulk``).
    """
    wanted: dict[str, Kind] = {}
    for source, counts in sources:
        if not source.in_bulk(counts):
            continue
        kind_of_column: Kind = "either" if source.has_names else counts.column_type
        own: list[tuple[str, Kind]] = [
            (source.first_user, source.user_type),
            *((field, kind_of_column) for field in listed(source.column)),
            *([] if source.time == TIME else [(source.time, source.time_unit)]),
        ]
        for field, kind in own:
            # What is around a value is text.
            kind = "string" if in_envelope(field) else kind
            known = wanted.setdefault(field, kind)
            if {known, kind} == {"string", "either"}:
                # The rule is asked about integers. Of one type, users would have two numbers.
                wanted[field] = "string"
            elif known != kind:
                return None
    return wanted


class Columnar(Sequence[bytes | None]):
    """Values that were columns before; a value becomes JSON only when somebody asks for it."""

    @abstractmethod
    def fields(self, wanted: Mapping[str, Kind], max_bytes: int) -> Fields:
        """As ``BulkReader.read`` would find them in the JSON."""


#: The texts at a field around values (``eventveil.model.fields``), one or None for each value.
Beside = Callable[[str], Sequence[bytes | None]]


class BulkReader:
    """Reads fields of values, ``wanted`` as from ``fields_of``; above ``max_bytes`` it is unsure."""

    def __init__(self, wanted: Mapping[str, Kind] | None, max_bytes: int, form: Format = "json") -> None:
        most = max_bytes - (by_schema.PREFIX if form == "json-schema" else 0)
        # Where not even the prefix may be there, nothing is read.
        self._wanted = wanted if wanted and most >= 0 else {}
        self._max_bytes, self._form = max_bytes, form
        _, self._around = _apart(self._wanted)
        native = None if form in BY_SCHEMA or not self._wanted else _native(self._wanted, most)
        self._read = native or _plain(self._wanted, most)

    def read(
        self, values: Sequence[bytes | None], beside: Beside | None = None, schemas: Schemas = NO_SCHEMAS
    ) -> list[Fields]:
        """The fields of all values that are sure; nothing if there are none to read.

        ``beside`` has what is wanted of the records around the values, ``schemas`` what these name.
        """
        if isinstance(values, Columnar):
            return [values.fields(self._wanted, self._max_bytes)]
        if not self._wanted or not values:
            return []
        around = [] if beside is None else [*map(beside, self._around)]
        if self._form == "json":
            return [self._read(values, around)]
        if self._form in BY_SCHEMA:
            return [self._read(values, around, partial(by_schema.read, form=self._form, schemas=schemas))]
        rows, bodies = _unframed(values)
        fields = self._read(bodies, [picked(texts, rows) for texts in around])
        fields.rows, fields.broken = rows[fields.rows], rows[fields.broken]
        return [fields]


def _unframed(values: Sequence[bytes | None]) -> tuple[_Integers, Sequence[bytes | None]]:
    """The rows that begin as a schema registry has it, and what stands behind."""
    if isinstance(values, Packed):
        long = np.flatnonzero(values.lengths >= by_schema.PREFIX)
        rows = long[np.frombuffer(values.data, np.uint8)[values.starts[long]] == by_schema.MAGIC]
        starts, lengths = values.starts[rows] + by_schema.PREFIX, values.lengths[rows] - by_schema.PREFIX
        return rows, Packed(values.data, starts, lengths)
    framed = [row for row, one in enumerate(values) if one is not None and by_schema.is_framed(one)]
    return np.array(framed, np.int64), [values[row][by_schema.PREFIX :] for row in framed]  # type: ignore[index]


_Read = Callable[..., Fields]


def _apart(wanted: Iterable[str]) -> tuple[list[str], list[str]]:
    """The fields in a value, and those around it."""
    found: tuple[list[str], list[str]] = [], []
    for field in wanted:
        found[in_envelope(field)].append(field)
    return found


def _native(wanted: Mapping[str, Kind], max_bytes: int) -> _Read | None:
    """The kernel's reader; None if there is no kernel, or if no object can have all of these fields."""
    if kernel.NATIVE is None:
        return None
    inside, outside = _apart(wanted)
    try:
        reader = kernel.NATIVE.Reader(
            [(pointer_tokens(one), wanted[one]) for one in inside], max_bytes, len(outside)
        )
    except ValueError:
        return None

    def read(values: Sequence[bytes | None], around: Sequence[Sequence[bytes | None]]) -> Fields:
        rows, broken, columns = reader.read(as_parts(values), [*map(as_parts, around)])
        return NativeFields(rows, broken, dict(zip([*inside, *outside], columns, strict=True)))

    return read


def _plain(wanted: Mapping[str, Kind], max_bytes: int) -> _Read:
    """One value after the other, by orjson or what a schema says."""
    inside, outside = _apart(wanted)
    pick, width = _picker(inside), len(inside)

    def read(
        values: Sequence[bytes | None],
        around: Sequence[Sequence[bytes | None]],
        load: Callable[[Any], Any] = loads,
    ) -> Fields:
        some, rows = [*values], np.arange(len(values))
        if _longest(some) > max_bytes:
            rows = np.flatnonzero([value is not None and len(value) <= max_bytes for value in some])
            some = [some[row] for row in rows.tolist()]
        found, broken, others = _found(pick, map(load, some), width)
        columns = {pointer: found[place::width] for place, pointer in enumerate(inside)}
        sure = np.delete(rows, broken + others)
        for pointer, texts in zip(outside, around, strict=True):
            columns[pointer] = [*map(as_text, picked(texts, sure))]
        for pointer, column in columns.items():
            types = _TYPES[wanted[pointer]]
            if not {*map(type, column)} <= types:
                kept = [type(one) in types for one in columns[pointer]]
                sure = sure[kept]
                columns = {one: [*compress(column, kept)] for one, column in columns.items()}
        for pointer, kind in wanted.items():
            if kind == "either":
                columns[pointer] = [*map(str, columns[pointer])]
        return Documents(sure, columns, rows[broken], wanted)

    return read


def _longest(values: Iterable[bytes | None]) -> float:
    """The length of the longest; more than any if one is None."""
    try:
        return max(map(len, values), default=0)  # type: ignore[arg-type]
    except TypeError:
        return inf


def _found(
    pick: Callable[[Any], tuple[Any, ...]], documents: Iterator[Any], width: int
) -> tuple[list[Any], list[int], list[int]]:
    """What ``pick`` finds in documents, ``width`` fields each; the places of what is no JSON, and of others.

    No value has a step of the interpreter of its own. The fields are in one list: the garbage collector would
    look through a tuple for each value, and again through what ``zip`` holds for each.
    """
    found: list[Any] = []
    broken: list[int] = []
    others: list[int] = []
    fields = map(pick, documents)
    while True:
        try:
            # After an error, what came before it is kept, and the iterator continues after it.
            found.extend(chain.from_iterable(fields))
        except (ValueError, LookupError, TypeError) as error:
            failed = others
            if isinstance(error, JSONDecodeError):
                check_memory(error)
                failed = broken
            failed.append(len(found) // width + len(broken) + len(others))
        else:
            return found, broken, others


def _picker(pointers: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What a document has at pointers. Raises LookupError or TypeError if it lacks one of them."""
    tokens = [pointer_tokens(pointer) for pointer in pointers]
    if len(tokens) > 1 and all(len(one) == 1 and not one[0].isdigit() for one in tokens):
        # As most events are, flat, and no lists: several keys are looked up by one call.
        members: Callable[[Any], tuple[Any, ...]] = itemgetter(*(token for (token,) in tokens))
        return members
    finds = [compile_pointer(pointer) for pointer in pointers]
    return lambda document: tuple(find(document) for find in finds)


class Sieve:
    """Finds which values certainly pass conditions on their fields, and which certainly do not.

    It is sure of a condition where the field is a string: what else may be there, or missing, is left to the
    rule (``eventveil.decoding.places.Filter``). Conditions are read one by one, as a value that lacks the
    field of one may fail another.
    """

    def __init__(self, conditions: Iterable[Condition], max_bytes: int, form: Format) -> None:
        self._conditions = [
            (one.field, BulkReader({one.field: "string"}, max_bytes, form), *_among(one))
            for one in conditions
        ]

    def __call__(
        self, values: Sequence[bytes | None], schemas: Schemas
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which values certainly pass, and which certainly do not: they can be read in either case."""
        passing, failing = np.ones(len(values), bool), np.zeros(len(values), bool)
        for field, reader, known, meanings in self._conditions:
            passes = np.zeros(len(values), bool)
            for part in reader.read(values, schemas=schemas):
                found = as_array(known.translate(part.column(field), meanings)).astype(bool)
                passes[part.rows], failing[part.rows] = found, failing[part.rows] | ~found
            passing &= passes
        return passing, failing


def passes_beside(condition: Condition, texts: Sequence[bytes | None]) -> NDArray[np.bool_]:
    """Which records pass a condition on a text around their values (``eventveil.decoding.places.Filter``)."""
    if condition.test in ("present", "absent"):
        return np.array([(text is not None) == (condition.test == "present") for text in texts], bool)
    among = {one.encode() for one in condition.values if isinstance(one, str)}
    return np.array([(text in among) == (condition.test == "in") for text in texts], bool)


def _among(condition: Condition) -> tuple[Numbers, _Integers]:
    """Numbers of the texts of a condition, and whether each of them passes; the last one is of all others."""
    texts = [*dict.fromkeys(one for one in condition.values if isinstance(one, str))]
    known = numbers(0)
    known.of(texts)
    listed, others = condition.test == "in", condition.test in ("not-in", "present")
    return known, np.array([*[int(listed)] * len(texts), int(others)], np.int64)


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


class CombinedFinder:
    """Finds the columns of one stream's events, where they are combinations of fields, or maps name them."""

    def __init__(self, source: Source, counts: Counts) -> None:
        renamed = {one.field: Renamer(one) for one in source.maps}
        self._parts = [(field, renamed.get(field, str)) for field in listed(source.column)]
        self._index, self._unknown = index_of(counts.labels, len(self._parts)), _unknown(counts)

    def __call__(self, fields: Fields) -> NDArray[np.int64]:
        """See ``ColumnFinder``."""
        names: list[tuple[str, ...]] = [()]
        combined = np.zeros(len(fields.rows), np.int64)
        for field, rename in self._parts:
            found, new = numbers(0).of(fields.column(field))
            texts = [rename(str(one)) for one in fields.at(field, new)]
            distinct, combined = np.unique(combined * len(texts) + found, return_inverse=True)
            names = [(*names[one // len(texts)], texts[one % len(texts)]) for one in distinct.tolist()]
        places = np.array([self._index.get(name, self._unknown) for name in names], np.int64)
        columns: NDArray[np.int64] = places[combined]
        return columns


def _unknown(counts: Counts) -> int:
    """The column of events that no label names."""
    ignored = IGNORED if counts.unknown_column is None else counts.unknown_column
    return UNSURE if counts.unknown == "dead-letter" else ignored


class ColumnFinder:
    """Finds the columns of one stream's events among the fields that were read."""

    def __init__(self, source: Source, counts: Counts) -> None:
        self._pointer, unknown = source.column, _unknown(counts)
        index = {label: place for place, label in enumerate(counts.labels)}
        if counts.column_type == "integer":
            # Labels that no integer is written as, such as 07, are the column of none.
            index = {int(label): place for label, place in index.items() if _is_written(label)}  # type: ignore[misc]
        self._numbers, self._columns = numbers(0), np.array([*index.values(), unknown], np.int64)
        self._numbers.of([*index])

    def __call__(self, fields: Fields) -> Any:
        """The index of the column of each row, IGNORED or UNSURE; for ``as_array``."""
        return self._numbers.translate(fields.column(self._pointer), self._columns)


def _is_written(label: str) -> bool:
    """Whether an integer is written like this."""
    try:
        return str(int(label)) == label
    except ValueError:
        return False
