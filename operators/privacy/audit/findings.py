"""What an audit says: a violation, and the report of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from operators.topology.model import Level

from operators.privacy.changes import Change

Invariant = Literal["I1", "I2", "I7"]
#: What the sink still has: all of it, only what its retention has left, what compaction has, or nothing.
Kept = Literal["everything", "newest", "last", "nothing"]


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
    number of windows of full length that they span (one if they are fewer), or of horizons at user level,
    ``largest`` the largest sum of one, ``units`` its limit. ``findings`` holds the first ones of each sort,
    ``violations`` is the number of all. ``matched_from`` is the first timestamp whose record had to be in the
    sink, None if there is none. ``repeated`` counts committed records, of ledger and sink, that repeat an
    earlier one; ``aborted`` those of aborted transactions that show nothing new; ``undecided`` those newer
    than the ledger that was read; ``foreign`` records in the sink of somebody else. ``changes`` are the
    migrations; ``windows``, ``largest``, ``units`` and ``epsilon`` are those since the last one. Releases
    before ``sink_since`` are in a former sink; 0 if there is none.
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
    changes: tuple[Change, ...] = ()
    sink_since: int = 0
    level: Level = "w-event"
