"""What an audit found, as the page needs it."""

from __future__ import annotations

from dataclasses import dataclass

from eventveil.audit.periods import ChargedPeriod
from eventveil.audit.versions import StreamVersions


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """One stream: what `eventveil ledger` prints of it, its violations, and whether a release is overdue."""

    stream: str
    lines: tuple[str, ...]
    violations: int
    overdue: bool


@dataclass(frozen=True, slots=True)
class AuditFacts:
    """An audit of the ledger's whole life, done at ``at`` (RFC 3339) on a cluster.

    ``violations`` is the number of all, ``findings`` those that are listed, ``others`` streams that are not
    in the file, ``life`` the ledger by year and terms, ``versions`` those of Eventveil that have decided it.
    ``barrier`` and ``witness`` say how it was done,
    ``notes`` what the witness says.
    """

    at: str
    cluster: str
    barrier: bool
    witness: bool
    streams: tuple[StreamFacts, ...]
    findings: tuple[str, ...]
    others: tuple[str, ...]
    notes: tuple[str, ...]
    life: tuple[ChargedPeriod, ...]
    versions: tuple[StreamVersions, ...]
    violations: int

    @property
    def clean(self) -> bool:
        """Whether nothing is violated."""
        return self.violations == 0
