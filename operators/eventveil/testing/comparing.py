"""What a test expects beside what came: every difference, with its place in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from eventveil.model import timeline
from eventveil.testing.model import At, Case, Expectation, Fate, Played
from eventveil.topology.problems import Position

#: A fraction with a larger denominator is shown in decimals.
_READABLE = 100_000
_NOT_CLOSED = "the timestamp is not closed"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that is otherwise than expected. ``place`` is the section, with timestamp and column."""

    position: Position
    place: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.place}: expected {self.expected}, found {self.found}"


def differences(case: Case[Any], played: Played) -> list[Mismatch]:
    """Everything that is otherwise than the test expects, in the order of the sections.

    Of a stream of values nothing is counted, and of one of counts nothing is read as a value.
    """
    return [*_Comparison(case, played).mismatches()]


class _Comparison:
    def __init__(self, case: Case[Any], played: Played) -> None:
        self._expected, self._stream, self._played = case.expected, case.stream, played
        self._partial = case.expected.partial
        self._zone = _zone_of(case.expected)

    def mismatches(self) -> Iterator[Mismatch]:
        expected, played = self._expected, self._played
        yield from self._counts(expected)
        yield from self._fates("dead_letters", expected.dead_letters, played.dead_letters)
        if expected.left_out is not None:
            yield from self._fates("left_out", expected.left_out, played.left_out)
        if expected.closed is not None:
            yield from self._by_time("closed", expected.closed, played.closed, _same, _after)
        if expected.released is not None:
            yield from self._released(expected.released)
        if expected.spent is not None:
            yield from self._by_time(
                "spent", expected.spent, played.spent, lambda one, found: one.is_met_by(found), _amount
            )
        most = expected.most_spent
        if most is not None and not most.value.is_met_by(played.most_spent):
            yield Mismatch(most.position, "most_spent", most.value.text, _amount(played.most_spent))
        if expected.readings is not None:
            yield from self._readings(expected.readings)
        yield from self._fates("unreadable", expected.unreadable, played.unreadable)

    def _time(self, timestamp: int) -> str:
        return _in_zone(timeline.start_of(self._stream.timeline, timestamp), self._zone)

    def _counts(self, expected: Expectation) -> Iterator[Mismatch]:
        given = {} if expected.counts is None else expected.counts.value
        around = expected.position if expected.counts is None else expected.counts.position
        others = () if self._partial else (one for one, counts in self._played.counts.items() if counts)
        for timestamp in sorted({*given, *others}):
            place = f"counts, {self._time(timestamp)}"
            table = given.get(timestamp, At(around, {}))
            if timestamp not in self._played.counts:
                yield Mismatch(table.position, place, _table(_plain(table.value)), _NOT_CLOSED)
            else:
                yield from self._columns(place, table, self._played.counts[timestamp])

    def _columns(
        self, place: str, table: At[dict[str, At[int]]], found: Mapping[str, int]
    ) -> Iterator[Mismatch]:
        """Columns that are left out on either side are 0."""
        others = () if self._partial else (column for column, count in found.items() if count)
        for column in sorted({*table.value, *others}):
            wanted = table.value.get(column, At(table.position, 0))
            if wanted.value != found.get(column, 0):
                yield Mismatch(
                    wanted.position, f"{place}, {column}", str(wanted.value), str(found.get(column, 0))
                )

    def _fates(
        self, section: str, given: At[list[At[tuple[Fate, int]]]] | None, found: Counter[Fate]
    ) -> Iterator[Mismatch]:
        wanted: Counter[Fate] = Counter()
        places: dict[int, Position] = {}
        for one in [] if given is None else given.value:
            (event, reason), times = one.value
            wanted[event, reason] += times
            places.setdefault(event, one.position)
        around = self._expected.position if given is None else given.position
        others = () if self._partial else found
        for event in sorted({event for event, _ in (*wanted, *others)}):
            one_wanted, one_found = _of_event(wanted, event), _of_event(found, event)
            if one_wanted != one_found:
                position = places.get(event, around)
                yield Mismatch(
                    position, f"{section}, event {event}", _reasons(one_wanted), _reasons(one_found)
                )

    def _by_time(
        self,
        section: str,
        given: At[dict[int, At[Any]]],
        found: Mapping[int, Any],
        same: Callable[[Any, Any], bool],
        show: Callable[[Any], str],
    ) -> Iterator[Mismatch]:
        for timestamp in sorted({*given.value, *(() if self._partial else found)}):
            place = f"{section}, {self._time(timestamp)}"
            one = given.value.get(timestamp)
            if one is None:
                yield Mismatch(given.position, place, "nothing", show(found[timestamp]))
            elif timestamp not in found:
                yield Mismatch(one.position, place, _shown(one.value, show), _NOT_CLOSED)
            elif not same(one.value, found[timestamp]):
                yield Mismatch(one.position, place, _shown(one.value, show), show(found[timestamp]))

    def _released(self, given: At[dict[int, At[dict[str, At[Any]]]]]) -> Iterator[Mismatch]:
        records = self._played.records
        for timestamp in sorted({*given.value, *(() if self._partial else records)}):
            place = f"released, {self._time(timestamp)}"
            one = given.value.get(timestamp)
            if one is None:
                shown = _table(self._public(records[timestamp]))
                yield Mismatch(given.position, place, "nothing", shown)
            elif timestamp not in records:
                yield Mismatch(one.position, place, "a release", _NOT_CLOSED)
            else:
                yield from self._members(place, one.value, records[timestamp])

    def _members(
        self, place: str, given: Mapping[str, At[Any]], record: Mapping[str, Any]
    ) -> Iterator[Mismatch]:
        for name, one in given.items():
            if name == "counts":
                yield from self._columns(place, one, self._public(record))
            # A release says that it is exhausted only if it is.
            elif (found := _word(record.get(name, False if name == "exhausted" else None))) != str(one.value):
                yield Mismatch(one.position, f"{place}, {name}", str(one.value), found)

    def _public(self, record: Mapping[str, Any]) -> dict[str, int]:
        counts = record["counts"]
        if isinstance(counts, list):
            counts = dict(zip(self._stream.columns, counts, strict=True))
        return {column: count for column, count in counts.items() if count}

    def _readings(self, given: At[dict[int, At[list[int | None]]]]) -> Iterator[Mismatch]:
        found = self._played.readings
        for event in sorted({*given.value, *(() if self._partial else found)}):
            one = given.value.get(event)
            if one is None:
                yield Mismatch(given.position, f"readings, event {event}", "nothing", _some(found[event]))
                continue
            wanted = one.value
            wanted = wanted * len(found[event]) if len(wanted) == 1 else wanted
            if wanted != found[event]:
                yield Mismatch(one.position, f"readings, event {event}", _some(wanted), _some(found[event]))


