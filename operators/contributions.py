"""The contribution bound: of each user, at most ``bound`` events per timestamp count, the first ones.

Users are told apart by their whole value. A hash may not decide: a collision would let one user's presence
remove another's contribution, and the sensitivity would be twice the bound.
"""

from __future__ import annotations

from bisect import insort
from typing import Any


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


class EarliestContributions:
    """The same where events come in no order of their own: the first ones by ``order`` count.

    Re-keyed events of one user come from several partitions. Which of them is read first depends on what
    others sent there, so it must not decide; whoever was read first gives way to an earlier one.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._counted: dict[bytes, list[tuple[Any, int]]] = {}

    def admit(self, user: bytes, order: Any, column: int) -> tuple[bool, int | None]:
        """Whether one more event of ``user`` counts, and the column of the one that no longer does."""
        counted = self._counted.setdefault(user, [])
        insort(counted, (order, column))
        if len(counted) <= self._bound:
            return True, None
        last, displaced = counted.pop()
        return (False, None) if last == order else (True, displaced)

    def __len__(self) -> int:
        """The number of distinct users."""
        return len(self._counted)
