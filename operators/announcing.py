"""Announcing a look at the counters of a pan-private stream, so that its timestamp is published by force.

A record of ``<name>-announcements`` asks for it; the owner of the stream answers in its changelog
(``operators.accumulating.Exposure``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from operators.counting import STATE_VERSION, read_state, unreadable


@dataclass(frozen=True, slots=True)
class Announcement:
    """Somebody wants to look at a stream, in this life of it; ``number`` is random."""

    stream: str
    instance: str
    number: str

    def encode(self) -> bytes:
        """JSON bytes of this record."""
        return orjson.dumps({"version": STATE_VERSION, **asdict(self)})

    @classmethod
    def decode(cls, value: bytes, place: str) -> Announcement:
        """Read one back. Raises StateRefused, naming ``place``, if the bytes are none."""
        try:
            return cls(**read_state(value, place))
        except TypeError as error:
            raise unreadable(place, str(error)) from None
