"""What is said of a stream of counts beside its guarantee."""

from __future__ import annotations

from collections.abc import Iterator

from eventveil.mechanisms.registry import plugin_of
from eventveil.model.topology import Stream


def clipped(stream: Stream) -> Iterator[str]:
    """What the minimum of a sink does to sums."""
    if stream.sink.minimum is not None:
        yield (
            f"Counts below {stream.sink.minimum} are released as {stream.sink.minimum} (minimum in the sink):"
            " it costs no budget and protects as before. Single counts err less; sums over columns or"
            " timestamps are biased upwards, by up to half the noise scale for each count that is really 0."
        )


def origin(kind: str) -> Iterator[str]:
    """Whose word the guarantee is, if it is not that of Eventveil."""
    plugin = plugin_of(kind)
    if plugin is not None:
        yield (
            f"Plug-in {plugin.target} ({plugin.distribution}, source {plugin.source[:12]}): all of this is"
            f" its author's promise; `eventveil mechanisms test {kind}` tries what can be tried."
        )


def one_at_a_time(stream: Stream) -> str:
    """How often an event is read where only one timestamp is counted at a time."""
    rules = stream.timeline
    read = 1 + (rules.lateness + rules.clock_skew + rules.max_ahead) / rules.interval
    return f"One timestamp at a time: an event is read up to {read:.3g} times, and judged once."
