"""How a stream is doing, as far as its releases tell: anybody who may read a sink can know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eventveil.model import timeline
from eventveil.model.topology import Stream
from eventveil.read.health import State, Total, state_of, total_of
from eventveil.read.records import Record, decode

#: A release that is overdue by more than this is late (`eventveil ledger` says the same).
LATE_SECONDS = 60
#: The states in words, for all who are told.
WORDS: Mapping[State, str] = {
    "counting": "events count",
    "much-less": "less than half of counts.expected counts: run `eventveil doctor`",
    "nothing": "nothing can be told from noise: run `eventveil doctor`",
    "unknown": "too few releases to say whether events count",
}


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a stream. Times are epoch milliseconds.

    ``last`` is the last released timestamp, None if the sink has none; ``until`` its end. ``following`` is
    the next one, ``due`` when it can be released at the earliest, ``overdue`` for how long it has been due.
    ``spent`` and ``epsilon`` are of the window that ends at the last release. ``releases`` is how many the
    ``state`` is about.
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
            "spent": self.spent,
            "remaining": self.epsilon - self.spent,
            "released": self.last,
            "released_until": _time(self.until),
            "fresh": self.fresh,
            "next": self.following,
            "next_due": _time(self.due),
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
        return status_from(stream, None, (), now)
    last = max(records)
    totals = [found[1] for one in sorted(records) if (found := total_of(records[one])) is not None]
    return status_from(stream, decode(records[last], f"{stream.sink.topic}, timestamp {last}"), totals, now)


def status_from(stream: Stream, record: Record | None, totals: Sequence[Total], now: int) -> Status:
    """The status at ``now`` (epoch ms), from the last release, if any, and the totals of the newest ones."""
    rules, settings = stream.timeline, stream.mechanism
    if record is None:
        begun = timeline.due_of(rules, timeline.first_whole_timestamp(rules, now)) if rules.start else None
        overdue = 0 if begun is None else max(0, now - begun)
        return Status(
            stream.name, settings.kind, float(settings.epsilon), settings.window,
            None, None, None, None, begun, overdue, 0.0, "unknown", 0,
        )  # fmt: skip
    last = record.timestamp
    due = timeline.due_of(rules, last + 1)
    return Status(
        stream=stream.name,
        mechanism=record.mechanism,
        epsilon=float(record.epsilon),
        window=record.window,
        last=last,
        until=timeline.start_of(rules, last + 1),
        fresh=record.fresh,
        following=last + 1,
        due=due,
        overdue=max(0, now - due),
        spent=float(record.epsilon) * record.window_spent / record.units,
        state=state_of(totals, stream.counts.expected),
        releases=len(totals),
    )
