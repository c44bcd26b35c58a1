"""Announcing a look at the counters of a pan-private stream, so that its timestamp is published by force.

A record of ``<name>-announcements`` asks for it; the owner of the stream answers in its changelog
(``eventveil.tasks.pan_private.Exposure``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from eventveil.counting.counter import STATE_VERSION


@dataclass(frozen=True, slots=True)
class Announcement:
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

    def encode(self) -> bytes:
        """JSON bytes of this record."""
        return orjson.dumps({"version": STATE_VERSION, **asdict(self)})

    @classmethod
    def read(cls, value: bytes | None) -> Announcement | None:
        """Read one back; None for anything else, which announces nothing."""
        try:
            fields = orjson.loads(value or b"")
            announcement = cls(**{name: fields[name] for name in cls.__dataclass_fields__})
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None
        return announcement if type(announcement.until) is int else None
