"""Broken variants of counting users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operators.contributions import Contributions, EarliestContributions
from operators.users import Users
from operators.words import Words


class HashDecides(Users):
    """Users are told apart by a hash: where two collide, one's presence removes the other's contribution."""

    def _of(self, words: Words, canonical: Callable[[int], bytes]) -> NDArray[np.int64]:
        return super()._of(words[:, :1], canonical)


class PlaceDecides(Contributions):
    """The same in the table of those who have contributed: who falls on a place that is taken is known."""

    def admit(self, users: NDArray[np.int64]) -> NDArray[np.bool_]:
        return super().admit((users * 0x9E3779B1 & 0xFFFFFFFF) >> 20)


class EarliestHashDecides(EarliestContributions):
    """The same for re-keyed events."""

    def admit(self, user: int, order: Any, column: int) -> tuple[bool, int | None]:
        return super().admit(user % 4096, order, column)
