"""The audit of a stream: do its ledger and its sink show that I1, I2 and I7 were kept?

Pure, and apart from what it audits: it shares no code with ``operators.privacy.ledger``, which refused every
spend above epsilon, nor with ``operators.release``, which wrote the records.

- **I1, one draw.** No two records of one timestamp differ, records of aborted transactions included, which
  read_uncommitted readers have seen. Identical ones are counted, not blamed.
- **I2, charge first.** Every record has a ledger entry with its digest. An entry becomes public in the same
  transaction as its record; that both were decided and charged in a transaction before that one is not to be
  seen from outside.
- **I7, auditable.** Every entry has its record. Entries follow each other without gaps from the first one
  on, under the terms of the topology and one instance. Every window's sum, recomputed from the spends of the
  entries, is what the entry says and at most epsilon. What a release says of itself is what its entry says,
  and a release that was not charged repeats the one before it.

Feed all of the ledger, in the order of its log, then the sink, then ask for the report. Memory: the spends of
one window and 49 bytes per release; counts are never kept and never part of a finding.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import orjson

from operators.topology.model import MechanismSettings

Invariant = Literal["I1", "I2", "I7"]
#: What the sink still has: all of it, only what its retention has left, or what compaction has.
Kept = Literal["everything", "newest", "last"]

_NO_ENTRY = "no ledger entry has the digest of this record: it was published without a charge"
_TWO_DRAWS = "records that differ were to be seen for this timestamp"
#: So many findings of one sort are listed; the others are counted.
_LISTED = 10
_DIGEST_BYTES, _STATEMENT_BYTES = 32, 8
#: A number as topologies write it; a longer exponent would take for ever to read.
_EPSILON = re.compile(
    r"([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,2})?|[0-9]{1,40}/[1-9][0-9]{0,40}"
)
_STATEMENTS = ("fresh", "mechanism", "epsilon", "window", "units", "spent", "window_spent")


@dataclass(frozen=True, slots=True)
class Found:
    """A record of the ledger or of a sink, where it was found; ``digest`` is the SHA-256 of its value.

    ``fields`` is its value if that is a JSON object, else None. ``committed`` is false for a record of an
    aborted transaction.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    fields: Mapping[str, Any] | None
    digest: bytes
    committed: bool = True

    @classmethod
    def read(
        cls,
        place: tuple[str, int],
        offset: int,
        key: bytes | None,
        value: bytes | None,
        committed: bool = True,
    ) -> Found:
        """A record from its bytes; ``place`` is topic and partition."""
        try:
            fields = orjson.loads(value or b"null")
        except orjson.JSONDecodeError:
            fields = None
        known = fields if isinstance(fields, dict) else None
        return cls(*place, offset, key, known, hashlib.sha256(value or b"").digest(), committed)

    @property
    def stream(self) -> str:
        """The stream that the record says it is of; that of its key if it says nothing readable."""
        name = (self.fields or {}).get("stream")
        return name if isinstance(name, str) else (self.key or b"").decode(errors="replace")

    def __str__(self) -> str:
        aborted = "" if self.committed else " (aborted)"
        return f"{self.topic}, partition {self.partition}, offset {self.offset}{aborted}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation: of which invariant, at which timestamp (None if it has none), where, and what."""

    invariant: Invariant
    stream: str
    timestamp: int | None
    place: str
    what: str

    def __str__(self) -> str:
        at = "" if self.timestamp is None else f", timestamp {self.timestamp}"
        return f"{self.invariant} {self.stream}{at}, {self.place}: {self.what}"


