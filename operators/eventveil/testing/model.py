"""A test file as the rest sees it: checked against its topology, with the place of everything in the file.

Times are epoch milliseconds, timestamps are numbers from the origin, events are numbered from 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar

from eventveil.model.topology import ReadingStream, Stream, Topology
from eventveil.topology.problems import Position

Value = TypeVar("Value")
#: Of counts or of values: what is written for either holds for both.
OneStream = TypeVar("OneStream", Stream, ReadingStream)


@dataclass(frozen=True, slots=True)
class At(Generic[Value]):
    """Something that was read, and where it stands; ``text``: the key that it has in the file."""

    position: Position
    value: Value
    text: str = ""


class Sent(NamedTuple):
    """What a producer sends."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class EventEntry:
    """One entry of ``events``: ``payload`` (None: a record without a value), ``repeat`` times in a row.

    In a repeated one, ``{n}`` stands for 1, 2, ... , also in ``key`` and ``headers``. ``partition`` None:
    that of its user. ``appended`` None: when it happened, or with the event before it if that came later.
    ``created`` None: the time that its records carry is when they are appended.
    """

    position: Position
    payload: str | None
    repeat: int = 1
    partition: int | None = None
    appended: int | None = None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    created: int | None = None

    @property
    def values(self) -> list[bytes | None]:
        """The value of each record."""
        return self._each(self.payload)

    @property
    def records(self) -> list[Sent]:
        """What is sent: value, key and headers of each record."""
        names, texts = [name for name, _ in self.headers], [self._each(text) for _, text in self.headers]
        rows = zip(*texts, strict=True) if texts else [()] * self.repeat
        headers = [tuple(zip(names, (text or b"" for text in row), strict=True)) for row in rows]
        return [*map(Sent, self.values, self._each(self.key), headers)]

    def _each(self, text: str | None) -> list[bytes | None]:
        if text is None or self.repeat == 1:
            return [None if text is None else text.encode()] * self.repeat
        return [text.replace("{n}", str(number)).encode() for number in range(1, self.repeat + 1)]


@dataclass(frozen=True, slots=True)
class Amount:
    """A part of the budget as it was written; decimals are compared to as many digits as they have."""

    text: str
    value: Fraction

    def is_met_by(self, found: Fraction) -> bool:
        """Whether what was found is this amount."""
        if found == self.value:
            return True
        _, point, digits = self.text.partition(".")
        return bool(point and digits.isdigit() and round(found, len(digits)) == self.value)


#: Of one event: (event, reason or why).
Fate = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a test expects. None: not compared, except for counts and dead letters, which are then empty.

    With ``partial``, only what is listed is compared.
    """

    position: Position
    partial: bool = False
    counts: At[dict[int, At[dict[str, At[int]]]]] | None = None
    dead_letters: At[list[At[tuple[Fate, int]]]] | None = None
    left_out: At[list[At[tuple[Fate, int]]]] | None = None
    closed: At[dict[int, At[int]]] | None = None
    released: At[dict[int, At[dict[str, At[Any]]]]] | None = None
    spent: At[dict[int, At[Amount]]] | None = None
    most_spent: At[Amount] | None = None
    readings: At[dict[int, At[list[int | None]]]] | None = None
    unreadable: At[list[At[tuple[Fate, int]]]] | None = None


@dataclass(frozen=True, slots=True)
class Case(Generic[OneStream]):
    """One test of one stream. ``play`` gives what its events result in.

    ``start`` is the first timestamp; ``until``, if given, the clock at the end.
    """

    name: str
    position: Position
    stream: OneStream
    events: tuple[EventEntry, ...]
    expected: Expectation
    play: Callable[[Case[OneStream]], Played]
    partitions: int = 1
    start: int = 1
    until: int | None = None


@dataclass(frozen=True, slots=True)
class TestFile:
    """A file of tests, with the topology that they are of."""

    __test__ = False  # the name is no invitation to pytest

    path: str
    topology: Topology
    cases: tuple[Case[Any], ...]


@dataclass(slots=True)
class Played:
    """What came of the events of a test. ``counts`` are the true ones, of columns that are not 0.

    ``closed`` has for each timestamp the last event that was read before. ``records`` are the members of the
    release records, ``spent`` parts of the budget. The others count what became of records: by event and
    reason. ``details`` say more of dead letters, by event.
    """

    counts: dict[int, dict[str, int]] = field(default_factory=dict)
    closed: dict[int, int] = field(default_factory=dict)
    records: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    spent: dict[int, Fraction] = field(default_factory=dict)
    most_spent: Fraction = Fraction(0)
    dead_letters: Counter[Fate] = field(default_factory=Counter)
    left_out: Counter[Fate] = field(default_factory=Counter)
    unreadable: Counter[Fate] = field(default_factory=Counter)
    readings: dict[int, list[int | None]] = field(default_factory=dict)
    details: dict[int, str] = field(default_factory=dict)
