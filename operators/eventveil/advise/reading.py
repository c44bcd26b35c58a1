"""Events of an input as arrays, judged by the rules of a stream except for its timeline, yet to be found.

Nothing is late: that takes append times and a lateness, and says nothing about the choice.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from eventveil.advise.generating import Events
from eventveil.counting.assigner import Placed, Rows
from eventveil.counting.counter import CounterState, StreamCounter
from eventveil.decoding.bulk import FILTERED, IGNORED, BulkReader
from eventveil.decoding.places import compile_pointer
from eventveil.decoding.rules import Rejection, parse
from eventveil.model.errors import EventveilError
from eventveil.model.fields import TIME, listed
from eventveil.model.records import Chunk
from eventveil.model.timeline import parse_rfc3339
from eventveil.model.topology import Source, Stream
from eventveil.replay.inputs import Input
from eventveil.replay.releasing import INSTANCE
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.topology.columns import COLUMN_LIMIT
from eventveil.topology.periods import DAY

#: The timeline of an event that is read: a timestamp is a millisecond.
_BEGINNING = parse_rfc3339("0001-01-01T00:00:00Z")
_ENDLESS = 2**62
#: How many events are read to learn the types of their fields.
_SEEN = 1_000
#: A longer time without events is none of the data: clocks are wrong, or times are not set.
_FAR = 365 * DAY


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """The events that can count, in the order in which they count, and what became of all that were read.

    ``apart`` are the times of others that can count, which are left out (``without_apart``).
    """

    events: Events
    outcomes: Counter[str]
    apart: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


def read_events(stream: Stream, source: Input, on_chunk: Callable[[], object] = lambda: None) -> ReadEvents:
    """Read an input to its end. Raises what reading it raises."""
    rules = source.rules(stream, None)
    timeline = replace(rules.timeline, interval=1, origin=_BEGINNING, lateness=_ENDLESS, max_ahead=_ENDLESS)
    judged = replace(rules, timeline=timeline, source=replace(rules.source, append_time="broker"))
    starts = source.begin(0, stream.source.max_bytes)
    aggregators = {
        partition: PartitionAggregator(
            len(starts),
            {stream.name: (judged, CounterState(INSTANCE, partition, 1, 1, offset, offset))},
            _Collector,
        )
        for partition, offset in starts.items()
    }
    # An append time that is the event's time is needed as it is; elsewhere nothing rests on it.
    told = TIME in listed(rules.source.time) and not rules.source.own_time
    for chunk in source.chunks():
        _observe(aggregators[chunk.partition], chunk if told else _stamped(chunk))
        on_chunk()
    collectors = [aggregator.counters[stream.name] for aggregator in aggregators.values()]
    outcomes = sum((one.outcomes for one in collectors), Counter())
    return ReadEvents(_joined([one.events() for one in collectors if isinstance(one, _Collector)]), outcomes)


def without_apart(read: ReadEvents) -> ReadEvents:
    """The most events between which no gap is longer than a year; those before and after are left out.

    A single event of epoch 0 would make most of the time that is searched empty.
    """
    every = read.events
    times = np.sort(every.times)
    gaps = np.flatnonzero(np.diff(times) > _FAR) + 1
    bulk = max(np.split(times, gaps), key=len)
    if len(bulk) == len(times):
        return read
    kept = (every.times >= bulk[0]) & (every.times <= bulk[-1])
    events = Events(every.users[kept], every.columns[kept], every.times[kept])
    return replace(read, events=events, apart=every.times[~kept])


def _stamped(chunk: Chunk) -> Chunk:
    return replace(chunk, append_times=array("q", bytes(8 * len(chunk.offsets))))


def _observe(aggregator: PartitionAggregator, chunk: Chunk) -> None:
    while True:
        aggregator.process(chunk)
        if letters := aggregator.dead_letter_batch():
            aggregator.durable(letters)
        if aggregator.position >= chunk.next_offset:
            return


class _Collector(StreamCounter):
    """Keeps what can count instead of counting it."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._kept: list[tuple[NDArray[np.uint32], NDArray[np.int32], NDArray[np.int64]]] = []

    def _take(self, rows: Rows, placed: Placed, told: int) -> None:
        """See ``StreamCounter._take``."""
        events = placed.merged()
        counts = events.columns >= 0
        self._book("read", counts[counts])
        self._book("ignored", events.columns == IGNORED)
        self._book("filtered", events.columns == FILTERED)
        users, columns = events.users[counts].astype(np.uint32), events.columns[counts].astype(np.int32)
        self._kept.append((users, columns, events.timestamps[counts]))

    def contributors(self) -> Iterator[NDArray[np.int64]]:
        """See ``StreamCounter.contributors``: nobody who was met is forgotten."""
        return (np.unique(users).astype(np.int64) for users, _, _ in self._kept)

    def renumber(self, new_numbers: NDArray[np.int64]) -> None:
        """See ``StreamCounter.renumber``."""
        self._kept = [(new_numbers[one].astype(np.uint32), *others) for one, *others in self._kept]  # type: ignore[misc]

    def events(self) -> Events:
        """All events so far."""
        nothing = np.zeros(0, np.int64)
        users, columns, times = (
            np.concatenate([nothing, *(kept[part] for kept in self._kept)]).astype(np.int64)
            for part in range(3)
        )
        return Events(users, columns, times + (_BEGINNING - 1))


