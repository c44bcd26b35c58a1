"""What a stream promises in words, and that the neighbour relation gives it and no more."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.describe.guarantee import describe, duration_words, group_delta, half_width, number, void_from
from eventveil.mechanisms.base import Guarantee
from eventveil.mechanisms.registry import of_stream
from eventveil.privacy.noise import SystemNoise
from tests.unit.topology.examples import BASE, changed, load_text

CHANGES = "changes the probability of any output by a factor of at most"
NO_BUDGET = ("budget: {epsilon: 5, span: 5d}\n", "")

HOUR, DAY = 3_600_000, 86_400_000


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
    assert "All events with one value of /tailnum (string) are one user" in text


def test_a_window_of_one_timestamp_is_one_timestamp(tmp_path: Path) -> None:
    stream = load_text(tmp_path, BASE).streams[0]
    text = "\n".join(describe(stream, Guarantee("w-event", Fraction(1), 1, 1, Fraction(2), Fraction(2))))
    assert "Epsilon 1.0 for any one timestamp of 1 hour (1 hour): " in text
    assert "consecutive" not in text


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
    assert "the end of its timestamp in the partition, which it does 1 second past that end" in words
    assert "After an outage longer than 3 days (max_ahead), the newest events of the outage" in words
    plain = load_text(tmp_path, BASE).streams[0]
    assert "boundary" not in "\n".join(describe(plain, of_stream(plain, SystemNoise()).guarantee))


def words_of(tmp_path: Path, *changes: tuple[str, str]) -> str:
    stream = load_text(tmp_path, changed(*changes)).streams[0]
    return describe(stream, of_stream(stream, SystemNoise()).guarantee)[0]


def test_another_column_is_two_steps_where_neighbours_are_there_or_not(tmp_path: Path) -> None:
    words = words_of(tmp_path)
    assert f"at which of them a user was present {CHANGES} e^1, about 2.72" in words
    assert "did (another column, or fewer events) is two such steps: e^2, about 7.39." in words
    assert "whatever a user did" not in words


def test_with_substitute_whatever_a_user_did_is_one_step(tmp_path: Path) -> None:
    words = words_of(tmp_path, ("window: 120", "window: 120\n      adjacency: substitute"))
    assert f"whatever a user did there {CHANGES} e^1, about 2.72" in words
    assert "e^2" not in words


MECHANISM = "mechanism:\n      kind: budget-absorption\n      epsilon: 1.0\n      window: 120"


def test_at_event_level_the_same_is_said_of_one_timestamp(tmp_path: Path) -> None:
    words = words_of(tmp_path, (MECHANISM, "mechanism: {kind: time-unit, epsilon: 0.5}"), NO_BUDGET)
    assert (
        f"any one timestamp of 1 hour: whether a user was present at it {CHANGES} e^0.5, about 1.65." in words
    )
    assert "two such steps: e^1, about 2.72. For a user who is present at n timestamps" in words


def test_in_a_single_column_there_is_nothing_else_to_do_than_to_stay_away(tmp_path: Path) -> None:
    horizon = "mechanism: {kind: shp-point, epsilon: 0.5, horizon: 48}"
    words = words_of(tmp_path, (MECHANISM, horizon), ("[ATL, BOS]", "[ATL]"), NO_BUDGET)
    assert (
        f"a horizon of 48 timestamps of 1 hour (2 days): whatever a user did there {CHANGES} e^0.5" in words
    )
    assert "two such steps" not in words


@given(scale=st.fractions(Fraction(1, 2), 50))
def test_two_steps_are_reached_so_that_one_would_be_untrue(scale: Fraction) -> None:
    """A user in the first column, in the second, and absent, under discrete Laplace noise of this scale."""
    here, there, absent = (1, 0), (0, 1), (0, 0)

    def log_probability(counts: tuple[int, int], output: tuple[int, int]) -> float:
        """Without the constant that all have."""
        return -sum(abs(o - c) for o, c in zip(output, counts, strict=True)) / float(scale)

    outputs = [(a, b) for a in range(-3, 4) for b in range(-3, 4)]

    def loss(one: tuple[int, int], other: tuple[int, int]) -> float:
        return max(log_probability(one, output) - log_probability(other, output) for output in outputs)

    epsilon = 1 / float(scale)
    assert loss(here, absent) == pytest.approx(epsilon)
    assert loss(absent, here) == pytest.approx(epsilon)
    assert loss(here, there) == pytest.approx(2 * epsilon)


@given(
    epsilon=st.fractions(Fraction(1, 100), 5),
    delta=st.sampled_from([1e-12, 1e-6, 0.01]),
    size=st.integers(1, 40),
)
def test_the_delta_of_a_group_is_that_of_its_steps_one_after_the_other(
    epsilon: Fraction, delta: float, size: int
) -> None:
    together = 0.0
    for _ in range(size):
        together = math.exp(float(epsilon)) * together + delta
    assert group_delta(epsilon, Fraction(delta), size) == pytest.approx(together, rel=1e-9)


@given(epsilon=st.fractions(Fraction(1, 100), 2000), delta=st.sampled_from([1e-12, 1e-6, 0.3]))
def test_a_group_is_void_from_the_first_size_whose_delta_is_1(epsilon: Fraction, delta: float) -> None:
    size = void_from(epsilon, Fraction(delta))
    assert group_delta(epsilon, Fraction(delta), size) >= 1
    assert size == 1 or group_delta(epsilon, Fraction(delta), size - 1) < 1


@pytest.mark.parametrize("windows", [1, 7, 365])
def test_who_stays_for_n_windows_can_be_told_n_times_as_well_so_the_promise_is_for_one(
    tmp_path: Path, windows: int
) -> None:
    """Counts of one more at every timestamp, and outputs above both: each tells sensitivity / scale."""
    stream = load_text(tmp_path, changed(("kind: budget-absorption", "kind: uniform"))).streams[0]
    guarantee = of_stream(stream, SystemNoise()).guarantee
    told = windows * guarantee.window * Fraction(guarantee.sensitivity) / guarantee.best_scale
    assert told == windows * guarantee.epsilon
    assert "present for n times as long, epsilon is n times as large" in describe(stream, guarantee)[0]
