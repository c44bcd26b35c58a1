"""Were the promises kept? Pure: it knows the rules of a stream and the records of its topics, nothing else.

It shares no code with the program. The noise of the worker under test must be multiples of NOISE, zero
included (``tests.worker.silent``, ``tests.chaos.worker``), so that a fresh release shows the true counts.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.partitioner import murmur2

from tests.chaos.sums import LocalRules, check_sums

NOISE = 1_000_000
_TIME_LIMIT = 2**53


@dataclass(frozen=True, slots=True)
class Rules:
    """What the topology says of a stream; times in milliseconds, ``first`` is its first timestamp.

    ``rekeyed``: producers need not key by user, and of a user's events those that were appended first count.
    ``pan_private``: its decisions are in the counting changelog. ``local``: what counts are reports, of which
    ``tests.chaos.sums`` knows the rules.
    """

    stream: str
    source: str
    partitions: int
    columns: Sequence[str]
    origin: int
    interval: int
    lateness: int
    max_ahead: int
    max_bytes: int
    window: int
    first: int = 1
    contributions: int = 1
    per_column: int = sys.maxsize
    rekeyed: bool = False
    pan_private: bool = False
    local: LocalRules | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a read_uncommitted reader sees it; ``committed``: a read_committed one sees it too.

    ``time`` is the append time of a source record.
    """

    partition: int
    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    committed: bool = True


@dataclass(frozen=True, slots=True)
class Logs:
    """The topics of a stream, each partition in the order of its offsets; other streams may be in them."""

    raw: Sequence[Record]
    sink: Sequence[Record]
    dead: Sequence[Record]
    ledger: Sequence[Record]
    ledger_changelog: Sequence[Record]
    counting_changelog: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Report:
    """What was verified of a stream, in records and timestamps, and every violation in words."""

    timestamps: int
    produced: int
    counted: int
    bounded: int
    dead: int
    aborted: int
    violations: list[str]


@dataclass(frozen=True, slots=True)
class Event:
    """A record that may count."""

    timestamp: int
    user: str
    column: str


def java_partition(user: str, partitions: int) -> int:
    """Where a producer with murmur2 puts a user, by aiokafka's implementation."""
    return int((murmur2(user.encode()) & 0x7FFFFFFF) % partitions)


def judge(record: Record, rules: Rules) -> Event | str:
    """The event in a source record, or the reason for which the rules make a dead letter of it.

    Times are epoch milliseconds only: no text is a time here.
    """
    document = _document(record.value, rules)
    if isinstance(document, str):
        return document
    for name, kinds in (("user", (str,)), ("place", (str,)), ("time", (str, int))):
        if not isinstance(document, dict) or name not in document:
            return "missing-field"
        value = document[name]
        if type(value) not in kinds:
            return "wrong-type"
        if name == "user" and not value:
            return "empty-user"
        if name == "place" and not (rules.local.fits(value) if rules.local else value in rules.columns):
            return "unknown-column"
        if name == "time" and (type(value) is str or abs(value) >= _TIME_LIMIT):
            return "time-unreadable"
    if not rules.rekeyed and java_partition(document["user"], rules.partitions) != record.partition:
        return "wrong-partition"
    return _place(document, record.time, rules)


def _document(value: bytes | None, rules: Rules) -> Any:
    if value is None:
        return "tombstone"
    if len(value) > rules.max_bytes:
        return "too-large"
    try:
        document = json.loads(value)
    except ValueError:
        return "not-json"
    return "missing-field" if isinstance(document, str) else document


def _place(document: dict[str, Any], appended: int, rules: Rules) -> Event | str:
    time = document["time"]
    timestamp = (time - rules.origin) // rules.interval + 1
    if time > appended + rules.max_ahead:
        return "too-far-ahead"
    if timestamp < 1:
        return "before-origin"
    if timestamp < rules.first:
        return "before-start"
    if appended >= rules.origin + timestamp * rules.interval + rules.lateness:
        return "late"
    return Event(timestamp, document["user"], document["place"])


def in_order(raw: Sequence[Record], rules: Rules) -> Sequence[Record]:
    """Source records such that of a user's events those that count come first."""
    if not rules.rekeyed:
        return raw
    return sorted(raw, key=lambda record: (record.time, record.partition, record.offset))


