"""How far a release errs that is repeated, or predicted from, while the counts move on.

A function of what was published and of public constants alone: free post-processing.

**Model.** A release errs by the variance that it had when it was drawn (its noise, or what a filter leaves of
that) and by D(g), how far counts move in the g timestamps since. A publication y of variance R that follows a
release x of variance U after g timestamps tells of it: (y - x)^2 - R - U is D(g), in the mean. D is learned
for every column, with less weight where there is more noise, and is shrunk to what all columns have in common
at its level, the more the noise exceeds it, because publications are few and mostly noise.

*Return.* Where counts scatter around a level l with variance s = M / 2, those that follow a release of x are
expected at s + E[(c - l)^2 | x] from the count that it was drawn from: further if x was far out. With b = s /
(s + U) that is s + b^2 (x - l)^2 + b U, and M in the mean. Of what is predicted it is M.

*Growth.* Counts that scatter around a level, or follow a season, are as far away after one timestamp as after
many; those that walk at random move by a variance for each timestamp. Up to the usual time G between
publications D is M, in the mean, which is too much for a walk, and afterwards M (1 + k (g / G - 1)): k is how
far the squared differences between every other publication, pooled over the columns, are above those between
neighbours. It is not learned where columns are published apart, whose states are large.

*Few differences.* A variance that is estimated from n of them is uncertain itself, which Student's quantiles
allow for: (t / z)^2 at 95 %. 1 + 2.4 / n + 6 / n^2 is that from three on, within 7 %. It is not allowed to be
more for one or two: the squared quantiles, 42 and 4.8 times, would be as large as nobody could use.

Numbers of a column are kept in 32 bits or less, whose rounding IEEE 754 fixes: a state continues as a run.
"""

from __future__ import annotations

import base64
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats, exp_of, total
from eventveil.mechanisms.base import Chosen, Counts
from eventveil.mechanisms.packing import data_of

MEMORY = 0.95
"""What a publication leaves of the weight of those before it."""
SHRUNK = 4.0
"""What columns have in common weighs like this many publications of a column."""
COMMON = 2.0
"""Poisson movement weighs like this many publications of one column."""
OUTLIER = 25.0
"""A squared difference counts as at most this many times its expectation."""
UNCLEAR = 0.2
"""k is an estimate: from 1 less this on it counts as 1, up to this as 0."""
ROUNDING = 1 / 12
"""The variance that rounding to a whole count adds."""
FEW, FEWER = 2.4, 6.0
"""Movement that n differences tell of is taken to be 1 + FEW / n + FEWER / n^2 times as large."""
LINEAR, SQUARE, LEAST_LEVEL = 2.0, 0.1, 0.05
"""Movement while nothing was seen of it: twice the level, for Poisson numbers, and a tenth of its square."""
_TYPES: dict[str, np.dtype[Any]] = {
    **dict.fromkeys(("variance", "level", "moved", "weight", "before", "noise"), np.dtype("<f4")),
    "count": np.dtype("<f2"),
    **dict.fromkeys(("at", "since"), np.dtype("<i8")),
}
_OF_COLUMNS = ("variance", "level", "moved", "before")
_APART = ("variance", "level", "moved", "weight", "count", "at")
_TOGETHER = ("noise", "count", "weight", "at", "since")
_NEVER = -(2**62)
_LEAST, _LARGEST = 1e-6, 2.0**100
_LEAST_WEIGHT = 1e-36  # what 32 bits can hold

Arrays = dict[str, NDArray[Any]]


@lru_cache(maxsize=1024)
def noise_variance(scale: float) -> float:
    """The variance of discrete Laplace noise of this scale: 2 q / (1 - q)^2, q = e^(-1 / scale)."""
    if scale > 1e4:
        return 2 * scale * scale
    ratio = exp_of(-1 / scale)
    return 2 * ratio / (1 - ratio) ** 2


