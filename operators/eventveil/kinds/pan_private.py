"""Pan-private streams, whose counters start with noise and have one owner for all of it (decision 11)."""

from __future__ import annotations

from collections.abc import Iterator

from eventveil.kinds.counts import CountsKind
from eventveil.kinds.placement import PanPrivatePlan
from eventveil.model.topology import Stream, Topology


class PanPrivateKind(CountsKind):
    """Released as counts are, by the owner of the one source partition, which has the whole state."""

    name = "pan-private"
    role = "accumulate"
    partitions = 1
    gives_up = True
    no_migration = "unchanged, as a pan-private stream has to be"
    no_second_run = "pan-private"
    to_check = "Producers", "do they guarantee one event per user and timestamp?"

    def plan(self, topology: Topology, stream: Stream) -> PanPrivatePlan:
        """See ``StreamKind``."""
        return PanPrivatePlan(stream, topology.topics.partials)

    def beside(self, topology: Topology, stream: Stream) -> tuple[str, ...]:
        """Where looks at its counters are announced."""
        return self.plan(topology, stream).announcements(topology)

    def which_count(self, stream: Stream) -> str:
        """See ``CountsKind``."""
        return "every event counts, and the producer guarantees one per user"

    def bound(self, stream: Stream) -> str:
        """See ``CountsKind``."""
        return "trusted"

    def rules(self, stream: Stream) -> Iterator[str]:
        """See ``CountsKind``."""
        rules = stream.timeline
        read = 1 + (rules.lateness + rules.clock_skew + rules.max_ahead) / rules.interval
        yield f"One timestamp at a time: an event is read up to {read:.3g} times, and judged once."
