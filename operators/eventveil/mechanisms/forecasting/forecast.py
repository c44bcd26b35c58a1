"""The forecast of all columns: mixtures of models, what they share, and which columns are more than noise.

The state after a publication, and what is expected at the timestamps that follow. A column that is not more
than noise (``evidence``) is shown as 0, or as what such columns have in common (``hidden``); one that is more
is drawn towards where the levels of others are (``shrinkage``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats, exp_of
from eventveil.mechanisms.forecasting import doubt, evidence, hidden, shrinkage
from eventveil.mechanisms.forecasting.harmonics import Harmonics, of_periods
from eventveil.mechanisms.forecasting.levels import MOVING, PLAIN, STEADY, WITH_PROFILE
from eventveil.mechanisms.forecasting.longrun import LongRun
from eventveil.mechanisms.forecasting.mixture import DEVIATIONS, Lesson, Mixture, Outlook
from eventveil.mechanisms.forecasting.profile import Profile
from eventveil.mechanisms.forecasting.regression import Classes, Regression
from eventveil.mechanisms.forecasting.scatter import Scatter
from eventveil.mechanisms.packing import BYTES, packed, unpacked

OWN_SEASON_NUMBERS = 200_000
"""Columns have seasons of their own while harmonics times columns are at most this many."""
TOGETHER = 2048
"""Columns whose models are computed together: what they need stays in the processor's cache."""
PERIODS_KEPT, FIRST_PERIODS_KEPT, WINDOWS_KEPT, LEVEL_WINDOWS_KEPT = 6, 20, 8, 16
"""How long seasons are remembered, and in windows long-run levels."""
FAR_MORE, MANY = 6.0, 32
"""Times the noise of the next look: what earlier ones have taught of this many columns is forgotten if they
have shown nothing. Looks weigh by the largest scatter of a column: for the small ones the first would weigh
too much. A few columns are more alike; and where a day has its hours, one look says little of another."""
ADDED = {"noise"}
"""What states of earlier versions lack."""
_NONE = np.zeros((0, 1))


