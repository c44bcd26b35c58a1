"""The order of the releases in the sink: a worker publishes one timestamp after the other."""

from __future__ import annotations

from collections.abc import Iterator

from eventveil.audit.records import Found


class SinkOrder:
    """Finds first copies that come after a later release in their partition.

    Aborted records and repetitions are not to be handed in.
    """

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._newest: dict[int, int] = {}
        self._fallen: list[tuple[int, int, str]] = []

    def add(self, timestamp: int, found: Found) -> None:
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
