"""The models of some columns, and what they say together: weighted by how well each has predicted.

For every column: filters of a level, alone and times the shared profile (``levels``); and for each nested own
season three models of the count's deviation from it, which fades with the first period. Their means are mixed
with weights that are the softmax of discounted log-likelihoods, those of a Student distribution with three
degrees of freedom. Taking only the best one errs more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats, exp, log, total
from eventveil.mechanisms.forecasting.levels import PLAIN, Levels

MEMORY = 0.97
JUMP = 5.0
DEVIATIONS = ((0.0, 0.0), (0.3, 0.003), (3.0, 0.05))
"""How far counts deviate from their own season: variance a l + b l^2 for a long-run level l."""
PRIOR = -0.5
"""The score that models with a season begin with; those without begin with 0."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known before a noisy count: for all columns, and for those of a mixture.

    ``fades``: what is left of a deviation. ``seasons`` and ``season_variances``: shape (nested, columns).
    ``level``: the long-run one; ``phi``: its multiple that is the scatter.
    """

    gap: int
    profile: float
    profile_variance: float
    fades: float
    seasons: Floats
    season_variances: Floats
    level: Floats
    phi: Floats

    def scatter(self, means: Floats) -> Floats:
        """How counts scatter around means, as variances."""
        scatter: Floats = np.maximum(means, 0.25 * self.level)
        scatter *= self.phi
        return np.maximum(scatter, np.maximum(means, 0.5), out=scatter)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a noisy count has taught, by column: the ``estimate`` of the count, its ``error`` as a variance.

    Of the prediction before it, all of the mixture: variance, the ``scatter`` around it, the squared
    error. Whether the count ``jumped``; and what an own season should learn: the count without what is beyond
    belief. ``foreseen`` and ``around``: what ``Mixture.expected`` said of the count.
    """

    estimate: Floats
    error: Floats
    foreseen: Floats
    around: Floats
    variance: Floats
    scatter: Floats
    squares: Floats
    jumped: NDArray[np.bool_]
    seasonal: Floats


