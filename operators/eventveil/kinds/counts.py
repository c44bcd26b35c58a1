"""Streams of counts: raw events are counted per source partition, merged, and released with noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from eventveil.audit.findings import DiscoveryCost
from eventveil.audit.generations import GenerationsAudit
from eventveil.counting.counter import OUTCOMES
from eventveil.describe.guarantee import describe
from eventveil.formats.change import Change
from eventveil.kinds.kind import Role, StreamKind
from eventveil.kinds.placement import StreamPlan
from eventveil.mechanisms.registry import of_stream, plugin_of
from eventveil.model.topology import KindOfStream, Stream, Topology
from eventveil.privacy.noise import SystemNoise


class CountsKind(StreamKind[Stream, StreamPlan]):
    """Also what the other kinds that release counts of timestamps do alike."""

    name: ClassVar[KindOfStream] = "counts"
    role: ClassVar[Role] = "aggregate"
    keyed_by = "user"
    outcomes = OUTCOMES

    def source(self, stream: Stream) -> str:
        """See ``StreamKind``."""
        return stream.source.topic_of_events

    def sink(self, stream: Stream) -> str:
        """See ``StreamKind``."""
        return stream.sink.topic

    def plan(self, topology: Topology, stream: Stream) -> StreamPlan:
        """See ``StreamKind``."""
        return StreamPlan(stream, topology.topics.partials)

    def describe(self, topology: Topology, stream: Stream) -> Iterator[str]:
        """See ``StreamKind``."""
        mechanism = of_stream(stream, SystemNoise())
        yield from describe(stream, mechanism.guarantee, self.rules(stream))
        yield from (*mechanism.notes, *_clipped(stream), *_origin(stream.mechanism.kind))

    def rules(self, stream: Stream) -> Iterable[str]:
        """What the guarantee says more of streams of this kind."""
        return ()

    def audit(self, topology: Topology, stream: Stream, changes: Sequence[Change]) -> GenerationsAudit:
        """See ``StreamKind``."""
        plan, how = self.plan(topology, stream), stream.counts.discover
        columns, mechanism = len(stream.counts.labels), of_stream(stream, SystemNoise())
        return GenerationsAudit(
            stream.name,
            stream.timeline,
            mechanism,
            columns,
            stream.mechanism,
            plan.partials_partition,
            changes,
            plan.asks,
            None if how is None else DiscoveryCost(how.epsilon, how.delta),
            None if how is None else (stream.counts.labels[0], how),
        )


def _clipped(stream: Stream) -> Iterator[str]:
    """What the minimum of a sink does to sums."""
    if stream.sink.minimum is not None:
        yield (
            f"Counts below {stream.sink.minimum} are released as {stream.sink.minimum} (minimum in the sink):"
            " it costs no budget and protects as before. Single counts have smaller errors; sums over "
            "columns or timestamps are biased upwards, by up to half the noise scale for each count that is"
            " really 0."
        )


def _origin(kind: str) -> Iterator[str]:
    """Whose word the guarantee is, if it is not that of Eventveil."""
    plugin = plugin_of(kind)
    if plugin is not None:
        yield (
            f"Plug-in {plugin.target} ({plugin.distribution}, source {plugin.source[:12]}): all of this is"
            f" its author's promise; `eventveil mechanisms test {kind}` tries what can be tried."
        )
