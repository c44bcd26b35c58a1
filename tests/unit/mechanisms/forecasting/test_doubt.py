"""What a column that is alone may hold though it is shown as 0."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from eventveil.mechanisms.forecasting import doubt
from eventveil.mechanisms.forecasting.forecast import Forecast

NOISE = 400.0


def said(level: float, noise: float, one: float = NOISE) -> float:
    (found,) = doubt.of_counts(np.array([level]), noise, one).tolist()
    return float(found)


def test_it_falls_with_every_look_to_what_counts_scatter_by() -> None:
    found = [said(3.0, NOISE / looks) for looks in (1, 2, 4, 8, 1000)]
    assert all(less < more for more, less in pairwise(found))
    assert 2 * 9 + 3 <= found[-1] < 1.1 * (2 * 9 + 3)


def test_a_level_below_zero_says_no_more_than_one_of_zero() -> None:
    assert said(-20.0, 50.0) == said(0.0, 50.0) > 50


def test_noise_that_is_not_known_is_that_of_one_look() -> None:
    assert said(1.0, NOISE, one=0.0) == said(1.0, NOISE)


def learned(columns: int, true: float = 4.0) -> Forecast:
    """Of noise that made levels negative."""
    forecast = Forecast(columns, 120, (24, 168))
    for timestamp, noise in ((1, -20.0), (30, -10.0), (60, 5.0)):
        forecast.learn(np.full(columns, true + noise), NOISE, timestamp)
    return forecast


def test_a_column_alone_is_not_said_to_be_empty_because_noise_made_its_level_negative() -> None:
    forecast = learned(1)
    _, variance = forecast.shown(90)
    assert not forecast.above.any()
    assert variance >= doubt.ABOVE * NOISE / 3


def test_it_is_the_same_after_a_restart_and_not_less_from_a_state_that_lacks_the_noise() -> None:
    forecast = learned(1)
    state = forecast.snapshot()
    empty = Forecast(1, 120, (24, 168))
    assert empty.restored(state, 120).doubt(9).tobytes() == forecast.doubt(9).tobytes()
    earlier = empty.restored({name: state[name] for name in state if name != "noise"}, 120)
    assert earlier.doubt(9) >= forecast.doubt(9)


def test_a_column_that_rises_above_the_noise_and_several_are_as_models_say() -> None:
    assert learned(1, true=500.0).doubt(0).tolist() == [0.0]
    assert learned(3).doubt(0).tolist() == [0.0] * 3
    assert Forecast(1, 120, ()).doubt(0).tolist() == [0.0]


def test_what_grew_from_nothing_is_not_hidden_by_a_long_past_and_moves_on() -> None:
    def grown(counts: list[int]) -> Forecast:
        forecast = Forecast(1, 120, (7,))
        for number, count in enumerate(counts):
            forecast.learn(np.array([float(count)]), 8.0, 1 + 121 * number)
        assert not forecast.above.any()
        return forecast

    small, late = grown([0] * 9), grown([0] * 7 + [5, 5])
    levels, noise = late._clearest()
    assert late.doubt(1) > 1.5 * doubt.of_counts(levels, noise, 8.0)
    assert late.doubt(1) > 2 * small.doubt(1)
    assert late.doubt(120) > late.doubt(1)


def several(levels: list[float], noise: float = NOISE) -> Forecast:
    """Columns at these levels, as six publications show them with normal noise."""
    draw = np.random.default_rng(2)
    forecast = Forecast(len(levels), 120, (24, 168))
    for number in range(6):
        noisy = np.array(levels) + draw.normal(0, noise**0.5, len(levels))
        forecast.learn(noisy, noise, 1 + 29 * number)
    return forecast


def test_of_several_columns_shown_as_0_each_may_hold_what_others_like_it_hold() -> None:
    forecast = several([0.0] * 150 + [12.0] * 50 + [5000.0])
    unseen, hidden = forecast.unseen(200), ~forecast.above
    assert hidden[:200].all()
    assert unseen[-1] == 0
    assert np.median(unseen[:150]) < np.median(unseen[150:200])
    assert unseen[150:200].mean() > 12 * 12
    assert unseen[:150].max() < NOISE * 20


def test_the_noise_of_empty_columns_is_not_taken_for_counts() -> None:
    assert several([0.0] * 500).unseen(200).mean() < NOISE / 6


def test_what_may_be_there_goes_up_and_down_with_the_profile() -> None:
    flat = doubt.of_levels(np.array([0.0, 4.0, 9.0]), 1.0)
    high, none = (doubt.of_levels(np.array([0.0, 4.0, 9.0]), height) for height in (2.0, 0.0))
    assert flat[0] == 0
    assert flat[2] > flat[1] > 4
    assert (high[1:] > 2 * flat[1:]).all()
    assert none.tolist() == [0.0] * 3


def test_it_is_not_said_of_few_columns_nor_of_one_nor_before_a_publication() -> None:
    assert several([0.0] * 10).unseen(200).tolist() == [0.0] * 10
    assert learned(1).unseen(200).tolist() == [0.0]
    assert Forecast(30, 120, ()).unseen(1).tolist() == [0.0] * 30


def test_what_is_said_of_several_is_the_same_after_a_restart() -> None:
    forecast = several([0.0] * 150 + [12.0] * 50)
    other = Forecast(200, 120, (24, 168)).restored(forecast.snapshot(), 120)
    other.last, other.published = forecast.last, forecast.published
    assert other.unseen(200).tobytes() == forecast.unseen(200).tobytes()
    assert (other.unseen(200)[~other.above] > 0).all()
