"""The witness: what the ledger of a topology was seen to end with, kept outside Kafka.

State, ledger and sink that are restored together to an earlier point, by a snapshot of the brokers' disks,
agree with each other: nothing in Kafka shows that more was published once, and it would be drawn again. A
witness records the newest record of every stream: in the ledger, or for values, whose charges cover many
readings, in the sink. Both only grow, so one that lacks what was seen in it is not the whole one; of a sink
retention may remove the beginning. Pure; ``eventveil.audit.witness_file`` keeps it in a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import orjson

from eventveil.formats.change import Change
from eventveil.formats.span import Span
from eventveil.model.durable import Natural
from eventveil.model.errors import StateRefused
from eventveil.model.records import TopicPartition
from eventveil.model.timeline import format_rfc3339

VERSION = 1


class Line(NamedTuple):
    """Records that follow each other: a stream's in the ledger; its readings of one source partition."""

    stream: str
    source: int | None = None

    def __str__(self) -> str:
        of_source = "" if self.source is None else f", source partition {self.source}"
        return f"stream {self.stream}{of_source}"


class Sighting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record of the ledger or of a sink: where it stands, the SHA-256 of its bytes, and what it is of.

    ``last`` is the last timestamp that is published with it, or the number of values that are; ``instance``
    the identity of the stream from then on, which a reading (``source`` is not None) does not tell.
    """

    stream: str
    source: Natural | None
    instance: str | None
    last: Natural
    digest: str
    topic: str
    partition: Natural
    offset: Natural

    @classmethod
    def read(cls, place: TopicPartition, offset: int, value: bytes | None) -> Sighting | None:
        """The sighting of a record; None if it is neither an entry nor a reading."""
        try:
            fields = orjson.loads(value or b"null")
        except orjson.JSONDecodeError:
            return None
        known = fields if isinstance(fields, dict) else {}
        return cls.of(place, offset, known, hashlib.sha256(value or b"").digest())

    @classmethod
    def of(
        cls, place: TopicPartition, offset: int, fields: Mapping[str, Any], digest: bytes
    ) -> Sighting | None:
        """The same for the fields of the record and the SHA-256 of its bytes."""
        stream: object
        instance: object
        last: object
        source = None
        if Span.read(fields) is not None:
            return None
        if "reading" in fields:
            stream, source, position = (fields.get(name) for name in ("stream", "partition", "position"))
            if type(source) is not int or type(position) is not int:
                return None
            instance, last = "", position + 1
        elif change := Change.read(fields):
            stream, instance, last = change.stream, change.instance, change.start - 1
        else:
            stream, instance, last = (fields.get(name) for name in ("stream", "instance", "timestamp"))
        if type(stream) is not str or type(instance) is not str or type(last) is not int:
            return None
        return cls(stream, source, instance or None, last, digest.hex(), *place, offset)

    @property
    def line(self) -> Line:
        """What it is the newest record of, as long as it is."""
        return Line(self.stream, self.source)

    @property
    def place(self) -> TopicPartition:
        """Topic and partition that it stands in."""
        return TopicPartition(self.topic, self.partition)

    @property
    def what(self) -> str:
        """What was published with it, in words."""
        return f"timestamp {self.last}" if self.source is None else f"{self.last} values"


@dataclass(frozen=True, slots=True)
class Witness:
    """The newest sightings of a topology's ledger on one cluster; ``written`` in epoch milliseconds."""

    topology: str
    cluster: str
    written: int
    seen: Mapping[Line, Sighting]

    def encode(self) -> bytes:
        """JSON bytes, for people too."""
        seen = [self.seen[line] for line in sorted(self.seen, key=str)]
        at = format_rfc3339(self.written)
        value = msgspec.json.encode(_File(VERSION, self.topology, self.cluster, at, self.written, seen))
        return msgspec.json.format(value, indent=2) + b"\n"

    @classmethod
    def decode(cls, value: bytes, place: str) -> Witness:
        """Read a witness back; ``place`` names it in the StateRefused that anything unexpected raises."""
        try:
            version = msgspec.json.decode(value, type=_Version).version
            if version != VERSION:
                raise ValueError(f"it has version {version}, this program reads {VERSION}")
            file = msgspec.json.decode(value, type=_File)
        except (msgspec.MsgspecError, ValueError) as error:
            raise _unreadable(place, str(error)) from None
        witness = cls(file.topology, file.cluster, file.epoch_ms, {one.line: one for one in file.seen})
        if len(witness.seen) < len(file.seen):
            raise _unreadable(place, "it has two sightings of one stream")
        return witness

    def check(self, topology: str, cluster: str, place: str) -> None:
        """Raise StateRefused unless it is a witness of this topology on this cluster."""
        if self.topology != topology:
            raise StateRefused(
                place,
                f"it is the witness of the topology {self.topology}, not of {topology}",
                "Name the witness of this topology: each has a file of its own",
            )
        if self.cluster != cluster:
            raise StateRefused(
                place,
                f"it is the witness of the Kafka cluster {self.cluster}, and this is the cluster {cluster}",
                "Point kafka.bootstrap to the cluster that it is of, or name the witness of this one",
            )

    @property
    def when(self) -> str:
        """When it was written, as RFC 3339."""
        return format_rfc3339(self.written)


