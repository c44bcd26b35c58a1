"""When partitions were seen without a leader, as it was seen: all that ``on_missing: release`` decides by.

A partition is left out of a timestamp if it was seen without a leader before the timestamp was due, and each
time from then on until the grace was over. Nothing else is asked: not what has been read, nor which partial
counts are there, because those depend on how much users send. All times are public: when timestamps are due,
and when the cluster was asked and answered.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from eventveil.model import timeline
from eventveil.model.topology import Timeline

#: Two answers that are further apart (ms) do not show that there was no leader in between.
LONGEST_GAP = 30_000
#: Outages of a topic that are remembered once they are over.
_REMEMBERED = 1000


class Outage(NamedTuple):
    """A partition had no leader in any answer from ``since`` to ``until``, epoch milliseconds.

    ``over``: a later answer named a leader, or came too late to tell.
    """

    partition: int
    since: int
    until: int
    over: bool


class Outages:
    """The outages of one topic's partitions, from one answer of the cluster to the next."""

    def __init__(self) -> None:
        self._open: dict[int, Outage] = {}
        self._over: list[Outage] = []
        self._elapsed = 0

    def seen(self, now: int, elapsed: int, leaderless: Collection[int]) -> list[int]:
        """Take note of an answer that has just come; the partitions that had a leader in the one before.

        ``now`` is the wall clock, ``elapsed`` a monotonic one, both in milliseconds. An outage begins by the
        wall clock and lasts by the other, so that a clock that is put forward does not lengthen it.
        """
        passed, self._elapsed = elapsed - self._elapsed, elapsed
        known = self._open
        if passed > LONGEST_GAP:
            self._finish(known)
            known = {}
        self._finish({one: outage for one, outage in known.items() if one not in leaderless})
        self._open = {
            one: known[one]._replace(until=known[one].until + passed)
            if one in known
            else Outage(one, now, now, False)
            for one in sorted(leaderless)
        }
        return [one for one in self._open if one not in known]

    def _finish(self, outages: dict[int, Outage]) -> None:
        self._over += [outage._replace(over=True) for outage in outages.values()]
        del self._over[:-_REMEMBERED]

    def all(self) -> tuple[Outage, ...]:
        """Those that are over, as far as they are remembered, and then those that are not."""
        return (*self._over, *self._open.values())


def left_out(rules: Timeline, outage: Outage) -> tuple[int, int]:
    """The first and the last timestamp that go without the partition; the last is smaller if none does.

    All from the first on do, for as long as the outage lasts.
    """
    return (
        timeline.last_due(rules, outage.since) + 1,
        timeline.last_due(rules, outage.until - (rules.grace or 0)),
    )
