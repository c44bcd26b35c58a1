"""What an audit says: a violation, and the report of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from eventveil.model.topology import Level

from eventveil.formats.change import Change
from eventveil.topology.scalars import exact_number

#: See docs/invariants.md.
Invariant = Literal["I1", "I2", "I7"]
#: This many findings of one sort are listed; the others are counted.
_LISTED = 10
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


class Violations:
    """The violations of a stream: the first of each sort are ``listed``, all of them counted."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        #: Each with whether it explains others, and whether it is the first of its sort.
        self._listed: list[tuple[Finding, bool, bool]] = []
        self._sorts: Counter[tuple[str, str]] = Counter()

    def __call__(
        self,
        invariant: Invariant,
        timestamp: int | None,
        place: object,
        what: str,
        detail: str = "",
        *,
        explains: bool = False,
    ) -> None:
        """Note a violation; ``what`` is its sort, ``detail`` what is special about this one.

        One that ``explains`` the others is listed before them, and of these one of each sort.
        """
        self._sorts[invariant, what] += 1
        if self._sorts[invariant, what] <= _LISTED:
            found = Finding(invariant, self._stream, timestamp, str(place), what + detail)
            self._listed.append((found, explains, self._sorts[invariant, what] == 1))

    @property
    def listed(self) -> tuple[Finding, ...]:
        """The first ones of each sort."""
        explaining = tuple(found for found, explains, _ in self._listed if explains)
        others = [(found, first) for found, explains, first in self._listed if not explains]
        return (*explaining, *(found for found, first in others if first or not explaining))

    @property
    def violations(self) -> int:
        """The number of all."""
        return self._sorts.total()


class DiscoveryCost(NamedTuple):
    """What a window pays for columns that are found in the data, beside what the units say."""

    epsilon: Fraction
    delta: Fraction

    def __str__(self) -> str:
        return f"epsilon {self.epsilon} with delta {float(self.delta):.3g}"


def discovery_in(fields: Mapping[str, Any]) -> DiscoveryCost | None:
    """What an entry says of it; None if it says nothing, or nothing that can be read."""
    told = fields.get("discovery")
    if not isinstance(told, dict) or set(told) != {"epsilon", "delta"}:
        return None
    epsilon, delta = (exact_number(told[name]) for name in ("epsilon", "delta"))
    return None if epsilon is None or delta is None else DiscoveryCost(epsilon, delta)


@dataclass(frozen=True, slots=True)
class Report:
    """What the audit of a stream found.

    ``releases`` is the number of timestamps in the ledger, ``first`` and ``last`` are the outer ones of them,
    None if there are none. ``windows`` is the number of windows of full length that they span (one if they
    are fewer), or of horizons at user level,
    ``largest`` the largest sum of one, ``units`` its limit. ``findings`` holds the first ones of each sort,
    ``violations`` is the number of all. ``matched_from`` is the first timestamp whose record had to be in the
    sink, None if there is none. ``repeated`` counts committed records, of ledger and sink, that repeat an
    earlier one; ``aborted`` those of aborted transactions that show nothing new; ``undecided`` those newer
    than the ledger that was read; ``foreign`` records in the sink of somebody else. ``changes`` are the
    migrations; ``windows``, ``largest``, ``units`` and ``epsilon`` are those since the last one that changed
    terms, ``windows_before`` the windows before it, each checked by its own terms. Releases before
    ``sink_since`` are in a former sink; 0 if there is none. ``threshold`` is what local reports are to
    be made for, None before that is chosen. Of pan-private streams ``forfeited`` counts the timestamps that
    were given up, ``looks`` those that were published for an announced look. With a ``delta`` noise was
    Gaussian, and units are of mu squared. ``discovery``: what every window pays beside the units.
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
    windows_before: int = 0
    forfeited: int = 0
    looks: int = 0
    sink_since: int = 0
    level: Level = "w-event"
    threshold: int | None = None
    last: int | None = None
    delta: Fraction | None = None
    discovery: DiscoveryCost | None = None


@dataclass(frozen=True, slots=True)
class ReadingsReport:
    """What the audit of a value stream found; see ``Report`` for fields of that name.

    ``readings`` is the number of values with a reading in the sink, ``held`` that of values without one,
    ``spans`` that of charges. ``matched_from`` has the first position that a partition of the sink still has,
    where it is not 0.
    """

    stream: str
    readings: int
    held: int
    spans: int
    epsilon: str
    findings: tuple[Finding, ...]
    violations: int
    matched_from: Mapping[int, int]
    repeated: int
    aborted: int
    undecided: int
    foreign: int
