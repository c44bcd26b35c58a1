"""How a stream is doing, as far as its releases tell: anybody who may read a sink can know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import msgspec

from eventveil.formats.another_file import other_columns, other_timeline, shown_timeline
from eventveil.model import timeline
from eventveil.model.topology import Stream, Timeline
from eventveil.privacy import gaussian
from eventveil.read.health import State, Total, looked_at, state_of, total_of
from eventveil.read.problems import ReadingError
from eventveil.read.records import Record, decode
from eventveil.topology.scalars import exact_number

#: A release that is overdue by more than this is late (`eventveil ledger` says the same).
LATE_SECONDS = 60
_WHOSE = "Is it the sink of a stream?"
#: The states in words, for all who are told.
WORDS: Mapping[State, str] = {
    "counting": "events count",
    "much-less": "less than half of counts.expected counts: run `eventveil doctor TOPOLOGY`",
    "nothing": "no count stands out from noise; unless you expect such small counts, run"
    " `eventveil doctor TOPOLOGY`",
    "unknown": "too few releases to say whether events count",
}


class ReleaseTerms(msgspec.Struct, frozen=True):
    """What a release says of the terms that it was charged by."""

    timestamp: int
    mechanism: str
    epsilon: str
    window: int
    units: int
    delta: str | None = None

    @classmethod
    def of(cls, record: Record) -> ReleaseTerms:
        """Those of a release."""
        return cls(
            record.timestamp, record.mechanism, record.epsilon, record.window, record.units, record.delta
        )

    @classmethod
    def read(cls, record: bytes) -> ReleaseTerms:
        """Those of a release of which nothing else is wanted. Raises ValueError if it is none."""
        return _TERMS.decode(record)

    def same_as(self, other: ReleaseTerms) -> bool:
        """Whether both releases were charged alike."""
        return msgspec.structs.replace(self, timestamp=other.timestamp) == other


_TERMS = msgspec.json.Decoder(ReleaseTerms)


def changed_at(terms: Sequence[ReleaseTerms]) -> int | None:
    """The first timestamp under the terms that hold now, if the window that follows reaches back beyond it.

    ``terms`` are those of the newest releases, in order. None if these show no change.
    """
    for newer, older in pairwise(reversed(terms)):
        if not older.same_as(newer):
            reaches = newer.timestamp + max(newer.window, older.window) - 1
            return newer.timestamp if terms[-1].timestamp + 1 < reaches else None
    return None


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a stream. Times are epoch milliseconds.

    ``last`` is the last released timestamp, None if the sink has none; ``until`` its end. ``following`` is
    the next one, ``due`` when it can be released at the earliest, ``overdue`` for how long it has been due.
    Without a release they are those of the first timestamp, and None where no start says which it is;
    ``due_by`` is then the latest time at which the first can be due, if the topics have been created.
    ``spent`` and ``epsilon`` are of the window that ends at the last release, with what every window pays for
    columns that are found. With Gaussian noise ``spent`` is the epsilon that the mu squared of the window has
    at ``delta``; else that is of finding columns. ``releases`` is how many the ``state`` is about;
    ``expected`` is the setting that it was compared with. ``changed``: the first timestamp under other terms
    than before, where windows reach back beyond it: ``spent`` counts from there on, and what was spent before
    may leave less than epsilon less ``spent``. ``foreign``: the last release has other terms than the file.
    ``other_timeline`` and ``other_columns`` say how its timeline and its columns differ from those of the
    file, "" where they do not; times are those of the release. ``exhausted``: its horizon had passed.
    """

    stream: str
    mechanism: str
    epsilon: float
    window: int
    last: int | None
    until: int | None
    fresh: bool | None
    following: int | None
    due: int | None
    overdue: int
    spent: float
    state: State
    releases: int
    delta: float | None = None
    expected: int | None = None
    changed: int | None = None
    due_by: int | None = None
    foreign: bool = False
    exhausted: bool = False
    other_timeline: str = ""
    other_columns: str = ""

    def spent_in(self, window: str = "the window,") -> str:
        """Over what ``spent`` adds up, and what it leaves, in words; ``window``: what to call the window."""
        if self.changed is None:
            return f"in {window} {self.epsilon - self.spent:.4g} left"
        return f"since the terms changed at timestamp {self.changed}; what was spent before may leave less"

    @property
    def health(self) -> str:
        """The state in words."""
        if self.state == "counting" and self.expected is None:
            return "counts stand out from noise; set counts.expected to be warned if far fewer events count"
        return WORDS[self.state]

    @property
    def promise(self) -> str:
        """Epsilon, and delta where there is one."""
        return f"{self.epsilon:g}{'' if self.delta is None else f' at delta {self.delta:.3g}'}"

    @property
    def is_of_file(self) -> bool:
        """Whether the stream can be that of the file: no migration changes its timeline or its columns."""
        return not self.other_timeline and not self.other_columns

    @property
    def is_late(self) -> bool:
        """Whether releases have stopped, or fall behind."""
        return self.overdue > 1000 * LATE_SECONDS

    def fields(self) -> dict[str, Any]:
        """For programs, with times as text."""
        return {
            "stream": self.stream,
            "mechanism": self.mechanism,
            "window": self.window,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "spent": self.spent,
            "remaining": self.epsilon - self.spent,
            "terms_changed_at": self.changed,
            "terms_of_file": not self.foreign,
            "timeline_of_file": not self.other_timeline,
            "columns_of_file": not self.other_columns,
            "released": self.last,
            "released_until": _time(self.until),
            "fresh": self.fresh,
            "next": self.following,
            "next_due": _time(self.due),
            "next_due_by": _time(self.due if self.due_by is None else self.due_by),
            "overdue_seconds": self.overdue // 1000,
            "late": self.is_late,
            "counting": self.state,
            "releases_looked_at": self.releases,
        }


