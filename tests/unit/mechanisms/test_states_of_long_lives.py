"""Every state that a mechanism writes is one that it reads, with the options that a topology derives."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from eventveil.model.topology import Option
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import make

DERIVED: dict[str, Option] = {"periods": "24,168"}
OTHERS: dict[str, Option] = {"periods": "7"}


@pytest.mark.parametrize("rate", [0, 1000])
@pytest.mark.parametrize("window", [2, 24, 168])
@pytest.mark.parametrize("kind", ["paced", "sample", "fast", "seasonal"])
def test_a_state_is_read_after_every_timestamp(kind: str, window: int, rate: int) -> None:
    """Where an interval avoids the phases of a day it may be longer than the window."""
    draw = np.random.default_rng(window + rate)
    mechanism = make(kind, SeededNoise(rate), window=window, columns=1, **DERIVED)
    for _ in range(min(3 * window, 120) + 60):
        mechanism.step(draw.poisson(rate, 1))
        state = mechanism.snapshot()
        again = make(kind, SeededNoise(0), window=window, columns=1, **DERIVED)
        again.restore(state)
        assert again.snapshot() == state
        if kind != "seasonal":
            # They remember no periods: a state of other ones is read too, and goes on by these.
            make(kind, SeededNoise(0), window=window, columns=1, **OTHERS).restore(state)


@pytest.mark.parametrize("horizon", [4, 5, 7, 24])
@pytest.mark.parametrize("samples", ["1/5", "2/5", "1"])
def test_a_horizon_that_renews_is_read_after_every_timestamp(horizon: int, samples: str) -> None:
    draw = np.random.default_rng(horizon)
    options: dict[str, Option] = {"samples": Fraction(samples), "on_horizon": "renew"}
    for seed in range(5):
        mechanism = make("shp-adaptive", SeededNoise(seed), window=horizon, columns=1, **options)
        for _ in range(6 * horizon):
            mechanism.step(draw.poisson(20, 1))
            again = make("shp-adaptive", SeededNoise(0), window=horizon, columns=1, **options)
            again.restore(mechanism.snapshot())
            assert again.snapshot() == mechanism.snapshot()
