"""Streams of counts: raw events are counted per source partition, merged, and released with noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import ClassVar

from eventveil.audit.findings import DiscoveryCost
from eventveil.audit.generations import GenerationsAudit
from eventveil.counting.counter import OUTCOMES
from eventveil.describe.events import one_user
from eventveil.describe.guarantee import describe, duration_words, number, which_count
from eventveil.formats.change import Change
from eventveil.kinds.kind import Role, StreamKind
from eventveil.kinds.placement import StreamPlan
from eventveil.mechanisms.registry import of_stream, plugin_of
from eventveil.model.topology import Discover, KindOfStream, Stream, Topology
from eventveil.privacy.noise import SystemNoise


class CountsKind(StreamKind[Stream, StreamPlan]):
    """Also what the other kinds that release counts of timestamps do alike."""

    name: ClassVar[KindOfStream] = "counts"
    role: ClassVar[Role] = "aggregate"
    outcomes = OUTCOMES

    def plan(self, topology: Topology, stream: Stream) -> StreamPlan:
        """See ``StreamKind``."""
        return StreamPlan(stream, topology.topics.partials)

    def describe(self, topology: Topology, stream: Stream) -> Iterator[str]:
        """See ``StreamKind``."""
        mechanism = of_stream(stream, SystemNoise())
        yield from describe(
            stream, mechanism.guarantee, self.which_count(stream), self.rules(stream), self.whose(stream)
        )
        yield from (*mechanism.notes, *_clipped(stream), *_origin(stream.mechanism.kind))

    def which_count(self, stream: Stream) -> str:
        """What bounds a user in a timestamp."""
        return which_count(stream)

    def rules(self, stream: Stream) -> Iterable[str]:
        """What the guarantee says more of streams of this kind."""
        return ()

    def whose(self, stream: Stream) -> Iterable[str]:
        """Who one user is, and whose word that is."""
        return (one_user(stream.source),)

    def settings(self, stream: Stream) -> dict[str, str]:
        """See ``StreamKind``."""
        mechanism, how = stream.mechanism, stream.counts.discover
        options = ", ".join(f"{name} {_text_of(value)}" for name, value in sorted(mechanism.options.items()))
        return {
            "kind": mechanism.kind + (f" ({options})" if options else ""),
            "epsilon": mechanism.epsilon_text if how is None else number(stream.epsilon),
            "window": str(mechanism.window),
            "timestamp": duration_words(stream.timeline.interval),
            "columns": str(len(stream.columns)) if how is None else _found(how),
            "events per user": self.bound(stream),
            "neighbours": mechanism.adjacency,
        }

    def bound(self, stream: Stream) -> str:
        """How many events of a user count in a timestamp, in words."""
        per_column = stream.counts.per_column
        return str(stream.bound) if per_column is None else f"{stream.bound}, in one column {per_column}"

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
            stream.columns if how is None else (),
        )


def _text_of(value: object) -> str:
    """An option: a small number such as a delta to three digits, any other as it is written."""
    if isinstance(value, Fraction):
        return number(value) if value >= Fraction(1, 1000) else f"{float(value):.3g}"
    return str(value)


def _found(how: Discover) -> str:
    return (
        f"found in the data, at most {how.most}, for epsilon {number(how.epsilon)} and delta"
        f" {float(how.delta):.3g} of these"
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
