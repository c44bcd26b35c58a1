"""Streams of values: one sanitized reading for each value (decision 9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from eventveil.audit.readings import ReadingsAudit
from eventveil.describe.sums import Unbounded
from eventveil.describe.values import describe
from eventveil.formats.change import Change
from eventveil.formats.reading import terms_of
from eventveil.kinds.kind import StreamKind
from eventveil.kinds.placement import ReadingPlan
from eventveil.model.topology import ReadingStream, Topology
from eventveil.privacy.noise import SystemNoise
from eventveil.tasks.values import VALUE_OUTCOMES
from eventveil.values.kinds import build


class Values(StreamKind[ReadingStream, ReadingPlan]):
    """They have no timestamps: each partition of the source goes on by itself."""

    name = "values"
    role = "perturb"
    outcomes = VALUE_OUTCOMES
    in_sums = False
    no_second_run = "a value stream"

    def source(self, stream: ReadingStream) -> str:
        """See ``StreamKind``."""
        return stream.source.topic

    def sink(self, stream: ReadingStream) -> str:
        """See ``StreamKind``."""
        return stream.sink

    def plan(self, topology: Topology, stream: ReadingStream) -> ReadingPlan:
        """See ``StreamKind``."""
        return ReadingPlan(stream, topology.topics.partials)

    def describe(self, topology: Topology, stream: ReadingStream) -> Iterator[str]:
        """See ``StreamKind``."""
        yield from describe(stream, build(stream, SystemNoise()))

    def unbounded(self, stream: ReadingStream) -> Unbounded:
        """See ``StreamKind``."""
        settings = stream.mechanism
        delta = Fraction(settings.options.get("delta", 0))
        return Unbounded(stream.name, settings.kind, "value", settings.epsilon, delta)

    def audit(self, topology: Topology, stream: ReadingStream, changes: Sequence[Change]) -> ReadingsAudit:
        """See ``StreamKind``."""
        place = self.plan(topology, stream).ledger_partition
        units = build(stream, SystemNoise()).units
        return ReadingsAudit(stream.name, terms_of(stream), stream.step_text, units, place)
