"""The audit of a value stream: do its ledger and its sink show that I1, I2 and I7 were kept?

Pure, and apart from what it audits. Per partition of the source, which is that of the sink too:

- **I1, one draw.** No two records of one position differ, records of aborted transactions included.
- **I2, charge first.** Every reading lies in a span that was charged for a tree, and no value that was held
  back for a threshold has one.
- **I7, auditable.** Spans follow each other from position 0 on, so that no position is charged twice, each
  within epsilon, under the terms of the topology and one instance. Readings follow each other without gaps.

Feed all of the ledger, in the order of its log, then the sink, then ask for the report. Memory: 8 bytes per
reading; readings themselves are never kept and never part of a finding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, TypeGuard

from eventveil.audit.findings import Kept, ReadingsReport, Violations
from eventveil.audit.records import FoundRecord
from eventveil.formats.span import Span
from eventveil.model.records import TopicPartition

_HASH = 8
_UNCHARGED = "no span of the ledger holds this position: it was published without a charge"
_TWO_DRAWS = "different records were visible for this position"
_FIELDS = ("stream", "partition", "position", "offset", "reading", "step")


class ReadingsAudit:
    """``ledger_begins`` and ``entry`` for the whole ledger, ``record`` for the whole sink, then ``reports``.

    ``terms`` are the fields that every record of the stream has to have, ``step`` is that of the readings,
    ``units`` make up epsilon, ``partition`` is the stream's of the ledger.
    """

    def __init__(self, stream: str, terms: Mapping[str, str], step: str, units: int, partition: int) -> None:
        self.stream, self._terms, self._step = stream, terms, step
        self._units, self._partition = units, partition
        self._instance: str | None = None
        self._partitions: dict[int, _PartitionCharges] = {}
        self._flag = Violations(stream)
        self._aborted_entries: list[tuple[Span, FoundRecord]] = []
        self._repeated = self._aborted = self._undecided = self._foreign = 0

    def ledger_begins(self, topic: str, partition: int, offset: int) -> None:
        """See ``StreamAudit``."""
        if partition == self._partition and offset > 0:
            place = TopicPartition(topic, partition).at(offset)
            self._flag("I7", None, place, "the ledger begins here: entries before this were removed")

    def entry(self, found: FoundRecord) -> None:
        """Check a record of the ledger."""
        span = Span.read(found.fields)
        if span is None:
            if found.committed:
                self._flag("I7", None, found, "this is not a ledger entry of a value stream")
            return
        if not found.committed:
            self._aborted_entries.append((span, found))
            return
        self._check_entry(span, found)
        known = self._of(span.partition)
        if span.start < known.charged:
            what = "positions were charged a second time"
            self._flag("I7", None, found, what, f": from {span.start}, up to {known.charged} before")
        elif span.start > known.charged:
            what = "positions before this span were never charged"
            self._flag("I7", None, found, what, f": {known.charged} to {span.start - 1}")
        known.add(span)

    def record(self, found: FoundRecord, *, newer: bool = False) -> None:
        """Check a record of the sink; ``newer``: see ``StreamAudit.record``."""
        if found.stream != self.stream:
            self._foreign += 1
            return
        fields = found.fields or {}
        position, reading = fields.get("position"), fields.get("reading")
        if set(fields) != {*_FIELDS, *self._terms} or not _is_position(position):
            self._flag("I2", None, found, "this is not a reading, yet it is of this stream")
            return
        if type(reading) is not int and reading is not None:
            self._flag("I2", None, found, "this is not a reading, yet it is of this stream")
            return
        if found.committed:
            self._check_statement(fields, found)
        known, shown = self._of(found.partition), found.digest[:_HASH]
        self._check_charge(known, position, reading, found, newer=newer)
        if not found.committed:
            self._check_one_draw(known.aborted.setdefault(position, shown), shown, position, found)
        elif known.published(position):
            self._repeated += self._check_one_draw(known.hash_of(position), shown, position, found)
        else:
            self._publish(known, position, reading, found)

    def _publish(
        self, known: _PartitionCharges, position: int, reading: int | None, found: FoundRecord
    ) -> None:
        if known.hashes and position != known.next:
            what = "readings do not follow each other"
            self._flag("I7", None, found, what, f": {position} comes after {known.next - 1}")
        known.publish(position, found.digest[:_HASH], held=reading is None)

    def reports(self, kept: Kept) -> list[ReadingsReport]:
        """The outcome, once all records have been handed in; ``kept`` says what the sink still has."""
        for span, found in self._aborted_entries:
            known = self._of(span.partition)
            if span in known.spans:
                self._aborted += 1
            elif span.start >= known.charged:
                self._undecided += 1
            else:
                self._flag("I1", None, found, "it charged different positions than the committed entry")
        for number, one in sorted(self._partitions.items()):
            self._conclude(number, one, kept)
        parts = self._partitions
        return [
            ReadingsReport(
                stream=self.stream,
                readings=sum(one.readings for one in parts.values()),
                held=sum(one.held for one in parts.values()),
                spans=sum(len(one.spans) for one in parts.values()),
                epsilon=self._terms["epsilon"],
                findings=self._flag.listed,
                violations=self._flag.violations,
                matched_from={number: one.first for number, one in sorted(parts.items()) if one.first},
                repeated=self._repeated,
                aborted=self._aborted,
                undecided=self._undecided,
                foreign=self._foreign,
            )
        ]

    def _conclude(self, number: int, one: _PartitionCharges, kept: Kept) -> None:
        place = f"the sink, partition {number}"
        if kept == "everything" and one.hashes and one.first:
            self._flag("I7", None, place, "its first readings are missing", f": it begins at {one.first}")
        span = one.spans[-1] if one.spans else None
        # A span is charged with the first reading of its tree, or with the last value held back for it.
        due = 0 if span is None else span.start + 1 if span.purpose == "tree" else span.stop
        if due > one.next and (kept == "everything" or one.hashes):
            what = "positions were charged, but their records are not in the sink"
            self._flag("I7", None, place, what, f": {one.next} to {due - 1}")
        for position, shown in one.aborted.items():
            if one.published(position):
                self._aborted += self._check_one_draw(one.hash_of(position), shown, position, place)
            else:
                self._undecided += position >= one.next

    def _of(self, partition: int) -> _PartitionCharges:
        return self._partitions.setdefault(partition, _PartitionCharges())

    def _check_entry(self, span: Span, found: FoundRecord) -> None:
        fields = found.fields or {}
        if found.key != self.stream.encode():
            self._flag("I7", None, found, "its key is not the name of the stream")
        if found.partition != self._partition:
            what = f"the ledger of this stream is in partition {self._partition}"
            self._flag("I7", None, found, what)
        self._check_terms({**self._terms, "units": self._units}, fields, found)
        if not 1 <= span.spent <= span.units:
            what = "a value paid more than epsilon, or nothing"
            self._flag("I7", None, found, what, f": {span.spent} of {span.units} units")
        if self._instance is None:
            self._instance = span.instance
        elif span.instance != self._instance:
            what = "the entry is of another instance of the stream than the first one: its budget began anew"
            self._flag("I7", None, found, what)

    def _check_statement(self, fields: Mapping[str, Any], found: FoundRecord) -> None:
        if found.key != self.stream.encode():
            self._flag("I7", None, found, "its key is not the name of the stream")
        self._check_terms({**self._terms, "step": self._step}, fields, found)
        if fields["partition"] != found.partition:
            self._flag("I7", None, found, "it is of another partition of the source")

    def _check_terms(
        self, terms: Mapping[str, object], fields: Mapping[str, Any], found: FoundRecord
    ) -> None:
        for name, own in terms.items():
            if fields.get(name) != own:
                what = f"{name} is not that of the topology"
                self._flag("I7", None, found, what, f": {fields.get(name)!r:.50}, not {own!r}")

    def _check_charge(
        self, known: _PartitionCharges, position: int, reading: int | None, found: FoundRecord, *, newer: bool
    ) -> None:
        span = known.span_of(position)
        if span is None:
            if reading is None and position >= known.charged:
                return  # held back for a threshold that is not estimated yet
            if position >= known.charged and (newer or not found.committed):
                self._undecided += found.committed
            else:
                self._flag("I2", None, found, _UNCHARGED, f": {position}")
        elif span.purpose == "threshold" and reading is not None:
            self._flag("I2", None, found, "a value that a threshold was estimated from has a reading")
        elif span.purpose == "tree" and reading is None:
            self._flag("I7", None, found, "a value of a chunk has no reading")

    def _check_one_draw(self, one: bytes, other: bytes, position: int, place: object) -> bool:
        if one != other:
            self._flag("I1", None, place, _TWO_DRAWS, f": {position}")
        return one == other


class _PartitionCharges:
    """What was charged and published of one source partition."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._starts: list[int] = []
        self.charged = 0
        #: A hash of each record from position ``first`` to ``next`` - 1.
        self.hashes = bytearray()
        self.first = self.next = 0
        self.readings = self.held = 0
        self.aborted: dict[int, bytes] = {}

    def add(self, span: Span) -> None:
        """Remember a span, wherever it begins."""
        at = bisect_right(self._starts, span.start)
        self.spans.insert(at, span)
        self._starts.insert(at, span.start)
        self.charged = max(self.charged, span.stop)

    def span_of(self, position: int) -> Span | None:
        """The last span that begins at or before a position, if it holds it."""
        at = bisect_right(self._starts, position) - 1
        return self.spans[at] if at >= 0 and position < self.spans[at].stop else None

    def publish(self, position: int, shown: bytes, *, held: bool) -> None:
        """Remember the first committed copy of a record. After a gap only what follows is compared."""
        if position != self.next or not self.hashes:
            self.hashes.clear()
            self.first = position
        self.hashes += shown
        self.next = position + 1
        self.held += held
        self.readings += not held

    def published(self, position: int) -> bool:
        """Whether the hash of a position is known."""
        return bool(self.hashes) and self.first <= position < self.next

    def hash_of(self, position: int) -> bytes:
        """The hash of a published position."""
        at = (position - self.first) * _HASH
        return bytes(self.hashes[at : at + _HASH])


def _is_position(position: object) -> TypeGuard[int]:
    return type(position) is int and 0 <= position < 2**63
