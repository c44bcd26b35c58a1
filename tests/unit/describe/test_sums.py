"""What streams cost together: by hand and by brute force, and in words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.describe.sums import Normal, cost_of, describe_total, periods, timestamps_met, together, totals
from eventveil.kinds.registry import in_sums, unbounded
from eventveil.model.topology import Topology
from eventveil.privacy.gaussian import epsilon, mu_squared
from eventveil.topology.problems import TopologyInvalid
from tests.unit.topology.examples import BASE, changed, load_text, replaced, two_streams

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
def test_windows_are_those_that_cover_the_timestamps(met: int, window: int) -> None:
    covering = next(count for count in range(1, met + 1) if count * window >= met)
    # A span of met - 1 intervals meets met timestamps; a span of one millisecond meets two.
    windows = periods("w-event", timestamps_met(max(1, (met - 1) * 10), 10), window)
    assert windows == (covering if met > 1 else -(-2 // window))


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


def test_a_sum_in_words_has_its_parts_its_cap_and_its_adjacency(tmp_path: Path) -> None:
    topology = two(tmp_path)
    lines = describe_total(totals(topology.streams, topology.budget)[0])
    assert lines[0] == "destinations: over any 5 days at most 121 timestamps, 2 windows, epsilon 2"
    assert lines[2] == "together at most epsilon 4 over any 5 days; within the cap of 5"
    assert lines[3] == "weakest adjacency: add-remove: what a user did instead costs at most epsilon 6"


@pytest.mark.parametrize(
    ("change", "instead"),
    [
        (("columns: [a]", "columns: [a, b]"), 4),  # two windows, two steps
        (("columns: [a]", "columns: [a]"), 2),  # in a single column there is nothing else to do
    ],
)
def test_what_a_user_did_instead_costs_two_steps(
    tmp_path: Path, change: tuple[str, str], instead: int
) -> None:
    topology = load_text(tmp_path, two_streams(change))
    (total,) = totals(topology.streams, topology.budget)
    assert [cost.instead for cost in total.costs] == [4, instead]


def test_what_a_user_did_instead_costs_one_step_by_substitute(tmp_path: Path) -> None:
    change = (("columns: [a]", "columns: [a, b]"), ("window: 120}", "window: 120, adjacency: substitute}"))
    topology = load_text(tmp_path, two_streams(*change))
    (total,) = totals(topology.streams, topology.budget)
    assert [cost.instead for cost in total.costs] == [4, 2]
    assert (total.epsilon, total.instead) == (4, 6)
    assert describe_total(total)[3].endswith("add-remove: what a user did instead costs at most epsilon 6")


BESIDE = """\
  bills:
    source: {topic: other.bills, value: /eur}
    values: {maximum: 1000, step: 1}
    mechanism: {kind: pak, epsilon: 1, delta: 1e-6}
    sink: {topic: bills.out}
  stays:
    source: {topic: other.stays, user: /u, report: /r, time: /t}
    timeline: {interval: 1h, origin: "2026-01-01T00:00:00Z"}
    values: {maximum: 600}
    mechanism: {kind: topl, epsilon: 0.5}
    sink: {topic: stays.out}
