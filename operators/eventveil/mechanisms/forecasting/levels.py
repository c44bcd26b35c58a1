"""Kalman filters of a level that drifts: alone, and times a profile that all columns share.

A filter's level x, variance v, moves by a variance of ``a max(x, 1) + b x^2`` a timestamp. What is seen is x,
or x times the profile, with noise and scatter. A noisy count further than ``JUMP`` standard deviations from
what was expected starts a filter anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats

PLAIN = ((0.0, 0.0), (0.01, 1e-6), (0.03, 1e-4), (0.3, 1e-3), (1.0, 3e-2))
WITH_PROFILE = ((0.0005, 1e-7), (0.01, 1e-5), (0.1, 1e-3))
"""Drifts (a, b) of the filters."""
STEADY = 1
"""The filter whose level is asked whether a column is empty."""
MOVING = 2
"""The one that is asked what a column may hold by now that was empty so far (``doubt``)."""
UNKNOWN = 1e30


class Levels:
    """State: levels and variances, shape (filters, columns), and the variance that noise alone would give.

    That one, ``empty``, is of the level of ``STEADY`` if the column were empty.
    """

    def __init__(self, columns: int, *, profile: bool) -> None:
        drifts = PLAIN + (WITH_PROFILE if profile else ())
        self.slope, self.curve = np.array(drifts).T[:, :, np.newaxis]
        self.level = np.zeros((len(drifts), columns))
        self.variance = np.full((len(drifts), columns), UNKNOWN)
        self.empty = np.full(columns, UNKNOWN)

    def __len__(self) -> int:
        return len(self.level)

    def means(self, profile: float) -> Floats:
        """What is expected to be counted, shape (filters, columns)."""
        means = self.level.copy()
        means[len(PLAIN) :] *= profile
        return means

    def aged(self, gap: int) -> Floats:
        """The variances after ``gap`` timestamps, in which levels may have moved."""
        aged = self.drifts(np.maximum(self.level, 0.5))
        aged *= gap
        aged += self.variance
        return aged

    def variances(self, profile: float, uncertain: float, aged: Floats) -> Floats:
        """How uncertain ``means`` are; ``uncertain``: the variance of the profile."""
        variances = aged.copy()
        shaped = np.maximum(self.level[len(PLAIN) :], 0.5)
        own = variances[len(PLAIN) :]
        own *= profile * profile
        own += uncertain * shaped * shaped
        return variances

    def drifts(self, levels: Floats) -> Floats:
        """How fast levels move, as variances a timestamp."""
        drifts: Floats = self.curve * levels
        drifts *= levels
        drifts += self.slope * np.maximum(levels, 1)
        return drifts

    def learn(
        self,
        error: Floats,
        expected: Floats,
        around: Floats,
        noise: float,
        profile: float,
        far: NDArray[np.bool_],
    ) -> None:
        """Correct levels, which have aged, by the errors of ``means``.

        ``expected`` is the variance of the errors, ``around`` the part of noise and scatter, ``far`` are the
        filters that start anew.
        """
        seen = np.ones((len(self), 1))
        seen[len(PLAIN) :] = profile
        gain = self.variance * seen / expected
        anew = 1 / np.maximum(seen, 0.3)
        steady = gain[STEADY].clip(0, 1)
        left = 1 - gain * seen
        left *= self.variance
        self.variance = np.where(far, around * anew * anew, left)
        gain = np.where(far, anew, gain)
        gain *= error
        self.level += gain
        left = 1 - steady
        self.empty = np.where(far[STEADY], noise, left * left * self.empty + steady * steady * noise)