class Forecast:
    """State of all models. Timestamps count from 1; ``periods`` are two, one or none, in timestamps.

    ``normal``: noise is normal, not Laplace.
    """

    def __init__(self, columns: int, window: int, periods: tuple[int, ...], *, normal: bool = False) -> None:
        self._columns, self.periods, self._normal = columns, periods, normal
        self.memory = memory(window, periods)
        harmonics = of_periods(periods) if periods else None
        kept = 1 - 1 / self.memory
        self._harmonics = harmonics
        self._own = Regression(harmonics, columns, kept) if harmonics and _own(harmonics, columns) else None
        self._profile = Profile(harmonics, kept) if harmonics else None
        nested = len(harmonics.sizes) if harmonics and self._own else 0
        self._nested = nested
        self._mixtures = [
            (part, Mixture(part.stop - part.start, profile=bool(periods), nested=nested))
            for part in _parts(columns)
        ]
        self._long = LongRun(columns, 1 - 1 / max(self.memory, LEVEL_WINDOWS_KEPT * window))
        self.scatter = Scatter(columns)
        self._estimate = np.zeros((2, columns))
        self.foreseen = self._estimate[0], self._estimate[1]  # ``shown`` of the last publication, before it
        self._hidden = np.zeros(columns)  # the levels that are shown of columns that are no more than noise
        self._correction = np.zeros(columns)  # of the levels of the others
        self._squares = np.zeros(columns)  # of the levels of those that are shown as 0, as they may be
        self._noise = 0.0  # variance of that of the last publication; 0: not known
        self.above = np.zeros(columns, np.bool_)  # the columns that are more than noise
        self.published = 0
        self.last = 0
        self._classes = Classes(self.level)

    @property
    def begun(self) -> bool:
        """Whether it has learned from a publication."""
        return self._long.begun

    @property
    def level(self) -> Floats:
        """The long-run level of every column, at least 0; zeros before the first publication."""
        level = self._long.level if self.periods else self._steady()
        return np.maximum(level, 0.0)

    def anew(self, window: int, noise: float) -> Forecast:
        """One that begins anew, if what is known is no more than noise, of which the next look has far less.

        ``noise``: that of the next look, as a variance. Else itself.
        """
        kept = self._columns < MANY or self._in_days or self.above.any()
        if kept or self._noise <= FAR_MORE * noise:
            return self
        other = Forecast(self._columns, window, self.periods, normal=self._normal)
        other.published, other.last = self.published, self.last
        return other

    def expected(self, timestamp: int) -> tuple[Floats, Floats]:
        """What is expected to be counted, shown or not, and the variance of counts around it.

        At the timestamp of the last publication: the estimate, and the variance of the count around that.
        """
        if timestamp == self.last:
            return self._estimate[0], self._estimate[1]
        return self._ahead(timestamp)

    def _ahead(self, timestamp: int) -> tuple[Floats, Floats]:
        outlooks = self._outlooks(self._terms(timestamp), timestamp - self.last)
        mean, variance = zip(*(mixture.expected(outlook) for _, mixture, outlook in outlooks), strict=True)
        return np.concatenate(mean), np.concatenate(variance)

    def shown(self, timestamp: int) -> tuple[Floats, Floats]:
        """What is shown of a timestamp after the last publication, and the variance of counts around it."""
        least = self.doubt(timestamp - self.last)
        return self._shown(*self._ahead(timestamp), self._terms(timestamp), least)

    def _shown(self, mean: Floats, variance: Floats, terms: Floats, least: Floats) -> tuple[Floats, Floats]:
        shown = self._corrected(mean, terms)
        off: Floats = shown - mean
        return shown, np.maximum(variance + off * off, least)

    def doubt(self, gap: int) -> Floats:
        """The least squares of counts around 0 that are to be expected of a column that is alone, shown as 0.

        0 for others. ``gap``: how many timestamps after the last publication.
        """
        if self._columns > 1 or not self.begun:
            return np.zeros(self._columns)
        levels, noise = self._clearest()
        least = doubt.of_counts(levels, noise, self._noise)
        moving = self._mixtures[0][1].levels
        (uncertain,) = moving.aged(gap)[MOVING].tolist()
        least = np.maximum(least, doubt.of_counts(moving.level[MOVING], uncertain, self._noise))
        return np.where(self.above, 0.0, least)

    def unseen(self, timestamp: int) -> Floats:
        """The squares of counts that are to be expected of columns shown as 0, by what other columns hold.

        0 where that is not known, for other columns, and for one that is alone, which ``doubt`` is for.
        """
        return doubt.of_levels(self._squares, self._height(self._terms(timestamp)))

    def _corrected(self, mean: Floats, terms: Floats) -> Floats:
        """By what columns have in common; what they have in common goes up and down as they do."""
        height = self._height(terms)
        corrected: Floats = np.where(self.above, mean + self._correction * height, self._hidden * height)
        return corrected

    def _height(self, terms: Floats) -> float:
        return self._profile.at(terms)[0] if self._profile else 1.0

    def _compare_columns(self) -> None:
        """Learn from what all columns hold."""
        levels, noise = self._clearest()
        looks = shrinkage.NORMAL
        if self._noise and not self._normal:
            looks = max(1, round(self._noise / noise))
        found = shrinkage.expected(levels, noise, looks)
        self._hidden, self._correction, self._squares = np.zeros((3, self._columns))
        if found:
            self._hidden = self._in_common(levels, noise, found.median)
            self._correction = found.mean - levels
            self._squares = np.where(self.above | (self._hidden > 0), 0.0, found.squares)

    def _clearest(self) -> tuple[Floats, float]:
        """The levels that are known best, and what variance noise gives them."""
        empty = np.concatenate([mixture.levels.empty for _, mixture in self._mixtures])
        steady = float(np.partition(empty, len(empty) // 2)[len(empty) // 2])
        if steady < self._long.empty:
            return self._steady(), steady
        return self._long.level, self._long.empty

    def _in_common(self, levels: Floats, noise: float, likely: Floats) -> Floats:
        """What is shown of columns that are no more than noise."""
        below = ~self.above
        asked = levels[below] if self._in_days else levels
        if not hidden.certain(asked) or (self._in_days and not hidden.alike(asked, noise)):
            return np.zeros(self._columns)
        return np.where(below & (likely >= hidden.LEAST), likely, 0.0)

    @property
    def _in_days(self) -> bool:
        """Whether timestamps are parts of a day that has its own season: then looks at two differ in kind."""
        return len(self.periods) > 1

    def learn(self, noisy: Floats, noise: float, timestamp: int) -> Floats:
        """Take in noisy counts, whose noise has the variance ``noise``; the estimates of the counts."""
        gap = timestamp - self.last if self.begun else 1
        terms, least = self._terms(timestamp), self.doubt(gap)
        lesson = self._learn_columns(noisy, noise, terms, gap)
        scatter = float(lesson.scatter.max())
        self._long.learn(noisy, noise, scatter, gap)
        if self._own:
            self._own.learn(terms, lesson.seasonal, noise, scatter, gap)
        self._learn_profile(noisy, noise, terms, gap)
        self.foreseen = self._shown(lesson.foreseen, lesson.around, terms, least)
        self.published, self.last, self._noise = self.published + 1, timestamp, noise
        self._classes = Classes(self.level)
        self._choose(noise)
        if self.published > 3 and self.above.any():
            steady = self.above & ~lesson.jumped  # a level that changed is no scatter
            self.scatter.learn(lesson.squares, lesson.variance + noise, self.level, steady)
        self._estimate = np.array([lesson.estimate, lesson.error])
        self._compare_columns()
        return self._corrected(lesson.estimate, terms)

    def _learn_columns(self, noisy: Floats, noise: float, terms: Floats, gap: int) -> Lesson:
        """All mixtures, and what they say as one."""
        lessons = [
            mixture.learn(noisy[part], noise, outlook, first=not self.begun)
            for part, mixture, outlook in self._outlooks(terms, gap)
        ]
        if len(lessons) == 1:
            return lessons[0]
        names = [field.name for field in fields(Lesson)]
        return Lesson(*(np.concatenate([getattr(one, name) for one in lessons]) for name in names))

    def _outlooks(self, terms: Floats, gap: int) -> Iterator[tuple[slice, Mixture, Outlook]]:
        """What each mixture has to know of a timestamp ``gap`` after the last publication."""
        profile, uncertain = self._profile.at(terms) if self._profile else (1.0, 0.0)
        seasons, variances = self._own.at(terms, self._classes) if self._own else (_NONE, _NONE)
        fades = exp_of(-gap / self.periods[0]) if self.periods else 1.0
        level = self.level
        for part, mixture in self._mixtures:
            own, uncertainty = _of(seasons, part), _of(variances, part)
            phi = self.scatter.phi[part]
            outlook = Outlook(gap, profile, uncertain, fades, own, uncertainty, level[part], phi)
            yield part, mixture, outlook

    def _learn_profile(self, noisy: Floats, noise: float, terms: Floats, gap: int) -> None:
        """From the columns that were shown so far."""
        if self._profile:
            long = self.level
            scatter = self.scatter.phi * np.maximum(long, 0.5)
            self._profile.learn(terms, noisy, long * self.above, scatter, noise, gap)

    def _choose(self, noise: float) -> None:
        """Which columns are more than noise."""
        empty = np.concatenate([mixture.levels.empty for _, mixture in self._mixtures])
        normal = self._normal
        sizes = partial(evidence.sizes, noise=noise, normal=normal)
        above = evidence.above_cut(sizes(self._steady(), empty), normal=normal)
        self.above = above | evidence.above_cut(sizes(self._long.level, self._long.empty), normal=normal)

    def movement(self, some: NDArray[np.bool_], levels: Floats) -> tuple[Floats, Floats]:
        """How fast the counts of some columns move, variance a timestamp, and the weight of own seasons."""
        period = self.periods[0] if self.periods else 1
        drifts, weights = zip(
            *(mixture.weighted_drift(levels[part], period) for part, mixture in self._mixtures), strict=True
        )
        return np.concatenate(drifts)[some], np.concatenate(weights)[some]

    def _steady(self) -> Floats:
        return np.concatenate([mixture.levels.level[STEADY] for _, mixture in self._mixtures])

    def _terms(self, timestamp: int) -> Floats:
        return self._harmonics.at(timestamp) if self._harmonics else np.zeros(0)

    def grown(self, levels: Floats, variance: float, window: int) -> Forecast:
        """One for further columns as well, that were at these levels so far, known with this variance.

        Where there are now too many columns for seasons of their own, it begins anew, as it does where
        nothing was published yet.
        """
        other = self._like(self._columns + len(levels), window)
        if not self._goes_on_in(other):
            return other
        error = np.full(len(levels), variance)
        new = Mixture(len(levels), profile=bool(self.periods), nested=self._nested).begun_at(levels, error)
        whole = self._mixed()
        other._mix({name: np.concatenate([array, new[name]], axis=1) for name, array in whole.items()})
        other._long = self._long.grown(levels)
        other.scatter.restore(np.pad(self.scatter.state, ((0, 0), (0, len(levels)))))
        other.above = np.concatenate([self.above, np.ones(len(levels), np.bool_)])
        other._estimate = np.concatenate([self._estimate, [levels, error]], axis=1)
        other._own = self._own.grown(levels) if self._own else None
        other._go_on_from(self)
        return other

    def kept(self, some: NDArray[np.bool_], window: int) -> Forecast:
        """One for some of the columns, as ``grown`` for more."""
        other = self._like(int(np.count_nonzero(some)), window)
        if not self._goes_on_in(other):
            return other
        other._mix({name: array[:, some] for name, array in self._mixed().items()})
        other._long = self._long.kept(some)
        other.scatter.restore(self.scatter.state[:, some])
        other.above = self.above[some]
        other._estimate = self._estimate[:, some]
        other._own = self._own.kept(some) if self._own else None
        other._go_on_from(self)
        return other

    def _like(self, columns: int, window: int) -> Forecast:
        other = Forecast(columns, window, self.periods, normal=self._normal)
        other.published, other.last = self.published, self.last
        return other

    def _goes_on_in(self, other: Forecast) -> bool:
        """Whether one for other columns can continue from this one."""
        return self.begun and (self._own is None) == (other._own is None)

    def _mixed(self) -> dict[str, Any]:
        """The state of the mixtures, with all columns side by side."""
        arrays = [mixture.state for _, mixture in self._mixtures]
        return {name: np.concatenate([one[name] for one in arrays], axis=1) for name in arrays[0]}

    def _mix(self, whole: dict[str, Any]) -> None:
        for part, mixture in self._mixtures:
            mixture.restore({name: array[:, part] for name, array in whole.items()})

    def _go_on_from(self, other: Forecast) -> None:
        """Take what does not depend on the columns of another one, and compare the columns that are here."""
        # As after a restart.
        self._noise = other._noise if other._needs_noise else 0.0
        self._profile = other._profile
        self._classes = Classes(self.level)
        self._compare_columns()

    @staticmethod
    def bytes_of(columns: int, periods: tuple[int, ...]) -> int:
        """The most that ``snapshot()`` takes as JSON."""
        harmonics = of_periods(periods) if periods else None
        terms = harmonics.terms if harmonics else 0
        own = harmonics is not None and _own(harmonics, columns)
        levels = len(PLAIN) + (len(WITH_PROFILE) if periods else 0)
        deviations = len(harmonics.sizes) * len(DEVIATIONS) if harmonics and own else 0
        of_column = 3 * (levels + deviations) + 8 + (terms if own else 0)
        return BYTES * (of_column * columns + 2 * terms * (terms + 1)) + 1024

    @property
    def _needs_noise(self) -> bool:
        """Whether the noise of the last publication is looked at, and so a part of the state."""
        return self._columns == 1 or self._columns >= shrinkage.FEWEST

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON-able data."""
        arrays = [mixture.state for _, mixture in self._mixtures]
        state: dict[str, Any] = {
            name: packed(np.concatenate([one[name] for one in arrays], axis=1)) for name in arrays[0]
        }
        state |= {
            "long": self._long.snapshot(),
            "scatter": packed(self.scatter.state),
            "above": packed(self.above.astype(np.float64)),
            "estimate": packed(self._estimate),
        }
        if self._needs_noise:
            state["noise"] = packed(np.array([self._noise]))
        if self._own:
            state["own"] = self._own.snapshot()
        if self._profile:
            state["profile"] = self._profile.snapshot()
        return state

    def restored(self, state: object, window: int) -> Forecast:
        """One like this that continues from ``snapshot()``; ValueError if it is no such state.

        ``published`` and ``last`` are for the caller to set.
        """
        names = {*self._mixtures[0][1].state, "long", "scatter", "above", "estimate"}
        names |= {"own"} if self._own else set()
        names |= {"profile"} if self._profile else set()
        if not isinstance(state, dict) or set(state) - ADDED != names:
            raise ValueError(f"a forecast should be an object with {', '.join(sorted(names))}")
        other = Forecast(self._columns, window, self.periods, normal=self._normal)
        other._restore_columns(state)
        other._long = self._long.restored(state["long"])
        other.scatter.restore(unpacked(state["scatter"], (3, self._columns), "scatter"))
        other.above = unpacked(state["above"], (self._columns,), "above") > 0
        other._estimate = unpacked(state["estimate"], (2, self._columns), "estimate")
        if np.any(other._estimate[1] < 0):
            raise ValueError("the variance of an estimate should not be negative")
        other._noise = float(unpacked(state["noise"], (1,), "noise")[0]) if "noise" in state else 0.0
        if other._noise < 0:
            raise ValueError("the variance of noise should not be negative")
        other._own = self._own.restored(state["own"]) if self._own else None
        other._profile = self._profile.restored(state["profile"]) if self._profile else None
        other._classes = Classes(other.level)
        if other._long.begun:
            other._compare_columns()
        return other

    def _restore_columns(self, state: Mapping[str, Any]) -> None:
        names = self._mixtures[0][1].state
        arrays = {
            name: unpacked(state[name], (len(rows), self._columns), name) for name, rows in names.items()
        }
        for part, mixture in self._mixtures:
            mixture.restore({name: array[:, part] for name, array in arrays.items()})


def memory(window: int, periods: tuple[int, ...]) -> int:
    """How many timestamps seasons are remembered."""
    seasons = [PERIODS_KEPT * period for period in periods[-1:]]
    return max([WINDOWS_KEPT * window, *seasons, *(FIRST_PERIODS_KEPT * period for period in periods[:1])])


def _own(harmonics: Harmonics, columns: int) -> bool:
    return harmonics.terms * columns <= OWN_SEASON_NUMBERS


def _parts(columns: int) -> Iterator[slice]:
    return (slice(start, min(start + TOGETHER, columns)) for start in range(0, columns, TOGETHER))


def _of(rows: Floats, part: slice) -> Floats:
    """Some columns of an array that has no rows where there are no own seasons."""
    return rows[:, part] if len(rows) else np.zeros((0, part.stop - part.start))
