"""A kind of stream, and what the rest of the program asks it for. Nothing else asks what kind a stream is.

The kind follows from a stream itself (``Stream.kind``); ``registry`` finds the object for it. To add one, see
"Kinds of streams" in docs/architecture.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Generic, Literal, TypeVar

from eventveil.audit.generations import GenerationsAudit
from eventveil.audit.readings import ReadingsAudit
from eventveil.describe.sums import Unbounded
from eventveil.formats.change import Change
from eventveil.kinds.placement import ReadingPlan, StreamPlan
from eventveil.model.topology import AnyStream, KindOfStream, Topology

OneStream = TypeVar("OneStream", bound=AnyStream)
OnePlan = TypeVar("OnePlan", bound=StreamPlan | ReadingPlan)
Audit = GenerationsAudit | ReadingsAudit
Role = Literal["aggregate", "accumulate", "sanitize", "rekey", "perturb"]
"""What the owner of a partition does."""


class StreamKind(ABC, Generic[OneStream, OnePlan]):
    """What streams of one kind have in common, as methods over one of them."""

    name: ClassVar[KindOfStream]
    role: ClassVar[Role]
    """The role that reads the source of such a stream."""
    partitions: ClassVar[int | None] = None
    """How many partitions its source has to have; None: any number."""
    raw_events: ClassVar[bool] = True
    """Whether its events are raw data, so that there are true counts; local reports are private already."""
    gives_up: ClassVar[bool] = False
    """Whether a timestamp may be given up after failures, and charged."""
    outcomes: ClassVar[Sequence[str]]
    """What may become of an event."""
    in_sums: ClassVar[bool] = True
    """Whether what such streams cost over a span has a bound, so that it adds up (``describe.sums``)."""
    no_migration: ClassVar[str | None] = None
    """What is said of a stream that can never continue under other settings; None if it can."""
    no_second_run: ClassVar[str | None] = None
    """What a stream is that can never be released again; None if it can."""
    limits: ClassVar[Sequence[str]] = ()
    """What a promise of it does not cover, and others do: said in ``report`` after the names of streams."""
    to_check: ClassVar[tuple[str, str] | None] = None
    """Who must guarantee what cannot be checked here, and the question for them; None if nobody."""

    @abstractmethod
    def plan(self, topology: Topology, stream: OneStream) -> OnePlan:
        """Where its state and its ledger entries are, and what its manifest says."""

    def beside(self, topology: Topology, stream: OneStream) -> tuple[str, ...]:
        """The public topics that a stream has beside source, ledger and sink."""
        return ()

    @abstractmethod
    def describe(self, topology: Topology, stream: OneStream) -> Iterator[str]:
        """The guarantee in words, a sentence or two per line."""

    @abstractmethod
    def settings(self, stream: OneStream) -> dict[str, str]:
        """What the guarantee rests on, by name, beside the topics."""

    def unbounded(self, stream: OneStream) -> Unbounded | None:
        """The cost of a stream in which no bound limits how often a user pays; None if it is in sums."""
        return None

    @abstractmethod
    def audit(self, topology: Topology, stream: OneStream, changes: Sequence[Change]) -> Audit:
        """The audit of a stream; ``changes`` are what the ledger holds of them, in order."""
