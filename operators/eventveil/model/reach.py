"""How far a log reached under which of its leaders, and what that shows when the log loses its end.

Each leader of a partition has an epoch, a number that grows, and every record batch carries the epoch in
which it was appended. A log that loses its newest records and grows again has other records at their
offsets, of a later epoch. Its end does not show that; where the earlier epoch ended does (KIP-101, KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from eventveil.model.records import NO_EPOCH, Headers

#: The header of a state with what was read of the log. Version 0.2.0 of Eventveil ignores headers.
REACH = "eventveil.reach"


class Reach(NamedTuple):
    """Up to ``offset``, which is the first one behind it, a log had records of ``epoch`` or earlier ones.

    ``epoch`` is NO_EPOCH where nobody tells it.
    """

    epoch: int
    offset: int

    @property
    def header(self) -> tuple[str, bytes]:
        """What a state carries of it."""
        return REACH, f"{self.epoch}/{self.offset}".encode()

    @classmethod
    def latest(cls, headers: Iterable[Headers]) -> Reach | None:
        """The farthest of those that states carry, by their headers; None if none carries any."""
        found = [cls._read(value) for of_one in headers for name, value in of_one if name == REACH]
        return max(found, key=lambda one: one.offset, default=None)

    @classmethod
    def _read(cls, value: bytes) -> Reach:
        epoch, offset = value.split(b"/")
        return cls(int(epoch), int(offset))

    def parted(self, answer: Reach | None) -> int | None:
        """Where the log parted from the one that reached so far; None if nothing shows that it did.

        ``answer`` is what its leader says of the epoch: the last epoch up to it that the log has, and where
        that one ended. A leader that does not know it says NO_EPOCH, or nothing: retention may have removed
        the last record of it. That shows nothing.
        """
        if answer is None or answer.epoch == NO_EPOCH or not 0 <= answer.offset < self.offset:
            return None
        return answer.offset


def header_of(reach: Reach | None) -> Headers:
    """The headers of a state that was made of what was read so far."""
    return () if reach is None else (reach.header,)
