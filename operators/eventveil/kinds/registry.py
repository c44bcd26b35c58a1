"""All kinds of streams, and the one of each stream of a topology."""

from __future__ import annotations

from typing import Any

from eventveil.describe.sums import Unbounded
from eventveil.kinds.counts import CountsKind
from eventveil.kinds.engine import Engine
from eventveil.kinds.kind import Role, StreamKind
from eventveil.kinds.local import Local
from eventveil.kinds.pan_private import PanPrivateKind
from eventveil.kinds.placement import ReadingPlan, StreamPlan
from eventveil.kinds.values import Values
from eventveil.model.topology import AnyStream, KindOfStream, Stream, Topology

KINDS: dict[KindOfStream, StreamKind[Any, Any]] = {
    kind.name: kind for kind in (CountsKind(), PanPrivateKind(), Local(), Engine(), Values())
}


def kind_of(stream: AnyStream) -> StreamKind[Any, Any]:
    """The kind of a stream."""
    return KINDS[stream.kind]


def roles(topology: Topology) -> dict[str, Role]:
    """The role that reads each topic that streams read, or partial counts go through."""
    read: dict[str, Role] = {stream.source.topic: kind_of(stream).role for stream in topology.all_streams}
    merging: dict[str, Role] = {topology.partials: "sanitize"} if topology.streams else {}
    return {**read, **merging, **dict.fromkeys(topology.rekeyed, "rekey")}


def plan_streams(topology: Topology) -> list[StreamPlan]:
    """The plans of all streams that release counts, in the order of the file."""
    return [kind_of(stream).plan(topology, stream) for stream in topology.streams]


def merged_streams(topology: Topology) -> list[StreamPlan]:
    """Those of them whose partial counts are merged."""
    return [plan for plan in plan_streams(topology) if plan.merged]


def plan_readings(topology: Topology) -> list[ReadingPlan]:
    """The plans of all value streams, in the order of the file."""
    return [kind_of(stream).plan(topology, stream) for stream in topology.readings]


def beside(topology: Topology) -> set[str]:
    """The topics that streams have beside sources, changelogs, ledger and sinks."""
    return {topic for one in topology.all_streams for topic in kind_of(one).beside(topology, one)}


def in_sums(topology: Topology) -> list[Stream]:
    """The streams whose costs add up, in the order of the file."""
    return [one for one in topology.streams if kind_of(one).in_sums]


def unbounded(topology: Topology) -> dict[str, list[Unbounded]]:
    """By population, the streams that no sum can have: those of values, then those of local reports."""
    found: dict[str, list[Unbounded]] = {}
    streams: tuple[AnyStream, ...] = (*topology.readings, *topology.streams)
    for stream in streams:
        if (one := kind_of(stream).unbounded(stream)) is not None:
            found.setdefault(stream.source.population, []).append(one)
    return found