def _time(moment: int | None) -> str | None:
    return None if moment is None else timeline.format_rfc3339(moment)


def status_of(stream: Stream, records: Mapping[int, bytes], now: int) -> Status:
    """The status at ``now``, from the newest release records by timestamp. Raises ReadingError."""
    if not records:
        return status_from(stream, None, (), (), now)
    last = max(records)
    terms = [ReleaseTerms.read(records[one]) for one in sorted(records)]
    totals = [found[1] for one in sorted(records) if (found := total_of(records[one])) is not None]
    newest = decode(records[last], f"{stream.sink.topic}, timestamp {last}")
    return status_from(stream, newest, totals, terms, now)


def status_from(
    stream: Stream,
    record: Record | None,
    totals: Sequence[Total],
    terms: Sequence[ReleaseTerms],
    now: int,
    first: int | None = None,
) -> Status:
    """The status at ``now`` (epoch ms), from the last release, if any, and totals and terms of the newest.

    ``first``: the first timestamp, where it is known, for a stream that has not released.
    """
    rules, settings = stream.timeline, stream.mechanism
    if record is None:
        first_from_now = timeline.first_whole_timestamp(rules, now)
        if first is None and rules.start is not None:
            first = first_from_now
        due = None if first is None else timeline.due_of(rules, first)
        overdue = 0 if due is None else max(0, now - due)
        delta = settings.delta if (how := stream.counts.discover) is None else how.delta
        return Status(
            stream.name, settings.kind, float(stream.epsilon), settings.window,
            None, None, None, first, due, overdue, 0.0, "unknown", 0,
            None if delta is None else float(delta), stream.counts.expected,
            due_by=timeline.due_of(rules, first_from_now) if due is None else None,
        )  # fmt: skip
    last, own = record.timestamp, _timeline_of(record, rules)
    due = timeline.due_of(own, last + 1)
    finding, promised = _finding(record)
    return Status(
        stream=stream.name,
        mechanism=record.mechanism,
        epsilon=float(_exact(record.epsilon) + finding),
        window=record.window,
        last=last,
        until=timeline.start_of(own, last + 1),
        fresh=record.fresh,
        following=last + 1,
        due=due,
        overdue=max(0, now - due),
        spent=_spent(record, finding),
        state=state_of(totals, looked_at(settings.window), stream.counts.expected),
        releases=len(totals),
        delta=None if promised is None else float(_exact(promised)),
        expected=stream.counts.expected,
        changed=changed_at(terms),
        foreign=_terms_of(record) != (settings.kind, settings.epsilon, settings.window, settings.delta),
        exhausted=record.exhausted,
        other_timeline=other_timeline(own, rules),
        other_columns=_columns(record, stream),
    )


def _timeline_of(record: Record, rules: Timeline) -> Timeline:
    """The timeline that a release shows, with all else as in the file. Raises ReadingError."""
    shown = shown_timeline(record.timestamp, record.start, record.end, rules)
    if shown is None:
        what = f"timestamp {record.timestamp} cannot lie at {record.start} to {record.end}"
        raise ReadingError("a release", what, _WHOSE)
    return shown


def _columns(record: Record, stream: Stream) -> str:
    """See ``other_columns``; of columns that are found in the data only the first is in the file."""
    if stream.counts.discover is None:
        return other_columns(record.counts, record.columns_digest, stream.columns)
    if not isinstance(record.counts, dict):
        return ""
    return other_columns(dict.fromkeys([*record.counts][:1]), None, stream.columns[:1])


def _terms_of(record: Record) -> tuple[str, Fraction, int, Fraction | None]:
    delta = None if record.delta is None else _exact(record.delta)
    return record.mechanism, _exact(record.epsilon), record.window, delta


def _finding(record: Record) -> tuple[Fraction, str | None]:
    """The epsilon that a window pays for finding columns, whatever it spends, and the delta of the stream."""
    if record.discovery is None:
        return Fraction(0), record.delta
    return _exact(record.discovery.epsilon), record.discovery.delta


def _spent(record: Record, finding: Fraction) -> float:
    """What the window has spent in terms of epsilon, by the record alone; ``finding``: see ``_finding``."""
    epsilon, share = _exact(record.epsilon), Fraction(record.window_spent, record.units)
    if record.delta is None:
        return float(epsilon * share + finding)
    return float(gaussian.spent(epsilon, _exact(record.delta), share))


def _exact(text: str) -> Fraction:
    exact = exact_number(text)
    if exact is None:
        raise ReadingError("a release", f"{text!r} is not an epsilon or delta", _WHOSE)
    return exact
