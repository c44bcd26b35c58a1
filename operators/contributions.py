"""The contribution bound: of each user, at most ``bound`` events per timestamp count, the first ones.

Users are told apart by their whole value. A hash may not decide: a collision would let one user's presence
remove another's contribution, and the sensitivity would be twice the bound.
"""

from __future__ import annotations


class Contributions:
    """Who has contributed to one timestamp so far, in one source partition."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._counted: dict[bytes, int] = {}

    def admit(self, user: bytes) -> bool:
        """Count one more event of ``user`` if the bound allows it, and say whether it did."""
        counted = self._counted.get(user, 0)
        if counted == self._bound:
            return False
        self._counted[user] = counted + 1
        return True

    def __len__(self) -> int:
        """The number of distinct users."""
        return len(self._counted)
