"""Squared errors of the SHP mechanisms: the mean over full windows of a sum over their timestamps.

One column, the total of a stream's columns; a horizon of 240 timestamps, windows of 24. *In groups* takes
each window as the groups that the Partition program makes of it, every timestamp as the mean of its group.
*Last sample kept* is what a reader can make of SHP3's releases: its predictions after the last sample are
replaced by that sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility.measuring import AheadNoise, Case, Scope, epsilons
from benchmarks.utility.streams import COUNT_STREAMS, Counts
from eventveil.mechanisms.base import Release
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings

PART = "user-level"
HORIZON, SPAN = 240, 24
QUICK_HORIZON = 60
POINT = "SHP2 (point)"
ADAPTIVE = "SHP3 (adaptive)"
KINDS = {"SHP1 (window)": "shp-window", POINT: "shp-point", ADAPTIVE: "shp-adaptive"}


def measure(scope: Scope) -> Iterator[Case]:
    """A case for each stream and epsilon."""
    horizon = QUICK_HORIZON if scope.quick else HORIZON
    for make in COUNT_STREAMS:
        stream = make()
        counts = stream.total[:horizon]
        truth = np.lib.stride_tricks.sliding_window_view(counts[:, 0], SPAN)
        for text, epsilon in epsilons("1", "10"):
            errors = {"Zero": [_squares(truth.astype(float))]}
            for label, kind in KINDS.items():
                runs = [_run(kind, counts, epsilon, seed) for seed in range(scope.seeds)]
                errors[label] = [_squares(np.array([each.history for each in run]) - truth) for run in runs]
                errors[f"{label}, in groups"] = [
                    _squares(np.array([_means(each) for each in run]) - truth) for run in runs
                ]
                if label == ADAPTIVE:
                    errors[f"{label}, last sample kept"] = [_squares(_kept(run) - truth) for run in runs]
            yield Case(PART, stream.name, text, {"horizon": horizon, "span": SPAN}, errors)


def _run(kind: str, counts: Counts, epsilon: Fraction, seed: int) -> list[Release]:
    """The releases that end a full window."""
    settings = MechanismSettings(kind, epsilon, str(epsilon), len(counts), options={"span": SPAN})
    mechanism = build(settings, 1, 1, AheadNoise(seed))
    return [mechanism.step(row) for row in counts][SPAN - 1 :]


def _means(release: Release) -> list[float]:
    return [total / length for length, total in release.groups for _ in range(length)]


def _kept(run: list[Release]) -> NDArray[np.int64]:
    """The windows with the last sample in place of what was predicted after it."""
    counts = np.array([*run[0].history[:-1], *(release.counts[0] for release in run)])
    last = len(counts) - 1 - [release.fresh for release in reversed(run)].index(True)
    counts[last:] = counts[last]
    return np.lib.stride_tricks.sliding_window_view(counts, SPAN)


def _squares(difference: NDArray[np.number]) -> float:
    return float((difference**2).sum(axis=1).mean())
