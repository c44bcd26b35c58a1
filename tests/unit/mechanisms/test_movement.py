"""How far repeated releases err: learned from what was published, through noise, and kept in the state."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.mechanisms.movement import Movement, noise_variance
from eventveil.privacy.ledger import Bridge
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import ZeroNoise, make

Streams = np.ndarray[Any, np.dtype[np.int64]]


def learned(stream: Streams, every: int, noise: float = 0.0) -> Movement:
    """What publications of some timestamps tell; the noise has this variance."""
    movement, draw = Movement(stream.shape[1]), np.random.default_rng(1)
    standing = np.zeros(stream.shape[1], np.int64)
    for timestamp in range(1, len(stream) + 1, every):
        drawn = np.rint(draw.laplace(0, np.sqrt(noise / 2), stream.shape[1]))
        noisy = stream[timestamp - 1] + drawn.astype(np.int64)
        movement.learn(noisy, standing, noise, timestamp)
        movement.drawn(noise, timestamp)
        standing = noisy
    return movement


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 7.5, 1000.0, 1e5])
def test_the_variance_of_noise_is_that_of_the_two_sided_geometric_distribution(scale: float) -> None:
    q = np.exp(-1 / scale)
    assert noise_variance(scale) == pytest.approx(2 * q / (1 - q) ** 2, rel=1e-6)
    if scale < 100:
        z = np.arange(-20_000, 20_001)
        mass = (1 - q) / (1 + q) * q ** np.abs(z)
        assert noise_variance(scale) == pytest.approx(float((z * z) @ mass), rel=1e-6)


def test_nothing_is_known_before_the_first_publication() -> None:
    assert Movement(3).variance(5, np.zeros(3)) is None


def test_a_release_errs_by_its_noise_while_it_is_fresh_and_more_afterwards() -> None:
    movement = learned(np.full((60, 4), 50), 12)
    fresh, later = movement.variance(49, np.full(4, 50)), movement.variance(50, np.full(4, 50))
    assert fresh is not None
    assert later is not None
    assert fresh.tolist() == [0.0]
    assert later.shape == (4,)


def test_counts_that_scatter_are_as_far_off_after_one_timestamp_as_after_many() -> None:
    stream = np.random.default_rng(2).normal(1000, 20, (3000, 30)).astype(np.int64)
    movement = learned(stream, 10)
    errors = [movement.variance(2991 + gap, np.full(30, 1000)) for gap in (1, 5, 40)]
    assert np.mean([np.mean(np.sqrt(one)) for one in errors if one is not None]) == pytest.approx(20, rel=0.4)
    assert np.mean(errors[2]) < 2.5 * np.mean(errors[0])  # type: ignore[operator, arg-type]


def test_counts_that_walk_are_further_off_the_longer_it_is() -> None:
    steps = np.random.default_rng(3).normal(0, 3, (3000, 30))
    stream = (5000 + np.cumsum(steps, axis=0)).astype(np.int64)
    movement = learned(stream, 10)
    off = [np.mean(movement.variance(2991 + gap, stream[2990])) for gap in (10, 210)]  # type: ignore[arg-type]
    assert (off[1] - off[0]) / 200 == pytest.approx(9, rel=0.5)


def test_movement_is_seen_through_noise_that_is_larger() -> None:
    stream = np.random.default_rng(4).normal(1000, 20, (6000, 200)).astype(np.int64)
    movement = learned(stream, 10, noise=2000.0)
    found = movement.variance(5992, np.full(200, 1000))
    assert found is not None
    assert (np.mean(found) - 2000) / allowance(35) == pytest.approx(400 + 200, rel=0.6)


def test_what_follows_a_release_that_is_far_out_is_expected_to_be_nearer_the_level() -> None:
    stream = np.random.default_rng(5).normal(1000, 20, (3000, 30)).astype(np.int64)
    movement = learned(stream, 10)
    usual, out = (movement.variance(2995, np.full(30, level)) for level in (1000, 1100))
    assert np.mean(out) - np.mean(usual) == pytest.approx(100**2, rel=0.2)  # type: ignore[arg-type]


def allowance(differences: int) -> float:
    """By how much the movement that this many differences tell of is taken to be larger."""
    return 1 + 2.4 / differences + 6 / differences**2


@pytest.mark.parametrize(
    ("publications", "least", "most"), [(3, 0.95, 0.99), (5, 0.94, 0.98), (30, 0.93, 0.97)]
)
def test_intervals_cover_from_the_first_publications_on(publications: int, least: float, most: float) -> None:
    """By the mean of few squares they would cover 82 % after three publications, and 89 % after five."""
    draw, covered = np.random.default_rng(8), []
    for _ in range(400):
        counts = draw.normal(1000, 300, (10 * publications + 1, 1)).astype(np.int64)
        movement = learned(counts[:-1], 10)
        off = np.abs(counts[-1] - counts[-11])
        variance = movement.variance(len(counts) - 5, counts[-11])
        assert variance is not None
        covered.append(bool(off <= 1.96 * np.sqrt(variance)))
    assert least <= np.mean(covered) <= most


def test_nothing_is_allowed_for_where_nothing_is_learned() -> None:
    """A kind that repeats next to never takes for granted what counts of its level usually move by."""
    movement = Movement(1, moves=False)
    movement.drawn(8.0, 1)
    usual = float(movement.usual[0])
    (found,) = movement.variance(2, np.array([0]))  # type: ignore[misc]
    assert found <= 8 + usual


@pytest.mark.parametrize("apart", [False, True])
def test_a_restored_state_goes_on_as_one_that_was_never_stopped(apart: bool) -> None:
    draw = np.random.default_rng(6)
    one, other = (Movement(5, apart=apart) for _ in range(2))
    standing = np.zeros(5, np.int64)
    for timestamp in range(1, 40):
        noisy = draw.integers(0, 90, 5)
        chosen = noisy > 30 if apart and timestamp > 1 else None
        for each in (one, other):
            each.learn(noisy, standing, 8.0, timestamp, chosen)
            each.drawn(8.0, timestamp, chosen)
        standing = noisy
        found = [each.variance(timestamp + 3, standing) for each in (one, other)]
        assert np.array_equal(*found)  # type: ignore[arg-type]
        state = orjson.dumps(other.snapshot(), option=orjson.OPT_SERIALIZE_NUMPY)
        assert len(state) <= Movement.bytes_of(5, apart=apart)
        other = other.restored(orjson.loads(state))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("known", 1), ("pooled", [1.0]), ("pooled", [1.0, 2.0, 3.0, 4.0, 5]), ("level", "AAAA"),
        ("level", "%"), ("variance", "AACAvw=="), ("at", None), ("level", "AADAfw=="),
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_is_refused(part: str, value: object) -> None:
    state = orjson.loads(orjson.dumps(Movement(1).snapshot(), option=orjson.OPT_SERIALIZE_NUMPY))
    Movement(1).restored(state)
    with pytest.raises(ValueError, match="should"):
        Movement(1).restored({**state, part: value})


@pytest.mark.parametrize("kind", ["sample", "uniform", "seasonal", "budget-absorption", "fast", "paced"])
@pytest.mark.parametrize("before", ["sample", "seasonal", "budget-distribution"])
def test_what_inherits_a_release_inherits_its_error_until_it_publishes(before: str, kind: str) -> None:
    predecessor = make(before, SeededNoise(1), window=6, columns=3)
    for level in range(20):
        last = predecessor.step(np.array([90, 4, 30 + level]))
    heir = make(kind, ZeroNoise(), window=6, columns=3)
    heir.inherit(predecessor.snapshot(), [])
    state = heir.snapshot()
    heir.restore(state)
    assert heir.snapshot() == state
    assert last.error is not None
    assert orjson.loads(state)["error"]["known"] is True


def test_a_state_of_before_errors_were_released_is_read_and_has_one_from_its_next_publication_on() -> None:
    mechanism = make("sample", SeededNoise(1), window=4, columns=2, epsilon=Fraction(1))
    for _ in range(2):
        mechanism.step(np.array([5, 6]))
    state = orjson.loads(mechanism.snapshot())
    del state["error"], state["due"]
    mechanism.restore(orjson.dumps(state))
    errors = [mechanism.step(np.array([5, 6])).error for _ in range(4)]
    assert [error is None for error in errors] == [True, True, False, False]


@pytest.mark.parametrize("kind", ["uniform", "sample", "seasonal"])
@pytest.mark.parametrize("swing", [0.0, 0.5], ids=["steady", "day and night"])
def test_what_repeats_a_release_of_a_kind_that_never_repeated_errs_by_more_than_its_noise(
    kind: str, swing: float
) -> None:
    """Nothing can be paid after a change of terms, and nobody has learned how counts move."""
    draw, rates = np.random.default_rng(5), np.geomspace(4, 400, 60)

    def counts(hour: int) -> Streams:
        return draw.poisson(rates * (1 + swing * np.sin(hour * np.pi / 12)))

    predecessor = make("uniform", SeededNoise(2), window=8, columns=60)
    for hour in range(8):
        predecessor.step(counts(hour))
    heir = make(kind, SeededNoise(3), window=8, columns=60)
    heir.inherit(predecessor.snapshot(), [Bridge(8, 1, [10**12] * 7, 7)])
    off: list[Any] = []
    for hour in range(8, 15):
        truth = counts(hour)
        release = heir.step(truth)
        assert not release.fresh
        assert release.error is not None
        off.append((release.counts - truth) / release.error)
    z = np.abs(np.concatenate(off))
    assert np.mean(z < 1.96) >= 0.85
    assert np.mean(z) > 0.3