def _zone_of(expected: Expectation) -> str:
    """The zone in which the test writes its timestamps."""
    for section in (expected.counts, expected.closed, expected.released, expected.spent):
        for one in [] if section is None else section.value.values():
            return one.text[-6:] if one.text[-6:-5] in ("+", "-") else "Z"
    return "Z"


def _in_zone(time: int, zone: str) -> str:
    if zone == "Z":
        return timeline.format_rfc3339(time)
    minutes = int(zone[1:3]) * 60 + int(zone[4:])
    shift = (minutes if zone[0] == "+" else -minutes) * 60_000
    return timeline.format_rfc3339(time + shift).removesuffix("Z") + zone


def _same(one: Any, other: Any) -> bool:
    return bool(one == other)


def _plain(table: Mapping[str, At[int]]) -> dict[str, int]:
    return {column: one.value for column, one in table.items()}


def _table(table: Mapping[str, int]) -> str:
    return ", ".join(f"{column}: {count}" for column, count in table.items()) or "zeros"


def _of_event(fates: Counter[Fate], event: int) -> dict[str, int]:
    return {reason: number for (one, reason), number in sorted(fates.items()) if one == event}


def _reasons(reasons: Mapping[str, int]) -> str:
    told = (reason if number == 1 else f"{reason} {number} times" for reason, number in reasons.items())
    return ", ".join(told) or "none"


def _after(event: int) -> str:
    return f"closed after event {event}" if event else "closed before the first event"


def _shown(value: Any, show: Callable[[Any], str]) -> str:
    return str(getattr(value, "text", None) or show(value))


def _amount(amount: Fraction) -> str:
    if amount.denominator <= _READABLE:
        return str(amount)
    return f"{float(amount):.6f}"


def _word(value: Any) -> str:
    if value is None:
        return "nothing"
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _some(readings: list[int | None]) -> str:
    shown = ", ".join("null" if one is None else str(one) for one in readings[:10])
    if len(readings) > 10:
        shown = f"{shown}, ... ({len(readings)} readings)"
    return shown if len(readings) == 1 else f"[{shown}]"
