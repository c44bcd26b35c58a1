"""Trying a choice: the mechanism itself, over the bounded counts, with noise of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from eventveil.advise.tally import Counts, per_unit
from eventveil.formats.release import clipped
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings
from eventveil.privacy.noise import SeededNoise, SystemNoise


@dataclass(frozen=True, slots=True)
class Trial:
    """A mechanism to run over ``counts`` of shape (timestamps, columns).

    ``units``: over how many equal spans the releases are to be added up. ``seed`` names its noise; None is
    the system's. ``whole``: give all releases too, none below ``minimum``.
    """

    settings: MechanismSettings
    counts: Counts
    sensitivity: int
    units: int
    seed: str | None
    whole: bool = False
    minimum: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out: ``sums`` of shape (units, columns), and ``clipped``, those of counts from 0 on.

    ``released`` and ``errors``, of shape (timestamps, columns), are there if all was wanted. ``errors`` are
    expected standard deviations, NaN where a mechanism does not know any.
    """

    sums: Counts
    clipped: Counts
    released: Counts | None = None
    errors: NDArray[np.float64] | None = None


Runner = Callable[[Iterable[Trial]], Iterator[Outcome]]


def perform(trial: Trial) -> Outcome:
    """Run it."""
    columns = trial.counts.shape[1]
    noise = SystemNoise() if trial.seed is None else SeededNoise.of(f"eventveil advise {trial.seed}")
    mechanism = build(trial.settings, columns, trial.sensitivity, noise)
    released = np.empty(trial.counts.shape, np.int64)
    errors = np.full(trial.counts.shape if trial.whole else (0, columns), np.nan)
    for index, counts in enumerate(trial.counts.astype(np.int64)):
        release = clipped(mechanism.step(counts), trial.minimum)
        released[index] = release.counts
        if trial.whole and release.error is not None:
            errors[index] = release.error
    sums, cut = (per_unit(one, trial.units) for one in (released, np.maximum(released, 0)))
    return Outcome(sums, cut, released, errors) if trial.whole else Outcome(sums, cut)


def alone(trials: Iterable[Trial]) -> Iterator[Outcome]:
    """Run them here, one after the other."""
    return map(perform, trials)


@contextmanager
def in_processes(number: int) -> Iterator[Runner]:
    """Runs trials in other processes, or here if it is one. The outcomes are in the order of the trials."""
    if number == 1:
        yield alone
        return
    # Not forked: libraries of the parent may have threads.
    pool = ProcessPoolExecutor(number, mp_context=get_context("spawn"))
    try:
        yield partial(pool.map, perform)
    finally:
        pool.shutdown(cancel_futures=True)
