"""Broken variants of value streams, as patches."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eventveil.values import stream, threshold, tree
from eventveil.values.draws import laplace

Patch = Callable[[pytest.MonkeyPatch], None]


def inverted_count(patch: pytest.MonkeyPatch) -> None:
    honest = threshold.scores

    def inverted(values: Any, thetas: Any, cost: int) -> Any:
        penalties = honest(values[:0], thetas, cost)
        return penalties - threshold.RESOLUTION * np.array([int((values <= theta).sum()) for theta in thetas])

    patch.setattr("eventveil.values.tops.scores", inverted)


def one_level_too_many_paid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        stream.ValueStream,
        "_scale",
        lambda self, theta: Fraction(theta) * (self.shape.levels + 1) / self.shape.epsilon,
    )


def one_level_too_few_paid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        stream.ValueStream,
        "_scale",
        lambda self, theta: Fraction(theta) * (self.shape.levels - 1) / self.shape.epsilon,
    )


def one_level_too_many_drawn(patch: pytest.MonkeyPatch) -> None:
    honest = tree.ConsistentTree.__init__
    patch.setattr(
        tree.ConsistentTree,
        "__init__",
        lambda self, noise, scale, fanout, levels: honest(self, noise, scale, fanout, levels + 1),
    )


def no_lower_clip(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream, "clipped", lambda values, maximum: np.minimum(values, maximum))


def no_upper_clip(patch: pytest.MonkeyPatch) -> None:
    """Neither at the largest value nor at the threshold."""
    patch.setattr(stream, "clipped", lambda values, maximum: np.maximum(values, 0))
    patch.setattr(stream, "np", SimpleNamespace(**{**vars(np), "minimum": lambda values, theta: values}))


def half_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree, "laplace", lambda noise, scale, size: laplace(noise, scale / 2, size))


def half_threshold_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(threshold, "laplace", lambda noise, scale, size: laplace(noise, scale / 2, size))


def float_laplace(patch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    patch.setattr(
        tree,
        "laplace",
        lambda noise, scale, size: np.rint(generator.laplace(0, float(scale), size)).astype(np.int64),
    )


def undivided_guess(patch: pytest.MonkeyPatch) -> None:
    honest = stream.ValueStream._guesses
    patch.setattr(stream.ValueStream, "_guesses", lambda self, *args: honest(self, *args) * self.shape.node)


def noise_drawn_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tree, "laplace", cache(lambda noise, scale, size: laplace(noise, scale, size)))
