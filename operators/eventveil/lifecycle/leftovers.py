"""What a name has left behind, and whether it may be deleted without forgetting what was spent.

Spends are recorded in the ledger and in the state. Deleting both and starting over under the same name gives
a fresh budget, although windows that hold a release may still be open. So nothing is deleted before the last
of these windows is over, and nothing of a stream whose promise is not one of windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eventveil.formats.change import Change
from eventveil.formats.release import fields_of
from eventveil.formats.span import Span
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import read_partition, read_table
from eventveil.lifecycle.apply import check_stopped
from eventveil.lifecycle.manifest import ManifestRecord, all_in
from eventveil.mechanisms.registry import known
from eventveil.model.errors import StateRefused
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import Topology
from eventveil.tasks.pan_private import release_key
from eventveil.topology.counts import repartitioned

_BEGIN_ANEW = (
    "To begin with other settings now, use a file with another `name` and other sinks, whose epsilon adds up"
)
_NEW_NAME = f"Leave it as it is. {_BEGIN_ANEW}"


@dataclass(frozen=True, slots=True)
class KnownReleases:
    """What ledger and state have of a stream of counts: its last timestamp, the widest window, the kinds."""

    stream: str
    last: int
    window: int
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Topics of a name that there are, with what each holds; ``stays``: those of the file that are kept."""

    topics: Mapping[str, str]
    stays: Mapping[str, str]
    released: tuple[KnownReleases, ...]


def find_leftovers(topology: Topology, cluster: Cluster) -> Leftovers:
    """Everything under the name of a topology, whatever the file said before. Raises StateRefused."""
    known_names = {**_roles(topology), **_rekeyed(topology, cluster)}
    live = cluster.topics({*known_names})
    sinks = {one.sink_topic: "sink" for one in topology.all_streams}
    kept = {
        **dict.fromkeys((*topology.rekeyed, *topology.sources, *topology.value_sources), "source"),
        **dict.fromkeys((one.dead_letter for one in topology.streams), "dead letters"),
        **sinks,
    }
    stays = {name: role for name, role in kept.items() if name not in known_names}
    found = {name: role for name, role in known_names.items() if name in live}
    return Leftovers(found, stays, tuple(_released(topology, cluster) if topology.ledger in live else ()))


def _roles(topology: Topology) -> dict[str, str]:
    return {
        topology.counting_changelog: "what was counted, and how far the sources were read",
        topology.partials: "exact counts of each partition",
        topology.ledger_changelog: "what was spent, and releases that are decided",
        topology.rekeying_changelog: "how far events were passed on",
        topology.state_changelog: "values that are held back, and noise that is still to be used",
        topology.control: "what producers of local reports are asked for",
        topology.announcements: "looks at pan-private streams",
        topology.ledger: "what every release was charged: the audit",
    }


def _rekeyed(topology: Topology, cluster: Cluster) -> dict[str, str]:
    """Topics of re-keyed events: of a topic that there is. Another application may have a longer name."""
    names = cluster.names()
    mine = {repartitioned(topology.name, name): "re-keyed events" for name in {*names, *topology.rekeyed}}
    return {name: role for name, role in mine.items() if name in names and name not in _roles(topology)}


def _released(topology: Topology, cluster: Cluster) -> Iterator[KnownReleases]:
    """By stream of counts. An aborted entry counts too: somebody may have read its release."""
    found: dict[str, KnownReleases] = {}
    for place, end in cluster.end_offsets(cluster.topic(topology.ledger).places).items():
        for message in read_partition(topology.kafka, *place, isolation="read_uncommitted", least=end):
            name = (message.key() or b"").decode(errors="replace")
            fields = fields_of(message.value(), name)
            if fields is None or Change.read(fields) is not None or Span.read(fields) is not None:
                continue
            try:
                entry = KnownReleases(
                    name, int(fields["timestamp"]), int(fields["window"]), frozenset({fields["mechanism"]})
                )
            except (KeyError, TypeError, ValueError):
                what = "a record of it cannot be read, so it is unknown which windows are open"
                raise StateRefused(str(place), what, _NEW_NAME) from None
            found[name] = _together(found.get(name, entry), entry)
    yield from found.values()


def _together(one: KnownReleases, other: KnownReleases) -> KnownReleases:
    return KnownReleases(
        one.stream, max(one.last, other.last), max(one.window, other.window), one.kinds | other.kinds
    )


