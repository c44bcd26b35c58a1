"""Does a state that is taken over agree with what is public already, in the ledger and in the sinks?

A state that was rewound, by a backup older than the last release or by a lost replica, would draw again for
timestamps that somebody has seen. So nothing is released from a state that knows less than the public does.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from operator import itemgetter

import orjson

from eventveil.formats.change import Change
from eventveil.formats.reading import reading_position
from eventveil.formats.release import decided, fields_of, release_timestamp
from eventveil.formats.span import Span
from eventveil.kafka.barrier import Floors, is_nonce, least_end
from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kafka.log import offset_of, read_backwards, read_partition
from eventveil.kafka.reader import Isolation, StoredRecord
from eventveil.model.errors import StateRefused
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka
from eventveil.tasks.release import ReleaseState
from eventveil.tasks.values import PerturberState

#: Releases may be large, and the newest one is nearly always among the last few.
_SINK_RECORDS = 8
_LEDGER_RECORDS = 5000
#: Of a topic that becomes a sink, this many of the newest records are read.
_TAIL = 1000
_REMEDY = (
    "Restore the newest state; a backup older than the last release will not do. Without it, give the "
    "stream a new name and a new sink (whose epsilon adds up)"
)
_LACKS = (
    "sink %s has releases of timestamps up to %d of stream %s, but releases up to %d were published. If the"
    " stream has not released into another sink since, the newest records of this one are gone: they stay"
    " charged and are not released again"
)
log = logging.getLogger(__name__)


def publishers(
    kafka: Kafka,
    place: TopicPartition,
    stream: str,
    floors: Floors,
    *,
    start: int,
    isolation: Isolation = "read_committed",
) -> Iterator[tuple[str, int]]:
    """Whose the records of a ledger or sink partition are, up to its floor, and their offsets.

    Those of ``stream`` are found whatever their keys are, and those of others by their keys.
    """
    least = least_end(floors, place)
    for message in read_partition(kafka, *place, start=start, isolation=isolation, least=least):
        for publisher in {stream, (message.key() or b"").decode(errors="replace")}:
            if fields_of(message.value(), publisher):
                yield publisher, offset_of(message)


def newest_publishers(
    cluster: Cluster, stream: str, sink: Topic, floors: Floors
) -> Iterator[tuple[TopicPartition, str]]:
    """Whose the newest records of a sink are, by partition, as ``publishers`` tells them."""
    starts, ends = cluster.first_offsets(sink.places), cluster.end_offsets(sink.places)
    for place in sink.places:
        start = max(starts[place], max(ends[place], least_end(floors, place)) - _TAIL)
        for publisher, _ in publishers(cluster.kafka, place, stream, floors, start=start):
            yield place, publisher


def check_not_shared(stream: str, found: Iterable[tuple[TopicPartition, str]]) -> None:
    """Raise StateRefused if a sink has releases of another stream among those ``found``."""
    for place, publisher in found:
        if publisher != stream:
            what = f"it has releases of stream {publisher}; a sink must have those of one stream only"
            raise StateRefused(str(place), what, f"Give stream {stream} a sink of its own")


class Public:
    """What everybody can read of the streams whose ledger entries are in one partition, ``ledger``.

    ``floors`` are those of the table whose state is compared (``FencedTable.take_over``): every partition
    that is read here is among them, and read up to its floor. Nobody writes these streams behind it.
    """

    def __init__(self, cluster: Cluster, ledger: TopicPartition, floors: Floors) -> None:
        self._kafka, self._cluster, self._ledger, self._floors = cluster.kafka, cluster, ledger, floors

    def _backwards(
        self,
        place: TopicPartition,
        first: int,
        isolation: Isolation = "read_committed",
        size: int = _LEDGER_RECORDS,
    ) -> Iterator[tuple[int, list[StoredRecord]]]:
        """The records of a partition up to its floor, in blocks, the newest first."""
        end = least_end(self._floors, place)
        return read_backwards(self._kafka, *place, first, end, isolation=isolation, size=size, least=end)

    def check_ledger(
        self, states: Mapping[str, ReleaseState], starts: Mapping[str, int], changelog: str
    ) -> None:
        """Raise StateRefused unless the ledger ends, for every stream, where its state says.

        Both are written in the same transactions. ``starts`` are the offsets from which on the ledger can
        have entries of each stream, ``changelog`` where the states come from.
        """
        found = self._last_entries(states, starts)
        for name, state in states.items():
            instance, last = found.get(name, (state.instance, state.first - 1))
            if (instance, last) != (state.instance, state.published):
                raise StateRefused(
                    f"{self._ledger.topic} and {changelog}, partition {self._ledger.partition}",
                    f"stream {name} was published up to {last} according to the ledger (of {instance}), "
                    f"up to {state.published} according to the state (of {state.instance}): "
                    "one of them was rewound or lost",
                    _REMEDY,
                )

    def _last_entries(
        self, states: Mapping[str, ReleaseState], starts: Mapping[str, int]
    ) -> dict[str, tuple[str, int]]:
        """Instance and timestamp that the ledger ends with for each stream that is in it."""
        released = {name for name, state in states.items() if state.published >= state.first}
        first = self._cluster.first_offsets([self._ledger])[self._ledger]
        found: dict[str, tuple[str, int]] = {}
        for start, block in self._backwards(self._ledger, first):
            for record in reversed(block):
                # A nonce is aborted. If the marker was lost, it was committed with what came next.
                entry = None if is_nonce(record.key) else self._read_entry(record)
                if entry is not None and entry[0] in states:
                    found.setdefault(entry[0], entry[1:])
            missing = states.keys() - found.keys()
            if not missing & released and all(start <= starts[name] for name in missing):
                break
        return found

    def _read_entry(self, record: StoredRecord) -> tuple[str, str, int] | None:
        """Stream, instance and last timestamp of an entry; None for one of a value stream."""
        try:
            entry = orjson.loads(record.value or b"")
            if Span.read(entry) is not None:
                return None
            change = Change.read(entry)
            if change is not None:
                return change.stream, change.instance, change.start - 1
            return entry["stream"], entry["instance"], entry["timestamp"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise StateRefused(
                self._ledger.at(record.offset),
                "the record is not a ledger entry",
                "Find out who else writes to this topic and revoke the right",
            ) from None

    def check_sinks(self, states: Mapping[str, ReleaseState], sinks: Mapping[str, Topic]) -> None:
        """Raise StateRefused if the sink of a stream shows a release that its state has not decided.

        Then state and ledger were rewound together, or somebody else writes the stream. Aborted records count
        too: a consumer with read_uncommitted has seen them. A sink that lacks the newest releases is logged.
        """
        places = {place: name for name, topic in sinks.items() for place in topic.places}
        firsts = self._cluster.first_offsets(places)
        shown = dict.fromkeys(sinks, 0)
        for place, name in places.items():
            state = states[name]
            newest, record = self._newest_release(name, place, firsts[place])
            shown[name] = max(newest, shown[name])
            if newest > state.published and record not in {decided(one).published for one in state.pending}:
                raise StateRefused(
                    f"{place.topic} (sink), partition {place.partition}",
                    f"it shows a release of {name} at {newest}, but the state is at {state.next}: "
                    "the state was rewound, or another application writes this stream",
                    _REMEDY,
                )
        for name, newest in shown.items():
            # A sink that shows none may be a new one, or all that it had may have been removed.
            if 0 < newest < states[name].published:
                log.warning(_LACKS, sinks[name].name, newest, name, states[name].published)

    def asked(
        self, control: str, first: Mapping[str, bytes], asked: Mapping[str, bytes]
    ) -> Mapping[str, bytes]:
        """What the control topic asks the producers of each stream for, at last.

        ``first`` is what they are asked for in the beginning, ``asked`` what the states say, pending releases
        included. Raises StateRefused if there is anything else, also of an aborted transaction: for a state
        that was rewound would choose a second threshold.
        """
        least = least_end(self._floors, TopicPartition(control, 0))
        for message in read_partition(self._kafka, control, 0, isolation="read_uncommitted", least=least):
            name = (message.key() or b"").decode(errors="replace")
            if name in asked and message.value() not in (first[name], asked[name]):
                raise StateRefused(
                    f"{control}, offset {offset_of(message)}",
                    f"producers of stream {name} were asked for {message.value()!r:.200}, which is not in"
                    " its state: the state was rewound, or another application writes this topic",
                    f"{_REMEDY}. If another application does, revoke its right, delete the topic and create"
                    " it with `eventveil topics TOPOLOGY --create`: a worker writes the request again",
                )
        committed = read_partition(self._kafka, control, 0, least=least)
        return {(one.key() or b"").decode(errors="replace"): one.value() or b"" for one in committed}

    def check_spans(self, stream: str, state: PerturberState, start: int, changelog: str) -> None:
        """The same as ``check_ledger`` for a value stream: the last span must be the one its state knows.

        ``start`` is the offset from which on the ledger can have some.
        """
        instance, charged = self._last_span(stream, state.partition, start) or (state.instance, 0)
        if (instance, charged) != (state.instance, state.published_charge):
            raise StateRefused(
                f"{self._ledger}, and {changelog}",
                f"stream {stream}, partition {state.partition}, was charged up to {charged} according to"
                f" the ledger (of {instance}), up to {state.published_charge} according to the state (of "
                f"{state.instance}): one of them was rewound or lost",
                _REMEDY,
            )

    def _last_span(self, stream: str, partition: int, start: int) -> tuple[str, int] | None:
        first = max(start, self._cluster.first_offsets([self._ledger])[self._ledger])
        for _, block in self._backwards(self._ledger, first):
            for record in reversed(block):
                span = Span.read(fields_of(record.value, stream))
                if span is not None and span.partition == partition:
                    return span.instance, span.stop
        return None

    def check_readings(
        self, stream: str, state: PerturberState, sink: TopicPartition, pending: Container[bytes]
    ) -> None:
        """The same as ``check_sinks`` for a value stream; ``pending`` are records that its state holds."""
        first = self._cluster.first_offsets([sink])[sink]
        for _, block in self._backwards(sink, first, "read_uncommitted", _SINK_RECORDS):
            values = [record.value or b"" for record in block]
            found = [(reading_position(fields_of(value, stream), state.partition), value) for value in values]
            newest, record = max(found, key=itemgetter(0), default=(-1, b""))
            if newest >= state.published and record not in pending:
                raise StateRefused(
                    f"{sink[0]} (sink), partition {sink[1]}",
                    f"it shows a reading of {stream} at position {newest}, but the state is at "
                    f"{state.published}: "
                    "the state was rewound, or another application writes this stream",
                    _REMEDY,
                )
            if newest >= 0:
                return

    def _newest_release(self, name: str, place: TopicPartition, first: int) -> tuple[int, bytes]:
        """The newest timestamp of a stream in a partition of its sink, with its record; (0, b"") if none."""
        for _, block in self._backwards(place, first, "read_uncommitted", _SINK_RECORDS):
            values = [record.value or b"" for record in block]
            found = [(release_timestamp(value, name), value) for value in values]
            if newest := max((one for one in found if one[0]), key=itemgetter(0), default=None):
                return newest
        return 0, b""
