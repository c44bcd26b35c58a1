"""How many bytes a release and the state of a stream take at most, so that both are known to fit Kafka."""

from __future__ import annotations

import orjson

from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.registry import find
from eventveil.model.records import BATCH_BYTES, NUMBER_BYTES
from eventveil.model.topology import MechanismSettings, Stream

#: The most that the spends of one timestamp take in the state: [1,1048576,<13 digits>], and a comma.
WINDOW_STATE_BYTES = 26
#: A released count, -1099511627776 at its longest, and a comma.
DIGITS = 15
#: The error of a released count, 2200000000000.0 at its longest, and a comma.
ERROR_DIGITS = 16


def widest(stream: Stream) -> Stream:
    """The stream with as many columns as it can have, whose names take as many bytes as they can."""
    how = stream.counts.discover
    # Of all characters that can be printed those beyond 16 bits take most, also as JSON inside of JSON.
    return stream if how is None else stream.having((_LONG * how.longest,) * how.most)


_LONG = "\U0001f600"


def largest_release(stream: Stream) -> int:
    """An upper bound of the bytes of a record batch with one release of a stream."""
    stream, names = widest(stream), 0
    if stream.sink.counts == "object":
        # A colon comes with each name; the counts have them, and the errors.
        names = 2 * (len(orjson.dumps(stream.columns)) + len(stream.columns))
    columns = len(stream.columns)
    _, extra = find(stream.mechanism.kind).numbers(stream.mechanism, columns)
    # In Avro every row has an error of its own, which is provided for, and names once.
    return max(1_048_588, names + (DIGITS + ERROR_DIGITS) * columns + NUMBER_BYTES * extra + 4096)


def largest_state(stream: Stream) -> int:
    """An upper bound of the bytes of a stream's record in the ledger changelog, its largest by far.

    It holds the spends of a window, the last release, and what is decided but not published: a batch that is
    not full, and one release more, as JSON inside of JSON, which doubles a character at most.
    """
    stream = widest(stream)
    columns = len(stream.counts.labels)
    names = 0
    if stream.sink.counts == "object":
        names = 2 * (len(orjson.dumps(orjson.dumps(stream.columns).decode())) + columns)
    if stream.counts.discover is not None:
        names += names // 2  # those that were found, once more
    kind = find(stream.mechanism.kind)
    release = (
        NUMBER_BYTES * kind.numbers(stream.mechanism, columns)[1] + (DIGITS + ERROR_DIGITS) * columns + names
    )
    return largest_snapshot(kind, stream.mechanism, columns) + release + 2 * BATCH_BYTES + 4096


def largest_snapshot(kind: type[Mechanism], settings: MechanismSettings, columns: int) -> int:
    """An upper bound of the bytes of a mechanism's snapshot: a window's spends, the last release, its own."""
    spends = WINDOW_STATE_BYTES * settings.window if kind.level == "w-event" else 0
    return spends + NUMBER_BYTES * kind.numbers(settings, columns)[0] + DIGITS * columns + 4096
