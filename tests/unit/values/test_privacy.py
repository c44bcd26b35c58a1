"""The privacy of value streams is exact, and each broken variant is found out."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from operators.errors import BudgetExceeded
from operators.privacy.noise import NoiseSource, SeededNoise
from operators.values import stream, threshold, tree
from operators.values.draws import laplace
from tests.unit.values import checks


@pytest.mark.parametrize("make", [*checks.STREAMS, checks.pak])
def test_one_value_costs_exactly_epsilon(make: Callable[[NoiseSource], stream.ValueStream]) -> None:
    checks.loses_exactly_epsilon(make)


@pytest.mark.parametrize("kind", ["laplace", "exponential"])
def test_a_threshold_costs_at_most_epsilon(
    kind: threshold.NoisyMaximum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threshold, "RESOLUTION", 1)
    checks.threshold_loses_at_most_epsilon(kind)


def test_nothing_is_random_but_the_noise_handed_in() -> None:
    checks.follows_the_truth_without_noise()


def test_the_threshold_cuts_off_few_values() -> None:
    checks.cuts_off_few_values()


Patch = Callable[[pytest.MonkeyPatch], None]


def inverted_count(patch: pytest.MonkeyPatch) -> None:
    honest = threshold.scores

    def inverted(values: Any, thetas: Any, cost: int) -> Any:
        penalties = honest(values[:0], thetas, cost)
        return penalties - threshold.RESOLUTION * np.array([int((values <= theta).sum()) for theta in thetas])

    patch.setattr("operators.values.tops.scores", inverted)


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


def exact_loss() -> None:
    checks.loses_exactly_epsilon(checks.STREAMS[0])


def exact_loss_with_smoothing() -> None:
    checks.loses_exactly_epsilon(checks.STREAMS[1])


def threshold_loss() -> None:
    checks.threshold_loses_at_most_epsilon("laplace")


@pytest.mark.parametrize(
    ("mutation", "check"),
    [
        (inverted_count, checks.cuts_off_few_values),
        (one_level_too_many_paid, exact_loss),
        (one_level_too_many_paid, exact_loss_with_smoothing),
        (one_level_too_few_paid, exact_loss),
        (one_level_too_few_paid, exact_loss_with_smoothing),
        (one_level_too_many_drawn, exact_loss),
        (no_lower_clip, exact_loss),
        (no_upper_clip, exact_loss),
        (half_noise, exact_loss),
        (half_threshold_noise, threshold_loss),
        (float_laplace, checks.follows_the_truth_without_noise),
        (undivided_guess, checks.predicts_values_and_not_sums),
        (noise_drawn_once, checks.draws_new_noise_for_every_chunk),
    ],
    ids=lambda function: function.__name__,
)
def test_a_broken_variant_is_found_out(
    mutation: Patch, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if check is threshold_loss:
        monkeypatch.setattr(threshold, "RESOLUTION", 1)
    check()
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_a_stream_that_charges_a_position_twice_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = stream.ValueStream._end_chunk

    def forgets(self: stream.ValueStream, theta: int) -> None:
        honest(self, theta)
        self._position -= 1

    monkeypatch.setattr(stream.ValueStream, "_end_chunk", forgets)
    broken = checks.tops(SeededNoise(1))
    broken.step(np.zeros(28, np.int64))
    with pytest.raises(BudgetExceeded, match="have paid already"):
        broken.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match="restore the stream"):
        broken.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match="no state to keep"):
        broken.snapshot()
