"""The genesis of a stream: the record that says what its state was made for, and from where it starts.

``eventveil topics --create`` writes one to every changelog partition that will hold state of the stream; the
worker starts no stream without it, nor one whose topology says something else by now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from eventveil.counting.boundaries import Boundaries
from eventveil.counting.counter import CounterState
from eventveil.model.durable import Durable, Natural, Positive, unreadable
from eventveil.model.errors import StateRefused, doubt
from eventveil.model.partitioners import Growth, are_ordered
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Timeline
from eventveil.tasks.release import ReleaseState
from eventveil.tasks.repartition import RekeyerState
from eventveil.tasks.values import PerturberState
from eventveil.topology import changes
from eventveil.topology.changes import PLACES, SOUND

#: Fields whose value of now is in no file.
_TOLD_BY_BROKERS = {
    *("source.partitions", "sink.topic_id", "announcements.topic_id"),
    *("repartition.topic", "repartition.partitions"),
}


class ManifestRecord(Durable, frozen=True):
    """What a changelog partition knows of a stream before any state.

    ``instance`` is drawn at random once per life of the stream and stands in every state and partial.
    ``fields`` are the facts behind the fingerprint (``eventveil.topology.fingerprints.fingerprint_fields``),
    and beside the budget those of the sink. ``topic`` and ``topic_id`` name the topic whose ``partition`` is
    read, and ``resume`` the offset to begin at. ``first`` is the stream's first timestamp; what the ledger
    says of it is found from offset ``ledger`` on, in the topic ``ledger_id``. ``cluster`` is the id of the
    Kafka cluster; None, as ``ledger_id``, in a record of a version that did not know it. ``grown`` tells when
    the topic had fewer partitions.
    """

    stream: str
    instance: str
    fields: Mapping[str, Any]
    topic: str
    topic_id: str
    partition: Natural
    first: Positive
    resume: Natural
    ledger: Natural
    cluster: str | None = None
    ledger_id: str | None = None
    grown: tuple[Growth, ...] = ()

    @staticmethod
    def key(stream: str) -> bytes:
        """The key of the genesis record; no stream name holds a slash."""
        return b"genesis/" + stream.encode()

    def at(self, place: TopicPartition) -> Outgoing:
        """What writes it to a changelog partition."""
        return place.record(self.key(self.stream), self.encode())

    @classmethod
    def find(cls, table: Mapping[bytes, bytes], stream: str, place: str) -> ManifestRecord:
        """The genesis of a stream in a changelog partition. Raises StateRefused if there is none."""
        value = table.get(cls.key(stream))
        if value is None:
            raise StateRefused(
                place,
                f"there is no genesis record of stream {stream}",
                "If the stream is new, run `eventveil topics TOPOLOGY --create`. If that reports that a "
                "source has more partitions, run `eventveil migrate TOPOLOGY --apply`. If the stream has run "
                "before and neither reports another cause, its state is lost: give the stream a new name and "
                "a new sink",
            )
        manifest = cls.decode(value, place)
        if manifest.stream != stream:
            raise unreadable(place, f"the genesis record of stream {stream} is that of {manifest.stream}")
        return manifest

    def contradiction(self) -> str | None:
        """See ``Durable.contradiction``."""
        return None if are_ordered(self.grown) else "growths contradict each other"

    def check(
        self,
        fields: Mapping[str, Any],
        topic: str,
        topic_id: str,
        partition: int,
        place: str,
        remedy: Callable[[str], str] | None = None,
    ) -> None:
        """Raise StateRefused if the topology is not what the state was made for, Unsettled if a topic is not.

        ``remedy`` says what to do about a field that changed.
        """
        told = remedy or partial(
            changes.remedy,
            rekeyed=self.fields.get("source.repartition") is not None,
            by_boundary=self.fields.get("source.append_time") == "boundary",
        )
        changed = changes.without_followers(
            (name for name in {*self.fields, *fields} if self.fields.get(name) != fields.get(name)), fields
        )
        if "source.partitions" in changed:
            # It is told only where it is another number, so it follows.
            changed.discard("repartition.partitions")
        # What the file says is certain; what the brokers say may be old. A setting that no migration changes
        # comes first: others may follow from it, as periods do from the interval.
        ordered = sorted(changed, key=lambda name: (name in _TOLD_BY_BROKERS, name in SOUND, name))
        for name in ordered[:1]:
            refuse = doubt if name in _TOLD_BY_BROKERS else StateRefused
            # Parts of the same setting, and what follows from it in the topics, are not named beside it.
            others = ", ".join(
                one for one in ordered[1:] if not one.startswith(f"{name}.") and one not in _TOLD_BY_BROKERS
            )
            raise refuse(
                f"{place}, stream {self.stream}",
                changes.changed(name, self.fields.get(name), fields.get(name))
                + (f" ({others} changed too)" if others else ""),
                told(name),
            )
        if (self.topic, self.partition) != (topic, partition):
            raise StateRefused(
                place,
                f"it contains the state of {self.topic}, partition {self.partition}, "
                f"not of {topic}, {partition}",
                PLACES,
            )
        if self.topic_id != topic_id:
            raise doubt(
                place, f"topic {topic} was deleted and created again since the stream began", told("topic_id")
            )

    @property
    def topics(self) -> dict[str, str]:
        """The ids of the topics that it is about, as they were, by name: what is read, and the sink."""
        sink = self.fields.get("sink.topic")
        sinks = {} if sink is None else {sink: str(self.fields.get("sink.topic_id"))}
        return {self.topic: self.topic_id, **sinks}

    def ledger_start(self, ledger_id: str) -> int:
        """From which offset on the topic ``ledger_id`` can hold what the ledger says of the stream.

        0 if it is not the topic that the stream began with: offsets of that one mean nothing in another.
        """
        return self.ledger if self.ledger_id in (None, ledger_id) else 0

    def counter_state(self, table: Mapping[bytes, bytes], place: str) -> CounterState:
        """The counting state in a changelog partition, the initial one if nothing was closed yet."""
        value = table.get(self.stream.encode())
        if value is None:
            return CounterState(
                self.instance, self.partition, self.first, self.first, self.resume, self.resume
            )
        state = CounterState.decode(value, place)
        self._same_instance((state.instance, state.first, state.partition), place)
        return state

    def begin_by_boundaries(self, rules: Timeline, state: CounterState) -> int | None:
        """See ``Boundaries.begin``: of the next timestamp, by the boundaries of its counting state."""
        return Boundaries(rules, state.first, state.boundaries).begin(state.next, self.resume)

    def release_state(
        self, table: Mapping[bytes, bytes], place: str, key: bytes | None = None
    ) -> ReleaseState:
        """The budget state in a changelog partition, the initial one if nothing was released yet.

        ``key`` is that of its record, None for the name of the stream.
        """
        value = table.get(key or self.stream.encode())
        if value is None:
            return ReleaseState(self.instance, self.first, self.first, self.resume)
        state = ReleaseState.decode(value, place)
        self._same_instance((state.instance, state.first, self.partition), place)
        return state

    def perturber_state(self, table: Mapping[bytes, bytes], place: str) -> PerturberState:
        """The state of a value stream in a changelog partition, the initial one if nothing was read yet."""
        value = table.get(self.stream.encode())
        if value is None:
            return PerturberState(self.instance, self.partition, self.resume)
        state = PerturberState.decode(value, place)
        self._same_instance((state.instance, self.first, state.partition), place)
        return state

    def rekeyer_state(self, table: Mapping[bytes, bytes], place: str) -> RekeyerState:
        """The state of the re-keying stage in a changelog partition, the initial one if it passed nothing on.

        The stage is called like the topic that it re-keys into.
        """
        value = table.get(self.stream.encode())
        if value is None:
            return RekeyerState(self.instance, self.partition, self.resume)
        state = RekeyerState.decode(value, place)
        if (state.instance, state.partition) != (self.instance, self.partition):
            raise StateRefused(
                place,
                f"the state of {self.stream} does not belong to its genesis",
                "Restore the topic from a backup, or give the application a new name",
            )
        return state

    def _same_instance(self, checkpoint: tuple[str, int, int], place: str) -> None:
        if checkpoint != (self.instance, self.first, self.partition):
            raise StateRefused(
                place,
                f"the state of stream {self.stream} does not belong to its genesis",
                "Restore all changelogs from one backup that has the last release, or give the stream "
                "a new name and a new sink",
            )


_GO_BACK = (
    "Point kafka.bootstrap to the cluster where the stream has run: that costs nothing. If that cluster is "
    "lost, start again here with another name and other sinks (the epsilons of both add up)"
)


def check_cluster(table: Mapping[bytes, bytes], cluster: str, place: str) -> list[ManifestRecord]:
    """The genesis records of a changelog partition that do not name their cluster yet.

    Raises StateRefused if one names another than ``cluster``: what is here is a copy, and where the state
    was made timestamps may have been released since that would be drawn again.
    """
    found = list(all_in(table, place))
    for one in found:
        if one.cluster not in (None, cluster):
            what = f"its state was made on the Kafka cluster {one.cluster}, and this is the cluster {cluster}"
            raise StateRefused(f"{place}, stream {one.stream}", what, _GO_BACK)
    return [one for one in found if one.cluster is None]


def check_known(unnamed: Collection[ManifestRecord], live: Mapping[str, str]) -> None:
    """Raise StateRefused if genesis records that name no cluster know none of the topics that are here.

    ``live`` are the ids of these, by name. No two clusters give a topic the same id, so one that a record
    knows says where its state was made; without any it may be a copy.
    """
    known = {topic for one in unnamed for topic in one.topics.items()}
    if known and not any(live.get(name) == id for name, id in known):
        streams = ", ".join(sorted({one.stream for one in unnamed}))
        what = (
            "its genesis, written by an earlier version, names no Kafka cluster, and none of "
            f"{', '.join(sorted(name for name, _ in known))} has the topic id that it records: this may be"
            " a copy"
        )
        raise StateRefused(f"stream {streams}", what, _GO_BACK)


def check_neighbours(table: Mapping[bytes, bytes], topic: str, partition: int, place: str) -> None:
    """Raise StateRefused if a changelog partition has state of another topic or partition than this one.

    Streams come and go, but what a partition of the changelog is of never changes: a reader of something
    else there is another application.
    """
    for known in all_in(table, place):
        if (known.topic, known.partition) != (topic, partition):
            raise StateRefused(
                place,
                f"it contains the state of {known.topic}, partition {known.partition} "
                f"(stream {known.stream}), not of {topic}, partition {partition}",
                PLACES,
            )


def all_in(table: Mapping[bytes, bytes], place: str) -> Iterator[ManifestRecord]:
    """The genesis records of all streams in a changelog partition."""
    prefix = ManifestRecord.key("")
    for key in table:
        if key.startswith(prefix):
            yield ManifestRecord.find(table, key.removeprefix(prefix).decode(), place)
