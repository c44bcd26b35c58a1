"""Inputs that can be divided among processes, which import them from here; ``python -m`` replays one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException

from eventveil.model.errors import EventveilError
from eventveil.model.records import Chunk
from eventveil.replay.inputs import Share
from eventveil.replay.run import replay
from tests.unit.replay.history import ORIGIN, Recorded, stream, topology

Partitions = dict[int, Sequence[tuple[int, bytes | None]]]


class Divided(Recorded):
    """A partition a share, as far as there are processes."""

    def __init__(self, partitions: Partitions, size: int = 3) -> None:
        super().__init__(partitions, size)
        self.total = sum(map(len, partitions.values()))

    def split(self, count: int) -> list[Share]:
        names = sorted(self._partitions)
        shares = [names[number::count] for number in range(min(count, len(names)))]
        return [Share(share, self.part({one: self._partitions[one] for one in share})) for share in shares]

    def part(self, partitions: Partitions) -> Recorded:
        return Recorded(partitions, self._size)


class Misbehaving(Divided):
    """The share with partition 1 does ``what``, after it has written its process's id into a folder."""

    def __init__(self, partitions: Partitions, folder: Path, what: str) -> None:
        super().__init__(partitions)
        self.folder, self.what = folder, what

    def part(self, partitions: Partitions) -> Recorded:
        return Misbehaving(partitions, self.folder, self.what)

    def chunks(self) -> Iterator[Chunk]:
        (self.folder / str(os.getpid())).touch()
        if 1 in self._partitions:
            if self.what == "refuse":
                raise EventveilError("the child refuses")
            if self.what == "kafka":
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer for the child"))
            if self.what == "bug":
                raise ZeroDivisionError
            if self.what == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
        yield from super().chunks()


if __name__ == "__main__":
    # Under its own name, by which children find it.
    from tests.unit.replay import divided

    endless = divided.Misbehaving({0: [], 1: []}, Path(sys.argv[1]), "sleep")
    for _ in replay(topology(stream()), endless, end=2 * ORIGIN, processes=2):
        pass
