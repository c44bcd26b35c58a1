"""Properties of a mechanism as a state machine: its word, its releases, its snapshots."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import orjson

from eventveil.mechanisms import plugins
from eventveil.mechanisms.base import RELEASE_LIMIT, Counts, Mechanism, Release
from eventveil.mechanisms.contract.subject import (
    HUGE,
    Answer,
    Counterexample,
    Subject,
    Watched,
    always,
    by,
    expect,
    outcome,
)
from eventveil.mechanisms.sizes import largest_snapshot
from eventveil.model.errors import PluginRefused
from eventveil.model.topology import MechanismSettings
from eventveil.privacy.noise import SATURATION, SeededNoise

_PARTS = (
    ("Guarantee", re.compile(r"\*\*Guarantee\.\*\*")),
    ("assumptions", re.compile("assumptions", re.IGNORECASE)),
    ("a source with its year", re.compile(r"\*\*Source\.\*\*|\b(19|20)\d\d\b")),
    ("Proof", re.compile(r"\*\*Proof[.*]")),
)


def statement(subject: Subject) -> str:
    """The docstring of the module has what a reader needs to judge the promise."""
    text = sys.modules[subject.mechanism.__module__].__doc__ or ""
    for what, pattern in _PARTS:
        expect(
            pattern.search(text) is not None,
            f"the docstring of {subject.mechanism.__module__} lacks {what}; it should open with"
            " **Guarantee.** and assumptions, **Source.** and **Proof.**",
        )
    return "its docstring has all four; no program can tell whether the proof holds"


def guarantee(subject: Subject) -> str:
    """Level, epsilon, window, sensitivity, delta as asked for; units as the ledger needs; noise bounded."""
    epsilon, sensitivity = Fraction(5, 2), 2
    for window in (1, 2, 40):
        watched = Watched(subject, by(SeededNoise(8)), window, sensitivity, epsilon)
        extent = subject.extent(window)
        asked = MechanismSettings(subject.mechanism.kind, epsilon, "5/2", extent, options=subject.options)
        try:
            plugins.check_promise(watched.mechanism, asked, sensitivity)
        except PluginRefused as refused:
            raise Counterexample(str(refused)) from None
        promise = watched.mechanism.guarantee
        worst = promise.worst_scale
        for counts in subject.stream(60):
            step = watched.step(counts * 1000)
            for draw in step.publications:
                # Where a release adds up several draws, the least of them are promised.
                largest = draw.scale if worst is None or promise.combines else worst
                within = promise.best_scale <= draw.scale <= largest
                expect(
                    within,
                    f"window {window}: a publication has noise of scale {draw.scale}, the guarantee says"
                    f" {promise.best_scale} at best, {worst} at worst",
                )
    return "windows of 1, 2 and 40, sensitivity 2, epsilon 5/2, 60 timestamps each"


def determinism(subject: Subject) -> str:
    """The same twice, with other states of Python's and numpy's own generators: these must not matter."""

    def run(seed: int) -> list[dict[str, object]]:
        watched = Watched(subject, by(SeededNoise(1)), subject.windows[-1])
        seen = []
        for counts in subject.stream(30):
            random.seed(seed)
            np.random.seed(seed)
            seen.append(outcome(watched.step(counts).release) | {"state": watched.mechanism.snapshot()})
        return seen

    states = random.getstate(), np.random.get_state()
    try:
        runs = [run(seed) for seed in (1, 2)]
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    for i, (one, other) in enumerate(zip(*runs, strict=True), 1):
        expect(
            one == other,
            f"timestamp {i}: the same counts and the same noise gave first {_difference(one, other)};"
            " the noise has to come from the source that is handed in, and nothing else may decide",
        )
    return "two runs of 30 timestamps with equal noise"


def resume(subject: Subject) -> str:
    """Restored from its snapshot after every timestamp, it does what one does that was never stopped."""
    for window in subject.windows:
        steady, noise = Watched(subject, by(SeededNoise(2)), window), by(SeededNoise(2))
        stopped = Watched(subject, noise, window)
        for i, counts in enumerate(subject.stream(40), 1):
            expected, found = outcome(steady.step(counts).release), outcome(stopped.step(counts).release)
            where = f"window {window}, timestamp {i}"
            expect(found == expected, f"{where}: restored, it releases {_difference(found, expected)}")
            state = stopped.mechanism.snapshot()
            stopped = Watched(subject, noise, window)
            stopped.mechanism.restore(state)
            expect(stopped.mechanism.snapshot() == state, f"{where}: the restored state is another one")
            spent = stopped.mechanism.window_spent, steady.mechanism.window_spent
            expect(spent[0] == spent[1], f"{where}: restored, window_spent is {spent[0]}, not {spent[1]}")
    return f"{subject.tried}, 40 timestamps each, a new instance after every timestamp"


def _difference(one: dict[str, object], other: dict[str, object]) -> str:
    differing = [name for name in one if one[name] != other[name]]
    return "; ".join(f"{name} {one[name]!r:.200}, not {other[name]!r:.200}" for name in differing[:1])


def release(subject: Subject) -> str:
    """int64, bounded, read-only; repeated where it is not fresh."""
    for test, publication in ((HUGE, SATURATION), (HUGE, -SATURATION), (-HUGE, 0)):
        watched = Watched(subject, always(test, publication))
        counts = subject.flat(RELEASE_LIMIT)
        found = watched.step(counts).release
        _check_shape(found, subject, f"noise of {publication}, counts of 2**40")
        before = found.counts.tolist()
        counts[:] = 0
        expect(found.counts.tolist() == before, "changing the counts afterwards changed the release")
    watched = Watched(subject, by(SeededNoise(3)), subject.windows[-1])
    last = [0] * subject.columns
    for i, counts in enumerate(subject.stream(40), 1):
        found = watched.step(counts).release
        _check_shape(found, subject, f"timestamp {i}")
        expect(
            found.fresh == (found.publish > 0),
            f"timestamp {i}: fresh is {found.fresh} and publish spent {found.publish}; what is fresh costs,"
            " and only that",
        )
        if not found.fresh and not watched.mechanism.predicts:
            expect(
                found.counts.tolist() == last,
                f"timestamp {i}: not fresh, it should repeat {last}, not be {found.counts.tolist()}",
            )
        last = found.counts.tolist()
    return "noise of +-2**62 on counts of 2**40; 40 timestamps with noise"


def _check_shape(found: Release, subject: Subject, where: str) -> None:
    expect(isinstance(found, Release), f"{where}: step returned {found!r:.80}, not one Release")
    counts = found.counts
    expect(
        type(counts) is np.ndarray and counts.dtype == np.int64 and counts.shape == (subject.columns,),
        f"{where}: counts should be int64 of shape ({subject.columns},), not {counts!r:.80}",
    )
    expect(int(np.abs(counts).max()) <= RELEASE_LIMIT, f"{where}: {counts.tolist()} is beyond +-2**40")
    expect(not counts.flags.writeable, f"{where}: the released counts can be written to; set them read-only")


def inputs(subject: Subject) -> str:
    """What is no count of that many columns is a ValueError, and no step was made."""
    right = [1, 2][: subject.columns]
    limit = RELEASE_LIMIT + 1
    wrong: list[object] = [
        right,
        np.array([*right, 3]),
        np.array([], np.int64),
        np.array([right]),
        np.array(1),
        np.array(right, np.float64),
        np.array(right, np.int32),
        np.array(right, np.uint64),
        np.array(right, ">i8"),
        np.array(right, np.bool_),
        np.ma.masked_array(right, [False] * len(right)),
        np.array([0, -1][-subject.columns :]),
        np.array([0, limit][-subject.columns :]),
        np.array([0, -(2**63)][-subject.columns :]),
    ]
    mechanism = subject.make(SeededNoise(4))
    mechanism.step(np.array(right))
    before = mechanism.snapshot()
    for one in wrong:
        _refused(lambda one=one: mechanism.step(one), f"counts {one!r}")  # type: ignore[misc]
        expect(mechanism.snapshot() == before, f"counts {one!r} were refused, and yet changed the state")
    mechanism.step(np.array(right))
    return f"{len(wrong)} arrays of another type, shape or range"


def _refused(action: Callable[[], object], what: str) -> None:
    try:
        action()
    except ValueError:
        return
    except Exception as error:
        raise Counterexample(f"{what}: raised {type(error).__name__}: {error}, not ValueError") from error
    raise Counterexample(f"{what}: accepted; it should raise ValueError")


def states(subject: Subject) -> str:
    """Damaged states, and those of other settings, are a ValueError and change nothing."""
    mechanism = subject.make(SeededNoise(6))
    for counts in subject.stream(4):
        mechanism.step(counts)
    before = mechanism.snapshot()
    parts = orjson.loads(before)
    expect(isinstance(parts, dict), f"a snapshot should be a JSON object, not {before!r:.80}")
    missing = subject.mechanism.raw - set(parts)
    expect(not missing, f"raw names {', '.join(sorted(missing))}, which the snapshot does not have")
    damaged = {f"{name} left out": {k: v for k, v in parts.items() if k != name} for name in parts}
    for name in subject.mechanism.added:
        damaged.pop(f"{name} left out", None)
    damaged |= {f"{name} null": {**parts, name: None} for name in parts}
    damaged["one part more"] = {**parts, "surprise": 1}
    cases = {name: orjson.dumps(one) for name, one in damaged.items()}
    cases |= {repr(one): one for one in (b"", b"{", b"[]", b"null", b"1", b"\xff", b"{}", b"[" * 5000)}
    cases |= {f"of a mechanism with {name}": one for name, one in _others(subject).items()}
    for name, state in cases.items():
        _refused(lambda state=state: mechanism.restore(state), f"state {name}")  # type: ignore[misc]
        expect(mechanism.snapshot() == before, f"state {name}: refused, and yet it changed the mechanism")
    return f"{len(cases)} states: parts left out, null, one more, no JSON, of other settings"


def _others(subject: Subject) -> dict[str, bytes]:
    """States of mechanisms with other settings."""
    noise = SeededNoise(6)
    others: dict[str, Mechanism] = {
        "sensitivity 2": subject.make(noise, sensitivity=2),
        "epsilon 2": subject.make(noise, epsilon=Fraction(2)),
    }
    if subject.columns > 1:
        others["3 columns"] = subject.make(noise, columns=3)
    if subject.mechanism.level != "event":
        others["window 4"] = subject.make(noise, 4)
    for other in others.values():
        for counts in subject.stream(4):
            other.step(np.resize(counts, 3) if other is others.get("3 columns") else counts)
    return {name: other.snapshot() for name, other in others.items()}


def state_size(subject: Subject) -> str:
    """After many different spends and releases as long as can be, a snapshot is within its bound."""
    for window in (4, 60):
        watched = Watched(subject, _far(random.Random(window)), window)
        settings = MechanismSettings(
            subject.mechanism.kind, Fraction(1), "1", subject.extent(window), options=dict(subject.options)
        )
        bound = largest_snapshot(subject.mechanism, settings, subject.columns)
        for i in range(3 * window + 300):
            watched.step(subject.flat(RELEASE_LIMIT - i))
            size = len(watched.mechanism.snapshot())
            expect(
                size <= bound,
                f"window {window}, timestamp {i + 1}: the snapshot has {size} bytes, numbers() and the ledger"
                f" account for {bound}; a state that outgrows its record stops the worker",
            )
    return "windows of 4 and 60, 300 timestamps and three windows each, releases of +-2**40"


def _far(decisions: random.Random) -> Answer:
    def answer(scale: Fraction, size: int, published: bool) -> Counts:
        return np.full(size, decisions.choice((-HUGE, HUGE)) + decisions.randrange(2**40), np.int64)

    return answer
