"""Decoding many values at once: the same verdicts as ``operators.decode``, at a fraction of the time.

The quick way only ever says "this value is an event, with these fields" or "not sure", and whoever is not
sure asks ``operators.decode``. Each value is parsed by a call of its own, never joined with others: with
``[`` + ``,`` between them two crafted values can close and open each other's objects, and a decoder of lines
takes two documents on one line for one on each of two.

msgspec builds only the fields that are asked for. What it passes over it does not fully check, so a value is
sure only if whatever orjson, the parser of ``operators.decode``, would refuse there is ruled out: bytes that
are not UTF-8, numbers beyond the range of a double, nesting beyond a limit. ``tests/unit/test_bulk.py`` and
``python -m tests.fuzz`` compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, Literal, cast

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from operators.decode import TIME_LIMIT, pointer_tokens
from operators.timeline import parse_rfc3339
from operators.topology.model import Counts, Source

#: What a field is wanted as. Integers come with floats, so that a float is seen and not taken for one.
Kind = Literal["string", "integer", "time"]
_TYPES: dict[Kind, Any] = {"string": str, "integer": int | float, "time": int | str | float}

#: Column of an event that ``unknown: ignore`` leaves out, and of one that ``operators.decode`` must judge.
IGNORED, UNSURE = -1, -2
#: Time of an event that ``operators.decode`` must judge; no readable time is so early.
UNSURE_TIME = np.iinfo(np.int64).min

#: orjson takes 1024 levels. A value that is shorter cannot have as many.
_SHALLOW = 1000
#: A number beyond 1e308 has an exponent of three digits, or more digits than this.
_MANY_DIGITS = 200
_DIGITS = b"0" * _MANY_DIGITS
#: So many more digits of an exponent are looked through; whatever has more is suspect.
_PATIENCE = 20
_DIGIT, _BEHIND_NUMBER = np.zeros(256, bool), np.zeros(256, bool)
_DIGIT[[*b"0123456789"]] = True
_BEHIND_NUMBER[[*b"0123456789,]} \t\r\n"]] = True
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_REMEMBERED, _LONGEST_PART = 100_000, 40


def fields_of(sources: Iterable[tuple[Source, Counts]]) -> dict[str, Kind] | None:
    """The pointers that streams need and what each is wanted as; None if two want the same differently."""
    wanted: dict[str, Kind] = {}
    for source, counts in sources:
        own: tuple[tuple[str, Kind], ...] = (
            (source.user, source.user_type), (source.column, counts.column_type), (source.time, "time"),
        )  # fmt: skip
        if any(wanted.setdefault(pointer, kind) != kind for pointer, kind in own):
            return None
    return wanted


class Fields:
    """What was read of a chunk: the fields of those values that are sure, at ``rows``, ascending."""

    def __init__(self, rows: NDArray[np.int64], columns: Mapping[str, list[Any]]) -> None:
        self.rows = rows
        self._columns = columns
        self._times: dict[str, NDArray[np.int64]] = {}

    def values(self, pointer: str) -> list[Any]:
        """The fields at a pointer, one for each of ``rows``."""
        return self._columns.get(pointer, [])

    def times(self, pointer: str) -> NDArray[np.int64]:
        """Epoch milliseconds, or UNSURE_TIME."""
        if pointer not in self._times:
            self._times[pointer] = _as_times(self.values(pointer))
        return self._times[pointer]

    def integers(self, pointer: str) -> NDArray[np.int64] | None:
        """The field as int64; None unless all values are integers that fit."""
        return _as_integers(self.values(pointer))


class BulkReader:
    """Reads fields of JSON objects, ``wanted`` as from ``fields_of``; above ``max_bytes`` it is unsure."""

    def __init__(self, wanted: Mapping[str, Kind] | None, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._extractors: dict[str, Callable[[list[Any]], list[Any]]] = {}
        layout = _layout(wanted or {})
        if layout:
            self._decoder = msgspec.json.Decoder(_struct(layout, wanted or {}))
            # Half the time of an attrgetter. The paths are made here, of f0, f1, ... and dots.
            self._extractors = {
                pointer: eval(f"lambda documents: [one.{path} for one in documents]")
                for pointer, path in _paths(layout)
            }

    def read(self, values: Sequence[bytes | None]) -> Fields:
        """The fields of all values that are sure."""
        if self._decoder is None or not values:
            return Fields(np.zeros(0, np.int64), {})
        documents, unsure = _decode_each(self._decoder, values)
        unsure.extend(self._doubtful(values))
        rows = np.arange(len(values))
        if unsure:
            sure = np.ones(len(values), bool)
            sure[unsure] = False
            rows, documents = rows[sure], [*compress(documents, sure.tolist())]
        return Fields(rows, {pointer: extract(documents) for pointer, extract in self._extractors.items()})

    def _doubtful(self, values: Sequence[bytes | None]) -> Iterator[int]:
        """The rows of values in which orjson might refuse what msgspec passes over."""
        texts = [value or b"" for value in values] if None in values else cast(Sequence[bytes], values)
        longest = max(map(len, texts))
        if longest > min(_SHALLOW, self._max_bytes):
            for row, text in enumerate(texts):
                deep = len(text) > _SHALLOW and text.count(b"[") + text.count(b"{") > _SHALLOW
                if deep or len(text) > self._max_bytes:
                    yield row
        joined = b"\n".join(texts)
        if not _is_utf8(joined):
            yield from (row for row, text in enumerate(texts) if not _is_utf8(text))
        suspects = _large_exponents(joined, texts)
        if longest > _MANY_DIGITS:
            suspects |= {row for row, text in enumerate(texts) if _DIGITS in text.translate(_ZEROS)}
        # Mostly a part of an identifier, such as 7e0001.
        yield from (row for row in suspects if not _is_json(texts[row]))


def _large_exponents(joined: bytes, texts: Sequence[bytes]) -> set[int]:
    """The rows with a digit, an e, perhaps a +, three digits or more, and what may follow a number."""
    codes = np.frombuffer(joined, np.uint8)
    at = np.flatnonzero((codes | 0x20) == ord("e"))
    at = at[(at > 0) & (at < len(codes) - 3)]
    for distance in (-1, 2, 3):
        at = at[_DIGIT[codes[at + distance]]]
    behind = at + 4
    for _ in range(_PATIENCE):
        digits = _DIGIT[codes.take(behind, mode="clip")]
        if not digits.any():
            break
        behind += digits
    at = at[_BEHIND_NUMBER[codes.take(behind, mode="clip")]]
    if not at.size:
        return set()
    ends = np.cumsum([len(text) + 1 for text in texts])
    return set(np.searchsorted(ends, at, side="right").tolist())


def _layout(wanted: Mapping[str, Kind]) -> dict[str, Any]:
    """The pointers as nested objects, a pointer where the field is; empty if there is no such object."""
    layout: dict[str, Any] = {}
    for pointer in wanted:
        *parents, leaf = pointer_tokens(pointer) or [""]
        if any(character < " " or character in '"\\' for character in pointer):
            # A key that JSON must escape; msgspec would not have it.
            return {}
        at = layout
        for token in parents:
            at = at.setdefault(token, {})
            if not isinstance(at, dict):
                return {}
        if not pointer or leaf in at:
            return {}
        at[leaf] = pointer
    return layout


def _struct(layout: Mapping[str, Any], wanted: Mapping[str, Kind]) -> Any:
    fields = [
        (
            f"f{number}",
            _struct(inner, wanted) if isinstance(inner, dict) else _TYPES[wanted[inner]],
            msgspec.field(name=token),
        )
        for number, (token, inner) in enumerate(layout.items())
    ]
    return msgspec.defstruct("Fields", fields, gc=False)


def _paths(layout: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for number, inner in enumerate(layout.values()):
        path = f"{prefix}f{number}"
        if isinstance(inner, dict):
            yield from _paths(inner, f"{path}.")
        else:
            yield inner, path


def _decode_each(
    decoder: msgspec.json.Decoder[Any], values: Sequence[bytes | None]
) -> tuple[list[Any], list[int]]:
    """A document for each value, and the rows where there is none but None."""
    documents: list[Any] = []
    failed: list[int] = []
    decoded = map(decoder.decode, values)  # type: ignore[arg-type]  # of None it makes a TypeError
    while len(documents) < len(values):
        try:
            documents.extend(decoded)
        except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError):
            # What came before it is in the list, and the iterator stands behind it.
            failed.append(len(documents))
            documents.append(None)
    return documents, failed


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _as_times(values: list[Any]) -> NDArray[np.int64]:
    if values and type(values[0]) is str:
        try:
            times = _read_texts(values)
        except TypeError:
            # Numbers among texts.
            times = np.fromiter(map(_as_time, values), np.int64, len(values))
    else:
        integers = _as_integers(values)
        times = np.fromiter(map(_as_time, values), np.int64, len(values)) if integers is None else integers
    times[(times <= -TIME_LIMIT) | (times >= TIME_LIMIT)] = UNSURE_TIME
    return times


def _as_integers(values: list[Any]) -> NDArray[np.int64] | None:
    # Only of integers: an array with one long text would give every row as much room.
    if not {*map(type, values)} <= {int}:
        return None
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return None


def _as_time(value: Any) -> int:
    if type(value) is str:
        return int(_read_texts([value])[0])
    return value if type(value) is int and abs(value) < TIME_LIMIT else UNSURE_TIME


def _read_texts(texts: list[str]) -> NDArray[np.int64]:
    """RFC 3339 times in epoch milliseconds, beyond -TIME_LIMIT where there is none.

    Minutes and what follows them are looked up apart and add up, because neither bears on the other, except
    at the ends of the years 1 and 9999, which are left to ``operators.decode``.
    """
    minutes = np.fromiter(map(_MINUTES.__getitem__, [text[:17] for text in texts]), np.int64, len(texts))
    return minutes + np.fromiter(
        map(_SECONDS.__getitem__, [text[17:] for text in texts]), np.int64, len(texts)
    )


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
            # Whoever sends long ones could fill the memory.
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


class _Index(dict[Any, int]):
    """The indices of columns, and what all other labels have in common."""

    def __init__(self, index: Mapping[Any, int], unknown: int) -> None:
        super().__init__(index)
        self._unknown = unknown

    def __missing__(self, label: Any) -> int:
        return self._unknown


class ColumnFinder:
    """Finds the columns of one stream's events among the fields that were read."""

    def __init__(self, source: Source, counts: Counts) -> None:
        self._pointer = source.column
        self._index: dict[Any, int] = {label: index for index, label in enumerate(counts.labels)}
        self._integers = counts.column_type == "integer"
        if self._integers:
            # Labels that no integer is written as, such as 07, are the column of none.
            self._index = {
                int(label): index for label, index in self._index.items() if str(_int(label)) == label
            }
        ignored = IGNORED if counts.unknown_column is None else counts.unknown_column
        self._index = _Index(self._index, UNSURE if counts.unknown == "dead-letter" else ignored)

    def __call__(self, fields: Fields) -> NDArray[np.int64]:
        """The index of the column of each row, IGNORED or UNSURE."""
        values = fields.values(self._pointer)
        found = np.fromiter(map(self._index.__getitem__, values), np.int64, len(values))
        if self._integers and fields.integers(self._pointer) is None:
            # A float is equal to an integer, and beyond 64 bits the integer would have been a float.
            found[[not _is_int64(value) for value in values]] = UNSURE
        return found


def _int(label: str) -> int | None:
    try:
        return int(label)
    except ValueError:
        return None


def _is_int64(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63
