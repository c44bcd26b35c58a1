"""What ``seasonal`` does, against what it could do instead: ideas that were tried, on the real streams.

*Zeros*: columns that are no more than noise are released as 0, not as what they have in common
(``eventveil.mechanisms.forecasting.hidden``).

*Block means*: what is published is not the count of the moment, but the mean of the counts of a block that
ends there, with the same noise. A user adds at most 1 to each timestamp of a block of I, so I times the scale
of the noise of one share, on the sum, costs each of these timestamps share / I of epsilon: here a block is as
long as the interval, as far as no window exceeds epsilon, and in another no longer than a sixth of the
first period, so that the season is not averaged away. The scatter of a mean is that of one count over I.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility.contenders import Counts
from benchmarks.utility.measures import measured
from benchmarks.utility.measuring import AheadNoise, Case, Scope
from benchmarks.utility.real import REAL, WITHOUT_PACKAGES, RealStream
from eventveil.mechanisms.arithmetic import Floats
from eventveil.mechanisms.forecasting.forecast import Forecast
from eventveil.mechanisms.forecasting.mixture import Mixture, Outlook
from eventveil.mechanisms.forecasting.scatter import Scatter
from eventveil.mechanisms.seasonal import Seasonal
from eventveil.model.topology import MechanismSettings, Option

PART = "variants"
FULL, SIXTH = "block means", "block means, a sixth of the period"
LABELS = ("seasonal", "zeros", FULL, SIXTH)
TERMS = (("1", 24), ("0.1", 120))
TIMESTAMPS, QUICK_TIMESTAMPS = 1000, 60


class ZeroForecast(Forecast):
    """Shows nothing of columns that are no more than noise."""

    def _in_common(self, levels: Floats, noise: float, likely: Floats) -> Floats:
        return np.zeros(self._columns)


@dataclass(frozen=True, slots=True)
class BlockOutlook(Outlook):
    """Before the mean of a block of ``length`` counts."""

    length: int = 1

    def scatter(self, means: Floats) -> Floats:
        """See ``PaceOutlook.scatter``: of a mean."""
        return Outlook.scatter(self, means) / self.length


class BlockScatter(Scatter):
    """Learns from means of ``length`` counts."""

    length = 1

    def learn(self, squares: Floats, known: Floats, levels: Floats, above: NDArray[np.bool_]) -> None:
        """See ``Scatter.learn``."""
        super().learn(squares, known, levels / self.length, above)


class BlockForecast(Forecast):
    """Learns from means of the ``length`` counts that end at a timestamp."""

    length = 1

    def __init__(self, columns: int, window: int, periods: tuple[int, ...]) -> None:
        super().__init__(columns, window, periods)
        self.scatter = self._blocks = BlockScatter(columns)

    def learn(self, noisy: Floats, noise: float, timestamp: int) -> Floats:
        """See ``Forecast.learn``; a count of the moment is expected afterwards, not estimated."""
        self._blocks.length = self.length
        estimate = super().learn(noisy, noise, timestamp)
        if self.length > 1:
            self.length = 1
            self._estimate = np.array(self._ahead(timestamp))
            estimate = self.shown(timestamp)[0]
        return estimate

    def _terms(self, timestamp: int) -> Floats:
        block = range(timestamp - self.length + 1, timestamp + 1)
        whole: Floats = np.mean([super(BlockForecast, self)._terms(one) for one in block], axis=0)
        return whole

    def _outlooks(self, terms: Floats, gap: int) -> Iterator[tuple[slice, Mixture, Outlook]]:
        for part, mixture, outlook in super()._outlooks(terms, gap):
            own: Mapping[str, Any] = {one.name: getattr(outlook, one.name) for one in fields(outlook)}
            yield part, mixture, BlockOutlook(**own, length=self.length)


class Zeros(Seasonal):
    """With ``ZeroForecast``."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        self._forecast = ZeroForecast(self._columns, self._window, self._periods)


class Blocks(Seasonal):
    """Publishes means of blocks that end now; ``longest`` is a public constant."""

    longest = 2**32

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        self._forecast = self._blocks = BlockForecast(self._columns, self._window, self._periods)
        self._past = deque[Counts](maxlen=self._window)
        self._costs = deque[Fraction](maxlen=2 * self._window)  # what a user's events cost, by timestamp

    def _allot(self, counts: Counts) -> int:
        self._past.append(counts)
        self._costs.append(Fraction())
        return super()._allot(counts)

    def _publish(self, counts: Counts, units: int) -> None:
        length = self._length(Fraction(units, self.units))
        for k in range(1, length + 1):
            self._costs[-k] += Fraction(units, self.units) / length
        self._blocks.length = length
        block = [self._past[-k] for k in range(1, length + 1)]
        super()._publish(np.rint(np.mean(block, axis=0)).astype(np.int64), units)

    def _length(self, share: Fraction) -> int:
        """The longest block with which no window that ends in it costs more than epsilon."""
        sums = [Fraction(), *accumulate(self._costs)]
        spent = [sums[end] - sums[max(0, end - self._window)] for end in range(1, len(sums))]
        most = min(self._timestamp - self._forecast.last, self.longest, len(self._past))
        for length in range(most, 1, -1):
            inside = zip(spent[-length:], range(1, length + 1), strict=True)
            if all(cost + share * k / length <= 1 for cost, k in inside):
                return length
        return 1


class ShortBlocks(Blocks):
    """No longer than a sixth of the first period."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        if self._periods:
            self.longest = max(1, self._periods[0] // 6)


MECHANISMS: Mapping[str, type[Seasonal]] = dict(
    zip(LABELS, (Seasonal, Zeros, Blocks, ShortBlocks), strict=True)
)


def measure(scope: Scope) -> Iterator[Case]:
    """All variants on the real streams, or those that need no package in a quick run."""
    for make in WITHOUT_PACKAGES if scope.quick else REAL:
        stream = make().first(QUICK_TIMESTAMPS if scope.quick else TIMESTAMPS)
        for epsilon, window in TERMS[:1] if scope.quick else TERMS:
            yield _case(stream, epsilon, window, scope)


def _case(stream: RealStream, epsilon: str, window: int, scope: Scope) -> Case:
    runs = {
        label: [_run(mechanism, stream, Fraction(epsilon), window, seed) for seed in range(scope.seeds)]
        for label, mechanism in MECHANISMS.items()
        if not scope.only or label in scope.only
    }
    errors = {label: [one["MAE"] for one in own] for label, own in runs.items()}
    medians = {
        label: {name: float(f"{np.median([one[name] for one in own]):.4g}") for name in own[0]}
        for label, own in runs.items()
    }
    return Case(PART, stream.name, epsilon, {"window": window}, errors, medians)


def _run(
    mechanism: type[Seasonal], stream: RealStream, epsilon: Fraction, window: int, seed: int
) -> dict[str, float]:
    options: dict[str, Option] = {"periods": stream.periods} if stream.periods else {}
    settings = MechanismSettings("seasonal", epsilon, str(epsilon), window, options=options)
    one = mechanism(settings, stream.counts.shape[1], 1, AheadNoise(seed))
    released = np.array([one.step(counts).counts for counts in stream.counts])
    return measured(released, stream.counts, stream.day, stream.week)
