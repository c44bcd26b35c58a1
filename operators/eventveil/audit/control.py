"""The audit of what a stream of local reports asks its producers for: one threshold, the charged one.

- **I1.** The entries of the ledger name no threshold until one is chosen, then only that one; reports are
  for the distribution up to the timestamp that chose it, and for sums from then on. No record of the control
  topic shows another, records of aborted transactions included, which producers may have read.
- **I7.** The control topic ends with what the ledger says, because producers do what it asks. A record
  in it is, byte for byte, what the topology and the threshold of the ledger make of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from eventveil.audit.findings import Violations
from eventveil.audit.records import Entry, FoundRecord

#: The record that asks for the reports of a threshold, with None for those of the distribution.
Asks = Callable[[int | None], bytes]
_SECOND = "it is a second threshold of the stream: producers were asked for other reports before"


class ControlAudit:
    """``entry`` for each entry in order, ``record`` for the whole control topic, then ``finish``."""

    def __init__(self, asks: Asks, flag: Violations) -> None:
        self._asks, self._flag = asks, flag
        self._entries = 0
        self.threshold: int | None = None
        self._last: FoundRecord | None = None
        self._undecided: list[FoundRecord] = []

    def entry(self, entry: Entry, found: FoundRecord) -> None:
        """Check what an entry, the first of its timestamp, says of phase and threshold."""
        fields = found.fields or {}
        phase, threshold = fields.get("phase"), fields.get("threshold")
        if threshold is not None and (type(threshold) is not int or threshold < 1):
            self._flag("I7", entry.timestamp, found, "its threshold is not a whole number above 0")
            return
        expected = "distribution" if self.threshold is None else "sums"
        if phase != expected:
            what = f"its reports are stated to be for {phase!r:.20}, expected {expected}"
            self._flag("I7", entry.timestamp, found, what)
        self._entries += 1
        if self.threshold is None:
            self.threshold = threshold
        elif threshold != self.threshold:
            self._flag("I1", entry.timestamp, found, _SECOND, f": {threshold}, not {self.threshold}")

    def record(self, found: FoundRecord, *, newer: bool) -> None:
        """Take in a record of the control topic that is of this stream; ``newer``: see ``StreamAudit``."""
        if found.digest == _digest(self._asks(None)):
            if self._asks_for_sums(self._last) and found.committed:
                self._flag("I7", None, found, "it asks for the distribution again")
        elif self.threshold is not None and found.digest == _digest(self._asks(self.threshold)):
            pass
        elif self.threshold is None and (newer or not found.committed) and self._of_some_threshold(found):
            # Newer than the ledger that was read, or still to be published: but there is only one.
            if any(found.digest != other.digest for other in self._undecided):
                self._flag("I1", None, found, _SECOND)
            self._undecided.append(found)
        elif self._of_some_threshold(found):
            stated = (found.fields or {}).get("threshold")
            self._flag("I1", None, found, _SECOND, f": {stated}, not {self.threshold} of the ledger")
        else:
            self._flag("I7", None, found, "it asks for something other than the topology does")
        if found.committed:
            self._last = found

    def finish(self) -> None:
        """Check that producers are asked for what the ledger says, once it says anything."""
        if not self._entries or self._last in self._undecided:
            return
        right = _digest(self._asks(self.threshold))
        if self._last is None or self._last.digest != right:
            place = self._last or "the control topic"
            self._flag("I7", None, place, "its last record is not the request that the ledger names")

    def _asks_for_sums(self, found: FoundRecord | None) -> bool:
        return found is not None and (found.fields or {}).get("phase") == "sums"

    def _of_some_threshold(self, found: FoundRecord) -> bool:
        threshold = (found.fields or {}).get("threshold")
        return type(threshold) is int and threshold > 0 and found.digest == _digest(self._asks(threshold))


def _digest(record: bytes) -> bytes:
    return hashlib.sha256(record).digest()
