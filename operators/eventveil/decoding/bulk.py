"""Decoding many values at once: the same verdicts as ``eventveil.decoding.rules``, at a fraction of the time.

The quick way only ever says "this value is an event, with these fields" or "not sure", and what is
not sure is put to ``eventveil.decoding.rules``. Each value is parsed by a call of its own, never joined with
others: with ``[`` + ``,`` between them two crafted values can close and open each other's objects, and a
decoder of lines takes two documents on one line for one on each of two.

msgspec builds only the fields that are asked for. What it passes over it does not fully check, so a value is
sure only if whatever orjson, the parser of ``eventveil.decoding.rules``, would refuse there is ruled out:
bytes that are not UTF-8, numbers beyond the range of a double, nesting beyond a limit.
``tests/unit/decoding/test_bulk.py`` and ``python -m tests.fuzz`` compare the two.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.decoding.binary_array import chosen, without_none
from eventveil.decoding.columns import Fields, Kind
from eventveil.decoding.dictionary import LONGEST, Numbers, Texts
from eventveil.decoding.places import pointer_tokens
from eventveil.decoding.templates import ShapeReader, is_utf8
from eventveil.model.topology import Counts, Source

#: Integers come with floats, so that a float is seen and not taken for one.
_TYPES: dict[Kind, Any] = {"string": str, "integer": int | float, "time": int | str | float}

#: Column of an event that ``unknown: ignore`` leaves out, and of one that ``eventveil.decoding.rules`` must
#: judge.
IGNORED, UNSURE = -1, -2
#: That of a record which its stream's filter leaves out. It has no user and no timestamp either.
FILTERED = -3
#: orjson takes 1024 levels. A value that is shorter cannot have as many.
_SHALLOW = 1000
#: A number beyond 1e308 has an exponent of three digits, or more digits than this.
_MANY_DIGITS = 200
_DIGITS = b"0" * _MANY_DIGITS
#: This many further digits of an exponent are looked through; whatever has more is suspect.
_PATIENCE = 20
_DIGIT, _BEHIND_NUMBER = np.zeros(256, bool), np.zeros(256, bool)
_DIGIT[[*b"0123456789"]] = True
_BEHIND_NUMBER[[*b"0123456789,]} \t\r\n"]] = True
#: After this many values that cannot be read, and few that can, the others of a chunk are left to the rule.
_HOPELESS = 100
_ZEROS = bytes.maketrans(b"123456789", b"000000000")


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


class Documents(Fields):
    """Fields of values that msgspec has read, a column for each pointer."""

    def __init__(self, rows: NDArray[np.int64], columns: Mapping[str, list[Any]]) -> None:
        super().__init__(rows)
        self._columns = columns

    def values(self, pointer: str) -> list[Any]:
        """See ``Fields.values``."""
        return self._columns.get(pointer, [])

    def texts(self, pointer: str) -> Texts:
        """See ``Fields.texts``."""
        return Texts.of(self.values(pointer))


class Columnar(Sequence[bytes | None]):
    """Values that were columns before; a value becomes JSON only when somebody asks for it."""

    @abstractmethod
    def fields(self, wanted: Mapping[str, Kind], max_bytes: int) -> Fields:
        """As ``BulkReader.read`` would find them in the JSON."""


class BulkReader:
    """Reads fields of JSON objects, ``wanted`` as from ``fields_of``; above ``max_bytes`` it is unsure."""

    def __init__(self, wanted: Mapping[str, Kind] | None, max_bytes: int) -> None:
        self._wanted, self._max_bytes = wanted or {}, max_bytes
        self._shapes = ShapeReader(self._wanted, max_bytes)
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

    def read(self, values: Sequence[bytes | None]) -> list[Fields]:
        """The fields of all values that are sure, each value in one of several parts."""
        if isinstance(values, Columnar):
            return [values.fields(self._wanted, self._max_bytes)]
        if self._decoder is None or not values:
            return []
        texts = without_none(values)
        parts, left = self._shapes.read(texts)
        if left.size:
            parts.append(self._documents(self._decoder, chosen(texts, left), left))
        return parts

    def _documents(
        self, decoder: msgspec.json.Decoder[Any], texts: Sequence[bytes], rows: NDArray[np.int64]
    ) -> Fields:
        documents, unsure = _decode_each(decoder, texts)
        unsure.extend(self._doubtful(texts))
        if unsure:
            sure = np.ones(len(texts), bool)
            sure[unsure] = False
            rows, documents = rows[sure], [*compress(documents, sure.tolist())]
        return Documents(rows, {pointer: extract(documents) for pointer, extract in self._extractors.items()})

    def _doubtful(self, texts: Sequence[bytes]) -> Iterator[int]:
        """The rows of values in which orjson might refuse what msgspec passes over."""
        longest = max(map(len, texts))
        if longest > min(_SHALLOW, self._max_bytes):
            for row, text in enumerate(texts):
                deep = len(text) > _SHALLOW and text.count(b"[") + text.count(b"{") > _SHALLOW
                if deep or len(text) > self._max_bytes:
                    yield row
        joined = b"\n".join(texts)
        if not is_utf8(joined):
            yield from (row for row, text in enumerate(texts) if not is_utf8(text))
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


def _decode_each(decoder: msgspec.json.Decoder[Any], values: Sequence[bytes]) -> tuple[list[Any], list[int]]:
    """A document for each value, and the rows where there is none but None."""
    documents: list[Any] = []
    failed: list[int] = []
    decoded = map(decoder.decode, values)
    while len(documents) < len(values):
        try:
            documents.extend(decoded)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # What came before it is in the list, and the iterator stands behind it.
            failed.append(len(documents))
            documents.append(None)
            if len(failed) > _HOPELESS and 4 * len(failed) > 3 * len(documents):
                # Each failure takes longer than a value that is good, and the rule will look at it anyway.
                failed.extend(range(len(documents), len(values)))
                documents.extend([None] * (len(values) - len(documents)))
    return documents, failed


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


class ColumnFinder:
    """Finds the columns of one stream's events among the fields that were read."""

    def __init__(self, source: Source, counts: Counts) -> None:
        self._pointer = source.column
        self._integers = counts.column_type == "integer"
        ignored = IGNORED if counts.unknown_column is None else counts.unknown_column
        self._unknown = UNSURE if counts.unknown == "dead-letter" else ignored
        # Labels that no integer is written as, such as 07, are the column of none.
        self._of_integers = {
            number: index
            for index, label in enumerate(counts.labels)
            if self._integers and (number := _int(label)) is not None and str(number) == label
        }
        short = [index for index, label in enumerate(counts.labels) if len(label.encode()) <= LONGEST]
        self._numbers, self._columns = Numbers(0, room=4), np.array([*short, self._unknown], np.int64)
        self._numbers.of(Texts.of([counts.labels[index] for index in short]).words())

    def __call__(self, fields: Fields) -> NDArray[np.int64]:
        """The index of the column of each row, IGNORED or UNSURE."""
        if self._integers:
            return self._find_integers(fields)
        texts = fields.texts(self._pointer)
        found = self._columns[self._numbers.find(texts.words())]
        found[texts.lengths > LONGEST] = UNSURE
        return found

    def _find_integers(self, fields: Fields) -> NDArray[np.int64]:
        values = fields.values(self._pointer)
        index, unknown = self._of_integers, self._unknown
        found = np.fromiter((index.get(value, unknown) for value in values), np.int64, len(values))
        if fields.integers(self._pointer) is None:
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
