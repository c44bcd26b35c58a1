"""Broken variants of counting users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.bounding_by_origin import EarliestContributions
from eventveil.counting.users import Contributions, Users
from eventveil.decoding.bulk import Fields


class HashDecides(Users):
    """Users are told apart by a hash: where two collide, one's presence removes the other's contribution."""

    def _of_fields(self, fields: Fields) -> NDArray[np.int64]:
        users = fields.at(self._pointer, np.arange(len(fields.rows)))
        return self._of([str(user)[:8] for user in users])


class PlaceDecides(Contributions):
    """The same in the table of those who have contributed: who falls on a place that is taken is known."""

    def admit(self, users: NDArray[np.int64]) -> NDArray[np.bool_]:
        return super().admit((users * 0x9E3779B1 & 0xFFFFFFFF) >> 20)


class EarliestHashDecides(EarliestContributions):
    """The same for re-keyed events."""

    def admit(
        self, users: NDArray[np.int64], origins: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        return super().admit(users % 4096, origins, columns)


class FirstReadCount(EarliestContributions):
    """Re-keyed events that were read first count, whatever comes later: the order of reading decides."""

    read = 0

    def admit(
        self, users: NDArray[np.int64], origins: NDArray[np.int64], columns: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        self.read += len(users)
        read = np.arange(self.read - len(users), self.read)
        return super().admit(users, np.stack([read, 0 * read, read], axis=1), columns)
