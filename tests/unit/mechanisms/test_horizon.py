from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from eventveil.mechanisms.base import RELEASE_LIMIT
from eventveil.mechanisms.shp_adaptive import regressed
from tests.contract.noises import ObservedNoise, ZeroNoise, make

KINDS = pytest.mark.parametrize("kind", ["shp-point", "shp-window", "shp-adaptive"])


@KINDS
def test_after_the_horizon_the_last_release_is_repeated_for_ever_and_marked(kind: str) -> None:
    mechanism = make(kind, ZeroNoise(), horizon=5, span=2)
    releases = [mechanism.step(np.array([count])) for count in range(10, 20)]
    assert [release.exhausted for release in releases] == [False] * 5 + [True] * 5
    for release in releases[5:]:
        assert release.counts.tolist() == releases[4].counts.tolist()
        assert (release.history, release.groups) == (releases[4].history, releases[4].groups)
        assert (release.test, release.publish, release.fresh) == (0, 0, False)
        assert release.window_spent == releases[4].window_spent


@KINDS
def test_a_horizon_that_renews_goes_on(kind: str) -> None:
    mechanism = make(kind, ZeroNoise(), horizon=4, span=2, on_horizon="renew")
    releases = [mechanism.step(np.array([count])) for count in range(10, 22)]
    assert not any(release.exhausted for release in releases)
    assert releases[4].window_spent == releases[4].publish
    assert sum(release.publish for release in releases[4:8]) <= mechanism.units
    assert any(release.fresh for release in releases[8:])


def test_point_noise_and_window_noise_have_the_scales_of_the_paper() -> None:
    point, window = (make(kind, ZeroNoise(), horizon=7, span=4) for kind in ("shp-point", "shp-window"))
    assert point.guarantee.best_scale == 7
    assert window.guarantee.best_scale == 4 * (7 - 4 + 1)


def test_a_window_is_released_when_it_is_full_and_begins_anew_with_its_horizon() -> None:
    mechanism = make("shp-window", ZeroNoise(), horizon=4, span=3, on_horizon="renew")
    histories = [mechanism.step(np.array([count])).history for count in range(1, 9)]
    last = (2, 3, 4)
    assert histories == [(), (), (1, 2, 3), last, last, last, (5, 6, 7), (6, 7, 8)]


def test_raw_counts_are_forgotten_once_the_horizon_has_passed() -> None:
    mechanism = make("shp-window", ZeroNoise(), horizon=3, span=2)
    for _ in range(4):
        mechanism.step(np.array([77]))
    assert b'"counts":[]' in mechanism.snapshot()


def sampled(values: list[int], horizon: int = 20, samples: Fraction = Fraction(1, 2)) -> list[bool]:
    """Which timestamps are sampled when their noisy counts are those."""
    noise = ObservedNoise(lambda size: np.array([values[len(noise.draws)]]))
    mechanism = make("shp-adaptive", noise, horizon=horizon, samples=samples)
    return [mechanism.step(np.zeros(1, np.int64)).fresh for _ in range(horizon)]


def test_surprises_bring_the_next_sample_nearer_and_calm_moves_it_away() -> None:
    calm = sampled([0] * 20)
    wild = sampled([(-1) ** i * 10**6 for i in range(20)])
    assert sum(calm[:10]) < sum(wild[:10])
    assert sum(wild) <= 10
    assert wild[:6] == [True, False, True, True, True, True]


def phases(**options: str) -> list[int]:
    """The hours of the day that are sampled without noise, of a shop that is closed until eight."""
    mechanism = make("shp-adaptive", ZeroNoise(), horizon=600, samples=Fraction(1, 24), **options)
    releases = [mechanism.step(np.array([30 * (hour % 24 >= 8)])) for hour in range(600)]
    assert sum(release.publish for release in releases) == mechanism.units // 25 * 25
    return [hour % 24 for hour, release in enumerate(releases) if release.fresh]


def test_with_periods_samples_meet_all_hours_of_the_day_and_not_one_for_days() -> None:
    assert phases()[:3] == [0, 0, 0]
    told = phases(periods="24,168")
    assert len({*told[:3]}) == 3
    assert len({*told}) > len({*phases()})


def test_with_periods_no_sample_is_put_off_beyond_the_horizon() -> None:
    mechanism = make("shp-adaptive", ZeroNoise(), horizon=30, samples=Fraction(1, 12), periods="24")
    fresh = [mechanism.step(np.array([100])).fresh for _ in range(30)]
    assert [place for place, one in enumerate(fresh) if one] == [0, 17]
    short = make("shp-adaptive", ZeroNoise(), horizon=20, samples=Fraction(1, 10), periods="7,8")
    assert sum(short.step(np.array([100])).fresh for _ in range(20)) == 2


def test_predictions_follow_the_trend_of_noisy_counts() -> None:
    noise = ObservedNoise(lambda size: np.array([4 * len(noise.draws)]))
    mechanism = make("shp-adaptive", noise, horizon=12, samples=Fraction(1, 2))
    releases = [mechanism.step(np.zeros(1, np.int64)) for _ in range(5)]
    assert [release.fresh for release in releases] == [True, False, True, False, False]
    assert [int(release.counts[0]) for release in releases] == [0, 0, 4, 6, 8]


def test_after_the_last_sample_the_line_through_the_samples_goes_on_to_the_end_of_the_horizon() -> None:
    values = [100, 40, 160, 20]
    noise = ObservedNoise(lambda size: np.array([values[len(noise.draws)]]))
    mechanism = make("shp-adaptive", noise, horizon=40, samples=Fraction(1, 10))
    releases = [mechanism.step(np.zeros(1, np.int64)) for _ in range(45)]
    last = max(place for place, release in enumerate(releases) if release.fresh)
    after = [int(release.counts[0]) for release in releases[last + 1 : 40]]
    assert sum(release.publish for release in releases) <= mechanism.units
    assert len(after) >= 3
    assert max(abs(np.diff(after, 2))) <= 1  # a line, rounded
    assert after[0] != after[-1]
    assert [int(release.counts[0]) for release in releases[40:]] == [after[-1]] * 5


def test_a_regression_by_hand() -> None:
    one = Fraction(1)
    assert regressed(9, [], []) == 0
    assert regressed(9, [(3, 7)], [one]) == 7
    assert regressed(5, [(1, 10), (3, 20)], [one, one]) == 30
    assert regressed(4, [(1, 0), (2, 0), (3, 6)], [one, one, one]) == 8  # mean 2, slope 3
    # Weighted: of (1, 0) once and (3, 6) three times the line is the same, through both.
    assert regressed(4, [(1, 0), (3, 6)], [one, 3 * one]) == 9
    assert regressed(2**60, [(1, 0), (2, RELEASE_LIMIT)], [one, one]) == RELEASE_LIMIT
