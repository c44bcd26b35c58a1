"""How many events do not count, and why, for a log that is raw data: only where somebody asked for one."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from eventveil.counting.remedies import remedy
from eventveil.counting.written import explained, written
from eventveil.decoding.places import Envelope
from eventveil.decoding.rules import Reason, UserFinder
from eventveil.model.records import Outgoing
from eventveil.model.topology import Topology

log = logging.getLogger(__name__)

REASONS = frozenset(reason.value for reason in Reason)
#: A share of fewer verdicts says little. A stream is told of again after this long.
_LEAST, _AGAIN_SECONDS = 100, 600.0
_MUCH = 0.1
#: Of a batch, this many dead letters are looked at for their users; this many users are kept.
_LETTERS, _USERS = 500, 2_000


class Losses:
    """What became of records since each stream was last told of."""

    def __init__(self, topology: Topology, clock: Callable[[], float] = time.monotonic) -> None:
        self._streams = {stream.name: stream for stream in topology.all_streams}
        self._clock = clock
        self._outcomes: dict[str, Counter[str]] = {}
        self._partitioners = {one.name: one.source.partitioner for one in topology.streams}
        self._find = {one.name: UserFinder(one.source).read for one in topology.streams}
        self._users: dict[str, dict[tuple[bytes, int], None]] = {}
        self._told: dict[str, float] = {}

    def judged(
        self, outcomes: Mapping[str, Counter[str]], letters: Iterable[Outgoing], partitions: int
    ) -> None:
        """Verdicts that are durable, some of the dead letters among them; logs what is worth telling."""
        for letter in islice(letters, _LETTERS):
            self._remember(letter)
        for stream, counts in outcomes.items():
            kept = self._outcomes.setdefault(stream, Counter())
            kept.update(counts)
            if kept.total() >= _LEAST and self._is_time(stream):
                self._tell(stream, kept, partitions)

    def _remember(self, letter: Outgoing) -> None:
        told = dict(letter.headers)
        if told["eventveil.reason"] != Reason.WRONG_PARTITION.value.encode():
            return
        stream = told["eventveil.stream"].decode()
        users, find = self._users.setdefault(stream, {}), self._find.get(stream)
        # Keys may be where a partitioner puts them and not be the users.
        if find is not None and len(users) < _USERS and (user := find(letter.value, Envelope(letter.key))):
            users[user, int(told["eventveil.partition"])] = None

    def _is_time(self, stream: str) -> bool:
        told = self._told.get(stream)
        return told is None or self._clock() - told >= _AGAIN_SECONDS

    def _tell(self, stream: str, counts: Counter[str], partitions: int) -> None:
        judged, lost = counts.total(), sum(counts[reason] for reason in REASONS)
        if lost >= _MUCH * judged:
            reason = max(REASONS, key=lambda one: (counts[one], one))
            share = "none counts" if lost == judged else f"{lost} do not count"
            remedy = self._remedy(stream, Reason(reason), partitions)
            log.warning(
                "stream %s: of %d events %s; the most common reason is %s (%d): %s",
                stream, judged, share, reason, counts[reason], remedy,
            )  # fmt: skip
            self._told[stream] = self._clock()
        self._outcomes.pop(stream)
        self._users.pop(stream, None)

    def _remedy(self, name: str, reason: Reason, partitions: int) -> str:
        users = self._users.get(name)
        if reason is Reason.WRONG_PARTITION and users:
            return explained(written(users, partitions), self._partitioners[name], refused=True)
        return remedy(reason, self._streams[name]).text
