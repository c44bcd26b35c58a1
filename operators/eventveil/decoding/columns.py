"""Fields that were read of a chunk of events, to be assigned to timestamps and counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.dictionary import Texts
from eventveil.decoding.times import TIME_LIMIT
from eventveil.model.timeline import parse_rfc3339

#: What a field is wanted as.
Kind = Literal["string", "integer", "time"]

#: Time of an event that ``eventveil.decoding.rules`` must judge; no readable time is so early.
UNSURE_TIME = np.iinfo(np.int64).min

_REMEMBERED, _LONGEST_PART = 100_000, 40


class Fields(ABC):
    """What was read of a chunk: the fields of those values that are sure, at ``rows``, ascending."""

    def __init__(self, rows: NDArray[np.int64]) -> None:
        self.rows = rows
        #: What others made of them, under keys of their own, for the next question.
        self.known: dict[Any, NDArray[np.int64]] = {}
        self._times: dict[str, NDArray[np.int64]] = {}

    @abstractmethod
    def values(self, pointer: str) -> list[Any]:
        """The fields at a pointer, one for each of ``rows``."""

    @abstractmethod
    def texts(self, pointer: str) -> Texts:
        """The same of a pointer to strings."""

    def integers(self, pointer: str) -> NDArray[np.int64] | None:
        """The field as int64; None unless all values are integers that fit."""
        return _as_integers(self.values(pointer))

    def times(self, pointer: str) -> NDArray[np.int64]:
        """Epoch milliseconds, or UNSURE_TIME."""
        if pointer not in self._times:
            times = self._read_times(pointer)
            times[(times <= -TIME_LIMIT) | (times >= TIME_LIMIT)] = UNSURE_TIME
            self._times[pointer] = times
        return self._times[pointer]

    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        return times_of(self.values(pointer))


def times_of(values: list[Any]) -> NDArray[np.int64]:
    """Times in epoch milliseconds, beyond +-TIME_LIMIT where there is none."""
    if values and type(values[0]) is str:
        try:
            return _read_texts(values)
        except TypeError:
            integers = None  # numbers among texts
    else:
        integers = _as_integers(values)
    return np.fromiter(map(_as_time, values), np.int64, len(values)) if integers is None else integers


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
    at the ends of the years 1 and 9999, which are left to ``eventveil.decoding.rules``.
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
