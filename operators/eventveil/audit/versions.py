"""Which versions of Eventveil have decided the entries of a ledger, over its whole life."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eventveil.audit.periods import time_of
from eventveil.audit.records import Entry, FoundRecord
from eventveil.formats.span import Span
from eventveil.model.topology import Timeline


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """The entries of a stream that a version has decided; ``version`` is None where none is recorded.

    ``first`` and ``last`` are the outer timestamps, ``begin`` and ``end`` (RFC 3339) bound these. All four
    are None for a value stream, whose entries have no time.
    """

    version: str | None
    entries: int
    first: int | None
    last: int | None
    begin: str | None
    end: str | None


@dataclass(frozen=True, slots=True)
class StreamVersions:
    """The versions of a stream in the order in which they came.

    ``unnamed`` is the number of entries without a version that stand between others with one: a version that
    records none ran meanwhile, as after a step back.
    """

    stream: str
    versions: tuple[VersionSpan, ...]
    unnamed: int


@dataclass(slots=True)
class _Counted:
    first: int
    last: int
    entries: int = 0


@dataclass(slots=True)
class _StreamVersions:
    timeline: Timeline | None
    versions: dict[str | None, _Counted] = field(default_factory=dict)
    unnamed: int = 0
    #: Whether an entry had a version; then how many without one have come since the last that had.
    named: bool = False
    waiting: int = 0


class Versions:
    """``see`` each record of the ledger, in the order of its log; then ask for the ``streams``.

    ``timelines`` are those of the streams of the topology, None for value streams.
    """

    def __init__(self, timelines: Mapping[str, Timeline | None]) -> None:
        self._streams = {name: _StreamVersions(timeline) for name, timeline in timelines.items()}

    def see(self, found: FoundRecord) -> None:
        """Take note of a record; what was aborted, or is no entry of these streams, is passed over."""
        stream = self._streams.get(found.stream)
        if stream is None or not found.committed:
            return
        read: Entry | Span | None = Span.read(found.fields) if stream.timeline is None else Entry.read(found)
        if read is None:
            return
        timestamp = read.timestamp if isinstance(read, Entry) else 0
        known = stream.versions.setdefault(read.version, _Counted(timestamp, timestamp))
        known.first, known.last = min(known.first, timestamp), max(known.last, timestamp)
        known.entries += 1
        if read.version is None:
            stream.waiting += stream.named
        else:
            stream.unnamed += stream.waiting
            stream.named, stream.waiting = True, 0

    def streams(self) -> tuple[StreamVersions, ...]:
        """What was found of each stream."""
        return tuple(
            StreamVersions(
                name, tuple(_finished(stream, *one) for one in stream.versions.items()), stream.unnamed
            )
            for name, stream in self._streams.items()
        )


def _finished(stream: _StreamVersions, version: str | None, one: _Counted) -> VersionSpan:
    timeline = stream.timeline
    if timeline is None:
        return VersionSpan(version, one.entries, None, None, None, None)
    begin, end = time_of(timeline, one.first), time_of(timeline, one.last + 1)
    return VersionSpan(version, one.entries, one.first, one.last, begin, end)