def true_counts(
    events: Iterable[Event], contributions: int = 1, per_column: int = sys.maxsize
) -> dict[int, Counter[str]]:
    """The counts per timestamp: of each user the first ``contributions`` of the first of each column."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    seen: defaultdict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for event in events:
        own = seen[event.timestamp, event.user]
        if own.total() < contributions and own[event.column] < per_column:
            own[event.column] += 1
            counts[event.timestamp][event.column] += 1
    return dict(counts)


def verify(rules: Rules, logs: Logs) -> Report:
    """Hold the records against every promise."""
    violations: list[str] = []
    raw = in_order([record for record in logs.raw if record.committed], rules)
    verdicts = {(record.partition, record.offset): judge(record, rules) for record in raw}
    sink = [(json.loads(one.value or b""), one) for one in logs.sink if one.key == rules.stream.encode()]
    releases = [fields for fields, record in sink if record.committed]
    _check_letters(rules, logs, verdicts, violations)
    events = [event for event in verdicts.values() if isinstance(event, Event)]
    truth = true_counts(events, rules.contributions, rules.per_column)
    _check_sequence(rules, releases, truth, violations)
    _check_one_draw(rules, sink, logs.ledger, violations)
    _check_charges(rules, [record for _, record in sink], logs, violations)
    _check_budget(rules, releases, violations)
    if rules.local is None:
        _check_counts(rules, releases, truth, violations)
    else:
        violations += check_sums(rules.local, releases, truth)
    _check_progress(rules, logs.counting_changelog, violations)
    counted = sum(counts.total() for counts in truth.values())
    return Report(
        timestamps=len(releases),
        produced=len(raw),
        counted=counted,
        bounded=len(events) - counted,
        dead=len(verdicts) - len(events),
        aborted=len(sink) - len(releases),
        violations=[f"{rules.stream}: {violation}" for violation in violations],
    )


def _check_letters(
    rules: Rules, logs: Logs, verdicts: Mapping[tuple[int, int], Event | str], violations: list[str]
) -> None:
    """Dead letters are exactly the records that cannot count, each once, with its reason and its bytes."""
    raw = {(record.partition, record.offset): record for record in logs.raw}
    reasons: dict[tuple[int, int], str] = {}
    for letter in logs.dead:
        if not letter.committed:
            continue
        header = {name: value.decode() for name, value in letter.headers.items()}
        if (header["eventveil.stream"], header["eventveil.topic"]) != (rules.stream, rules.source):
            continue
        place = (int(header["eventveil.partition"]), int(header["eventveil.offset"]))
        reason = header["eventveil.reason"]
        if place in reasons:
            violations.append(f"record {place} is a dead letter twice")
        reasons[place] = reason
        origin, verdict = raw.get(place), verdicts.get(place)
        if origin is None or (letter.key, letter.value) != (origin.key, origin.value):
            violations.append(f"the dead letter of record {place} is not that record")
        if verdict != reason:
            violations.append(f"record {place} is a dead letter, {reason}, but should be {_told(verdict)}")
    for place, verdict in verdicts.items():
        if isinstance(verdict, str) and place not in reasons:
            violations.append(f"record {place} should be a dead letter, {verdict}, and is none")


def _told(verdict: Event | str | None) -> str:
    return f"counted in timestamp {verdict.timestamp}" if isinstance(verdict, Event) else str(verdict)


def _check_sequence(
    rules: Rules, releases: Sequence[Mapping[str, Any]], truth: Mapping[int, Any], violations: list[str]
) -> None:
    """One record per timestamp, in order, without a gap, from the first one to the last with an event."""
    expected = rules.first
    for release in releases:
        timestamp = release["timestamp"]
        if timestamp < expected:
            violations.append(f"timestamp {timestamp} is published again, after {expected - 1}")
        elif timestamp > expected:
            violations.append(f"timestamps {expected} to {timestamp - 1} are missing")
        expected = max(expected, timestamp + 1)
    if unreleased := [timestamp for timestamp in truth if timestamp >= expected]:
        violations.append(
            f"{len(unreleased)} timestamps with events are not released, from {min(unreleased)}"
        )


def _check_one_draw(
    rules: Rules, sink: Iterable[tuple[Any, Record]], ledger: Iterable[Record], violations: list[str]
) -> None:
    """Nobody sees two draws of a timestamp, not even in records of aborted transactions."""
    draws: defaultdict[int, set[str]] = defaultdict(set)
    for fields, record in sink:
        draws[fields["timestamp"]].add(hashlib.sha256(record.value or b"").hexdigest())
    for entry in ledger:
        if entry.key == rules.stream.encode():
            fields = json.loads(entry.value or b"")
            draws[fields["timestamp"]].add(fields["digest"])
    violations += [
        f"timestamp {timestamp} shows {len(digests)} draws"
        for timestamp, digests in sorted(draws.items())
        if len(digests) > 1
    ]


def _check_charges(rules: Rules, sink: Iterable[Record], logs: Logs, violations: list[str]) -> None:
    """What anybody could see had been decided and charged, once, in a transaction committed before.

    A transaction ends in a marker, which takes an offset of its own: between the record that decides and
    the one that says it is published, an offset without a record must lie. Each release has one ledger entry.
    """
    key = rules.stream.encode()
    state_key = b"release/" + key if rules.pan_private else key
    changelog = logs.counting_changelog if rules.pan_private else logs.ledger_changelog
    decided: dict[int, bytes] = {}
    taken = {(record.partition, record.offset) for record in changelog}
    deciding: Record | None = None
    reached = 0
    for record in changelog:
        if not record.committed or record.key != state_key:
            continue
        state = json.loads(record.value or b"")
        pending = [one.encode() for one in state["pending"]]
        for timestamp, release in enumerate(pending, state["next"] - len(pending)):
            if decided.setdefault(timestamp, release) != release:
                violations.append(f"timestamp {timestamp} was decided twice")
        if state["next"] < reached:
            violations.append(f"the released timestamps went back from {reached} to {state['next']}")
        reached = max(reached, state["next"])
        if deciding is not None and not pending:
            between = range(deciding.offset + 1, record.offset)
            if all((record.partition, offset) in taken for offset in between):
                violations.append(f"timestamps up to {state['next'] - 1} were charged as they were published")
        deciding = record if pending else None
    known = set(decided.values())
    for record in sink:
        if record.value not in known:
            timestamp = json.loads(record.value or b"")["timestamp"]
            violations.append(f"timestamp {timestamp} shows a record that was never charged")
    own = [entry for entry in logs.ledger if entry.committed and entry.key == key]
    entries = Counter(json.loads(entry.value or b"")["digest"] for entry in own)
    published = Counter(hashlib.sha256(one.value or b"").hexdigest() for one in sink if one.committed)
    if entries != published:
        violations.append(f"{len(entries - published)} ledger entries without their release, or twice")
        violations.append(f"{len(published - entries)} releases without their ledger entry, or twice")


def _check_budget(rules: Rules, releases: Sequence[Mapping[str, Any]], violations: list[str]) -> None:
    """The spends of any ``window`` timestamps are at most epsilon: ``units`` of 1/units each."""
    spends = {one["timestamp"]: one["spent"]["test"] + one["spent"]["publish"] for one in releases}
    for release in releases:
        last = release["timestamp"]
        total = sum(spends.get(timestamp, 0) for timestamp in range(last - rules.window + 1, last + 1))
        if release["units"] != 2 * rules.window * 2**20 or total > release["units"]:
            violations.append(f"the window that ends at {last} spent {total} of {release['units']}")
        if release["window_spent"] != total:
            violations.append(f"timestamp {last} tells a window of {release['window_spent']}, not {total}")


def _check_counts(
    rules: Rules,
    releases: Sequence[Mapping[str, Any]],
    truth: Mapping[int, Counter[str]],
    violations: list[str],
) -> None:
    """A fresh release shows the truth and was paid for; another one repeats the one before it."""
    shown = dict.fromkeys(rules.columns, 0)
    for release in releases:
        timestamp, counts = release["timestamp"], release["counts"]
        if not release["fresh"]:
            if counts != shown:
                violations.append(f"timestamp {timestamp} is not fresh, yet differs from the one before it")
            continue
        shown = counts
        if not release["spent"]["publish"]:
            violations.append(f"timestamp {timestamp} is fresh, yet not paid for")
        found = {column: count % NOISE for column, count in counts.items() if count % NOISE}
        if list(counts) != list(rules.columns) or found != truth.get(timestamp, {}):
            expected = dict(truth.get(timestamp, {}))
            violations.append(f"timestamp {timestamp} counts {found}, not {expected}")


def _check_progress(rules: Rules, changelog: Iterable[Record], violations: list[str]) -> None:
    """A closed timestamp stays closed, and a judged record judged."""
    reached: dict[int, tuple[int, int]] = {}
    for record in changelog:
        if record.committed and record.key == rules.stream.encode():
            state = json.loads(record.value or b"")
            after, before = (state["next"], state["judged"]), reached.get(record.partition, (0, 0))
            if min(after[0] - before[0], after[1] - before[1]) < 0:
                violations.append(f"counting in partition {record.partition} went from {before} to {after}")
            reached[record.partition] = after