def check_over(topology: Topology, cluster: Cluster, left: Leftovers, now: int) -> int:
    """When all windows that hold a release were over, epoch ms; 0 if nothing was released.

    Raises StateRefused if one is not over at ``now``, or if the ledger may not be all of it.
    """
    manifest, decided = _generations(topology, cluster, left)
    _check_whole(topology, cluster, left, manifest, decided)
    over = 0
    for one in (_decided(one, decided) for one in left.released):
        place = f"stream {one.stream}"
        if (what := _without_end(one.kinds)) is not None:
            raise StateRefused(place, what, _NEW_NAME)
        if one.stream not in manifest:
            what = "it has released, but no state says how long its timestamps are"
            raise StateRefused(place, what, _NEW_NAME)
        end = _end(topology, one, manifest[one.stream].fields)
        if now < end:
            holds = f"a window of {one.window} timestamps{' or a span of the budget' * bool(topology.budget)}"
            what = (
                f"it has released timestamp {one.last}, and {holds} that holds it"
                f" ends at {format_rfc3339(end)}; if it is deleted before that, the record of its spends is"
                " lost"
            )
            raise StateRefused(place, what, f"Wait until then. {_BEGIN_ANEW}")
        _check_start(topology, one.stream, end)
        over = max(over, end)
    return over


def _decided(one: KnownReleases, decided: Mapping[str, int]) -> KnownReleases:
    """With what the state has decided beyond the ledger: somebody may have read that too."""
    return replace(one, last=max(one.last, decided.get(one.stream, 0)))


def _check_whole(
    topology: Topology,
    cluster: Cluster,
    left: Leftovers,
    manifest: Mapping[str, ManifestRecord],
    decided: Mapping[str, int],
) -> None:
    """Raise StateRefused if something was released that the ledger does not have, or not any more."""
    names = {one.stream for one in left.released}
    ledger = cluster.topics({topology.ledger}).get(topology.ledger)
    for name in sorted(decided):
        known = manifest[name].ledger_id
        if name not in names or ledger is None or known not in (None, ledger.id):
            what = f"its state has decided timestamp {decided[name]}, which the current ledger does not have"
            raise StateRefused(f"stream {name}", what, _NEW_NAME)
    for place, first in cluster.first_offsets([] if ledger is None else ledger.places).items():
        if first > 0:
            what = "its beginning is gone, so it is unknown which windows are open"
            raise StateRefused(str(place), what, _NEW_NAME)


def _without_end(kinds: frozenset[str]) -> str | None:
    """Why the promise of a stream does not end with its windows, if it does not."""
    for name in sorted(kinds):
        kind = known(name)
        if kind is None:
            return f"the mechanism {name}, by which it has released, is not installed here"
        if kind.level == "local":
            return "its producers know its threshold, and would keep using it"
        if kind.level == "user":
            return f"{name} promises its epsilon for all that a person does, not for a window"
    return None


def _generations(
    topology: Topology, cluster: Cluster, left: Leftovers
) -> tuple[dict[str, ManifestRecord], dict[str, int]]:
    """By stream: the genesis; and the last timestamp that is decided, where one is."""
    manifest, decided = dict[str, ManifestRecord](), dict[str, int]()
    for name in (topology.ledger_changelog, topology.counting_changelog):
        if name not in left.topics:
            continue
        for place in cluster.topic(name).places:
            table = read_table(topology.kafka, *place)
            for one in all_in(table, str(place)):
                manifest[one.stream] = one
                # That of a pan-private stream lies beside its counts.
                key = one.stream.encode() if name == topology.ledger_changelog else release_key(one.stream)
                state = one.release_state(table, str(place), key)
                if state.next > state.first:
                    decided[one.stream] = state.next - 1
    return manifest, decided


def _end(topology: Topology, one: KnownReleases, fields: Mapping[str, Any]) -> int:
    """When the last window that holds a release ends, epoch ms: as it was, and as the file says now.

    A span of the budget too, which counts all timestamps that it overlaps.
    """
    interval = int(fields["timeline.interval"])
    spans = [max(one.window, int(fields["mechanism.window"])) * interval]
    for stream in topology.streams:
        if stream.name == one.stream:
            if (what := _without_end(frozenset({stream.mechanism.kind}))) is not None:
                raise StateRefused(f"stream {one.stream}", f"it has released, and {what}", _NEW_NAME)
            spans.append(stream.mechanism.window * stream.timeline.interval)
    if topology.budget is not None:
        spans.append(interval + topology.budget.span)
    return int(fields["timeline.origin"]) + (one.last - 1) * interval + max(spans)


def _check_start(topology: Topology, name: str, end: int) -> None:
    """Raise StateRefused if the file would release timestamps again that were released."""
    for stream in topology.streams:
        start = stream.timeline.start
        if stream.name == name and start is not None and start < end:
            what = f"timeline.start is {format_rfc3339(start)}, before what it has released"
            begin = f"Let it begin at {format_rfc3339(end)} or later"
            remedy = f"{begin}: what is released again costs its epsilon again"
            raise StateRefused(f"stream {name}", what, remedy)


def delete(topology: Topology, cluster: Cluster, left: Leftovers) -> None:
    """Delete the topics, and the consumer group of the workers, which must be stopped.

    Raises StateRefused if a worker runs, and KafkaException.
    """
    check_stopped(topology, cluster)
    cluster.delete(left.topics)
    cluster.delete_group(topology.name)
