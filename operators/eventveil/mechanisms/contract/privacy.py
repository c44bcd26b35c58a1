"""Properties of what is public: a function of noisy values alone, which tell a user by e^epsilon at most.

**Source and proof** of ``loss``. A noise source that sees what it is added to makes the noisy value come out
as a script says. Two neighbouring streams are run with the same noisy values. If all that is public agrees,
it is a function of these values, and as the discrete Laplace distribution is known, so is their likelihood in
either stream: the ratio is e to the sum of (|v - c| - |v - c'|) / scale over all draws. It bounds the ratio
of the releases, which show less than the noisy values do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.contract.budget import More
from eventveil.mechanisms.contract.subject import (
    HUGE,
    Answer,
    Counterexample,
    Subject,
    Watched,
    always,
    expect,
    outcome,
)
from eventveil.privacy.noise import SeededNoise

VALUES = (-50, 60)
"""Noisy values that are looked at: far below and above all counts in use, where the loss is largest."""
OTHERS = (0, 2, 1, 0, 1)
"""Counts of everybody else in each column, per timestamp."""
LEVEL = 10**6
DISTANCES = (0, 1, -1, 2, 5, 10, 100, -1000, 10**4, 10**6, 10**9)
_FLOAT_ERROR = 1e-9
_NODES = 1000
_LARGEST_DRAW = 12
"""Outcomes of larger draws are too many to look at, and are none of a draw for each column."""

Visits = dict[int, tuple[int, ...]]
"""Timestamp, from 0 on: what one user adds to each column."""


def hidden(subject: Subject) -> str:
    """Two streams without a common count, noise that drowns them: nothing public may differ."""
    tried = 0
    for test, publication in itertools.product((HUGE, -HUGE), (HUGE, -HUGE)):
        seen = []
        for level in (123_456_789, 654_321):
            watched = Watched(subject, always(test, publication), 4)
            story = []
            for i in range(12):
                counts = np.array([level + 7 * i, level * 2 + i * i][: subject.columns])
                told = outcome(watched.step(counts).release)
                story.append(told | {"state": _public(watched.mechanism.snapshot(), subject)})
                tried += 1
            seen.append(story)
        for i, (one, other) in enumerate(zip(*seen, strict=True), 1):
            _expect_same(one, other, f"timestamp {i} of two streams without a common count")
        if not subject.mechanism.draws_ahead:  # its next noise is there already, and does not drown
            tried += _near_the_last_release(subject, always(test, publication))
    return f"{tried} timestamps, of streams without a common count and of counts near the last release"


def _near_the_last_release(subject: Subject, drowning: Answer) -> int:
    """From one state, counts near and far from what was released: whatever they are, noise drowns them."""
    watched = Watched(subject, always(0, 0), 4)
    for _ in range(3):
        watched.step(subject.flat(LEVEL))
    state, told = watched.mechanism.snapshot(), []
    watched.answer = drowning
    for distance in DISTANCES:
        watched.mechanism.restore(state)
        counts = subject.flat(LEVEL)
        counts[0] += distance
        for _ in range(2):
            last = outcome(watched.step(counts).release)
            told.append((distance, last | {"state": _public(watched.mechanism.snapshot(), subject)}))
    for i, (distance, public) in enumerate(told):
        _expect_same(
            told[i % 2][1], public, f"after a release of {LEVEL}, counts of {LEVEL} and {distance} more"
        )
    return len(told)


def _expect_same(one: dict[str, object], other: dict[str, object], where: str) -> None:
    for name in one:
        if one[name] != other[name]:
            raise Counterexample(
                f"{where}: {name} is {one[name]!r:.300} and {other[name]!r:.300}, although noise drowned"
                " both; what noise does not hide has to stay out, or be declared in raw if it is state"
            )


def _public(state: bytes, subject: Subject) -> dict[str, Any]:
    parts: dict[str, Any] = orjson.loads(state)
    return {name: part for name, part in parts.items() if name not in subject.mechanism.raw}


class Target(np.ndarray):
    """Noise that turns whatever it is added to into the target, and hands the true values to ``seen``."""

    seen: Callable[[Counts], None]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [one.view(np.ndarray) if isinstance(one, Target) else one for one in inputs]
        others = [one for one in inputs if not isinstance(one, Target)]
        if ufunc is np.add and method == "__call__" and others:
            self.seen(np.broadcast_to(others[0], self.shape).copy())
            return self.view(np.ndarray).copy()
        return getattr(ufunc, method)(*plain, **options)


class _Unseen(Exception):
    """The mechanism did something else with its noise than adding it, so its likelihood is not known."""


class _Side:
    """One of two neighbouring streams."""

    def __init__(self, subject: Subject, window: int, sensitivity: int, epsilon: Fraction) -> None:
        self._draws: list[tuple[Fraction, Counts, list[Counts]]] = []
        self._script: list[Counts] = []
        self.watched = Watched(subject, self._answer, window, sensitivity, epsilon)

    def _answer(self, scale: Fraction, size: int, published: bool) -> NDArray[np.int64]:
        if len(self._draws) == len(self._script):
            raise More(size, published)
        target = self._script[len(self._draws)].view(Target)
        seen: list[Counts] = []
        target.seen = seen.append
        self._draws.append((scale, self._script[len(self._draws)], seen))
        return target

    def step(
        self, state: bytes, counts: Counts, script: list[Counts]
    ) -> tuple[dict[str, object], list[tuple[Fraction, Counts, Counts]]]:
        """What is public afterwards; and scale, noisy and true values of every draw."""
        self._draws, self._script = [], [one.copy() for one in script]
        self.watched.mechanism.restore(state)
        told = outcome(self.watched.step(counts).release)
        public = {**told, **_public(self.watched.mechanism.snapshot(), self.watched.subject)}
        if any(len(seen) != 1 for _, _, seen in self._draws):
            raise _Unseen
        return public, [(scale, value, seen[0]) for scale, value, seen in self._draws]


def loss(subject: Subject) -> str:
    """The exact loss of every transcript that is looked at, for users who move between columns."""
    epsilon, largest, transcripts = Fraction(1), 0.0, 0
    try:
        for window, sensitivity, visits, length in _cases(subject):
            sides = [_Side(subject, window, sensitivity, epsilon) for _ in range(2)]
            for found in _transcripts(subject, sides, visits, length):
                transcripts += 1
                largest = max(largest, found[0])
                if found[0] > epsilon + _FLOAT_ERROR:
                    raise Counterexample(
                        f"window {window}, sensitivity {sensitivity}: a user who adds {visits} to"
                        f" {[one.tolist() for one in _others(subject, length)]} changes the likelihood of the"
                        f" noisy values {found[1]} by e^{found[0]:.4g}, more than e^{epsilon}"
                    )
    except _Unseen:
        return "not judged: noise is not simply added to an array, once, as it was drawn; see distinguishing"
    return f"{transcripts} transcripts, epsilon 1; the largest loss was {largest:.4g}"


def _cases(subject: Subject) -> Iterator[tuple[int, int, Visits, int]]:
    """Window, sensitivity, the user's visits, and the length of the stream."""
    last = subject.columns - 1

    def at(column: int, amount: int = 1) -> tuple[int, ...]:
        return tuple(amount if i == column else 0 for i in range(subject.columns))

    level = subject.mechanism.level
    if level == "event":
        yield from ((1, 1, {i: at(last)}, 3) for i in range(3))
        yield 1, 2, {1: tuple(2 // subject.columns for _ in range(subject.columns))}, 2
        return
    window = 3 if level == "user" else 2
    yield window, 1, {i: at(last if i % 2 else 0) for i in range(window)}, window
    yield window, 1, {i: at(0) for i in range(window)}, window
    yield window, 2, {i: at(last, 2) for i in range(window)}, window
    if level == "w-event":
        yield 1, 1, {1: at(0)}, 2
        yield 2, 1, {1: at(0), 2: at(last)}, 3
    elif not subject.make(SeededNoise(0)).guarantee.renews:
        yield 2, 1, {i: at(0) for i in range(4)}, 4


def _others(subject: Subject, length: int) -> list[Counts]:
    return [np.resize(np.roll(OTHERS, -i), subject.columns).astype(np.int64) for i in range(length)]


def _transcripts(
    subject: Subject, sides: Sequence[_Side], visits: Visits, length: int
) -> Iterator[tuple[float, list[Any]]]:
    """The loss so far and the noisy values, for transcripts of every length up to this one."""
    without = _others(subject, length)
    nothing = (0,) * subject.columns
    streams = [without, [one + np.array(visits.get(i, nothing)) for i, one in enumerate(without)]]
    start = [side.watched.mechanism.snapshot() for side in sides]
    pending: list[tuple[int, list[bytes], float, list[Any], list[Counts]]] = [(0, start, 0.0, [], [])]
    for _ in range(_NODES):
        if not pending:
            return
        i, states, before, told, script = pending.pop()
        try:
            steps = [
                side.step(state, stream[i], script)
                for side, state, stream in zip(sides, states, streams, strict=True)
            ]
        except More as more:
            if more.size > _LARGEST_DRAW:
                raise _Unseen from None
            outcomes = itertools.product(VALUES, repeat=more.size)
            pending += [(i, states, before, told, [*script, np.array(one)]) for one in outcomes]
            continue
        told = [*told, [one.tolist() for one in script]]
        try:
            now = before + _loss_of(*steps)
        except Counterexample as found:
            where = f"timestamp {i + 1}, noisy values {told}, a user adding {visits}"
            raise Counterexample(f"{where}: {found}") from None
        yield abs(now), told
        if i + 1 < length:
            pending.append((i + 1, [side.watched.mechanism.snapshot() for side in sides], now, told, []))


def _loss_of(one: Any, other: Any) -> float:
    """One stream's log-likelihood minus the other's, at one timestamp."""
    (public, draws), (other_public, other_draws) = one, other
    for name in public:
        if public[name] != other_public[name]:
            raise Counterexample(
                f"{name} is {public[name]!r:.200} without the user and {other_public[name]!r:.200}"
                " with, although all noisy values agree; only noisy values may decide"
            )
    scales = [[scale for scale, _, _ in some] for some in (draws, other_draws)]
    expect(scales[0] == scales[1], f"the scales of the noise differ: {scales[0]}, {scales[1]}")
    total = 0.0
    for (scale, value, true), (_, _, other_true) in zip(draws, other_draws, strict=True):
        total += float(int((np.abs(value - other_true) - np.abs(value - true)).sum()) / scale)
    return total
