"""How many bytes a release and the state of a stream take at most, so that both are known to fit Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import orjson

from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.registry import find
from eventveil.model.records import BATCH_BYTES, NUMBER_BYTES
from eventveil.model.topology import MechanismSettings, Stream

#: The most that the spends of one timestamp take in the state: [1,1048576,<13 digits>], and a comma.
WINDOW_STATE_BYTES = 26
#: A released count, -1099511627776 at its longest, and a comma.
DIGITS = 15
#: The error of a released count, 2200000000000.0 at its longest, and a comma.
ERROR_DIGITS = 16


#: Of all characters that can be printed those beyond 16 bits take most, also as JSON inside of JSON.
_WIDEST = "\U0001f600"


#: What is remembered of a column that may be forgotten, as [-1152921504606846976,1000], at its longest.
FADING_BYTES = 28


def narrowest(stream: Stream) -> Stream:
    """The stream with one column that is found, whose name takes most; itself if it lists its columns."""
    how = stream.counts.discover
    return stream if how is None else stream.having((_WIDEST * how.longest,))


def largest_release(stream: Stream) -> int:
    """An upper bound of the bytes of a record batch with one release of a stream.

    Where columns are found it is of any that ``Room`` lets in: a release is a part of the state.
    """
    how = stream.counts.discover
    if how is None:
        return _release(stream, _names(stream))
    most = stream.having((_WIDEST * how.longest,) * how.most)
    return min(_release(most, _names(most)), max(how.message_bytes, _release(stream, _names(stream))))


def _names(stream: Stream) -> int:
    """The bytes of the names in a release as JSON, where it has them: in counts, and in errors.

    A colon comes with each.
    """
    object_ = stream.sink.counts == "object"
    return 2 * (len(orjson.dumps(stream.columns)) + len(stream.columns)) if object_ else 0


def _release(stream: Stream, names: int) -> int:
    columns = len(stream.columns)
    _, extra = find(stream.mechanism.kind).numbers(stream.mechanism, columns)
    # In Avro every row has an error of its own, which is provided for, and names once.
    return max(1_048_588, names + (DIGITS + ERROR_DIGITS) * columns + NUMBER_BYTES * extra + 4096)


def largest_state(stream: Stream) -> int:
    """An upper bound of the bytes of a stream's record in the ledger changelog, its largest by far.

    It holds the spends of a window, the last release, and what is decided but not published: a batch that is
    not full, and one release more, as JSON inside of JSON, which doubles a character at most. Where columns
    are found, it is for those that ``stream`` has.
    """
    columns, names = len(stream.counts.labels), 0
    if stream.counts.discover is not None:
        names = sum(map(bytes_of_name, stream.columns))
    elif stream.sink.counts == "object":
        names = len(orjson.dumps(orjson.dumps(stream.columns).decode())) + columns
    return _state(stream, columns, names)


def least_state(stream: Stream) -> int:
    """``largest_state`` without what is remembered of columns that may be forgotten.

    ``Room`` has provided for this much, whatever ``forget`` was when columns were found.
    """
    counts = stream.counts
    if counts.discover is not None:
        counts = replace(counts, discover=replace(counts.discover, forget=None))
    return largest_state(replace(stream, counts=counts))


def _state(stream: Stream, columns: int, names: int) -> int:
    """``names``: the bytes of all names, colons included, as JSON inside of JSON."""
    # They are in counts and in errors, and those that were found once more.
    how = stream.counts.discover
    names *= 3 if how is not None else 2
    names += FADING_BYTES * columns if how is not None and how.forget else 0
    kind = find(stream.mechanism.kind)
    release = (
        NUMBER_BYTES * kind.numbers(stream.mechanism, columns)[1] + (DIGITS + ERROR_DIGITS) * columns + names
    )
    return largest_snapshot(kind, stream.mechanism, columns) + release + 2 * BATCH_BYTES + 4096


def bytes_of_name(name: str) -> int:
    """The bytes of a column's name in a release that is a text in a state, with a comma and a colon.

    Those of UTF-8, and some for quotes and for what JSON escapes.
    """
    return len(orjson.dumps(orjson.dumps(name).decode()))


class Room:
    """Which columns a stream can have whose columns are found: at most ``most``, and as many as fit.

    They fit if the largest state of a stream with these columns is a Kafka message. That is a function of
    settings and of names that are public, so it is the same after a restart, and tells nothing: which of the
    columns that pass the test are kept is post-processing. Mutable: ``take`` fills it.
    """

    def __init__(self, stream: Stream) -> None:
        how = stream.counts.discover
        if how is None:
            raise ValueError(f"stream {stream.name} lists its columns")
        self._stream, self._most, self._limit = stream, 1 + how.most, how.message_bytes
        self._columns, self._names = len(stream.columns), sum(map(bytes_of_name, stream.columns))

    @property
    def full(self) -> bool:
        """Whether no further column fits, however short its name is."""
        return not self._fits(self._columns + 1, self._names + bytes_of_name("a"))

    def take(self, names: Sequence[str]) -> list[str]:
        """Let in as many of the names as fit, the first ones first; those that are in from now on."""
        sizes = [0, *accumulate(map(bytes_of_name, names))]
        number = _largest(len(names), lambda one: self._fits(self._columns + one, self._names + sizes[one]))
        self._columns, self._names = self._columns + number, self._names + sizes[number]
        return [*names[:number]]

    def about(self, size: int) -> int:
        """How many further columns fit whose names take ``size`` bytes each in UTF-8.

        Where columns are many seasons of their own are given up, so there may be numbers below it that do not
        fit, which are not looked for.
        """
        each = bytes_of_name("a" * size)
        fits = partial(self._further, each)
        return _largest(self._most - self._columns, fits)

    def _further(self, size: int, number: int) -> bool:
        return self._fits(self._columns + number, self._names + number * size)

    def _fits(self, columns: int, names: int) -> bool:
        return columns <= self._most and _state(self._stream, columns, names) <= self._limit


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to ``most`` that fits, if all below it do; 0 is taken to fit."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def largest_snapshot(kind: type[Mechanism], settings: MechanismSettings, columns: int) -> int:
    """An upper bound of the bytes of a mechanism's snapshot: a window's spends, the last release, its own."""
    spends = WINDOW_STATE_BYTES * settings.window if kind.level == "w-event" else 0
    return spends + NUMBER_BYTES * kind.numbers(settings, columns)[0] + DIGITS * columns + 4096