def _joined(parts: Sequence[Events]) -> Events:
    """The events of several partitions, in each of which users have numbers of their own."""
    ends = np.cumsum([int(one.users.max(initial=0)) + 1 for one in parts])
    users = [one.users + first for one, first in zip(parts, [0, *ends[:-1].tolist()], strict=True)]
    return Events(
        np.concatenate(users),
        np.concatenate([one.columns for one in parts]),
        np.concatenate([one.times for one in parts]),
    )


@dataclass(frozen=True, slots=True)
class EventSummary:
    """What events show of themselves: the types of users and columns, and columns by their frequency."""

    user_type: str
    column_type: str
    columns: tuple[str, ...]


def find_columns(source: Input, fields: Source) -> EventSummary:
    """Read an input to its end for its columns, the most frequent first; as types those of the first events.

    Raises EventveilError if there are none or too many, and what reading the input raises.
    """
    if (
        fields.format != "json"
        or fields.filter
        or fields.maps
        or not all(one[:1] not in ("$", "[") for one in (fields.user, fields.column, fields.time))
    ):
        raise EventveilError(
            "the columns of a stream whose source has several fields, a filter or maps are not looked for;"
            " list them in the topology, or name them with --columns"
        )
    source.begin(0, fields.max_bytes)
    found: Counter[str] = Counter()
    types: dict[str, str] = {}
    reader: BulkReader | None = None
    for chunk in source.chunks():
        if reader is None and (types := _types(chunk, fields)):
            wanted = {fields.column: types["column"]}
            reader = BulkReader(wanted, fields.max_bytes)  # type: ignore[arg-type]
        for part in reader.read(chunk.values) if reader else ():
            found.update(map(str, part.at(fields.column, np.arange(len(part.rows)))))
        if len(found) > COLUMN_LIMIT:
            raise EventveilError(
                f"there are more than {COLUMN_LIMIT} different columns; name those that matter with --columns"
            )
    if not found:
        raise EventveilError(
            f"no event has both a user at {fields.user} and a column at {fields.column}; name the fields with"
            " --user, --column and --time"
        )
    named = {str(label): number for label, number in found.items() if str(label)}
    ordered = sorted(named, key=lambda label: (-named[label], label))
    return EventSummary(types["user"], types["column"], tuple(ordered))


def types_of(source: Input, fields: Source) -> EventSummary:
    """As ``find_columns``, but of the first events only, without columns. Empty inputs have texts."""
    source.begin(0, fields.max_bytes)
    for chunk in source.chunks():
        if types := _types(chunk, fields):
            return EventSummary(types["user"], types["column"], ())
    return EventSummary("string", "string", ())


def _types(chunk: Chunk, fields: Source) -> dict[str, str]:
    """The types of a chunk's first event that has both fields; none if there is no such event."""
    find_user, find_column = compile_pointer(fields.user), compile_pointer(fields.column)
    for value in chunk.values[:_SEEN]:
        document = parse(value, fields.max_bytes)
        if isinstance(document, Rejection):
            continue
        try:
            user, column = find_user(document), find_column(document)
        except (LookupError, TypeError):
            continue
        return {
            name: "integer" if type(field) is int else "string"
            for name, field in (("user", user), ("column", column))
        }
    return {}
