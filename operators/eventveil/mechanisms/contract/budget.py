"""Properties of spending: what the ledger granted, what was drawn for it, and the sum over every window."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import Counts, Mechanism
from eventveil.mechanisms.contract.subject import (
    HUGE,
    Answer,
    Counterexample,
    Draw,
    Grant,
    Step,
    Subject,
    Watched,
    always,
    by,
    expect,
)
from eventveil.model.errors import BudgetExceeded
from eventveil.privacy.ledger import Bridge, Ledger, Spend
from eventveil.privacy.noise import SeededNoise

FAR = 10**6
STATES = 100
"""At most this many states of a timestamp are followed; beyond it the search is not called exhaustive."""


class _Total:
    """What the window or horizon that ends here has spent, by the plain definition."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._level, self._window = mechanism.level, mechanism.guarantee.window
        self._renews = mechanism.guarantee.renews
        self._spent: deque[int] = deque(maxlen=self._window if self._level != "user" else None)

    def add(self, spent: int) -> int:
        """The sum, after one more timestamp."""
        if self._level == "user" and self._renews and len(self._spent) == self._window:
            self._spent.clear()
        self._spent.append(spent)
        return sum(self._spent)


def charges(subject: Subject) -> str:
    """Grants and release agree, at every timestamp, and ``can_spend`` knows the charge."""
    for window in subject.windows:
        watched = Watched(subject, by(SeededNoise(5)), window)
        total = _Total(watched.mechanism)
        for i, counts in enumerate(subject.stream(40), 1):
            step = watched.step(counts)
            told, where = step.release, f"window {window}, timestamp {i}"
            for what, says, granted in (
                ("test", told.test, step.granted(False)),
                ("publish", told.publish, step.granted(True)),
            ):
                expect(
                    says == granted,
                    f"{where}: the release says that {what} spent {says} units, but the ledger granted"
                    f" {granted}; charge all spends to the ledger and report them (eventveil.Spend)",
                )
            spent = total.add(step.spent)
            expect(
                told.window_spent == watched.mechanism.window_spent == spent,
                f"{where}: window_spent is {told.window_spent} and {watched.mechanism.window_spent}, granted"
                f" were {spent}",
            )
            spend = Spend(told.test, told.publish)
            extent = subject.extent(window)
            known = subject.mechanism.can_spend(
                spend, extent, watched.mechanism.units, subject.columns, dict(subject.options)
            )
            expect(known, f"{where}: can_spend rejects {spend}; so would the audit of the ledger")
    return f"{subject.tried}, 40 timestamps each"


def noise(subject: Subject) -> str:
    """Every draw comes after a grant of its timestamp, with at least the noise of that many units."""
    epsilon, sensitivity = Fraction(3, 7), 2
    watched = Watched(subject, by(SeededNoise(5)), subject.windows[-1], sensitivity, epsilon)
    holds_back = bool(subject.mechanism.raw)
    drawn = 0
    for i, counts in enumerate(subject.stream(60), 1):
        granted = 0
        for event in watched.step(counts).events:
            if isinstance(event, Grant):
                granted += event.units
                continue
            drawn += 1
            if holds_back and not granted:
                continue  # it may be of counts that were charged when they came
            expect(granted > 0, f"timestamp {i}: noise was drawn before anything was granted; charge first")
            least = sensitivity * watched.mechanism.units / (granted * epsilon)
            expect(
                watched.sampled or event.scale >= least,
                f"timestamp {i}: noise of scale {event.scale} for {granted} of"
                f" {watched.mechanism.units} units; with sensitivity {sensitivity} and epsilon {epsilon} at"
                f" least {least} is needed",
            )
    expect(drawn > 0, "in 60 timestamps of changing counts no noise was drawn at all")
    return f"{drawn} draws in 60 timestamps"


def refusal(subject: Subject) -> str:
    """A mechanism whose ledger refuses draws nothing, and is of no use until it is restored."""
    watched = Watched(subject, always(HUGE, 0))
    state = watched.mechanism.snapshot()
    refused = False
    asked = Ledger._ask

    def refuse(self: Ledger, units: int) -> None:
        raise BudgetExceeded("refused, to see what happens")

    Ledger._ask = refuse  # type: ignore[method-assign]
    try:
        step = watched.step(subject.flat(500))
        expect(not step.release.publish and not step.release.test, "it says that it spent what was refused")
    except BudgetExceeded:
        refused = True
    finally:
        Ledger._ask = asked  # type: ignore[method-assign]
    drawn = [one for one in watched.events if isinstance(one, Draw)]
    expect(not drawn, f"noise was drawn for a spend that was refused: {drawn}")
    if refused:
        _stopped(watched, subject)
    watched.mechanism.restore(state)
    expect(watched.mechanism.snapshot() == state, "after a refusal the state cannot be restored")
    return "a ledger that refuses everything, at the first timestamp"


def _stopped(watched: Watched, subject: Subject) -> None:
    for action in (lambda: watched.step(subject.flat(500)), watched.mechanism.snapshot):
        try:
            action()
        except RuntimeError:
            continue
        raise Counterexample(
            "after a refusal it continued; until it is restored, step and snapshot should raise RuntimeError"
        )


class More(Exception):
    """A script ended before the step did: the next draw has this size, and is a publication's or not."""

    def __init__(self, size: int, published: bool) -> None:
        super().__init__()
        self.size, self.published = size, published