@dataclass(frozen=True, slots=True)
class Report:
    """What the audit of a stream found.

    ``releases`` is the number of timestamps in the ledger, ``first`` the first of them, ``windows`` the
    number of windows of full length that they span (one if they are fewer), ``largest`` the largest sum of
    one, ``units`` its limit. ``findings`` holds the first ones of each sort, ``violations`` is the number of
    all. ``matched_from`` is the first timestamp whose record had to be in the sink, None if there is none.
    ``repeated`` counts committed records, of ledger and sink, that repeat an earlier one; ``aborted`` those
    of aborted transactions that show nothing new; ``undecided`` those newer than the ledger that was read;
    ``foreign`` records in the sink of somebody else.
    """

    stream: str
    releases: int
    first: int | None
    windows: int
    largest: int
    units: int
    epsilon: Fraction
    findings: tuple[Finding, ...]
    violations: int
    matched_from: int | None
    repeated: int
    aborted: int
    undecided: int
    foreign: int


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the audit needs of a ledger entry, its types and signs checked."""

    timestamp: int
    fresh: bool
    test: int
    publish: int
    window_spent: int
    digest: bytes
    instance: str

    @classmethod
    def read(cls, found: Found) -> _Entry | None:
        fields = found.fields or {}
        try:
            spent, digest = fields["spent"], bytes.fromhex(fields["digest"])
            numbers = [fields["timestamp"], spent["test"], spent["publish"], fields["window_spent"]]
            fresh, instance = fields["fresh"], fields["instance"]
        except (KeyError, TypeError, ValueError):
            return None
        sound = all(type(number) is int and 0 <= number < 2**63 for number in numbers) and numbers[0] >= 1
        if not (sound and type(fresh) is bool and type(instance) is str and len(digest) == _DIGEST_BYTES):
            return None
        timestamp, test, publish, window_spent = numbers
        return cls(timestamp, fresh, test, publish, window_spent, digest, instance)


@dataclass(slots=True)
class WindowSums:
    """Sums of spends over the last ``window`` timestamps; ``largest`` is the largest of them so far."""

    window: int
    largest: int = 0
    _sum: int = 0
    _spends: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, timestamp: int, spend: int) -> int:
        """The sum over the window that ends at ``timestamp``, which must exceed all earlier ones."""
        while self._spends and self._spends[0][0] <= timestamp - self.window:
            self._sum -= self._spends.popleft()[1]
        self._spends.append((timestamp, spend))
        self._sum += spend
        self.largest = max(self.largest, self._sum)
        return self._sum


class _Charges:
    """Per timestamp of the ledger: digest, hash of what the entry states, and whether its record was seen."""

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.seen = bytearray()
        self._digests, self._statements = bytearray(), bytearray()

    def find(self, timestamp: int) -> int | None:
        """The index of a timestamp."""
        index = bisect_left(self.timestamps, timestamp)
        known = index < len(self.timestamps) and self.timestamps[index] == timestamp
        return index if known else None

    def add(self, entry: _Entry, statement: bytes) -> None:
        """Remember the first entry of a timestamp."""
        index = bisect_left(self.timestamps, entry.timestamp)
        self.timestamps.insert(index, entry.timestamp)
        self.seen.insert(index, _UNSEEN)
        for hashes, one in ((self._digests, entry.digest), (self._statements, statement)):
            hashes[index * len(one) : index * len(one)] = one

    def digest(self, index: int) -> bytes:
        """The digest of the record that was charged."""
        return bytes(self._digests[index * _DIGEST_BYTES : (index + 1) * _DIGEST_BYTES])

    def statement(self, index: int) -> bytes:
        """The hash of what the entry states."""
        return bytes(self._statements[index * _STATEMENT_BYTES : (index + 1) * _STATEMENT_BYTES])


_UNSEEN, _ABORTED_ONLY, _PUBLISHED = range(3)


class StreamAudit:
    """The audit of one stream: ``entry`` for the whole ledger, ``record`` for the whole sink, ``report``."""

    def __init__(self, stream: str, settings: MechanismSettings, units: int, partition: int) -> None:
        """``units`` make up epsilon; ``partition`` is the stream's partition of the ledger."""
        self.stream = stream
        self._settings, self._units, self._partition = settings, units, partition
        self._charges = _Charges()
        self._sums = WindowSums(settings.window)
        self._instance: str | None = None
        self._aborted_entries: dict[tuple[int, bytes], Found] = {}
        #: Digests that the ledger does not have, by timestamp: of violations, and of what is newer than it.
        self._others: dict[int, set[bytes]] = {}
        self._two_draws: set[int] = set()
        #: The timestamp of the first charged record, by partition of the sink.
        self._first_records: dict[int, int] = {}
        self._previous: tuple[int, bytes] | None = None
        self._findings: list[Finding] = []
        self._sorts: Counter[tuple[str, str]] = Counter()
        self._repeated = self._aborted = self._undecided = self._foreign = 0

    def ledger_begins(self, topic: str, partition: int, offset: int) -> None:
        """Take note where a partition of the ledger begins; nothing is ever removed from it, so at 0."""
        if partition == self._partition and offset > 0:
            place = f"{topic}, partition {partition}, offset {offset}"
            self._blame("I7", None, place, "the ledger begins here: entries before this were removed")

    def entry(self, found: Found) -> None:
        """Check a record of the ledger."""
        entry = _Entry.read(found)
        if entry is None:
            if found.committed:
                self._blame("I7", _timestamp(found), found, "this is no ledger entry")
            return
        if not found.committed:
            # The entry that was committed in its place may come later.
            self._aborted_entries.setdefault((entry.timestamp, entry.digest), found)
            return
        if found.partition != self._partition:
            what = f"the ledger of this stream is in partition {self._partition}"
            self._blame("I7", entry.timestamp, found, what)
        known = self._charges.find(entry.timestamp)
        if known is None:
            self._check_order(entry, found)
            self._check_terms(entry, found)
            self._check_spends(entry, found)
            self._charges.add(entry, _statement(found))
        elif self._charges.digest(known) != entry.digest:
            self._blame("I1", entry.timestamp, found, "an earlier entry charged another release")
        elif self._charges.statement(known) != _statement(found):
            self._blame("I7", entry.timestamp, found, "an earlier entry charged this release differently")
        else:
            self._repeated += 1

    def record(self, found: Found, *, newer: bool = False) -> None:
        """Check a record of the sink.

        ``newer``: it may have been committed after the ledger was read, so its entry may be missing, if it
        is of a timestamp beyond the ledger's last. The same is allowed to aborted records at any time, for
        their release may be published again later.
        """
        if found.stream != self.stream:
            self._foreign += 1
            return
        timestamp = _timestamp(found)
        if timestamp is None or _counts(found) is None:
            self._blame("I2", timestamp, found, "this is no release record, yet it is of this stream")
            return
        known = self._charges.find(timestamp)
        if known is not None and self._charges.digest(known) == found.digest:
            self._charged_record(found, timestamp, known)
        else:
            self._others.setdefault(timestamp, set()).add(found.digest)
            if known is None and timestamp > self._last and (newer or not found.committed):
                self._undecided += 1
            else:
                self._blame("I2", timestamp, found, _NO_ENTRY)
        self._check_one_draw(timestamp, found)

    def report(self, kept: Kept = "everything") -> Report:
        """The outcome, once all records have been handed in; ``kept`` says what the sink still has."""
        for (timestamp, digest), found in self._aborted_entries.items():
            self._aborted_entry(timestamp, digest, found)
        self._aborted_entries.clear()
        timestamps = self._charges.timestamps
        matched_from = self._matched_from(kept)
        for index in range(len(timestamps)):
            if matched_from is not None and timestamps[index] >= matched_from:
                self._check_published(index)
        releases = len(timestamps)
        span = timestamps[-1] - timestamps[0] + 1 if releases else 0
        return Report(
            stream=self.stream,
            releases=releases,
            first=timestamps[0] if releases else None,
            windows=max(1, span - self._settings.window + 1) if releases else 0,
            largest=self._sums.largest,
            units=self._units,
            epsilon=self._settings.epsilon,
            findings=tuple(self._findings),
            violations=self._sorts.total(),
            matched_from=matched_from,
            repeated=self._repeated,
            aborted=self._aborted,
            undecided=self._undecided,
            foreign=self._foreign,
        )

    @property
    def _last(self) -> int:
        timestamps = self._charges.timestamps
        return timestamps[-1] if timestamps else 0

    def _check_order(self, entry: _Entry, found: Found) -> None:
        if self._last and entry.timestamp != self._last + 1:
            what = "the timestamps of the ledger are not consecutive"
            self._blame("I7", entry.timestamp, found, what, f": the last one before it is {self._last}")

    def _check_terms(self, entry: _Entry, found: Found) -> None:
        fields, settings = found.fields or {}, self._settings
        terms = {"mechanism": settings.kind, "window": settings.window, "units": self._units}
        for name, own in terms.items():
            value = fields.get(name)
            if type(value) is not type(own) or value != own:
                what = f"{name} is not that of the topology"
                self._blame("I7", entry.timestamp, found, what, f": {value!r:.50}, not {own!r}")
        if _rational(text := fields.get("epsilon")) != settings.epsilon:
            what = "epsilon is not that of the topology"
            self._blame("I7", entry.timestamp, found, what, f": {text!r:.50}, not {settings.epsilon_text!r}")
        if self._instance is None:
            self._instance = entry.instance
        elif entry.instance != self._instance:
            what = "the entry is of another instance of the stream than the first one: its budget began anew"
            self._blame("I7", entry.timestamp, found, what)

    def _check_spends(self, entry: _Entry, found: Found) -> None:
        if entry.fresh and not entry.publish:
            self._blame("I7", entry.timestamp, found, "a fresh release was not charged")
        if entry.timestamp < self._last:
            return  # out of order, which is a violation already; its windows are gone
        spent = self._sums.add(entry.timestamp, entry.test + entry.publish)
        if spent > self._units:
            what = "the window that ends here spent more than epsilon"
            self._blame("I7", entry.timestamp, found, what, f": {spent} of {self._units} units")
        if spent != entry.window_spent:
            what = "window_spent is not the sum of the window's spends"
            self._blame("I7", entry.timestamp, found, what, f": {entry.window_spent}, not {spent}")

    def _charged_record(self, found: Found, timestamp: int, known: int) -> None:
        if self._charges.statement(known) != _statement(found):
            what = "the record states another charge than its ledger entry"
            self._blame("I7", timestamp, found, what)
        self._first_records.setdefault(found.partition, timestamp)
        seen = self._charges.seen
        if not found.committed:
            self._aborted += 1
            seen[known] = max(seen[known], _ABORTED_ONLY)
        elif seen[known] == _PUBLISHED:
            self._repeated += 1
        else:
            seen[known] = _PUBLISHED
            self._check_repetition(found, timestamp, known)

    def _check_repetition(self, found: Found, timestamp: int, known: int) -> None:
        """A release that is not fresh shows the counts of the one before it, the first one zeros."""
        counts = _counts(found) or []
        shown = hashlib.sha256(orjson.dumps(counts)).digest()
        before = self._previous
        self._previous = (timestamp, shown)
        if (found.fields or {}).get("fresh") is not False:
            return
        if before is not None and before[0] == timestamp - 1:
            same = before[1] == shown
        else:
            same = known > 0 or not any(counts)
        if not same:
            what = "the release is not fresh, yet it does not repeat the one before it: it was not charged"
            self._blame("I7", timestamp, found, what)

    def _aborted_entry(self, timestamp: int, digest: bytes, found: Found) -> None:
        known = self._charges.find(timestamp)
        if known is None:
            self._undecided += timestamp > self._last
            self._others.setdefault(timestamp, set()).add(digest)
            self._check_one_draw(timestamp, found)
        elif self._charges.digest(known) == digest:
            self._aborted += 1
        else:
            self._blame(
                "I1", timestamp, found, "it charged another release than the entry that was committed"
            )

    def _check_one_draw(self, timestamp: int, found: Found) -> None:
        others = self._others.get(timestamp)
        if others is None or timestamp in self._two_draws:
            return
        known = self._charges.find(timestamp)
        shown = len(others) + (known is not None and self._charges.seen[known] != _UNSEEN)
        if shown > 1:
            self._two_draws.add(timestamp)
            self._blame("I1", timestamp, found, _TWO_DRAWS)

    def _matched_from(self, kept: Kept) -> int | None:
        timestamps = self._charges.timestamps
        if not timestamps:
            return None
        if kept == "everything":
            return timestamps[0]
        if kept == "last":
            return timestamps[-1]
        return min(self._first_records.values(), default=None)

    def _check_published(self, index: int) -> None:
        if self._charges.seen[index] != _PUBLISHED:
            what = "the release was charged, but its record is not in the sink"
            self._blame("I7", self._charges.timestamps[index], "the sink", what)

    def _blame(
        self, invariant: Invariant, timestamp: int | None, place: object, what: str, detail: str = ""
    ) -> None:
        self._sorts[invariant, what] += 1
        if self._sorts[invariant, what] <= _LISTED:
            self._findings.append(Finding(invariant, self.stream, timestamp, str(place), what + detail))


def stranger(found: Found) -> Finding | None:
    """What is wrong with a ledger record of no known stream; None if it is an entry of another stream."""
    if not found.committed or _Entry.read(found) is not None:
        return None
    what = "this is no ledger entry, nor of a stream of the topology"
    return Finding("I7", f"{found.stream!r:.50}", None, str(found), what)


def _timestamp(found: Found) -> int | None:
    timestamp = (found.fields or {}).get("timestamp")
    return timestamp if type(timestamp) is int and 1 <= timestamp < 2**63 else None


def _counts(found: Found) -> list[Any] | None:
    """The released counts in the order of the columns, whichever form they have."""
    counts = (found.fields or {}).get("counts")
    if isinstance(counts, dict):
        return list(counts.values())
    return counts if isinstance(counts, list) else None


def _statement(found: Found) -> bytes:
    """A hash of what a record or an entry states of its charge."""
    fields = found.fields or {}
    stated = orjson.dumps([fields.get(name) for name in _STATEMENTS], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(stated, digest_size=_STATEMENT_BYTES).digest()


def _rational(text: object) -> Fraction | None:
    return Fraction(text) if isinstance(text, str) and _EPSILON.fullmatch(text) else None