"""


def beside(*changes: tuple[str, str]) -> str:
    return BASE.replace("budget: {epsilon: 5, span: 5d}\n", replaced(BESIDE, *changes))


def test_values_and_reports_of_the_same_users_are_named_beside_the_sum_with_what_they_add(
    tmp_path: Path,
) -> None:
    topology = load_text(tmp_path, beside())
    (total,) = totals(in_sums(topology), None)
    lines = describe_total(total, unbounded(topology)["users"])
    assert lines[1] == (
        "together at most epsilon 2 over any 5 days, without what is not in this sum; no cap is set"
    )
    assert lines[3:] == (
        "not in this sum: bills (pak), epsilon 1 and delta 1e-06 for each value; nothing bounds how many"
        " values a user has, and k of them add k times that epsilon, delta as its own lines say."
        " The existence of a value is not protected",
        "not in this sum: stays (topl), epsilon 0.5 for each report; nothing bounds how many reports a user"
        " has, and k of them add k times that epsilon. The existence of a report is not protected",
    )


def test_values_of_other_people_are_beside_their_own_sum(tmp_path: Path) -> None:
    topology = load_text(tmp_path, beside(("value: /eur", "value: /eur, users: staff")))
    assert {name: [one.stream for one in streams] for name, streams in unbounded(topology).items()} == {
        "staff": ["bills"],
        "users": ["stays"],
    }


def gaussian(line: str, delta: str = "1e-9") -> tuple[str, str]:
    return line, f"{line}, noise: gaussian, delta: {delta}"


def test_mu_squared_of_gaussian_streams_adds_up_first_and_then_epsilons_and_deltas(tmp_path: Path) -> None:
    first = ("kind: budget-absorption", "noise: gaussian\n      delta: 1e-6\n      kind: uniform")
    topology = load_text(
        tmp_path, two_streams(gaussian("window: 120"), ("epsilon: 1,", "epsilon: 0.5,")).replace(*first)
    )
    (total,) = totals(topology.streams, topology.budget)
    one, other = total.costs
    assert one.normal is not None
    assert other.normal is not None
    parts = [
        2 * mu_squared(Fraction(1), Fraction(1, 10**6)), 2 * mu_squared(Fraction(1, 2), Fraction(1, 10**9)),
    ]  # fmt: skip
    assert [one.normal.mu_squared, other.normal.mu_squared] == parts
    assert total.delta == Fraction(1, 10**6) + Fraction(1, 10**9)
    assert total.epsilon == epsilon(sum(parts), total.delta)
    assert one.epsilon == epsilon(parts[0], Fraction(1, 10**6)) < 2
    assert [one.steps, other.steps] == [2, 1]  # the other one has a single column
    assert total.instead == epsilon(2 * parts[0] + parts[1], total.delta) < 2 * total.epsilon
    lines = describe_total(total)
    assert "epsilon 1.455 and delta 1e-06 (mu squared 0.112)" in lines[0]
    assert f"together at most epsilon {float(total.epsilon)} and delta 1e-06 over any 5 days" in lines[2]
    assert lines[2].endswith("; within the cap of 5 on epsilon; nothing caps delta")
    capped = describe_total(replace(total, delta_cap=Fraction(1, 10**5)))
    assert capped[2].endswith("; within the cap of 5 on epsilon; 1e-05 on delta")


@pytest.mark.parametrize(("cap", "valid"), [("0.000001001", True), ("0.000001", False)])
def test_a_cap_on_delta_is_on_the_sum_of_those_of_gaussian_streams(
    tmp_path: Path, cap: str, valid: bool
) -> None:
    first = ("kind: budget-absorption", "noise: gaussian\n      delta: 1e-6\n      kind: uniform")
    text = two_streams(gaussian("window: 120"), ("epsilon: 1,", "epsilon: 0.5,")).replace(*first)
    capped = text.replace("span: 5d}", f"span: 5d, delta: {cap}}}")
    if valid:
        (total,) = totals((topology := load_text(tmp_path, capped)).streams, topology.budget)
        assert total.delta == total.delta_cap == Fraction(1_001, 10**9)
        return
    with pytest.raises(TopologyInvalid, match=r"1e-06 together \(destinations 1e-06, second 1e-09\), expec"):
        load_text(tmp_path, capped)


def test_epsilons_of_pure_streams_are_added_to_that_of_gaussian_ones(tmp_path: Path) -> None:
    topology = load_text(tmp_path, two_streams(gaussian("window: 120"), ("epsilon: 1,", "epsilon: 0.5,")))
    (total,) = totals(topology.streams, topology.budget)
    assert total.costs[0].normal is None
    assert total.epsilon == total.costs[0].epsilon + total.costs[1].epsilon
    assert total.delta == Fraction(1, 10**9)


TOTALS = "kind: totals\n      blocks: [24, 168]\n      noise: gaussian\n      delta: 1e-6"
WINDOW = ("      window: 120\n", "")


def test_timestamps_whose_gaussian_noise_hangs_together_cost_their_square(tmp_path: Path) -> None:
    no_budget = ("budget: {epsilon: 5, span: 5d}\n", "")
    stream = load_text(tmp_path, changed(("kind: budget-absorption", TOTALS), WINDOW, no_budget)).streams[0]
    mu = mu_squared(Fraction(1), Fraction(1, 10**6))
    for timestamps, times in ((2, 4), (121, 121**2), (169, 169 * 168), (1001, 1001 * 168)):
        one = cost_of(stream, (timestamps - 1) * HOUR)
        assert (one.timestamps, one.windows, one.normal) == (
            timestamps, timestamps, Normal(Fraction(1), Fraction(1, 10**6), times)
        )  # fmt: skip
        assert one.epsilon == epsilon(times * mu, Fraction(1, 10**6))


def test_a_cap_counts_noise_that_hangs_together(tmp_path: Path) -> None:
    # Two timestamps: four times mu squared, where twice would be epsilon 1.455.
    budget = ("budget: {epsilon: 5, span: 5d}", "budget: {epsilon: 2.16, span: 1h}")
    least = epsilon(4 * mu_squared(Fraction(1), Fraction(1, 10**6)), Fraction(1, 10**6))
    assert Fraction(215, 100) > least > Fraction(2)
    load_text(tmp_path, changed(("kind: budget-absorption", TOTALS), WINDOW, budget))
    less = (budget[0], budget[1].replace("2.16", "2"))
    with pytest.raises(TopologyInvalid, match=r"cost 2\.1\d* together"):
        load_text(tmp_path, changed(("kind: budget-absorption", TOTALS), WINDOW, less))


def test_a_single_window_of_gaussian_noise_costs_what_the_file_says() -> None:
    third = Normal(Fraction(1, 3), Fraction(1, 10**9))
    assert together([Fraction(1)], [third]) == Fraction(4, 3)
    assert Fraction(1, 3) < together([], [third.times(2)]) < Fraction(2, 3)


def test_a_cap_is_compared_with_what_mu_squared_comes_to(tmp_path: Path) -> None:
    # 2 windows each: epsilon 1.455 at delta 1e-6, where two epsilons would be 2.
    first = ("kind: budget-absorption", "noise: gaussian\n      delta: 1e-6\n      kind: uniform")
    load_text(tmp_path, changed(first, ("epsilon: 5,", "epsilon: 1.455,")))
    with pytest.raises(
        TopologyInvalid, match=r"cost 1.455 together \(destinations 1.455\), expected at most 1.45"
    ):
        load_text(tmp_path, changed(first, ("epsilon: 5,", "epsilon: 1.45,")))
