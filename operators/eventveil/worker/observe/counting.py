"""Whether releases show that events count: the public state of each stream, and the warnings that go with it.

Only published releases come in here, so two worlds with the same releases have the same states and the same
log, whatever else their events did (docs/privacy.md).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping

from eventveil.formats.release import as_json
from eventveil.model.records import Outgoing
from eventveil.model.topology import Topology
from eventveil.read.health import State, Total, looked_at, state_of, total_of

log = logging.getLogger(__name__)

_SAID: Mapping[State, str] = {
    "nothing": "stream %s: its last %d releases are indistinguishable from noise; perhaps no events count",
    "much-less": "stream %s: its last %d releases show less than half of what counts.expected says",
}
_REMEDY = (
    "; `eventveil doctor TOPOLOGY` shows why events do not count and what to change (its output is raw data)"
)


class CountingStates:
    """The states of the streams whose releases this worker publishes."""

    def __init__(self, topology: Topology) -> None:
        self._streams = {one.name: one for one in topology.streams}
        self._stream_of = {one.sink.topic: one.name for one in topology.streams}
        self._totals: dict[str, deque[Total]] = {}
        self._states: dict[str, State] = dict.fromkeys(self._streams, "unknown")
        #: What the log said last of each stream, and how many releases have not shown that since.
        self._logged: dict[str, State] = dict(self._states)
        self._since: dict[str, int] = dict.fromkeys(self._streams, 0)

    def states(self) -> dict[str, State]:
        """By stream."""
        return dict(self._states)

    def published(self, records: Iterable[Outgoing]) -> None:
        """These records were published; those of ledger and control say nothing here."""
        for record in records:
            if record.topic in self._stream_of and record.value is not None:
                found = total_of(as_json(record.value))
                if found is not None:
                    self._note(*found)

    def _note(self, name: str, total: Total) -> None:
        stream = self._streams[name]
        whole = looked_at(stream.mechanism.window)
        kept = self._totals.setdefault(name, deque(maxlen=whole))
        kept.append(total)
        self._states[name] = state_of(kept, whole, stream.counts.expected)
        self._log(name, len(kept))

    def _log(self, name: str, looked_at: int) -> None:
        """A warning stands until the releases that caused it have left the window.

        Otherwise counts near the threshold would toggle the warning at every release.
        """
        before, now = self._logged[name], self._states[name]
        self._since[name] = 0 if now == before else self._since[name] + 1
        if now == before or (before in _SAID and self._since[name] < looked_at):
            return
        self._logged[name], self._since[name] = now, 0
        if now in _SAID:
            log.warning(_SAID[now] + _REMEDY, name, looked_at)
        elif before in _SAID:
            log.info("stream %s: its releases show again that events count", name)
