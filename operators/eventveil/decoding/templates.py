"""Values of one shape, read without making an object of any of them.

The events of a topic mostly differ in the contents of strings and in integers, and in nothing else: not in
keys, order, blanks or types. A ``Shape`` is learned from one value: literal bytes, and holes between them.
Whole chunks are compared with it in arrays. A value fits if it is, byte by byte and end to end,

    literal hole literal hole ... literal,

where the hole of a string holds no quote, no backslash, no control character and only valid UTF-8, and the
hole of an integer holds 1 to 16 digits, the first not a zero unless it is the only one. Then it has the
tokens of the value that the shape was learned from, which was JSON, with other strings and integers in their
places, so it is JSON with the same structure, and the contents of its holes are its fields. Values that fit
no shape are for others to read. Whether one fits is a matter of its own bytes alone; only which shapes are
known, and thus who reads it, depends on its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.decoding.binary_array import Values, chosen, in_one_text, lengths_of
from eventveil.decoding.columns import Fields, Kind, times_of
from eventveil.decoding.dictionary import BEHIND, Texts, windows_of
from eventveil.decoding.places import pointer_tokens

_Places = NDArray[np.int64]

#: How many shapes are known; the longest value of one, in bytes; how many values of a chunk must
#: fit none before another is learned. Smaller chunks are not worth it.
_SHAPES, _LONGEST, _WORTH = 4, 4096, 64
#: Longer values are left to others, and so are shapes with more holes, which would cost more than they save.
_TOO_LONG, _MOST_HOLES = 16 * _LONGEST, 64
#: Before the first value: what is read at its front without it.
_BEFORE = bytes(24)
_AFTER = bytes(_LONGEST + BEHIND)
_TOKEN = re.compile(
    rb'"[^"\\\x00-\x1f]*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[][{}:,]| +'
)
_DIGITS = 16
_INTEGER = re.compile(rb"0|[1-9]\d{0,15}")
_QUOTE, _BACKSLASH, _ZERO, _BLANK = (ord(character) for character in '"\\0 ')


def _repeated(byte: int) -> np.uint64:
    return np.uint64(byte * 0x0101010101010101)


#: By how many of the last bytes of a word are digits of a number: those bytes, and zeros for the others.
_LAST = np.array([(1 << 64) - (1 << 8 * (8 - used)) for used in range(9)], np.uint64)
_ZEROS = ~_LAST & _repeated(_ZERO)
_HIGH, _LOW, _SIX, _THREES = map(_repeated, (0xF0, 0x0F, 0x06, 0x33))


class _Chunk:
    """Values as one text, and where things are in it."""

    def __init__(self, values: Values, max_bytes: int) -> None:
        lengths = lengths_of(values)
        #: Which values may fit a shape at all.
        self.plain: NDArray[np.bool_] = lengths <= min(max_bytes, _TOO_LONG)
        if not self.plain.all():
            # What nobody will look at must not take many times its size.
            every = zip(chosen(values), self.plain.tolist(), strict=True)
            values = [value if fits else b"" for value, fits in every]
            lengths[~self.plain] = 0
        self.data, self.starts = in_one_text(values, _BEFORE, _AFTER)
        self.ends: _Places = self.starts + lengths
        self.windows = windows_of(self.data)
        codes = np.frombuffer(self.data, np.uint8)
        self.quotes: _Places = np.flatnonzero(codes == _QUOTE)
        self.first_quotes: _Places = np.searchsorted(self.quotes, self.starts)
        self.quote_counts: _Places = np.diff(self.first_quotes, append=len(self.quotes))
        first, last = int(self.starts[0]), int(self.ends[-1])
        if np.count_nonzero(codes[first:last] < _BLANK) > last - first - lengths.sum():
            self._exclude(codes < _BLANK)
        if b"\\" in self.data:
            self._exclude(codes == _BACKSLASH)
        if not is_utf8(self.data):
            self.plain &= np.fromiter(map(is_utf8, chosen(values)), bool, len(values))

    def _exclude(self, found: NDArray[np.bool_]) -> None:
        # From start to end of each value, and, left out, from there to the start of the next.
        edges = np.column_stack((self.starts, self.ends)).ravel()
        self.plain &= ~np.logical_or.reduceat(found, edges)[::2]


@dataclass(frozen=True, slots=True)
class _Hole:
    """What may differ: a string, or an integer if not ``text``; the field at ``pointer``, if that is wanted.

    It ends ``before`` bytes before quote number ``quote`` of the value, or before its end if that is None.
    """

    text: bool
    pointer: str | None
    quote: int | None
    before: int


class _Literal:
    """Bytes that have to be there."""

    def __init__(self, text: bytes) -> None:
        self.size = len(text)
        self._words: list[tuple[int, np.uint64, np.uint64]] = []
        for start in range(0, len(text), 8):
            part = text[start : start + 8]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            self._words.append((start, mask, np.uint64(int.from_bytes(part, "little"))))

    def is_at(self, places: _Places, chunk: _Chunk) -> NDArray[np.bool_]:
        """Whether it is at each of the places."""
        there = np.ones(len(places), bool)
        for start, mask, word in self._words:
            there &= chunk.windows[places + start] & mask == word
        return there


class Shape:
    """What values have in common, and where they differ."""

    def __init__(self, literals: Sequence[bytes], holes: Sequence[tuple[bool, str | None]]) -> None:
        """``holes``, between the literals, are strings or not, and the fields at a pointer or not wanted."""
        self._literals = [_Literal(literal) for literal in literals]
        self._holes: list[_Hole] = []
        quotes = 0
        for (text, pointer), literal, behind in zip(holes, literals, literals[1:], strict=False):
            quotes += literal.count(b'"')
            before = behind.find(b'"')
            to_quote = (quotes, before) if before >= 0 else (None, len(behind))
            self._holes.append(_Hole(text, pointer, *to_quote))
        self._quotes = quotes + literals[-1].count(b'"')

    @classmethod
    def of(cls, value: bytes, wanted: Mapping[str, Kind]) -> Shape | None:
        """The shape of a value; None if it has none, or if not all fields that are wanted are holes of it."""
        places = {(*pointer_tokens(pointer),): pointer for pointer in wanted}
        if len(value) > _LONGEST or len(places) < len(wanted) or not _is_object(value):
            return None
        literals, holes = [b""], []
        try:
            for token, path in _tokens(value):
                if path is None or not _may_differ(token, path):
                    literals[-1] += token
                    continue
                text = token.startswith(b'"')
                pointer = None if path is _IN_ARRAY else places.pop(path, None)
                if pointer and wanted[pointer] not in ("time", "string" if text else "integer"):
                    return None
                margin = b'"' * text
                literals[-1] += margin
                literals.append(margin)
                holes.append((text, pointer))
        except ValueError:
            return None
        return None if places or len(holes) > _MOST_HOLES else cls(literals, holes)

    def read(self, chunk: _Chunk, rows: NDArray[np.int64]) -> Spans:
        """The fields of those among the rows that fit; all of them must be plain."""
        rows = rows[chunk.quote_counts[rows] == self._quotes]
        at, ends, first_quotes = chunk.starts[rows], chunk.ends[rows], chunk.first_quotes[rows]
        fits = np.ones(len(rows), bool)
        found: dict[str, _Found] = {}
        for literal, hole in zip(self._literals, self._holes, strict=False):
            fits &= literal.is_at(at, chunk)
            begin = at + literal.size
            end = ends if hole.quote is None else chunk.quotes[first_quotes + hole.quote]
            # Whatever ends before it begins does not fit, and must not lead out of the text.
            at = np.maximum(end - hole.before, begin)
            field: _Found = begin, at - begin
            if not hole.text:
                integers, valid = _integers(chunk, begin, at)
                fits &= valid & (at > begin)
                field = integers
            if hole.pointer is not None:
                found[hole.pointer] = field
        fits &= self._literals[-1].is_at(at, chunk) & (at + self._literals[-1].size == ends)
        if not fits.all():
            rows = rows[fits]
            found = {
                pointer: field[fits] if isinstance(field, np.ndarray) else (field[0][fits], field[1][fits])
                for pointer, field in found.items()
            }
        return Spans(chunk, rows, found)


#: Integers, or starts and lengths of strings.
_Found = NDArray[np.int64] | tuple[_Places, _Places]


class Spans(Fields):
    """Fields of values of one shape, strings as places in the text of their chunk."""

    def __init__(self, chunk: _Chunk, rows: NDArray[np.int64], found: Mapping[str, _Found]) -> None:
        super().__init__(rows)
        self._chunk, self._found = chunk, found

    def values(self, pointer: str) -> list[Any]:
        """See ``Fields.values``."""
        integers = self.integers(pointer)
        return [text.decode() for text in self.texts(pointer)] if integers is None else [*integers.tolist()]

    def texts(self, pointer: str) -> Texts:
        """See ``Fields.texts``."""
        starts, lengths = self._found[pointer]
        return Texts(self._chunk.data, starts, lengths)

    def integers(self, pointer: str) -> NDArray[np.int64] | None:
        """See ``Fields.integers``."""
        found = self._found[pointer]
        return found if isinstance(found, np.ndarray) else None

    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        integers = self.integers(pointer)
        return times_of(self.values(pointer)) if integers is None else integers.copy()


class ShapeReader:
    """Reads what is wanted of values of a few shapes, which it learns from them."""

    def __init__(self, wanted: Mapping[str, Kind], max_bytes: int) -> None:
        self._wanted, self._max_bytes = wanted, max_bytes
        self._shapes: list[Shape] = []

    def read(self, values: Values) -> tuple[list[Fields], NDArray[np.int64]]:
        """The fields of the values of each shape, and the rows of those that are still to be read."""
        if len(values) < _WORTH:
            return [], np.arange(len(values))
        chunk = _Chunk(values, self._max_bytes)
        left, unread = chunk.plain, np.ones(len(values), bool)
        parts: list[Fields] = []
        for shape in self._shapes_of(values, left):
            spans = shape.read(chunk, np.flatnonzero(left))
            if spans.rows.size:
                parts.append(spans)
                left[spans.rows] = unread[spans.rows] = False
        return parts, np.flatnonzero(unread)

    def _shapes_of(self, values: Values, left: NDArray[np.bool_]) -> Iterator[Shape]:
        """What is known and then, if too many values are ``left``, the shape of the first of them."""
        yield from self._shapes
        if np.count_nonzero(left) >= _WORTH:
            shape = Shape.of(values[int(np.argmax(left))] or b"", self._wanted)
            if shape is not None:
                self._shapes = [shape, *self._shapes[: _SHAPES - 1]]
                yield shape


def is_utf8(text: bytes) -> bool:
    """Whether these bytes are UTF-8."""
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


#: The path of all values that are in an array: no pointer leads there.
_IN_ARRAY = ("an array",)


def _tokens(value: bytes) -> Iterator[tuple[bytes, tuple[str, ...] | None]]:
    """The tokens of a JSON object, with the path to what is a value and no array or object, else None.

    Raises ValueError where it has escapes, control characters, or a key twice.
    """
    #: The keys of the objects and arrays that are open, the last of each object's being the present one.
    levels: list[list[str] | None] = []
    at, before = 0, b""
    while at < len(value):
        found = _TOKEN.match(value, at)
        if found is None:
            raise ValueError(f"no plain token at {at}")
        token, at = found[0], found.end()
        level = levels[-1] if levels else None
        path = None
        if token in (b"{", b"["):
            levels.append([] if token == b"{" else None)
        elif token in (b"}", b"]"):
            levels.pop()
        elif level is not None and before in (b"{", b",") and token.startswith(b'"'):
            level.append(token[1:-1].decode())
            if len({*level}) < len(level):
                raise ValueError(f"a key comes again at {at}")
        elif token not in (b":", b",") and not token.startswith(b" "):
            path = _IN_ARRAY if None in levels else tuple(keys[-1] for keys in levels if keys)
        yield token, path
        before = before if token.startswith(b" ") else token


def _may_differ(token: bytes, path: tuple[str, ...]) -> bool:
    """Whether it can be a hole. Of integers in an array no quote would tell where they end."""
    return token.startswith(b'"') or (path is not _IN_ARRAY and bool(_INTEGER.fullmatch(token)))


def _integers(chunk: _Chunk, begin: _Places, end: _Places) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The numbers between two places, and which of them are numbers of 1 to 16 digits."""
    size = end - begin
    codes = np.frombuffer(chunk.data, np.uint8)
    valid = (size <= _DIGITS) & ((codes[begin] != _ZERO) | (size == 1))
    low, valid_low = _eight_digits(chunk.windows[end - 8], size)
    high, valid_high = _eight_digits(chunk.windows[end - 16], size - 8)
    return (high * np.uint64(10**8) + low).astype(np.int64), valid & valid_low & valid_high


def _eight_digits(words: NDArray[np.uint64], size: _Places) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The number that the last ``size`` of eight bytes write, up to all of them, and whether it is one."""
    used = np.minimum(np.maximum(size, 0), 8)
    words = words & _LAST[used] | _ZEROS[used]
    # Digits are 0x30 to 0x39, those that are not change their first half by 6 more.
    valid = (words & _HIGH | (words + _SIX & _HIGH) >> np.uint64(4)) == _THREES
    # Neighbours make pairs, pairs make fours, and those make eight; the first digit is in the lowest byte.
    words = (words & _LOW) * np.uint64(10 << 8 | 1) >> np.uint64(8)
    words = (words & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(100 << 16 | 1) >> np.uint64(16)
    words = (words & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(10_000 << 32 | 1) >> np.uint64(32)
    return words, valid
