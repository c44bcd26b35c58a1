"""What a topology promises: sums by hand and by brute force, and the words."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.mechanisms import of_stream
from operators.mechanisms.base import Guarantee
from operators.privacy.guarantee import (
    cost,
    cost_of,
    describe,
    describe_total,
    duration_words,
    half_width,
    number,
    timestamps_met,
    totals,
)
from operators.privacy.noise import SystemNoise
from operators.topology.model import Topology
from tests.unit.topology.examples import BASE, changed, load_text, two_streams

HOUR, DAY = 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("span", "interval", "met"),
    [
        (5 * DAY, HOUR, 121),  # five days that begin at half past touch a 121st hour
        (HOUR, HOUR, 2),
        (1, HOUR, 2),
        (HOUR + 1, HOUR, 3),
        (DAY, 7 * DAY, 2),
        (29 * DAY, DAY, 30),
    ],
)
def test_timestamps_that_a_span_meets_by_hand(span: int, interval: int, met: int) -> None:
    assert timestamps_met(span, interval) == met


@given(span=st.integers(1, 60), interval=st.integers(1, 20))
def test_timestamps_that_a_span_meets_by_trying_every_half_step(span: int, interval: int) -> None:
    most = 0
    for begin in range(2 * interval):  # in halves of a millisecond
        end = begin + 2 * span
        met = sum(
            1
            for t in range(span // interval + 3)
            if 2 * interval * t < end and begin < 2 * interval * (t + 1)
        )
        most = max(most, met)
    assert timestamps_met(span, interval) == most


@given(met=st.integers(1, 40), window=st.integers(1, 12))
def test_a_cost_is_what_the_windows_that_cover_the_timestamps_cost(met: int, window: int) -> None:
    covering = next(count for count in range(1, met + 1) if count * window >= met)
    # A span of met - 1 intervals meets met timestamps; a span of one millisecond meets two.
    assert cost(Fraction(1, 3), window, 10, max(1, (met - 1) * 10)) == Fraction(
        covering if met > 1 else -(-2 // window), 3
    )


def test_the_cost_of_a_stream_by_hand(tmp_path: Path) -> None:
    stream = load_text(tmp_path, BASE).streams[0]
    assert cost_of(stream, 5 * DAY).epsilon == 2  # 121 timestamps, two windows of 120
    assert cost_of(stream, 5 * DAY - HOUR).epsilon == 1  # 120 timestamps, one window
    assert (cost_of(stream, 10 * DAY).timestamps, cost_of(stream, 10 * DAY).windows) == (241, 3)


def two(tmp_path: Path, *changes: tuple[str, str]) -> Topology:
    return load_text(tmp_path, two_streams(*changes))


def test_streams_of_one_population_add_up_over_the_span_of_the_budget(tmp_path: Path) -> None:
    topology = two(tmp_path, ("epsilon: 1, window: 120", "epsilon: 0.25, window: 40"))
    (total,) = totals(topology.streams, topology.budget)
    # destinations: 121 timestamps, 2 windows of 120, 2 * 1; second: 121 timestamps, 4 windows of 40, 4 * 0.25
    assert [(c.stream, c.timestamps, c.windows, c.epsilon) for c in total.costs] == [
        ("destinations", 121, 2, Fraction(2)),
        ("second", 121, 4, Fraction(1)),
    ]
    assert (total.epsilon, total.cap, total.span) == (3, 5, 5 * DAY)


def test_a_sum_equal_to_the_cap_is_within_it(tmp_path: Path) -> None:
    assert load_text(tmp_path, changed(("epsilon: 5,", "epsilon: 2,"))).budget is not None


def test_another_population_stays_outside_the_cap(tmp_path: Path) -> None:
    topology = two(tmp_path, ("/u,", "/u, users: staff,"), ("epsilon: 1,", "epsilon: 100,"))
    capped, outside = totals(topology.streams, topology.budget)
    assert (capped.population, capped.epsilon, capped.cap) == ("users", 2, 5)
    assert (outside.population, outside.epsilon, outside.cap) == ("staff", 200, None)


def test_without_a_budget_the_span_is_the_longest_window(tmp_path: Path) -> None:
    topology = load_text(
        tmp_path, two_streams(("window: 120", "window: 48")).replace("budget: {epsilon: 5, span: 5d}", "")
    )
    (total,) = totals(topology.streams, None)
    assert (total.span, total.cap) == (120 * HOUR, None)
    assert total.epsilon == 2 + 3


@pytest.mark.parametrize(
    ("first", "second", "weakest"),
    [
        ("substitute", "substitute", "substitute"),
        ("substitute", "add-remove", "add-remove"),
        ("add-remove", "substitute", "add-remove"),
    ],
)
def test_the_weakest_adjacency_is_the_one_that_the_sum_protects(
    tmp_path: Path, first: str, second: str, weakest: str
) -> None:
    text = two_streams(("window: 120}", f"window: 120, adjacency: {second}}}"))
    text = text.replace("window: 120\n", f"window: 120\n      adjacency: {first}\n")
    topology = load_text(tmp_path, text)
    assert totals(topology.streams, topology.budget)[0].adjacency == weakest


@given(scale=st.fractions(Fraction(1, 5), 1000), confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_half_width_is_the_smallest_that_holds_the_confidence(scale: Fraction, confidence: float) -> None:
    base = math.exp(-1 / float(scale))

    def outside(m: int) -> float:
        """P(|x| > m), from the sum of the probabilities inside."""
        inside = (1 - base) / (1 + base) * (1 + 2 * sum(base**x for x in range(1, m + 1)))
        return 1 - inside

    width = half_width(scale, confidence)
    assert outside(width) <= 1 - confidence + 1e-9
    assert width == 0 or outside(width - 1) > 1 - confidence - 1e-9


def test_the_half_width_of_laplace_noise_is_three_scales() -> None:
    assert half_width(Fraction(100)) == 300  # 100 ln 20 = 299.57 for the continuous one
    assert half_width(Fraction(1, 100)) == 0
    assert half_width(Fraction(10**7)) == pytest.approx(10**7 * math.log(20), rel=1e-6)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1", "1"),
        ("1/2", "0.5"),
        ("1/3", "1/3"),
        ("100", "100"),
        ("1/1000", "0.001"),
        ("21/10", "2.1"),
        ("0", "0"),
    ],
)
def test_rationals_are_shown_exactly(value: str, text: str) -> None:
    assert number(Fraction(value)) == text


@given(value=st.fractions(0, 1000, max_denominator=10_000))
def test_a_shown_rational_reads_back(value: Fraction) -> None:
    assert Fraction(number(value)) == value


def test_durations_are_in_words() -> None:
    assert duration_words(5 * DAY) == "5 days"
    assert duration_words(HOUR) == "1 hour"
    assert duration_words(90_000) == "90 seconds"
    assert duration_words(1) == "1 millisecond"


def test_the_guarantee_in_words_names_everything_that_it_rests_on(tmp_path: Path) -> None:
    stream = load_text(tmp_path, changed(("[ATL, BOS]", "[ATL, BOS]\n      contributions: 3"))).streams[0]
    guarantee = of_stream(stream, SystemNoise()).guarantee
    text = "\n".join(describe(stream, guarantee))
    assert "Epsilon 1.0 for any 120 consecutive timestamps of 1 hour (5 days)" in text
    assert "factor of at most e^1, about 2.72" in text
    assert "all of the user's events are present in one and none in the other" in text
    assert "Sensitivity: 3" in text
    # At best half the budget for one publication: 3 / (1/2) = 6; at worst one share: 3 * 2 * 120 = 720.
    assert f"at best scale 6, within +-{half_width(Fraction(6))} 95 % of the time" in text
    assert f"at worst scale 720, within +-{half_width(Fraction(720))} 95 % of the time" in text
    assert "A user is whoever shares one value of /tailnum (string)" in text


def test_noise_that_is_always_the_same_is_said_once_and_noise_without_bound_is_said(tmp_path: Path) -> None:
    stream = load_text(tmp_path, BASE).streams[0]
    same = Guarantee("w-event", Fraction(1), 120, 1, Fraction(120), Fraction(120))
    assert "Noise of a fresh count: scale 120, within" in "\n".join(describe(stream, same))
    endless = Guarantee("w-event", Fraction(1), 120, 1, Fraction(2), None)
    assert "at worst without bound" in "\n".join(describe(stream, endless))


def test_substitute_says_that_places_are_protected_too(tmp_path: Path) -> None:
    text = changed(("window: 120", "window: 120\n      adjacency: substitute"))
    stream = load_text(tmp_path, text).streams[0]
    words = "\n".join(describe(stream, of_stream(stream, SystemNoise()).guarantee))
    assert "Neighbours (substitute)" in words
    assert "and where" in words
    assert (
        "Sensitivity: 2, the most that one user changes in the counts of a timestamp:"
        " the first event of a user counts, and may be in another column instead." in words
    )


def test_the_bound_is_said_with_the_sensitivity(tmp_path: Path) -> None:
    stream = load_text(tmp_path, changed(("[ATL, BOS]", "[ATL, BOS]\n      contributions: 3"))).streams[0]
    words = "\n".join(describe(stream, of_stream(stream, SystemNoise()).guarantee))
    assert "Sensitivity: 3, " in words
    assert "of a timestamp: the first 3 events of a user count." in words


def test_boundaries_are_explained_to_those_who_use_them(tmp_path: Path) -> None:
    text = changed(("/time\n", "/time\n      append_time: boundary\n"))
    stream = load_text(tmp_path, text).streams[0]
    words = "\n".join(describe(stream, of_stream(stream, SystemNoise()).guarantee))
    assert "after the worker first saw the clock 1 second past the end of its timestamp" in words
    assert "after one longer than 7 days (max_ahead)" in words
    plain = load_text(tmp_path, BASE).streams[0]
    assert "boundary" not in "\n".join(describe(plain, of_stream(plain, SystemNoise()).guarantee))


def test_a_sum_in_words_has_its_parts_its_cap_and_its_adjacency(tmp_path: Path) -> None:
    topology = two(tmp_path)
    lines = describe_total(totals(topology.streams, topology.budget)[0])
    assert lines[0] == "destinations: any 5 days meet at most 121 timestamps, 2 windows, epsilon 2"
    assert lines[2] == "together at most epsilon 4 over any 5 days; within the cap of 5"
    assert lines[3] == "weakest adjacency: add-remove"
