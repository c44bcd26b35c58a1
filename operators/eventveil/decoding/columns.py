"""Fields that were read of a chunk of events, to be assigned to timestamps and counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

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
    def column(self, pointer: str) -> Any:
        """The fields at a pointer, one for each of ``rows``, as ``Numbers`` take them."""

    @abstractmethod
    def at(self, pointer: str, places: NDArray[np.int64]) -> Sequence[str | int]:
        """Those at these places among ``rows``; of a time that is sure, its milliseconds will do."""

    @abstractmethod
    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        """As ``times``, or beyond +-TIME_LIMIT."""

    def canonical(self, pointer: str, places: NDArray[np.int64]) -> list[bytes]:
        """Those at these places in canonical bytes: UTF-8 of a string, decimal digits of an integer."""
        return [str(one).encode() for one in self.at(pointer, places)]

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


class Documents(Fields):
    """Fields as lists of strings and integers, one for each pointer."""

    def __init__(self, rows: NDArray[np.int64], columns: Mapping[str, list[Any]]) -> None:
        super().__init__(rows)
        self._columns = columns

    def column(self, pointer: str) -> list[Any]:
        """See ``Fields.column``."""
        return self._columns.get(pointer, [])

    def at(self, pointer: str, places: NDArray[np.int64]) -> Sequence[str | int]:
        """See ``Fields.at``."""
        column = self.column(pointer)
        return [column[place] for place in places.tolist()]

    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        return times_of(self.column(pointer))


class NativeFields(Fields):
    """Fields as columns of the kernel."""

    def __init__(self, rows: bytes, columns: Mapping[str, Any]) -> None:
        super().__init__(np.frombuffer(rows, np.int64))
        self._columns = columns

    def column(self, pointer: str) -> Any:
        """See ``Fields.column``."""
        return self._columns[pointer]

    def at(self, pointer: str, places: NDArray[np.int64]) -> Sequence[str | int]:
        """See ``Fields.at``."""
        found: list[str | int] = self._columns[pointer].at(places)
        return found

    def canonical(self, pointer: str, places: NDArray[np.int64]) -> list[bytes]:
        """See ``Fields.canonical``."""
        found: list[bytes] = self._columns[pointer].canonical(places)
        return found

    def filled(self, pointer: str) -> NDArray[np.bool_]:
        """See ``Fields.filled``."""
        return np.frombuffer(self._columns[pointer].filled(), bool)

    def _read_times(self, pointer: str) -> NDArray[np.int64]:
        return np.frombuffer(self._columns[pointer].integers(), np.int64)


def times_of(values: Sequence[str | int]) -> NDArray[np.int64]:
    """Times in epoch milliseconds, beyond +-TIME_LIMIT where there is none."""
    if {*map(type, values)} == {int} and max(map(abs, values)) < TIME_LIMIT:  # type: ignore[arg-type]
        return np.array(values, np.int64)
    return np.fromiter(map(_as_time, values), np.int64, len(values))


def _as_time(value: str | int) -> int:
    # Minutes and what follows them are looked up apart and add up, because neither bears on the other, except
    # at the ends of the years 1 and 9999, which are left to the rules.
    if isinstance(value, str):
        return _MINUTES[value[:17]] + _SECONDS[value[17:]]
    return value if -TIME_LIMIT < value < TIME_LIMIT else UNSURE_TIME


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