class Mixture:
    """State of the models of ``columns`` columns; ``nested``: how many own seasons there are."""

    def __init__(self, columns: int, *, profile: bool, nested: int) -> None:
        self.levels = Levels(columns, profile=profile)
        self._nested = nested
        self._deviation = np.zeros((nested * len(DEVIATIONS), columns))
        self._uncertain = np.zeros_like(self._deviation)
        self._score = np.full((len(self.levels) + len(self._deviation), columns), PRIOR)
        self._score[: len(PLAIN)] = 0.0
        self._weights = self._softmax()

    def expected(self, outlook: Outlook) -> tuple[Floats, Floats]:
        """What is expected to be counted, and the variance of counts around it.

        The latter is that of models which differ or are uncertain, and of scatter.
        """
        means = self._means(outlook)
        variances = self._variances(outlook, self.levels.aged(outlook.gap), self._faded(outlook))
        return self._mixed(means, variances + outlook.scatter(means))

    def _mixed(self, means: Floats, around: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of models whose counts have the variances ``around`` their means."""
        mean = total(self._weights * means)
        apart = means - mean
        apart *= apart
        apart += around
        apart *= self._weights
        return mean, total(apart)

    def _means(self, outlook: Outlook) -> Floats:
        own = np.repeat(outlook.seasons, len(DEVIATIONS), axis=0) + outlook.fades * self._deviation
        return _beside(self.levels.means(outlook.profile), own)

    def learn(self, noisy: Floats, noise: float, outlook: Outlook, *, first: bool) -> Lesson:
        """Take in noisy counts, whose noise has the variance ``noise``."""
        means = self._means(outlook)
        self._age(outlook)
        variances = self._variances(outlook, self.levels.variance, self._uncertain)
        scatter = outlook.scatter(means)
        foreseen, apart = self._mixed(means, variances + scatter)
        around = scatter + noise
        expected = variances + around
        error = noisy - means
        squares = error * error
        if not first:  # initial variances differ by model: they say nothing about which is right
            surprise = squares / (3 * expected)
            surprise += 1
            likelihood = np.sqrt(expected)
            likelihood *= surprise
            likelihood *= surprise
            self._score *= MEMORY
            self._score -= log(likelihood)
        self._score -= self._score.max(axis=0)
        self._weights = self._softmax()
        far = squares > JUMP * JUMP * expected
        best = np.argmax(self._score, axis=0), np.arange(len(noisy))
        gain = self._gain(far, variances, scatter, noise, squares - expected)
        estimates = means + gain * error
        estimate = total(self._weights * estimates)
        off = estimates - estimate
        seasonal = self._believable(noisy, means, expected)
        self._correct(error, expected, around, noise, outlook.profile, far, first=first)
        return Lesson(
            estimate,
            total(self._weights * (gain * noise + off * off)),
            foreseen,
            apart,
            total(self._weights * variances),
            total(self._weights * scatter),
            total(self._weights * squares),
            far[best],
            noisy if first else seasonal,
        )

    def _age(self, outlook: Outlook) -> None:
        """Let the gap pass: levels may have moved, deviations fade."""
        self.levels.variance = self.levels.aged(outlook.gap)
        self._uncertain = self._faded(outlook)
        self._deviation *= outlook.fades

    def _faded(self, outlook: Outlook) -> Floats:
        """How uncertain deviations are after the gap."""
        kept = outlook.fades * outlook.fades
        level = np.maximum(outlook.level, 0.5)
        faded = self._uncertain * kept
        for k, row in enumerate(faded):
            slope, curve = DEVIATIONS[k % len(DEVIATIONS)]
            row += (1 - kept) * (slope * level + curve * level * level)
        return faded

    def _variances(self, outlook: Outlook, aged: Floats, faded: Floats) -> Floats:
        """How uncertain means are."""
        own = np.repeat(outlook.season_variances, len(DEVIATIONS), axis=0) + faded
        return _beside(self.levels.variances(outlook.profile, outlook.profile_variance, aged), own)

    @staticmethod
    def _gain(
        far: NDArray[np.bool_], variances: Floats, scatter: Floats, noise: float, beyond: Floats
    ) -> Floats:
        """How much of an error belongs to the count; where scatter exceeds noise its tails are heavy."""
        tails = np.maximum(beyond, 0.0, out=beyond)
        tails /= 4
        np.copyto(tails, 0.0, where=scatter <= 0.5 * noise)
        own = variances + scatter
        own += tails
        own /= own + noise
        np.copyto(own, 1.0, where=far)
        return own

    def _believable(self, noisy: Floats, means: Floats, expected: Floats) -> Floats:
        """The noisy count, but no further off than ``JUMP`` standard deviations from the likelier season."""
        if not self._nested:
            return noisy
        steps = range(len(self.levels), len(self._score), len(DEVIATIONS))
        mean, variance, score = (one[steps[0]] for one in (means, expected, self._score))
        for k in steps[1:]:
            better = self._score[k] > score
            mean, variance = np.where(better, means[k], mean), np.where(better, expected[k], variance)
        bound = JUMP * np.sqrt(variance)
        believable: Floats = np.minimum(np.maximum(noisy, mean - bound), mean + bound)
        return believable

    def _correct(
        self,
        error: Floats,
        expected: Floats,
        around: Floats,
        noise: float,
        profile: float,
        far: NDArray[np.bool_],
        *,
        first: bool,
    ) -> None:
        some = len(self.levels)
        anew = far[:some] | first
        self.levels.learn(error[:some], expected[:some], around[:some], noise, profile, anew)
        gain = np.where(far[some:], 0.0, self._uncertain / expected[some:])
        self._deviation += gain * error[some:]
        self._uncertain *= 1 - gain

    def _softmax(self) -> Floats:
        likelihood = exp(self._score)  # the best has the score 0, or the level filters have
        return likelihood / total(likelihood)

    def weighted_drift(self, levels: Floats, period: int) -> tuple[Floats, Floats]:
        """How fast counts move as the mixture sees it, variance a timestamp; the weight of own seasons."""
        some = len(self.levels)
        drift = total(self._weights[:some] * self.levels.drifts(levels))
        own = np.zeros_like(drift)
        for k, weight in enumerate(self._weights[some:]):
            slope, curve = DEVIATIONS[k % len(DEVIATIONS)]
            drift += weight * (2 / period) * (slope * levels + curve * levels * levels)
            own += weight
        return drift, own

    @property
    def state(self) -> dict[str, Floats]:
        """All arrays by name, the last axis being the columns."""
        return {
            "level": self.levels.level,
            "variance": self.levels.variance,
            "empty": self.levels.empty[np.newaxis],
            "score": self._score,
            "deviation": self._deviation,
            "uncertain": self._uncertain,
        }

    def begun_at(self, levels: Floats, variance: Floats) -> dict[str, Floats]:
        """The state of one like this, fresh, whose columns are at levels that are known with variances."""
        rows = np.zeros_like(self.levels.level)
        return {
            **self.state,
            "level": rows + levels,
            "variance": rows + variance,
            "empty": variance[np.newaxis],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``; ValueError if it cannot be one."""
        if np.any(state["variance"] < 0) or np.any(state["uncertain"] < 0) or np.any(state["empty"] <= 0):
            raise ValueError("variances should not be negative")
        if np.any(state["score"] > 0):
            raise ValueError("scores should not be above 0")
        self.levels.level, self.levels.variance = state["level"].copy(), state["variance"].copy()
        self.levels.empty = state["empty"][0].copy()
        self._score, self._deviation = state["score"].copy(), state["deviation"].copy()
        self._uncertain = state["uncertain"].copy()
        self._weights = self._softmax()


def _beside(levels: Floats, own: Floats) -> Floats:
    """The rows of both; those of own seasons are none where there are too many columns."""
    return np.concatenate([levels, own]) if len(own) else levels
