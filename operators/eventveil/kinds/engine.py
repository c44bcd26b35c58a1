"""Streams whose counts an engine makes: they come with their numbers, and are released as counts are."""

from __future__ import annotations

from collections.abc import Iterator

from eventveil.counting.engine import ENGINE_OUTCOMES
from eventveil.kinds.counts import CountsKind
from eventveil.model.topology import Stream


class Engine(CountsKind):
    """Also closed as counts are, by the clock and where asked for by watermarks."""

    name = "engine"
    outcomes = ENGINE_OUTCOMES
    limits = (
        "an engine counts, and nothing shows whether it bounds users: epsilon is as good as its promise"
        " (counts: trusted). When it is slow, releases are late or lack counts.",
    )
    to_check = (
        "Engine",
        "who has checked that it counts distinct users, bounds what one adds to all columns together, lets"
        " no user affect which events of another are late, and decides correctly which events belong to one"
        " user? Who may write to its topic?",
    )

    def which_count(self, stream: Stream) -> str:
        """See ``CountsKind``."""
        bound, per_column = stream.counts.contributions, stream.counts.per_column
        each = "" if per_column is None else f", and at most {per_column} to each"
        return f"the engine guarantees that a user adds at most {bound} to all columns together{each}"

    def whose(self, stream: Stream) -> Iterator[str]:
        """See ``CountsKind``."""
        return _promised(stream)

    def bound(self, stream: Stream) -> str:
        """See ``CountsKind``."""
        return f"{super().bound(stream)} (the engine's word)"


def _promised(stream: Stream) -> Iterator[str]:
    """What the engine must guarantee, what cannot be seen of it, and when a timestamp is complete."""
    source, bound, per_column = stream.source, stream.counts.contributions, stream.counts.per_column
    each = "" if per_column is None else f", and of these at most {per_column} to each"
    yield (
        "All of this holds only if the engine that counts keeps four promises (counts: trusted), which"
        " its numbers cannot show. (1) Users are distinct, and bounded: one user adds at most"
        f" {bound} to all columns of a timestamp together{each}; for one who adds k times as much the"
        " bound is k times the epsilon. (2) What counts of one user does not depend on others: no watermark"
        " that follows the times of events decides what is late, no limit is shared. (3) There is one number"
        f" per timestamp and column, in the partition of its column ({source.partitioner} of {source.column})"
        "; a later record replaces it. (4) It does not change once the timestamp is complete."
    )
    yield (
        "Not visible here: events, users, whether the engine keeps its promises, and what it loses. Anyone"
        " who can write to the topic can choose counts. The engine decides which events are one user's."
    )
    if source.watermark is None:
        yield (
            "Complete: by the deadline, in append times of the broker. What the engine writes later does not"
            " count, not even after an outage or under load, and load depends on all users."
        )
    else:
        yield (
            f"Complete: when it is due, and each partition has a record with {source.watermark} at or after"
            " its end. Until then the release waits, however long: its time shows when the engine was done."
        )