class Movement:
    """The error of the release that stands, and what is known of each column's movement.

    Arrays have one number for each column, or one for all. ``moves`` is false for a kind that repeats next to
    never: then nothing is learned. ``apart``: columns are not always drawn together. ``predicts``: what
    stands is expected of the counts, not one of them; ``hides``: it is 0 where that is not known well.
    Timestamps are those of the mechanism; of a predecessor, 0 and below.
    """

    def __init__(
        self,
        columns: int,
        *,
        moves: bool = True,
        apart: bool = False,
        predicts: bool = False,
        hides: bool = False,
    ) -> None:
        self._columns, self._moves, self._apart = columns, moves, apart
        self._predicts, self._hides = predicts, hides
        self.known = False  # whether there is a release that errs by a known variance
        # ``variance`` of the release when drawn, ``at`` which timestamp; the publication ``before``, its
        # variance ``noise`` and timestamp ``since``; ``weight`` and ``count`` of what ``moved`` is a mean of.
        self._arrays: Arrays = {name: np.zeros(1, kind) for name, kind in _TYPES.items()}
        self._arrays["since"] -= -_NEVER
        # Discounted sums over what neighbours and every other publication differ by, over gaps, and weights.
        self._pooled = np.zeros(5)
        self._usual: Floats | None = None

    def variance(self, timestamp: int, standing: Floats | Counts) -> Floats | None:
        """Of the release that is ``standing``, around the counts of ``timestamp``; None if it is not known.

        Of shape (1,) if it is the same for all columns, else (columns,).
        """
        if not self.known:
            return None
        gap = timestamp - self._arrays["at"]
        drawn = self._arrays["variance"].astype(np.float64)
        if not gap.any():
            return drawn
        return drawn + self._moved(gap, standing) * self._allowance()

    def drawn(self, variance: Floats | float, timestamp: int, chosen: Chosen | None = None) -> None:
        """Take note of the variance of a release that was drawn now, in all columns or in those chosen."""
        self._take(chosen, variance=np.minimum(variance, _LARGEST), at=timestamp)
        self.known = True

    @property
    def unpublished(self) -> Chosen:
        """The columns that were in no publication yet."""
        never: Chosen = np.broadcast_to(self._arrays["count"] == 0, (self._columns,))
        return never

    def bound(self, variance: float, chosen: Chosen) -> None:
        """Take note of the variance of columns that were in no publication yet."""
        self._take(chosen, variance=min(variance, _LARGEST))

    def learn(
        self,
        noisy: Floats | Counts,
        standing: Floats | Counts,
        noise: Floats | float,
        timestamp: int,
        chosen: Chosen | None = None,
    ) -> None:
        """Learn from noisy counts, with noise of a variance, how far what was ``standing`` is from them.

        Both of shape (columns,); to be called before ``drawn``.
        """
        if not self._moves:
            return
        noise = np.minimum(noise, _LARGEST)
        if self.known:
            self._compare(noisy, standing, noise, timestamp, chosen)
        level, count = self._arrays["level"], MEMORY * self._arrays["count"] + 1
        level = level + (noisy - level) / count
        self._take(chosen, level=level, count=count)
        if self._predicts:
            self._take(chosen, noise=noise)
        elif self.known and not self._apart:
            arrays = self._arrays
            self._take(chosen, before=standing, noise=arrays["variance"], since=arrays["at"])

    def _compare(
        self,
        noisy: Floats | Counts,
        standing: Floats | Counts,
        noise: Floats | float,
        timestamp: int,
        chosen: Chosen | None,
    ) -> None:
        """What a release and the next publication tell of the movement in between."""
        arrays = self._arrays
        gap, further = timestamp - arrays["at"], timestamp - arrays["since"]
        known = np.maximum(arrays["variance"] + np.float64(noise), _LEAST)
        expected = self._moved(gap, standing)
        moved = _excess(noisy - standing, expected, known)
        other = _excess(noisy - arrays["before"], expected, arrays["noise"] + np.float64(noise))
        # The part of the usual movement in what is seen. With that in what was expected now, small movements
        # would count for more; with weights that fall as movement grows, what was believed first would stay.
        usual = self.usual
        part = total(usual) / len(usual)
        weight = np.maximum((part / (known + part)) ** 2, _LEAST_WEIGHT)
        together = MEMORY * arrays["weight"] + weight
        if (arrays["since"] > _NEVER).any():
            trust = self._shape() / (known + usual) ** 2 * (arrays["since"] > _NEVER)
            trust = trust if chosen is None else np.where(chosen, trust, 0.0)
            sums = (moved * trust, other * trust, gap * trust, further * trust, trust)
            self._pooled = MEMORY * self._pooled + [float(total(one)) for one in sums]
        mean = arrays["moved"] + (moved - arrays["moved"]) * (weight / together)
        self._take(chosen, moved=mean, weight=together)

    @property
    def usual(self) -> Floats:
        """How far each column's counts usually move between two publications, as a variance."""
        if self._usual is None:
            shape, seen = self._shape(), np.maximum(self._arrays["count"] - 1.0, 0.0)
            common = shape * self._multiple(shape, seen)
            known = self._arrays["variance"] + np.float64(self._arrays["noise"])
            moved = self._arrays["moved"].astype(np.float64)
            likely = np.maximum(np.maximum(moved, common), _LEAST)
            trust = seen / (seen + SHRUNK * (1 + known / likely) ** 2)
            self._usual = np.maximum(common + trust * (moved - common), 0.0)
        return self._usual

    def _multiple(self, shape: Floats, seen: Floats) -> float:
        """What the columns move by, in common, over the movement that is assumed while nothing was seen."""
        known, multiple = self._arrays["variance"] + np.float64(self._arrays["noise"]) + _LEAST, 1.0
        for _ in range(2):
            trust = seen * shape / (known + multiple * shape) ** 2
            moved, expected = total(trust * self._arrays["moved"]), total(trust * shape)
            multiple = max((float(moved) + COMMON) / (float(expected) + COMMON), _LEAST)
        return multiple

    def _shape(self) -> Floats:
        level = np.maximum(self._arrays["level"].astype(np.float64), LEAST_LEVEL)
        if self._hides:
            # It may be as much more as it is uncertain; half of that is taken for granted.
            noise = self._arrays["noise"].astype(np.float64)
            level = level + np.sqrt(noise / np.maximum(self._arrays["count"], 1.0)) / 2
        return LINEAR * level + SQUARE * level * level

    def _moved(self, gap: NDArray[np.int64], standing: Floats | Counts) -> Floats:
        """How far counts are expected to have moved from a release after ``gap`` timestamps."""
        usual, drawn = self.usual, self._arrays["variance"].astype(np.float64)
        moved = usual * (1 + self._growth(gap))
        if not self._predicts:
            scatter = usual / 2
            trust = scatter / np.maximum(scatter + drawn, _LEAST)
            off = trust * (standing - self._arrays["level"])
            moved = moved - scatter + off * off + trust * drawn
        return np.where(gap > 0, moved, 0.0)

    def _allowance(self) -> Floats:
        """By how much a movement that few differences tell of is taken to be larger."""
        if not self._moves:
            return np.ones(1)
        weights = np.maximum(self._arrays["count"].astype(np.float64) - 1, 1)
        # That many of the same weight say as much as those whose weights fall by MEMORY.
        differences = weights * (1 + MEMORY) / (2 - (1 - MEMORY) * weights)
        allowance: Floats = 1 + FEW / differences + FEWER / differences**2
        return allowance

    def _growth(self, gap: NDArray[np.int64]) -> Floats:
        """What a random walk adds to the usual movement after more than the usual time."""
        near, far, gap_near, gap_far, weight = self._pooled.tolist()
        if near <= 0 or gap_far <= gap_near:
            return np.zeros(1)
        found = (far / near - 1) / (gap_far / gap_near - 1)
        rate = min(max((found - UNCLEAR) / (1 - 2 * UNCLEAR), 0.0), 1.0)
        growth: Floats = rate * np.maximum(gap * (weight / gap_near) - 1, 0.0)
        return growth

    def _take(self, chosen: Chosen | None, **values: Any) -> None:
        for name, value in values.items():
            old = self._arrays[name]
            new = np.atleast_1d(value) if chosen is None else np.where(chosen, value, old)
            self._arrays[name] = new.astype(old.dtype)
        self._usual = None

    def snapshot(self) -> dict[str, Any]:
        """The whole state, for JSON."""
        arrays = {name: base64.b64encode(array.tobytes()).decode() for name, array in self._arrays.items()}
        return {"known": self.known, "pooled": self._pooled, **arrays}

    def empty(self) -> Movement:
        """One like this that knows nothing yet."""
        same = {"moves": self._moves, "apart": self._apart, "predicts": self._predicts, "hides": self._hides}
        return Movement(self._columns, **same)

    def grown(self, columns: int, variance: float) -> Movement:
        """One like this for more columns, of a kind that learns nothing here.

        The others err by ``variance`` while nothing else is said of them.
        """
        if self._moves:
            raise ValueError("what columns have moved by is not known of further ones")
        before = self._arrays["variance"]
        own = np.broadcast_to(before, (self._columns,))
        added = np.full(columns - self._columns, min(variance, _LARGEST), before.dtype)
        return self._with(columns, self._arrays | {"variance": np.concatenate([own, added])})

    def kept(self, chosen: Chosen) -> Movement:
        """One like this for some of its columns, of a kind that learns nothing here."""
        if self._moves:
            raise ValueError("what columns have moved by is shared by all of them")
        arrays = {
            name: array[chosen] if len(array) == self._columns else array
            for name, array in self._arrays.items()
        }
        return self._with(int(chosen.sum()), arrays)

    def _with(self, columns: int, arrays: Arrays) -> Movement:
        other = copy(self)
        other._columns, other._arrays, other._usual = columns, arrays, None
        return other

    def inherited(self, state: object, shift: int, last: Counts) -> Movement:
        """One like this that begins with another's ``snapshot()``, whose last timestamp was ``shift``.

        ``last`` is the other's last release: counts of that size are taken to move by as much as is assumed
        while nothing was seen, if the other has not learned. One that does not learn takes the usual movement
        for granted, once. Raises ValueError as ``restored``.
        """
        other = self.restored(state)
        if not other._arrays["count"].any():
            other._take(None, level=np.maximum(last, 0))
        usual = other.usual
        other._arrays["at"] = other._arrays["at"] - shift
        since = other._arrays["since"]
        other._arrays["since"] = np.where(since > _NEVER, since - shift, _NEVER)
        if not self._moves:
            fresh = self.empty()
            if other.known:
                fresh.drawn(other._arrays["variance"] + usual, 0)
            return fresh
        if self._apart:
            other._arrays |= {name: self._arrays[name] for name in ("before", "noise", "since")}
        else:
            other._arrays |= {name: other._arrays[name].min(keepdims=True) for name in _TOGETHER}
        other._usual = None
        return other

    def restored(self, state: object) -> Movement:
        """One like this that continues from ``snapshot()``. Raises ValueError if this is no such state."""
        if not isinstance(state, dict) or set(state) != {"known", "pooled", *_TYPES}:
            names = ", ".join(_TYPES)
            raise ValueError(f"the error of a release should be an object with known, pooled, {names}")
        pooled, other = state["pooled"], self.empty()
        if type(state["known"]) is not bool or not isinstance(pooled, list) or len(pooled) != 5:
            raise ValueError("known should be true or false, and pooled five numbers")
        if any(type(one) is not float or not abs(one) < np.inf for one in pooled):
            raise ValueError("pooled should be finite floating-point numbers")
        other.known, other._pooled = state["known"], np.array(pooled)
        other._arrays = {name: self._read(state[name], name) for name in _TYPES}
        if any(other._arrays[name].min() < 0 for name in ("variance", "noise", "weight", "count")):
            raise ValueError("variances, weights and counts of an error should not be negative")
        return other

    def _read(self, text: object, name: str) -> NDArray[Any]:
        """An array of one number, or of one a column."""
        kind, data = _TYPES[name], data_of(text, name)
        if len(data) not in (kind.itemsize, kind.itemsize * self._columns):
            raise ValueError(f"{name} should be one number, or {self._columns}, not {len(data)} bytes")
        array: NDArray[Any] = np.frombuffer(data, kind).copy()
        # Neither holds of numbers that are none.
        if not (float(array.min()) >= -_LARGEST and float(array.max()) <= _LARGEST):
            raise ValueError(f"{name} should be finite numbers")
        return array

    @staticmethod
    def bytes_of(columns: int, *, moves: bool = True, apart: bool = False) -> int:
        """The most that ``snapshot()`` takes as JSON."""
        names = _APART if apart else _OF_COLUMNS if moves else _OF_COLUMNS[:1]
        return sum(4 * -(-_TYPES[name].itemsize * columns // 3) for name in names) + 1024


def _excess(off: Floats | Counts, expected: Floats, known: Floats) -> Floats:
    """What squares are above a variance that is ``known``, without what is far out."""
    squares = np.square(off, dtype=np.float64)
    excess: Floats = np.minimum(squares, OUTLIER * (expected + known)) - known
    return excess
