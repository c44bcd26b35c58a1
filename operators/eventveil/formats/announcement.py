"""Announcing a look at the counters of a pan-private stream, so that its timestamp is published by force.

A record of ``<name>-announcements`` asks for it; the owner of the stream answers in its changelog
(``eventveil.tasks.pan_private.Exposure``).
"""

from __future__ import annotations

from typing import Self

from eventveil.model.durable import Durable
from eventveil.model.errors import StateRefused


class Announcement(Durable, frozen=True):
    """Somebody wants to look at a stream, in this life of it, and waits for the answer.

    ``until`` is when that ends, in epoch milliseconds. ``number`` is random.
    """

    stream: str
    instance: str
    until: int
    number: str

    def concerns(self, stream: str, instance: str, now: int) -> bool:
        """Whether it is of that life of a stream, and somebody still waits."""
        return (self.stream, self.instance) == (stream, instance) and now < self.until

    @classmethod
    def read(cls, value: bytes | None) -> Self | None:
        """Read one back; None for anything else, which announces nothing."""
        try:
            return cls.decode(value or b"", "")
        except StateRefused:
            return None
