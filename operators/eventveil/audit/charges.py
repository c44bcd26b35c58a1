"""What the audit of a stream remembers: window sums, and what each timestamp charged and showed.

Of the windows that straddle a change of terms sums are in terms of epsilon, or of mu squared. Of the sink it
remembers the order: a worker publishes one timestamp after the other.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import lcm

from eventveil.audit.records import DIGEST_BYTES, SHOWN_BYTES, STATEMENT_BYTES, Entry, FoundRecord
from eventveil.formats.change import Change, ChangeLimit, Terms

_ZEROS = bytes(SHOWN_BYTES)


class SeenInSink(IntEnum):
    """How the record of a charge was seen in the sink."""

    NOT, ABORTED, PUBLISHED = range(3)


@dataclass(slots=True)
class WindowSums:
    """Sums of spends over the last ``window`` timestamps; ``largest`` is the largest of them so far."""

    window: int
    largest: int = 0
    _sum: int = 0
    _spends: deque[tuple[int, int]] = field(default_factory=deque)

    def add(self, timestamp: int, spend: int) -> int:
        """The sum over the window that ends at ``timestamp``, which must exceed all earlier ones."""
        while self._spends and self._spends[0][0] <= timestamp - self.window:
            self._sum -= self._spends.popleft()[1]
        self._spends.append((timestamp, spend))
        self._sum += spend
        self.largest = max(self.largest, self._sum)
        return self._sum

    def exhausted(self, timestamp: int) -> bool:
        """Never: each window is protected anew."""
        return False


@dataclass(slots=True)
class HorizonSums:
    """Sums of spends over horizons of ``window`` timestamps; ``largest`` is the largest of them so far.

    The first horizon begins with the first timestamp. If it does not renew, it is the only one: what is spent
    later still adds to it.
    """

    window: int
    renews: bool
    largest: int = 0
    _sum: int = 0
    _first: int | None = None
    _horizon: int = 0

    def horizon(self, timestamp: int) -> int:
        """The number of the horizon that a timestamp falls in, from 0 on, were they all to renew."""
        return 0 if self._first is None else (timestamp - self._first) // self.window

    def add(self, timestamp: int, spend: int) -> int:
        """The sum since the beginning of the horizon; ``timestamp`` must exceed all earlier ones."""
        if self._first is None:
            self._first = timestamp
        if self.renews and self.horizon(timestamp) > self._horizon:
            self._sum, self._horizon = 0, self.horizon(timestamp)
        self._sum += spend
        self.largest = max(self.largest, self._sum)
        return self._sum

    def exhausted(self, timestamp: int) -> bool:
        """Whether the only horizon ended before this timestamp."""
        return not self.renews and self.horizon(timestamp) > 0


class Charges:
    """Per timestamp of the ledger: spend, offset, digest, hash of what the entry states, fresh or not.

    Then of its record: was it seen, and the hash of the counts that it showed. Of a timestamp that was
    charged again for another release, all of that is of the first entry but the spend, which is the sum.
    """

    def __init__(self) -> None:
        self.timestamps, self.spends, self.offsets = array("q"), array("q"), array("q")
        #: Digests of the releases that a timestamp was charged for again.
        self._again: dict[int, set[bytes]] = {}
        self.seen, self._free = bytearray(), bytearray()
        self._digests, self._statements, self._shown = bytearray(), bytearray(), bytearray()

    def find(self, timestamp: int) -> int | None:
        """The index of a timestamp."""
        index = bisect_left(self.timestamps, timestamp)
        known = index < len(self.timestamps) and self.timestamps[index] == timestamp
        return index if known else None

    def add(self, entry: Entry, offset: int, statement: bytes, *, free: bool) -> None:
        """Remember the first entry of a timestamp; ``free``: its record may show any counts.

        Fresh ones may, and predictions: no record shows that they follow from earlier releases.
        """
        index = bisect_left(self.timestamps, entry.timestamp)
        self.timestamps.insert(index, entry.timestamp)
        self.spends.insert(index, entry.test + entry.publish)
        self.offsets.insert(index, offset)
        self.seen.insert(index, SeenInSink.NOT)
        self._free.insert(index, free)
        for hashes, one in (
            (self._digests, entry.digest),
            (self._statements, statement),
            (self._shown, _ZEROS),
        ):
            hashes[index * len(one) : index * len(one)] = one

    def add_again(self, index: int, entry: Entry) -> bool:
        """Add what another release of a timestamp was charged; False if that was known already."""
        digests = self._again.setdefault(entry.timestamp, set())
        if entry.digest in digests:
            return False
        digests.add(entry.digest)
        self.spends[index] += entry.test + entry.publish
        return True

    def charged_again(self, timestamp: int, digest: bytes) -> bool:
        """Whether a release is one that its timestamp was charged for again."""
        return digest in self._again.get(timestamp, ())

    def digest(self, index: int) -> bytes:
        """The digest of the record that was charged."""
        return _slice(self._digests, index, DIGEST_BYTES)

    def statement(self, index: int) -> bytes:
        """The hash of what the entry states."""
        return _slice(self._statements, index, STATEMENT_BYTES)

    def see(self, index: int, seen: SeenInSink, shown: bytes) -> None:
        """Remember that the charged record was seen, and the hash of its counts."""
        self.seen[index] = max(self.seen[index], seen)
        self._shown[index * SHOWN_BYTES : (index + 1) * SHOWN_BYTES] = shown

    def unpaid(self) -> Iterator[int]:
        """The timestamps whose release is not fresh, yet shows other counts than the release before it.

        The first one has to show zeros. A fresh record that was not seen (removed, or in a former sink) may
        have shown anything; the next one that was seen tells what has to be repeated from then on.
        """
        due: bytes | None = _ZEROS
        for index, timestamp in enumerate(self.timestamps):
            if self._free[index] or (index and self.timestamps[index - 1] != timestamp - 1):
                due = None
            if self.seen[index] == SeenInSink.NOT:
                continue
            shown = _slice(self._shown, index, SHOWN_BYTES)
            if due not in (None, shown):
                yield timestamp
            due = shown


def _slice(hashes: bytearray, index: int, size: int) -> bytes:
    return bytes(hashes[index * size : (index + 1) * size])


class ChangeWindows:
    """The windows across one of ``changes``, of which the last one begins other terms.

    ``charges`` has all that was charged before that one; what it has of later timestamps is left out.
    Sums are kept as integers, in a unit that divides what a ledger unit costs under all terms that were in
    force.
    """

    def __init__(self, limit: ChangeLimit, changes: Sequence[Change], charges: Charges) -> None:
        self.until = limit.until
        self._cost = limit.cost
        terms = [(0, changes[0].before), *((one.start, one.after) for one in changes)]
        # A timestamp costs its units times what one unit does, or the square of its units times that.
        self._scale = lcm(*(limit.cost(1, one).denominator for _, one in terms))
        self._limit = limit.most * self._scale
        self._sums = WindowSums(limit.window)
        begin = bisect_left(charges.timestamps, changes[-1].start - limit.window + 1)
        end = bisect_left(charges.timestamps, changes[-1].start)
        for timestamp, spend in zip(charges.timestamps[begin:end], charges.spends[begin:end], strict=True):
            held = next(one for start, one in reversed(terms) if start <= timestamp)
            self._sums.add(timestamp, self._whole(spend, held))

    def add(self, timestamp: int, spend: int, terms: Terms) -> bool:
        """Whether a spend of the next timestamp keeps the window that ends there within the limit.

        Nothing spent is always within: nothing could be done about what was spent before the change.
        """
        spent = self._sums.add(timestamp, self._whole(spend, terms))
        return spend == 0 or spent <= self._limit

    def _whole(self, spend: int, terms: Terms) -> int:
        return int(self._cost(spend, terms) * self._scale)


def exceeding(limit: ChangeLimit, changes: Sequence[Change], charges: Charges) -> Iterator[int]:
    """The timestamps at which windows across the last change end that exceed the limit, all charges known."""
    windows = ChangeWindows(limit, changes, charges)
    begin = bisect_left(charges.timestamps, changes[-1].start)
    end = bisect_left(charges.timestamps, windows.until)
    for timestamp, spend in zip(charges.timestamps[begin:end], charges.spends[begin:end], strict=True):
        if not windows.add(timestamp, spend, changes[-1].after):
            yield timestamp


class SinkOrder:
    """Finds first copies that come after a later release in their partition.

    Aborted records and repetitions are not to be handed in.
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._newest: dict[int, int] = {}
        self._fallen: list[tuple[int, int, str]] = []

    def add(self, timestamp: int, found: FoundRecord) -> None:
        """Take in the first committed copy of a release that the log still has."""
        partition = found.partition
        self._first.setdefault(partition, timestamp)
        if timestamp < self._newest.get(partition, 0):
            self._fallen.append((timestamp, partition, str(found)))
        else:
            self._newest[partition] = timestamp

    def fallen(self, *, complete: bool) -> Iterator[tuple[int, str]]:
        """Timestamp and place of each such release.

        Unless the sink is ``complete``, those before the first record of their partition may be repetitions
        of copies that retention or compaction has removed, and are passed over.
        """
        for timestamp, partition, place in self._fallen:
            if complete or timestamp > self._first[partition]:
                yield timestamp, place
