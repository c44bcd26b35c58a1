"""Broken variants of counting users."""

from __future__ import annotations

from typing import Any

from operators.contributions import Contributions, EarliestContributions


def hashed(user: bytes) -> bytes:
    return str(hash(user)).encode()


class HashDecides(Contributions):
    """Users are told apart by a hash: where two collide, one's presence removes the other's contribution."""

    def admit(self, user: bytes) -> bool:
        return super().admit(hashed(user))


class EarliestHashDecides(EarliestContributions):
    """The same for re-keyed events."""

    def admit(self, user: bytes, order: Any, column: int) -> tuple[bool, int | None]:
        return super().admit(hashed(user), order, column)
