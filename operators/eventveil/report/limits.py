"""What is not covered: the known limits of docs/privacy.md that concern a topology, in a sentence or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventveil.audit.periods import ChargedPeriod
from eventveil.describe.guarantee import count
from eventveil.kinds.registry import kind_of
from eventveil.mechanisms.registry import find, plugin_of
from eventveil.model.topology import Stream, Topology

#: What they publish later they have to remember, as true sums.
_REMEMBER = ("retroactive-grouping", "shp-window")
_PREDICT = ("shp-adaptive", "paced", "seasonal")


def limits(topology: Topology) -> Iterator[str]:
    """The limits, those of every topology first."""
    yield (
        "Single people are hidden, the size of a crowd is not. A person under two identifiers is two users,"
        " each protected by itself."
    )
    yield (
        "No defence against those who run the worker or the brokers, or may read the raw topics, dead"
        " letters, the worker's memory, its raw metrics or what `doctor` and `dead` print."
    )
    yield (
        "The time at which a release appears depends on the load, and on failures: very many events at once"
        " can delay it by seconds, which everybody can see."
    )
    yield (
        "Other topologies over the same people, replays that are published, this file run under another name,"
        " streams taken out of it and generations before a reset add their epsilon; the sums of this page"
        " include none of them."
    )
    yield (
        "State, ledger and sinks that are restored together from a backup agree with each other: what"
        " was released since is drawn again. Only a witness file outside Kafka shows that."
    )
    yield (
        "Acknowledged records must not be lost: unclean leader elections can rewind what was spent. Raw"
        " events stay on the brokers' disks until their retention has removed them."
    )
    said: dict[str, list[str]] = {}
    for stream in topology.streams:
        for sentence in _of(stream):
            said.setdefault(sentence, []).append(stream.name)
    yield from (f"{', '.join(names)}: {sentence}" for sentence, names in said.items())
    if topology.topics.replication < 3 or topology.topics.min_insync < 2:
        replicas = count(topology.topics.replication, "replica")
        yield (
            f"The file gives topics {replicas}, of which {topology.topics.min_insync} must have a record"
            " before it counts: three and two are needed to outlive the loss of a disk."
        )


def generations(life: Sequence[ChargedPeriod]) -> Iterator[str]:
    """What the ledger says of streams that were reset."""
    newest = {one.stream: one.generation for one in life}
    for name, number in newest.items():
        if number > 1:
            yield (
                f"{name}: the ledger has {number} generations. Over a span that overlaps several of them,"
                " each adds its epsilon to the sums of this page, and its delta where noise is Gaussian."
            )


def _of(stream: Stream) -> Iterator[str]:
    """Those of a stream, which is named before them."""
    kind = stream.mechanism.kind
    if stream.source.append_time == "boundary":
        yield (
            "whether an event is late is decided by the worker's clock; what others send can"
            " delay it by fractions of a second, and shift events at the edge (append_time: boundary)."
        )
    yield from kind_of(stream).limits
    if stream.timeline.grace is not None:
        yield (
            "anybody who can bring a broker down by load decides which partitions are left"
            " out (on_missing: release)."
        )
    if kind in _REMEMBER:
        yield f"the ledger changelog holds true sums, and is raw data ({kind})."
    mechanism = find(kind, stream.mechanism.options)
    if mechanism.draws_ahead and stream.mechanism.delta is not None:
        yield f"the ledger changelog holds noise of what was released, and is raw data ({kind})."
    elif mechanism.draws_ahead:
        yield f"the ledger changelog holds noise, also of releases to come, and is raw data ({kind})."
    if kind in _PREDICT:
        yield (
            "releases that are not fresh are predictions. The audit checks that nothing was"
            f" charged for them, not how they were computed ({kind})."
        )
    if plugin_of(kind) is not None:
        yield f"its mechanism is a plug-in ({kind}), and its guarantee the author's word."
