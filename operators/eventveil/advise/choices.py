"""What is asked, and what can be chosen: interval, window, bound, kind of mechanism, noise, roll-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from eventveil.mechanisms.registry import KINDS, options_of
from eventveil.model.topology import Adjacency, MechanismSettings, Option
from eventveil.topology.document import Scalar
from eventveil.topology.options import LONGEST_WINDOW, option_of
from eventveil.topology.periods import DAY, HOUR, derived
from eventveil.topology.problems import START

INTERVALS = (HOUR // 4, HOUR, 3 * HOUR, DAY)
#: Every kind whose epsilon covers a window, the one to try first before the others.
WINDOWED = sorted(
    (kind for kind, one in KINDS.items() if one.level == "w-event"), key=lambda kind: kind != "seasonal"
)
#: Those that can have Gaussian noise.
NORMAL = frozenset(kind for kind in WINDOWED if "noise" in options_of(kind))
_PER_COLUMN = (1, 2, 4)
_NEVER_NEGATIVE = frozenset({"seasonal", "paced"})
#: What a topology would say besides the kind: where a setting is known to be better than the default.
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "budget-absorption": {"factor": "2"},
    "budget-distribution": {"factor": "2"},
}


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody wants to know: totals over every ``unit`` for each of the ``labels``.

    ``epsilon`` as it is written, for any ``protect``. ``accuracy`` is the error that is good enough, as a
    part of the count. ``bound`` is the contribution bound, if it is not to be chosen. ``rollable``: columns
    are texts, so that some can be one with a name of its own. ``delta`` as it is written, if Gaussian noise
    is to be tried. Times in ms.
    """

    labels: tuple[str, ...]
    unit: int
    epsilon: str
    protect: int
    accuracy: float = 0.05
    bound: int | None = None
    seed: int | None = None
    adjacency: Adjacency = "add-remove"
    rollable: bool = True
    delta: str | None = None

    def sensitivity(self, bound: int) -> int:
        """See ``Stream.sensitivity``."""
        return bound * (2 if self.adjacency == "substitute" else 1)


class Bounding(NamedTuple):
    """Which events count: see ``Candidate``."""

    interval: int
    bound: int
    per_column: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """Timestamps of ``interval`` ms, in each of which the first ``bound`` events of a user count.

    ``rolled``: small columns are one. ``clipped``: negative counts are released as 0. ``normal``: noise is
    Gaussian. ``per_column``: how many of a user's events count in one column; 0: no fewer than in all.
    """

    interval: int
    bound: int
    kind: str
    rolled: bool = False
    clipped: bool = False
    normal: bool = False
    per_column: int = 0

    @property
    def bounding(self) -> Bounding:
        """What decides which events count."""
        return Bounding(self.interval, self.bound, self.per_column)

    def window(self, question: Question) -> int:
        """Timestamps that are protected together."""
        return question.protect // self.interval

    def key(self) -> str:
        """Names it, to seed its noise, which clipping does not change."""
        noise = f":gaussian{f':{self.per_column}' * (self.per_column > 0)}" if self.normal else ""
        return f"{self.interval}:{self.bound}:{self.kind}:{self.rolled}{noise}"


def intervals(question: Question) -> Iterator[int]:
    """Those that divide what is wanted, and what is protected, the longest first."""
    for interval in sorted(INTERVALS, reverse=True):
        divides = question.unit % interval == question.protect % interval == 0
        if divides and question.protect // interval <= LONGEST_WINDOW:
            yield interval


def kinds(question: Question, interval: int, *, normal: bool = False) -> list[str]:
    """Those worth trying: at a window of one, Sample is Uniform. ``normal``: with Gaussian noise."""
    able = [kind for kind in WINDOWED if kind in NORMAL or not normal]
    return [kind for kind in able if kind != "sample" or question.protect > interval]


def noises(question: Question) -> tuple[bool, ...]:
    """Whether noise is Gaussian, in all that is to be tried."""
    return (False,) if question.delta is None else (False, True)


def per_column(bound: int, columns: int, *, normal: bool) -> tuple[int, ...]:
    """What is worth trying beside ``bound``: 0, and with Gaussian noise less in one column than in all."""
    limits = (one for one in _PER_COLUMN if one < bound <= one * columns)
    return (0, *limits) if normal else (0,)


def can_be_negative(kind: str) -> bool:
    """Whether a kind releases negative counts, so that a minimum of the sink makes a difference."""
    return kind not in _NEVER_NEGATIVE


def options_as_text(question: Question, choice: Candidate) -> Mapping[str, str]:
    """The options of a choice that a topology is to have."""
    options = _OPTIONS.get(choice.kind, {})
    if choice.normal and question.delta is not None:
        return {**options, "noise": "gaussian", "delta": question.delta}
    return options


def settings_of(question: Question, choice: Candidate) -> MechanismSettings:
    """The mechanism's settings, as the topology of that choice would have them."""
    epsilon = Fraction(question.epsilon)
    return MechanismSettings(
        choice.kind,
        epsilon,
        question.epsilon,
        choice.window(question),
        question.adjacency,
        options=dict(_options(question, choice)),
        per_column=choice.per_column or None,
    )


def _options(question: Question, choice: Candidate) -> Iterator[tuple[str, Option]]:
    given = options_as_text(question, choice)
    for name in sorted(options_of(choice.kind)):
        option = option_of(name)
        read = option.shape.kind.parse(Scalar(START, given[name])) if name in given else None
        if name == "periods":
            read = derived(choice.interval)
        if (value := option.value(read)) is not None:
            yield name, value
