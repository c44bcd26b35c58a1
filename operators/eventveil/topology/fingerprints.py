"""The fingerprint of a stream: equal for two topologies exactly if its counts and its noise mean the same.

State carries it, and a worker whose fingerprint differs refuses to continue (I6 of docs/invariants.md). What
only moves records about (brokers, sink, dead letters, form of the counts, when a timestamp is closed) is left
out. Which settings are in it say their tables (``Field.kept``).
"""

from __future__ import annotations

from eventveil.mechanisms import registry
from eventveil.model.topology import ReadingStream, Stream
from eventveil.privacy.noise import SystemNoise
from eventveil.topology.counts import facts
from eventveil.topology.spec import SOURCES
from eventveil.topology.values import SOURCE as VALUE_SOURCE
from eventveil.values.kinds import build

VERSION = 1


def fingerprint_fields(stream: Stream, partitions: int, partials: int) -> dict[str, str | int]:
    """Everything that affects counts or noise, by the name of its setting.

    ``partitions`` is the number of partitions of the source topic, ``partials`` that of the partials topic.
    Comparing two of these names the settings that changed.
    """
    source, mechanism = stream.source, stream.mechanism
    plugin = registry.plugin_of(mechanism.kind)
    # What decides only when budget is spent does no harm if it changes: the ledger limits it.
    kept = registry.find(mechanism.kind, mechanism.options).unremembered
    remembered = {name: value for name, value in sorted(mechanism.options.items()) if name not in kept}
    return {
        "fingerprint.version": VERSION,
        # Manifests keep the order of the names: here as it always was.
        "source.topic": source.topic_of_events,
        "source.partitions": partitions,
        **facts("source", source, SOURCES.get(stream.kind)),
        **(plugin.fields if plugin is not None else {}),
        **facts("timeline", stream.timeline),
        **facts("counts", stream.counts),
        **facts("mechanism", mechanism),
        **{f"mechanism.{name}": str(value) for name, value in remembered.items()},
        "topics.partials": partials,
    }


def reading_fields(stream: ReadingStream, partitions: int) -> dict[str, str | int | None]:
    """The same for a value stream: everything that affects a value, its place, or noise.

    ``partitions`` is the number of partitions of the source topic.
    """
    source = stream.source
    settings = build(stream, SystemNoise()).settings()
    return {
        "fingerprint.version": VERSION,
        "source.topic": source.topic,
        "source.partitions": partitions,
        **facts("source", source, VALUE_SOURCE),
        "values.step": str(stream.step),
        **{f"mechanism.{name}": value for name, value in sorted(settings.items())},
    }
