"""Streams of local reports, which producers make private before they send them (decision 12)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from eventveil.describe.local import describe
from eventveil.describe.sums import Unbounded
from eventveil.kinds.counts import Counts
from eventveil.kinds.placement import LocalPlan
from eventveil.model.topology import Stream, Topology


class Local(Counts):
    """Counted and released as counts are; what producers are asked for is published too."""

    name = "local"
    raw_events = False
    in_sums = False

    def plan(self, topology: Topology, stream: Stream) -> LocalPlan:
        """See ``StreamKind``."""
        return LocalPlan(stream, topology.topics.partials)

    def beside(self, topology: Topology, stream: Stream) -> tuple[str, ...]:
        """Where producers are asked for reports."""
        return (topology.control,)

    def describe(self, topology: Topology, stream: Stream) -> Iterator[str]:
        """See ``StreamKind``."""
        yield from describe(stream, topology.control)

    def unbounded(self, stream: Stream) -> Unbounded:
        """See ``StreamKind``."""
        mechanism = stream.mechanism
        return Unbounded(stream.name, mechanism.kind, "report", mechanism.epsilon, Fraction(0))
