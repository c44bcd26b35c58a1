"""What a mechanism is: counts in, one release out, every spend asked of the ledger first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.model.topology import Level, MechanismSettings
from eventveil.privacy.ledger import Bridge, Spend
from eventveil.privacy.noise import NoiseSource

Counts = NDArray[np.int64]
#: Of columns: which of them.
Chosen = NDArray[np.bool_]
#: Options of a kind by name, as they were read, or as text.
Options = Mapping[str, object]

RELEASE_LIMIT = 2**40
"""Releases are clamped to +-RELEASE_LIMIT before they are stored; true counts may not exceed it."""

COLUMN_LIMIT = 2**20
"""So that a sum over columns of |release - count| <= 2**41 stays below 2**62, and fits int64."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The promise of a mechanism, for ``eventveil check`` and the ledger audit.

    ``window`` is the number of timestamps that epsilon covers: the w of w-event privacy, 1 at event level
    and for local reports, the horizon at user level. When a horizon has passed, a new one is charged if it
    ``renews``, else nothing is spent any more. ``best_scale`` and ``worst_scale`` bound the scale of the
    discrete Laplace noise that a fresh release carries, in counts; 0 where reports bring their own. With a
    ``delta`` noise is Gaussian, the scales are standard deviations, and units count mu squared, not epsilon.
    If it ``combines``, a release adds up several draws, and the scales are those of the smallest.
    """

    level: Level
    epsilon: Fraction
    window: int
    sensitivity: int
    best_scale: Fraction
    worst_scale: Fraction | None
    renews: bool = False
    delta: Fraction | None = None
    combines: bool = False


class Nesting(NamedTuple):
    """Where a release is in nested blocks of timestamps, in whose sums noise cancels.

    ``lengths``: of the blocks, in timestamps, each a multiple of the one before. ``at``: the place in the
    longest, from 1 on. ``scale``: of the discrete Laplace draw that each block, and each timestamp, has; with
    Gaussian noise its standard deviation.
    ``eventveil.mechanisms.nested`` says what sums err by.
    """

    lengths: tuple[int, ...]
    at: int
    scale: Fraction


@dataclass(frozen=True, slots=True)
class Release:
    """The outcome of one timestamp.

    ``counts``: int64 of shape (columns,), within +-RELEASE_LIMIT, read-only; at event level the sums over
    the ``span`` timestamps that end here. ``fresh`` is false when nothing was drawn: the last release is
    repeated, or predicted from. ``test`` and ``publish`` are what the dissimilarity test (M1) and the
    publication (M2) spent, ``window_spent`` their sum over the window, or since the beginning of the horizon,
    that ends here; all in ledger units. ``exhausted``: the horizon has passed, the last release is repeated
    from then on. At user level with a ``span`` above 1, ``history`` holds the released counts of the last
    ``span`` timestamps, oldest first, and ``groups`` their partition as (length, total). Of local reports,
    ``phase`` is what they were for, and ``threshold`` what the next ones are to be made for, once that is
    chosen.

    ``error``: the expected standard deviation of each count around the true one, float64 of shape (columns,),
    or (1,) where it is the same for all; None while nothing is known of it. ``noise_scale``: that of the
    discrete Laplace noise, if the release is the counts and that noise, and nothing else. Both are functions
    of settings and of what was published. ``nesting``: given where noise is correlated over timestamps.
    ``rollups``: numbers of columns of nested blocks in whose sums noise cancels.
    """

    counts: Counts
    fresh: bool
    test: int
    publish: int
    window_spent: int
    exhausted: bool = False
    history: tuple[int, ...] = ()
    groups: tuple[tuple[int, int], ...] = ()
    phase: str | None = None
    threshold: int | None = None
    error: NDArray[np.float64] | None = None
    noise_scale: Fraction | None = None
    nesting: Nesting | None = None
    rollups: tuple[int, ...] = ()


class Mechanism(ABC):
    """A pure state machine over timestamps: no clock, no I/O, randomness and ledger handed in.

    Given the same snapshot, counts and random source, ``step`` returns the same release. ``kind`` is its name
    in a topology, ``summary`` one line for people, ``options`` the names that ``MechanismSettings.options``
    may hold, ``level`` what its epsilon covers, ``units`` the number of ledger units that make up epsilon:
    2 * window * 2**20, whatever the level. ``raw`` names the parts of a snapshot that hold true counts, or
    noise that gives them away. ``predicts``: a release that is not fresh may differ from the one before it,
    being computed from earlier releases. ``draws_ahead``: noise of a release may have been drawn at an
    earlier timestamp, whatever counts are, and is part of the state. ``added`` names parts of a snapshot that
    those of earlier versions lack, and are read without; ``unremembered`` options that decide only when
    budget is spent, which the ledger limits anyway: a state is continued whatever they are. ``grows``:
    whether it can take further columns (``grow``). ``columns_apart``: with Gaussian noise every draw is for
    the count of one column and timestamp, or weights over timestamps of it, or is of the size that
    ``eventveil.mechanisms.rolled`` proves; a class that does not say so itself takes no ``per_column``.
    """

    kind: ClassVar[str]
    summary: ClassVar[str]
    options: ClassVar[frozenset[str]]
    level: ClassVar[Level] = "w-event"
    raw: ClassVar[frozenset[str]] = frozenset()
    predicts: ClassVar[bool] = False
    draws_ahead: ClassVar[bool] = False
    added: ClassVar[frozenset[str]] = frozenset()
    unremembered: ClassVar[frozenset[str]] = frozenset()
    grows: ClassVar[bool] = False
    columns_apart: ClassVar[bool] = False
    guarantee: Guarantee
    units: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for ``eventveil check`` on what the options do, beyond the guarantee."""
        return ()

    @abstractmethod
    def __init__(
        self, settings: MechanismSettings, columns: int, sensitivity: int, noise: NoiseSource
    ) -> None:
        """``sensitivity``: how far one user can change a timestamp's counts in L1.

        Raises ValueError for settings that this mechanism cannot honour, UnfitSetting where one is to blame.
        """

    @classmethod
    @abstractmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """Whether a timestamp can have cost this, ``units`` being epsilon; for the audit, with no state.

        ``options`` may be texts, as in the fingerprint. ValueError if they are not those of such a mechanism.
        """

    @classmethod
    def most_published(cls, window: int, units: int, columns: int, options: Options) -> int | None:
        """What the publications of a window can have cost at most, where that is less than ``units``.

        For the audit, as ``can_spend``.
        """
        return None

    @classmethod
    def squares(cls, periods: int, options: Options) -> int:
        """With Gaussian noise: how many times mu squared it costs somebody to be there in all of them.

        ``periods``: consecutive windows or horizons; timestamps at event level. More than their number where
        the noise of one is correlated with that of others.
        """
        return periods

    @property
    def threshold(self) -> int | None:
        """What local reports are to be made for from now on, once that is chosen."""
        return None

    @abstractmethod
    def step(self, counts: Counts) -> Release:
        """Consume the true counts (int64, shape (columns,), each in 0..RELEASE_LIMIT) of the next timestamp.

        Raises ValueError for another shape, type or range, and then nothing has changed. Raises
        BudgetExceeded if the ledger refuses; after that, and after any other error, the mechanism takes no
        further step until it is restored from a snapshot.
        """

    @property
    def on_truth(self) -> Callable[[Counts], Release]:
        """What steps on true counts: ``step``, unless that takes counters opened before any event came."""
        return self.step

    @property
    @abstractmethod
    def window_spent(self) -> int:
        """Units spent in the window that ends at the last timestamp; 0 before the first."""

    @abstractmethod
    def snapshot(self) -> bytes:
        """The whole state as JSON bytes: what was released and spent, and true counts in ``raw`` alone."""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Continue from ``snapshot()``. Raises ValueError if the bytes are not such a state."""

    @abstractmethod
    def inherit(self, predecessor: bytes, bridges: Iterable[Bridge]) -> None:
        """Begin where a mechanism with other settings stopped, whose snapshot is ``predecessor``.

        Its last release is repeated until there is a new one, and what ``bridges`` do not allow is not spent.
        Raises ValueError if the snapshot cannot be continued, or once a step was made.
        """

    def recall(self, predecessor: bytes) -> None:  # noqa: B027  # most have learned nothing
        """Take over what a mechanism with other terms has learned of the same counts, where that is possible.

        Called after ``inherit`` with the same snapshot, where no rule changed by which events are counted.
        Raises ValueError if the snapshot cannot be continued.
        """

    def grow(self, levels: Sequence[float], variance: float) -> None:
        """Continue with further columns behind the others, between two steps; what was spent stays as it is.

        ``levels`` are what they are expected to count at a timestamp, at least 0, with an error of this
        ``variance``: functions of what is public. Raises ValueError unless the kind ``grows``.
        """
        raise ValueError(f"{self.kind} takes no further columns")

    def shrink(self, kept: Chosen) -> None:
        """Continue with some of the columns, between two steps; what was spent stays as it is.

        ``kept``: booleans of shape (columns,), the first of which is true; a function of what is public.
        Raises ValueError unless the kind ``grows``.
        """
        raise ValueError(f"{self.kind} keeps all of its columns")

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """How many numbers a snapshot, and a release, can hold beyond the ledger and one per column."""
        return 0, 0
