"""What the audit of a stream remembers of its ledger: window sums, and what each timestamp charged."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum

from operators.privacy.audit.records import DIGEST_BYTES, STATEMENT_BYTES, Entry


class Seen(IntEnum):
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


class Charges:
    """Per timestamp of the ledger: spend, digest, hash of what the entry states, and was its record seen."""

    def __init__(self) -> None:
        self.timestamps, self.spends = array("q"), array("q")
        self.seen = bytearray()
        self._digests, self._statements = bytearray(), bytearray()

    def find(self, timestamp: int) -> int | None:
        """The index of a timestamp."""
        index = bisect_left(self.timestamps, timestamp)
        known = index < len(self.timestamps) and self.timestamps[index] == timestamp
        return index if known else None

    def add(self, entry: Entry, statement: bytes) -> None:
        """Remember the first entry of a timestamp."""
        index = bisect_left(self.timestamps, entry.timestamp)
        self.timestamps.insert(index, entry.timestamp)
        self.spends.insert(index, entry.test + entry.publish)
        self.seen.insert(index, Seen.NOT)
        for hashes, one in ((self._digests, entry.digest), (self._statements, statement)):
            hashes[index * len(one) : index * len(one)] = one

    def digest(self, index: int) -> bytes:
        """The digest of the record that was charged."""
        return bytes(self._digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES])

    def statement(self, index: int) -> bytes:
        """The hash of what the entry states."""
        return bytes(self._statements[index * STATEMENT_BYTES : (index + 1) * STATEMENT_BYTES])
