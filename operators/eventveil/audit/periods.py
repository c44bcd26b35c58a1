"""The whole life of a ledger, by stream and year: what was released and charged, the terms, and digests.

The digest after a row is the SHA-256 of the SHA-256 of every committed record of the stream in the ledger up
to there, in the order of the log. Nothing is ever removed from a ledger, so a row of a year that is over is
the same in every later report; one that differs shows that the ledger was rewritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from eventveil.audit.records import Entry, FoundRecord
from eventveil.formats.change import Change
from eventveil.formats.span import Span
from eventveil.model.timeline import format_rfc3339, start_of
from eventveil.model.topology import Timeline
from eventveil.topology.scalars import exact_number


@dataclass(frozen=True, slots=True)
class ChargedPeriod:
    """Entries of a stream that follow each other under the same terms, within a year (UTC).

    ``year`` is None for a value stream, whose entries have no time; ``begin`` and ``end`` (RFC 3339) bound
    the first and the last timestamp, and are None there too. ``charged`` is the sum of all charges in terms
    of epsilon; None for a value stream. ``records`` is the number of the stream's records in the ledger up
    to here, changes included, and ``digest`` is theirs.
    """

    stream: str
    generation: int
    year: str | None
    mechanism: str
    epsilon: str
    window: int | None
    instance: str
    entries: int
    fresh: int
    begin: str | None
    end: str | None
    charged: Fraction | None
    records: int
    digest: str


@dataclass(slots=True)
class _OpenPeriod:
    """One that is still growing; ``terms`` tell it from the next."""

    terms: tuple[object, ...]
    first: int
    last: int = 0
    entries: int = 0
    fresh: int = 0
    units: int = 0
    spent: int = 0
    records: int = 0
    digest: str = ""


@dataclass(slots=True)
class _StreamPeriods:
    timeline: Timeline | None
    generation: int = 1
    records: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    periods: list[_OpenPeriod] = field(default_factory=list)


class ChargedPeriods:
    """``see`` each record of the ledger, in the order of its log; then ask for the ``periods``.

    ``timelines`` are those of the streams of the topology, None for value streams. Records that are no
    entries count for the digest alone: what is wrong with them, the audit says.
    """

    def __init__(self, timelines: Mapping[str, Timeline | None]) -> None:
        self._streams = {name: _StreamPeriods(timeline) for name, timeline in timelines.items()}

    def see(self, found: FoundRecord) -> None:
        """Take note of a record; what was aborted, or is of another topology, is not part of it."""
        stream = self._streams.get(found.stream)
        if stream is None or not found.committed:
            return
        stream.records += 1
        stream.digest.update(found.digest)
        change, entry, span = Change.read(found.fields), Entry.read(found), Span.read(found.fields)
        if change is not None:
            stream.generation += change.kind == "reset"
        elif entry is not None and stream.timeline is not None:
            self._entry(stream, stream.timeline, entry, found)
        elif span is not None and stream.timeline is None:
            one = _grown(stream, _terms(stream, None, span.instance, found), 0)
            one.entries += 1
        if stream.periods:
            stream.periods[-1].records = stream.records
            stream.periods[-1].digest = stream.digest.hexdigest()

    def _entry(self, stream: _StreamPeriods, timeline: Timeline, entry: Entry, found: FoundRecord) -> None:
        year = time_of(timeline, entry.timestamp)
        terms = _terms(stream, None if year is None else year[:4], entry.instance, found)
        one = _grown(stream, terms, entry.timestamp)
        one.last = max(one.last, entry.timestamp)
        one.entries += 1
        one.fresh += entry.fresh
        one.spent += entry.test + entry.publish
        units = (found.fields or {}).get("units")
        one.units = units if type(units) is int and units > 0 else 0

    def periods(self) -> tuple[ChargedPeriod, ...]:
        """All of them, by stream, the oldest first."""
        return tuple(
            _finished(name, stream, one) for name, stream in self._streams.items() for one in stream.periods
        )


def _terms(stream: _StreamPeriods, year: str | None, instance: str, found: FoundRecord) -> tuple[object, ...]:
    fields = found.fields or {}
    told = (str(fields.get("mechanism")), str(fields.get("epsilon")), fields.get("window"))
    return (stream.generation, year, *told, instance)


def _grown(stream: _StreamPeriods, terms: tuple[object, ...], timestamp: int) -> _OpenPeriod:
    """The newest stretch, if it has these terms; else a new one."""
    if not stream.periods or stream.periods[-1].terms != terms:
        stream.periods.append(_OpenPeriod(terms, timestamp, timestamp))
    return stream.periods[-1]


def _finished(name: str, stream: _StreamPeriods, one: _OpenPeriod) -> ChargedPeriod:
    generation, year, mechanism, epsilon, window, instance = one.terms
    timeline, exact = stream.timeline, exact_number(epsilon)
    assert isinstance(generation, int)
    return ChargedPeriod(
        stream=name,
        generation=generation,
        year=None if year is None else str(year),
        mechanism=str(mechanism),
        epsilon=str(epsilon),
        window=window if isinstance(window, int) else None,
        instance=str(instance),
        entries=one.entries,
        fresh=one.fresh,
        begin=None if timeline is None else time_of(timeline, one.first),
        end=None if timeline is None else time_of(timeline, one.last + 1),
        charged=None if exact is None or not one.units else exact * one.spent / one.units,
        records=one.records,
        digest=one.digest,
    )


def time_of(timeline: Timeline, timestamp: int) -> str | None:
    """When a timestamp starts; None beyond the year 9999."""
    try:
        return format_rfc3339(start_of(timeline, timestamp))
    except OverflowError:
        return None
