"""What the promise of a stream rests on whose counts an engine makes, in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from eventveil.model.topology import Stream


def engine(stream: Stream) -> Iterator[str]:
    """What the engine must guarantee, what cannot be seen of it, and when a timestamp is complete."""
    source, bound = stream.source, stream.counts.contributions
    yield (
        "All of this holds only if the engine that counts keeps four promises (counts: trusted), of which"
        " numbers show nothing. (1) Users are distinct, and bounded: one user adds at most"
        f" {bound} to all columns of a timestamp together; who adds k times as much is protected by k times"
        " the epsilon. (2) What counts of one user does not depend on others: no watermark that follows the"
        " times of events decides what is late, no limit is shared. (3) There is one number per timestamp and"
        f" column, in the partition of its column ({source.partitioner} of {source.column}); a later record"
        " replaces it. (4) It does not change once the timestamp is complete."
    )
    yield (
        "Not seen here: events, users, whether the engine keeps a promise, and what it loses. Who can"
        " write to the topic can choose counts. What makes two events those of one user is for the engine."
    )
    if source.watermark is None:
        yield (
            "Complete: by the deadline, in append times of the broker. What the engine writes later does not"
            " count, also after an outage or under load, which is everybody's."
        )
    else:
        yield (
            f"Complete: when it is due, and each partition has a record with {source.watermark} at or after"
            " its end. Until then the release waits, however long: its time tells when the engine was done."
        )
