"""What is tested, and how it is watched: a mechanism with scripted noise, whose ledger is overheard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import Counts, Mechanism, Release
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import Ledger
from eventveil.privacy.noise import NoiseSource, SeededNoise

HUGE = 2**61
"""Drowns every count: a release that carries it is clamped, a test decides by its sign."""


class Counterexample(Exception):
    """A property fails; the text is the case in which it does. ``tried`` says how it was looked for."""

    def __init__(self, text: str, tried: str = "") -> None:
        super().__init__(text)
        self.tried = tried


def expect(holds: bool, text: str) -> None:
    """Raise Counterexample unless it holds."""
    if not holds:
        raise Counterexample(text)


@dataclass(frozen=True)
class Subject:
    """A mechanism's class with the options that it is tested with."""

    mechanism: type[Mechanism]
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its class, for people."""
        return f"{self.mechanism.__module__}:{self.mechanism.__qualname__}"

    @cached_property
    def columns(self) -> int:
        """Two, or one for a mechanism that takes no more."""
        try:
            self.make(SeededNoise(0), columns=2)
        except UnfitSetting as unfit:
            if unfit.setting == "columns":
                return 1
            raise
        return 2

    @property
    def windows(self) -> tuple[int, int]:
        """A short and a longer one for streams of 40 timestamps; a horizon is over sooner or later."""
        return (10, 30) if self.mechanism.level == "user" else (1, 4)

    @property
    def tried(self) -> str:
        """``windows`` in words."""
        return "horizons of 10 and 30" if self.mechanism.level == "user" else "windows of 1 and 4"

    def try_options(self) -> None:
        """Make one of every window that some property asks for. Raises UnfitSetting, with the windows."""
        windows = sorted({3, 4, *self.windows})
        try:
            for window in windows:
                self.make(SeededNoise(0), window)
        except UnfitSetting as unfit:
            *few, last = windows
            extent = "horizons" if self.mechanism.level == "user" else "windows"
            tried = f"{extent} of {', '.join(map(str, few))} and {last}"
            raise UnfitSetting(unfit.setting, f"{unfit} (the suite tries {tried})") from None

    def extent(self, window: int) -> int:
        """How many timestamps epsilon covers, if ``window`` is what is asked for."""
        return 1 if self.mechanism.level == "event" else window

    def make(
        self,
        noise: NoiseSource,
        window: int = 3,
        columns: int | None = None,
        sensitivity: int = 1,
        epsilon: Fraction = Fraction(1),
    ) -> Mechanism:
        """One at its first timestamp; ``window`` is the horizon at user level, nothing at event level."""
        settings = MechanismSettings(
            self.mechanism.kind, epsilon, str(epsilon), self.extent(window), options=dict(self.options)
        )
        return self.mechanism(settings, columns or self.columns, sensitivity, noise)

    def stream(self, length: int, seed: int = 7) -> list[Counts]:
        """Counts that jump often enough to be published and stay often enough to be repeated."""
        generator = np.random.default_rng(seed)
        levels = generator.integers(0, 500, (length // 5 + 1, self.columns))
        return [levels[i // 5] + generator.integers(0, 3, self.columns) for i in range(length)]

    def flat(self, value: int = 0) -> Counts:
        """The same count in every column."""
        return np.full(self.columns, value, np.int64)


Answer = Callable[[Fraction, int, bool], NDArray[np.int64]]
"""A script for draws, by scale, size, and whether a publication was granted at this timestamp already."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The ledger granted this many units."""

    units: int
    publish: bool


@dataclass(frozen=True, slots=True)
class Draw:
    """Noise of this scale was drawn."""

    scale: Fraction
    size: int


@dataclass(frozen=True, slots=True)
class Step:
    """One timestamp: its release, and what happened on the way, in order."""

    release: Release
    events: tuple[Grant | Draw, ...]

    def granted(self, publish: bool) -> int:
        """Units granted for publications, or for tests."""
        return sum(one.units for one in self.events if isinstance(one, Grant) and one.publish == publish)

    @property
    def publications(self) -> list[Draw]:
        """The draws after a publication was granted."""
        first = next((i for i, one in enumerate(self.events) if isinstance(one, Grant) and one.publish), None)
        return [] if first is None else [one for one in self.events[first:] if isinstance(one, Draw)]

    @property
    def spent(self) -> int:
        """Units granted altogether."""
        return self.granted(True) + self.granted(False)


class Watched:
    """A mechanism, its noise answered by a script."""

    def __init__(
        self,
        subject: Subject,
        answer: Answer,
        window: int = 3,
        sensitivity: int = 1,
        epsilon: Fraction = Fraction(1),
        columns: int | None = None,
    ) -> None:
        self.subject, self.answer = subject, answer
        self.sampled = False
        self.events: list[Grant | Draw] = []
        self._heard, self._granted = 0, False
        self.mechanism = subject.make(self, window, columns, sensitivity, epsilon)

    def step(self, counts: Counts) -> Step:
        """See ``Mechanism.step``."""
        self.events, self._heard, self._granted = [], 0, False
        with overheard(self.events):
            release = self.mechanism.step(counts)
        return Step(release, tuple(self.events))

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """What the script says."""
        noise = self.answer(scale, size, self._published())
        self.events.append(Draw(Fraction(scale), size))
        return noise

    def _published(self) -> bool:
        """Whether a publication was granted at this timestamp. What was looked at once is not again."""
        for one in self.events[self._heard :]:
            self._granted |= isinstance(one, Grant) and one.publish
        self._heard = len(self.events)
        return self._granted

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """What the script says, as of Laplace noise."""
        return self.discrete_laplace(sigma, size)

    def binomial(self, trials: NDArray[np.int64], rate: Fraction) -> NDArray[np.int64]:
        """Samples events exactly; who does so may have less noise for it, see ``sampled``."""
        self.sampled = True
        return SeededNoise(0).binomial(trials, rate)


def by(source: NoiseSource) -> Answer:
    """The answers of a noise source."""
    return lambda scale, size, published: source.discrete_laplace(scale, size)


def always(test: int, publication: int) -> Answer:
    """The same noise for each test, and for each publication."""
    return lambda scale, size, published: np.full(size, publication if published else test, np.int64)


@contextmanager
def overheard(events: list[Grant | Draw]) -> Iterator[None]:
    """Note what any ledger of this process grants meanwhile."""
    test, publish = Ledger.charge_test, Ledger.charge_publish

    def charge_test(self: Ledger, units: int) -> None:
        test(self, units)
        events.append(Grant(units, False))

    def charge_publish(self: Ledger, units: int) -> None:
        publish(self, units)
        events.append(Grant(units, True))

    Ledger.charge_test, Ledger.charge_publish = charge_test, charge_publish  # type: ignore[method-assign]
    try:
        yield
    finally:
        Ledger.charge_test, Ledger.charge_publish = test, publish  # type: ignore[method-assign]


def outcome(release: Release) -> dict[str, object]:
    """A release as plain data, to compare and to print."""
    values = {one.name: getattr(release, one.name) for one in fields(release)}
    return {name: one.tolist() if isinstance(one, np.ndarray) else one for name, one in values.items()}
