"""What ``eventveil ledger --witness`` does with its file: compare the ledger with it, then update it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from eventveil.audit.records import FoundRecord
from eventveil.audit.witness_file import read_witness, replace_witness
from eventveil.formats.witness import Sighting, Sightings, Witness, refusal
from eventveil.kafka.cluster import Cluster
from eventveil.model.errors import EventveilError
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Topology

_LOOK_AGAIN = (
    "First run the audit once more with --barrier: a broker that is cut off may have shown an old log. The "
    "witness stays as it is"
)


class WitnessUpdater:
    """Reads the whole ledger of a topology, then compares it with the witness in a file."""

    def __init__(self, topology: Topology, cluster: Cluster, path: Path) -> None:
        """Raises StateRefused if the file is that of another topology or cluster, or none."""
        self._path, self._topology, self._cluster = path, topology.name, cluster.id()
        self._streams = {one.name for one in topology.streams} | {one.name for one in topology.readings}
        found = _readable(path)
        self._value = None if found is None else found[0]
        self._before = None if found is None else found[1]
        if self._before is not None:
            self._before.check(self._topology, self._cluster, str(path))
        self._sightings = Sightings(self._before)

    def begins(self, place: TopicPartition, offset: int) -> None:
        """Take note where a partition of the sink of a value stream begins."""
        self._sightings.begins(place, offset)

    def see(self, found: FoundRecord) -> None:
        """Take note of the next record of the ledger, or of the sink of a value stream."""
        if found.committed:
            place = TopicPartition(found.topic, found.partition)
            self._sightings.see(Sighting.of(place, found.offset, found.fields or {}, found.digest))

    def keep(self) -> Iterable[str]:
        """Bring the file up to date, and say so; raises EventveilError, and leaves it, if it must not be.

        That is if the ledger lacks what the witness has seen, if somebody else replaced the file meanwhile,
        or if it cannot be written.
        """
        if self._before is not None:
            lines = (line for line in sorted(self._before.seen, key=str) if line.stream in self._streams)
            if lost := self._sightings.lost(lines):
                refusals = (str(refusal(str(self._path), self._before, *one)) for one in lost)
                raise EventveilError("\n".join([*refusals, _LOOK_AGAIN]))
        now = time.time_ns() // 1_000_000
        witness = Witness(self._topology, self._cluster, now, self._sightings.seen())
        try:
            replace_witness(self._path, self._value, witness)
        except OSError as error:
            raise EventveilError(f"the witness {self._path} cannot be written: {error.strerror}") from None
        if self._before is None:
            yield f"witness {self._path}: created; it cannot show whether anything released earlier was lost"
        else:
            yield f"witness {self._path}: nothing noted on {self._before.when} is gone; updated"


def _readable(path: Path) -> tuple[bytes, Witness] | None:
    try:
        return read_witness(path)
    except OSError as error:
        raise EventveilError(f"the witness {path} cannot be read: {error.strerror}") from None
