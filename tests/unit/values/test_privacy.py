"""The privacy of value streams is exact; tests/contract/test_mutations.py breaks it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from eventveil.model.errors import BudgetExceeded
from eventveil.privacy.noise import NoiseSource, SeededNoise
from eventveil.values import stream, threshold
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


def test_predictions_are_of_values_and_not_of_sums() -> None:
    checks.predicts_values_and_not_sums()


def test_every_chunk_has_noise_of_its_own() -> None:
    checks.draws_new_noise_for_every_chunk()


def test_a_stream_that_charges_a_position_twice_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = stream.ValueStream._end_chunk

    def forgets(self: stream.ValueStream, theta: int) -> None:
        honest(self, theta)
        self.position -= 1

    monkeypatch.setattr(stream.ValueStream, "_end_chunk", forgets)
    broken = checks.tops(SeededNoise(1))
    broken.step(np.zeros(28, np.int64))
    with pytest.raises(BudgetExceeded, match="have paid already"):
        broken.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match="restore the stream"):
        broken.step(np.zeros(1, np.int64))
    with pytest.raises(RuntimeError, match="no state to keep"):
        broken.snapshot()
