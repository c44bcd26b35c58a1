"""The fingerprint of a stream: equal for two topologies exactly if its counts and its noise mean the same.

State carries it, and a worker whose fingerprint differs refuses to continue (I6 of docs/invariants.md). What
only moves records about (brokers, sink, dead letters, form of the counts, when a timestamp is closed) is left
out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import orjson

from eventveil.mechanisms import registry
from eventveil.model.topology import ReadingStream, Stream
from eventveil.privacy.noise import SystemNoise
from eventveil.values.kinds import build

VERSION = 1


def fingerprint(stream: Stream, partitions: int, partials: int) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON of ``fingerprint_fields``."""
    return _sha256(fingerprint_fields(stream, partitions, partials))


def fingerprint_fields(stream: Stream, partitions: int, partials: int) -> dict[str, str | int]:
    """Everything that affects counts or noise, by the name of its setting.

    ``partitions`` is the number of partitions of the source topic, ``partials`` that of the partials topic.
    Comparing two of these names the settings that changed.
    """
    source, timeline, counts, mechanism = stream.source, stream.timeline, stream.counts, stream.mechanism
    # What older versions did not have is named only where it is used, so that their fingerprints stay.
    newer: dict[str, str] = {}
    if source.append_time != "broker":
        newer["source.append_time"] = source.append_time
    if source.raw is not None:
        newer["source.repartition"] = "true"
    plugin = registry.plugin_of(mechanism.kind)
    if plugin is not None:
        newer |= plugin.fields
    # What decides only when budget is spent does no harm if it changes: the ledger limits it.
    kept = registry.find(mechanism.kind, mechanism.options).unremembered
    remembered = {name: value for name, value in sorted(mechanism.options.items()) if name not in kept}
    unknown = counts.unknown if counts.unknown_column is None else f"column {counts.unknown_column}"
    return {
        "fingerprint.version": VERSION,
        "source.topic": source.topic_of_events,
        "source.partitions": partitions,
        "source.format": source.format,
        "source.user": source.user,
        "source.user_type": source.user_type,
        "source.column": source.column,
        "source.time": source.time,
        "source.partitioner": source.partitioner,
        "source.max_bytes": source.max_bytes,
        **newer,
        "timeline.interval": timeline.interval,
        "timeline.origin": timeline.origin,
        "timeline.lateness": timeline.lateness,
        "timeline.max_ahead": timeline.max_ahead,
        "counts.columns": len(counts.labels),
        "counts.columns.digest": columns_digest(counts.labels),
        "counts.columns.type": counts.column_type,
        "counts.contributions": counts.contributions,
        "counts.unknown": unknown,
        "mechanism.kind": mechanism.kind,
        "mechanism.epsilon": str(mechanism.epsilon),
        "mechanism.window": mechanism.window,
        "mechanism.adjacency": mechanism.adjacency,
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
        "source.format": source.format,
        "source.value": source.value,
        "source.max_bytes": source.max_bytes,
        "values.step": str(stream.step),
        **{f"mechanism.{name}": value for name, value in sorted(settings.items())},
    }


def columns_digest(labels: Iterable[str]) -> str:
    """SHA-256, in hexadecimal, of the canonical JSON array of the column labels in their order."""
    return _sha256(list(labels))


def _sha256(value: Any) -> str:
    """Of the canonical JSON: sorted keys, no spaces, UTF-8."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