class Sightings:
    """Looks through all that there is for what a witness has seen, and notes what is the newest now."""

    def __init__(self, before: Witness | None) -> None:
        self._before = {} if before is None else dict(before.seen)
        self._sought = {one.digest for one in self._before.values()}
        self._found: set[str] = set()
        self._newest: dict[Line, Sighting] = {}

    def begins(self, place: TopicPartition, offset: int) -> None:
        """Take note where a partition, of a topic and with a number, begins.

        What was seen before that is gone because the log advanced, which a restored one has not.
        """
        for one in self._before.values():
            if one.place == place and one.offset < offset:
                self._found.add(one.digest)

    def see(self, one: Sighting | None) -> None:
        """Take note of the next committed record of a partition; None is no record that counts."""
        if one is not None:
            self._newest[one.line] = one
            if one.digest in self._sought:
                self._found.add(one.digest)

    def lost(self, lines: Iterable[Line]) -> list[tuple[Sighting, Sighting | None]]:
        """What was seen of these lines and is not there, each with the newest that is."""
        seen = ((self._before[line], self._newest.get(line)) for line in lines if line in self._before)
        return [(one, newest) for one, newest in seen if one.digest not in self._found]

    def seen(self) -> dict[Line, Sighting]:
        """What there is to witness now. What is lost stays as it was."""
        kept = {line: one for line, one in self._before.items() if one.digest not in self._found}
        return {**self._newest, **kept}


def refusal(place: str, witness: Witness, lost: Sighting, newest: Sighting | None) -> StateRefused:
    """The refusal of a ledger or sink that lacks what was seen in it; ``newest`` is what it has now."""
    if newest is None:
        now = "it has nothing of this stream"
    elif newest.last < lost.last:
        now = f"it ends with {newest.what}"
    else:
        now = f"it has another history, up to {newest.what}"
    log = "the ledger" if lost.source is None else "the sink"
    of = "" if lost.instance is None else f" (of {lost.instance})"
    return StateRefused(
        f"{place}, {lost.line}",
        f"on {witness.when} {log} had {lost.what}{of}, and now {now}: the cluster, or its topics, were "
        "restored to an earlier point, and what was released after that would be drawn again",
        "Restore a copy of the cluster that has what was released last: that costs nothing. If there is "
        "none, give the stream a new name and a new sink (whose epsilon adds up)",
    )


class _Version(msgspec.Struct):
    version: int


class _File(msgspec.Struct):
    """A witness as it is in its file; ``written`` says the same as ``epoch_ms``, for people."""

    version: int
    topology: str
    cluster: str
    written: str
    epoch_ms: int
    seen: list[Sighting]


def _unreadable(place: str, detail: str) -> StateRefused:
    return StateRefused(
        place,
        f"it cannot be read as a witness: {detail}",
        "Restore a copy of it. A new file, as `eventveil ledger --witness` creates it, has no record of "
        "earlier releases",
    )
