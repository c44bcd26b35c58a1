"""The benchmark's measures, its real streams that need no package, and the mechanisms of others."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.utility import bounds
from benchmarks.utility.contenders import Peer, adapub, dsat, pegasus, rescue, spas
from benchmarks.utility.measures import MEASURES, measured
from benchmarks.utility.measuring import AheadNoise
from benchmarks.utility.real import REAL, WITHOUT_PACKAGES, RealStream, table, us_origins, us_routes
from benchmarks.utility.side_by_side import KINDS, PEERS
from eventveil.mechanisms.registry import KINDS as OURS


class Recorded:
    """Noise that adds up what its draws would spend, if each were of everything that a user changes."""

    def __init__(self, seed: int) -> None:
        self._source, self.spent = AheadNoise(seed), Fraction()

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.spent += 1 / scale
        return self._source.discrete_laplace(scale, size)


def test_measures_are_relative_to_the_truth() -> None:
    counts = np.array([[1, 3], [1, 3], [2, 4], [0, 2]])
    released = np.array([[0, 5], [0, 3], [0, 4], [0, 0]])
    found = measured(released, counts, 2, 4)
    assert tuple(found) == MEASURES
    assert found == {
        "MAE": pytest.approx(1 / 2), "RMSE": pytest.approx((14 / 8) ** 0.5 / 2),
        "total": pytest.approx(6 / 16), "bias": pytest.approx(-4 / 16),
        "day": pytest.approx(8 / 4 / 4), "week": pytest.approx(4 / 2 / 8),
        "largest": pytest.approx(1 / 3), "zero": 1 / 2,
    }  # fmt: skip


def test_a_week_that_the_stream_does_not_have_has_no_error() -> None:
    assert np.isnan(measured(np.ones((3, 1)), np.ones((3, 1)), 1, 7)["week"])


def test_a_table_counts_by_timestamp_and_column_from_the_first_timestamp_on() -> None:
    assert table([7, 7, 9], ["b", "a", "b"]).tolist() == [[1, 1], [0, 0], [0, 1]]
    assert table([7, 9], ["a", "a"], [3, 4]).tolist() == [[3], [0], [4]]


def test_without_noise_a_season_is_known_by_its_medians_and_a_level_by_all_of_the_past() -> None:
    weekly = np.tile([[10], [10], [10], [10], [10], [1], [1]], (20, 1))
    found = bounds.errors(RealStream("weekdays", weekly, 24))
    assert found[bounds.WEEK] == 0 < found[bounds.CONSTANT] < found[bounds.PAST] < 1
    assert bounds.DAY not in found
    still = bounds.errors(RealStream("still", np.full((1000, 3), 8), 1))
    assert still[bounds.PAST] == pytest.approx(1 / 1000)  # the first timestamp alone is not foreseen


def test_there_are_a_dozen_real_streams_from_one_column_to_thousands() -> None:
    assert len(REAL) >= 12
    assert {make().counts.shape[1] for make in (*WITHOUT_PACKAGES, us_origins, us_routes)} >= {1, 224, 3399}
    assert us_origins().counts.sum() == 1_478_011
    assert us_origins().periods == "24,168"


def test_every_kind_at_w_event_level_is_measured() -> None:
    assert set(KINDS) == {kind for kind, mechanism in OURS.items() if mechanism.level == "w-event"}


@pytest.mark.parametrize("peer", [dsat.dsat, adapub.always, adapub.sampled])
@pytest.mark.parametrize("windows", [1, 3])
def test_what_others_draw_costs_epsilon_a_window_at_most(peer: Peer, windows: int) -> None:
    noise, jumping = Recorded(1), 1000 * (np.arange(60 * windows)[:, np.newaxis] % 2) * np.ones(3, np.int64)
    peer(jumping, Fraction(1, 2), 60, noise)
    assert 0 < noise.spent <= Fraction(1, 2) * windows


@pytest.mark.parametrize("label", PEERS)
def test_others_follow_counts_that_are_large_against_the_noise(label: str) -> None:
    peers = {"DSAT": dsat.dsat, "PeGaSus": pegasus.pegasus, "RescueDP": rescue.rescue,
             "SPAS": spas.spas}  # fmt: skip
    peers |= {"AdaPub, always": adapub.always, "AdaPub, sampled": adapub.sampled}
    counts = np.tile([1000, 2000, 4000], (80, 1))
    released = peers[label](counts, Fraction(4), 20, AheadNoise(3))
    assert np.abs(released - counts)[20:].mean() < 40  # the first window may take them for one group


def test_a_group_of_pegasus_ends_when_counts_jump() -> None:
    counts = np.repeat([[100], [5000]], 20, axis=0)
    released = pegasus.pegasus(counts, Fraction(10), 10, AheadNoise(1))
    assert np.abs(released[:20] - 100).max() < 20
    assert np.abs(released[20:] - 5000).max() < 20


class Logged(Recorded):
    """Noise that remembers the size and 1 over the scale of each draw."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.draws: list[tuple[int, Fraction]] = []

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.draws.append((size, 1 / scale))
        return super().discrete_laplace(scale, size)


@pytest.mark.parametrize("window", [7, 60])
def test_publications_and_sparse_vectors_of_spas_cost_their_shares_a_window_at_most(window: int) -> None:
    epsilon, windows, noise = Fraction(1, 2), 6, Logged(4)
    jumping = 20_000 * (np.arange(window * windows)[:, np.newaxis] % 2) * np.ones(3, np.int64)
    spas.spas(jumping, epsilon, window, noise)
    published = [cost for size, cost in noise.draws if size == 3]
    sizes = [size for size, _ in noise.draws]
    thresholds = [2 * cost for before, (size, cost) in zip(sizes, noise.draws[1:], strict=False)
                  if before == 3 and size == 1]  # fmt: skip
    assert len(thresholds) >= windows - 2  # each publication after the first window draws a threshold anew
    assert sum(published) <= Fraction(3, 4) * epsilon * windows
    assert sum(thresholds[:-1]) <= Fraction(1, 4) * epsilon * windows  # the last vector has not ended


def test_a_sparse_vector_of_spas_costs_every_window_that_it_meets() -> None:
    spent = spas.Spent(5)
    spent.spends.append((3, Fraction(1, 10)))
    assert [spent.left(Fraction(1, 4), timestamp) for timestamp in (4, 7, 8)] == [
        Fraction(3, 20), Fraction(3, 20), Fraction(1, 4)
    ]  # fmt: skip