def scripted(script: list[NDArray[np.int64]]) -> Answer:
    """Answers from a script, from its beginning; More when it has ended."""
    rest = list(script)

    def answer(scale: Fraction, size: int, published: bool) -> NDArray[np.int64]:
        if not rest:
            raise More(size, published)
        return rest.pop(0)

    return answer


@dataclass(frozen=True)
class _Node:
    state: bytes
    spent: tuple[int, ...]


def every_sequence(subject: Subject) -> str:
    """Every draw comes out low or high, so every test both ways, at every timestamp of a few windows."""
    tried = []
    for window in sorted({subject.extent(window) for window in (1, 2, 3)}):
        length = 2 * window + 2
        watched = Watched(subject, by(SeededNoise(0)), window)
        level = [_Node(watched.mechanism.snapshot(), ())]
        seen, complete = 0, True
        for _ in range(length):
            following: dict[tuple[bytes, tuple[int, ...]], _Node] = {}
            for node in level[:: -(-len(level) // STATES)]:
                seen += 1
                for step in _outcomes(watched, node.state, subject.flat()):
                    spent = (*node.spent, step.spent)
                    _check_total(watched.mechanism, spent, f"window {window}")
                    state = watched.mechanism.snapshot()
                    kept = spent if subject.mechanism.level == "user" else spent[-window:]
                    following.setdefault((state, kept), _Node(state, spent))
            complete &= len(level) <= STATES
            level = list(following.values())
        extent = f"{length} timestamps, {_extent(watched.mechanism)} of {window}"
        tried.append(f"{extent}: {seen} states, {'all' if complete else 'not all'}")
    return "; ".join(tried)


def _outcomes(watched: Watched, state: bytes, counts: Counts) -> Iterator[Step]:
    """The step from a state, with every low and high answer to its draws."""
    pending: list[list[NDArray[np.int64]]] = [[]]
    while pending:
        script = pending.pop()
        watched.answer = scripted(script)
        watched.mechanism.restore(state)
        try:
            yield watched.step(counts)
        except More as more:
            low, high = (0, FAR) if more.published else (-HUGE, HUGE)
            mixed = np.full(more.size, low, np.int64)
            mixed[:1] = high
            answers = [np.full_like(mixed, low), np.full_like(mixed, high)]
            pending += [[*script, one] for one in answers + [mixed] * (more.size > 1)]


def _check_total(mechanism: Mechanism, spent: tuple[int, ...], where: str) -> None:
    total = _Total(mechanism)
    sums = [total.add(one) for one in spent]
    if max(sums) > mechanism.units:
        raise Counterexample(
            f"{where}: timestamps that spend {list(spent)} units lift a {_extent(mechanism)} to {max(sums)}"
            f" of {mechanism.units}"
        )


def _extent(mechanism: Mechanism) -> str:
    return "horizon" if mechanism.level == "user" else "window"


def long_runs(subject: Subject) -> str:
    """Hundreds of timestamps whose draws come out low or high at random, rarely and often."""
    timestamps = 0
    for window in (1, 2, 7, 40):
        for share in (0.02, 0.5, 1.0):
            watched = Watched(subject, _chosen(random.Random(f"{window} {share}"), share), window)
            units = watched.mechanism.units
            total = _Total(watched.mechanism)
            for i in range(2 * window + 300):
                spent = total.add(watched.step(subject.flat()).spent)
                timestamps += 1
                expect(
                    spent <= units,
                    f"window {window}, timestamp {i + 1}, tests that succeed {share:.0%} of the time: the"
                    f" {_extent(watched.mechanism)} that ends here spent {spent} of {units} units",
                )
    return f"{timestamps} timestamps, windows of 1, 2, 7 and 40"


def _chosen(chance: random.Random, share: float) -> Answer:
    """Tests that succeed with probability ``share``; releases near and far."""

    def answer(scale: Fraction, size: int, published: bool) -> NDArray[np.int64]:
        low, high, likely = (0, FAR, 0.5) if published else (-HUGE, HUGE, share)
        return np.full(size, high if chance.random() < likely else low, np.int64)

    return answer


def heir(subject: Subject) -> str:
    """It refuses to inherit; or it repeats the last release and keeps to the bridge."""
    predecessor = Watched(subject, by(SeededNoise(9)), 4)
    for counts in subject.stream(5):
        last = predecessor.step(counts).release.counts.tolist()
    watched = Watched(subject, always(HUGE, 0), 4)
    units = watched.mechanism.units
    bridge = Bridge(window=4, units=units // 2, past=[units // 4] * 3, left=3)
    try:
        watched.mechanism.inherit(predecessor.mechanism.snapshot(), [bridge])
    except ValueError as refused:
        return f"it does not inherit: {refused}"
    spent = list(bridge.past)
    for i in range(1, 7):
        step = watched.step(subject.flat(FAR * i))
        spent.append(step.spent)
        if not step.release.fresh and i == 1:
            found = step.release.counts.tolist()
            expect(found == last, f"it should begin with the last release, {last}, not {found}")
        window = sum(spent[-4:])
        expect(
            i > bridge.left or not step.spent or window <= bridge.units,
            f"timestamp {i} after a change of terms lifts a window across it to {window} units, allowed were"
            f" {bridge.units}",
        )
    return "six timestamps after a change of terms that leaves half of epsilon to three of them"
