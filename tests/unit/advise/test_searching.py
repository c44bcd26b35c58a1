"""Which choices are tried, how they are judged, and what is recommended."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from eventveil.advise.choices import (
    NORMAL,
    WINDOWED,
    Bounding,
    Candidate,
    Question,
    intervals,
    kinds,
    settings_of,
)
from eventveil.advise.generating import HOUR, Events, Traffic, draw, labels
from eventveil.advise.planning import plan_of
from eventveil.advise.report import best_errors, impossible, percent, recommendation, rows, table
from eventveil.advise.scoring import HOPELESS, Score, pooled, score, sizes, within
from eventveil.advise.searching import OTHER, RUNS, Findings, search
from eventveil.advise.tally import Tally
from eventveil.advise.trials import alone, in_processes, perform
from eventveil.cli.files import write_topology
from eventveil.model.errors import EventveilError
from eventveil.topology.loading import load
from eventveil.topology.periods import DAY
from tests.unit.replay.history import stream

pytestmark = pytest.mark.slow

MONDAY = 1_767_571_200_000
QUESTION = Question(labels(6), DAY, "1", DAY, seed=1)


def tally(events: int = 4_000, columns: int = 6, unit: int = DAY, skew: float = 1.0) -> Tally:
    traffic = Traffic(MONDAY, 2, events, columns, events // 10, skew)
    return Tally(draw(traffic), columns, MONDAY, unit)


def found(question: Question = QUESTION, counted: Tally | None = None) -> Findings:
    *_, (done, expected, findings) = search(question, counted or tally(), alone)
    assert done <= expected
    return findings


@pytest.fixture(scope="module")
def findings() -> Findings:
    return found()


def test_intervals_divide_what_is_wanted_and_what_is_protected() -> None:
    assert [*intervals(QUESTION)] == [DAY, 3 * HOUR, HOUR, HOUR // 4]
    assert [*intervals(replace(QUESTION, unit=HOUR))] == [HOUR, HOUR // 4]
    assert [*intervals(replace(QUESTION, protect=HOUR))] == [HOUR, HOUR // 4]
    with pytest.raises(EventveilError, match=r"the budget \(1 minute\).*try --protect day$"):
        found(replace(QUESTION, protect=60_000))


def test_events_of_less_than_a_quarter_of_a_window_get_no_advice() -> None:
    traffic = Traffic(MONDAY, 1, 20_000, 6, 50, 1.0)
    drawn = draw(traffic)
    few = drawn.times < MONDAY + HOUR // 2
    short = Events(drawn.users[few], drawn.columns[few], drawn.times[few])
    with pytest.raises(EventveilError, match=r"cover \d+ minutes, and the budget is for 1 day: .* several"):
        found(counted=Tally(short, 6, MONDAY, DAY))


def test_every_kind_with_windows_is_tried_at_every_interval(findings: Findings) -> None:
    tried = {(one.interval, one.kind) for one in findings.scores}
    assert tried >= {
        (interval, kind) for interval in intervals(QUESTION) for kind in kinds(QUESTION, interval)
    }
    assert {one.bound for one in findings.scores if one.interval == DAY} >= {1, 2, 4, 8}
    assert findings.scores[findings.best].runs >= RUNS


def test_of_choices_that_do_alike_the_one_with_a_known_error_is_taken_at_a_window_of_one() -> None:
    def best(interval: int, **errors: float) -> str:
        scores = {
            Candidate(interval, 1, kind): Score(np.zeros(1), np.zeros(1), error, RUNS)
            for kind, error in errors.items()
        }
        return Findings(QUESTION, tally(), scores=scores).best.kind

    assert best(DAY, seasonal=1.0, uniform=1.02, paced=1.01) == "uniform"
    assert best(DAY, seasonal=1.0, uniform=1.04, paced=0.99) == "seasonal"
    assert best(HOUR, seasonal=1.02, uniform=1.0, paced=1.01) == "seasonal"


@pytest.mark.parametrize("kind", WINDOWED)
@pytest.mark.parametrize("adjacency", ["add-remove", "substitute"])
def test_the_topology_that_is_written_has_the_mechanism_that_was_tried(
    tmp_path: Path, findings: Findings, kind: str, adjacency: str
) -> None:
    question = replace(QUESTION, epsilon="1/3", protect=7 * DAY, adjacency=adjacency)  # type: ignore[arg-type]
    choice = Candidate(HOUR, 4, kind)
    one = Findings(question, findings.tally, scores={choice: replace(findings.scores[findings.best])})
    path = tmp_path / "t.yaml"
    write_topology(str(path), plan_of(one, stream(), "shop", one.tally.origin, ()))
    (written,) = load(str(path), {}).streams
    trial = one.trial(choice, 0)
    assert written.mechanism == settings_of(question, choice) == trial.settings
    assert written.sensitivity == trial.sensitivity
    assert (written.timeline.interval, written.counts.contributions) == (HOUR, 4)
    assert written.counts.labels == question.labels


@pytest.mark.parametrize("kind", sorted(NORMAL))
@pytest.mark.parametrize("adjacency", ["add-remove", "substitute"])
def test_the_topology_that_is_written_has_the_gaussian_noise_that_was_tried(
    tmp_path: Path, findings: Findings, kind: str, adjacency: str
) -> None:
    question = replace(QUESTION, delta="1e-7", protect=7 * DAY, adjacency=adjacency)  # type: ignore[arg-type]
    choice = Candidate(HOUR, 4, kind, normal=True)
    one = Findings(question, findings.tally, scores={choice: replace(findings.scores[findings.best])})
    path = tmp_path / "t.yaml"
    write_topology(str(path), plan_of(one, stream(), "shop", one.tally.origin, ()))
    (written,) = load(str(path), {}).streams
    assert written.mechanism == settings_of(question, choice)
    assert (written.mechanism.options["noise"], written.mechanism.delta) == ("gaussian", Fraction(1, 10**7))


def test_gaussian_noise_is_tried_beside_pure_epsilon_if_a_delta_is_allowed() -> None:
    asked = Question(labels(2), HOUR, "1", 7 * DAY, bound=1, seed=1, rollable=False)
    counted = tally(20_000, 2, HOUR)
    pure, both = found(asked, counted), found(replace(asked, delta="1e-6"), counted)
    assert not any(one.normal for one in pure.scores)
    tried = {(one.interval, one.kind) for one in both.scores if one.normal}
    assert tried == {(interval, kind) for interval in intervals(asked) for kind in NORMAL}
    # What is tried without a delta is the same, with the same noise.
    for choice in pure.scores:
        assert (both.sums[choice][0] == pure.sums[choice][0]).all()
    words = " ".join(recommendation(both))
    # Large counts and a week of hours: here noise that grows with the root of the window is less.
    assert both.best.normal
    assert "with delta 1e-6: any" not in words
    assert "costs epsilon 1 with delta 1e-6." in words
    assert "may fail with probability 1e-6" in words
    assert "far below 1/n for n users" in words
    assert "delta" not in " ".join(recommendation(pure))
    assert f"{both.best.kind}, gaussian" in "\n".join(table(rows(both)))


def test_fewer_events_in_one_column_than_in_all_are_tried_with_gaussian_noise(tmp_path: Path) -> None:
    # Ten events of each user in a timestamp, each in a column of its own; how many users come says no season.
    columns, chance = 10, np.random.default_rng(1)
    users, hours = np.concatenate(
        [
            np.array([np.arange(present), np.full(present, hour)])
            for hour, present in enumerate(chance.integers(50, 3000, 48))
        ],
        axis=1,
    )
    of, at = np.repeat(users, columns), MONDAY + np.repeat(hours, columns) * HOUR
    counted = Tally(Events(of, np.tile(np.arange(columns), len(users)), at), columns, MONDAY, HOUR)
    asked = Question(labels(columns), HOUR, "1", DAY, bound=10, seed=1, rollable=False, delta="1e-6")
    both = found(asked, counted)
    assert {one.per_column for one in both.scores if one.normal} == {0, 1, 2, 4}
    assert not any(one.per_column for one in both.scores if not one.normal)
    best = both.best
    assert best.normal
    assert best.per_column == 1
    assert both.lost(best) == 1 - min(best.bound, columns) / columns
    words = " ".join(recommendation(both))
    assert f"the first {best.bound} events, at most 1 in one column, in" in words
    path = tmp_path / "t.yaml"
    write_topology(str(path), plan_of(both, stream(), "shop", both.tally.origin, ()))
    (written,) = load(str(path), {}).streams
    assert (written.counts.contributions, written.counts.per_column) == (best.bound, 1)
    assert replace(written.mechanism, per_column=1) == settings_of(asked, best)


def test_limits_that_rolled_up_columns_are_too_few_for_are_not_tried() -> None:
    # At this bound some limits are too few for two columns, and some are not.
    asked = Question(labels(60), DAY, "0.1", 7 * DAY, bound=8, seed=1, delta="1e-6")
    both = found(asked, tally(20_000, 60, skew=2.5))
    rolled = [one for one in both.scores if one.rolled]
    assert rolled
    columns = len(both.labels(rolled[0]))
    assert any(one.per_column for one in rolled)
    assert all(one.bound <= one.per_column * columns for one in rolled if one.per_column)


def test_pure_epsilon_is_recommended_where_gaussian_noise_gains_nothing() -> None:
    # Windows of one and four: the whole budget is spent almost at once, which is cheaper with Laplace noise.
    asked = Question(labels(2), HOUR, "1", HOUR, bound=1, seed=1, rollable=False, delta="1e-6")
    best = found(asked, tally(columns=2, unit=HOUR))
    words = " ".join(recommendation(best))
    assert any(one.normal for one in best.scores)
    assert not best.best.normal
    assert "is no gain here, and pure epsilon is the stronger promise" in words
    assert "with delta 1e-6 was tried" in words


def test_negative_counts_are_judged_as_0_too_at_no_further_run(findings: Findings) -> None:
    able = {one for one in findings.scores if one.kind not in {"seasonal", "paced"}}
    clipped = {one for one in able if one.clipped}
    assert clipped == {replace(one, clipped=True) for one in able}
    for one in clipped:
        plain = replace(one, clipped=False)
        assert findings.scores[one].runs == findings.scores[plain].runs
        cut, as_drawn = (sum(findings.sums[which]).sum(axis=0) for which in (one, plain))
        assert (cut >= as_drawn).all()
    helped = [
        findings.scores[one].pooled < findings.scores[replace(one, clipped=False)].pooled for one in clipped
    ]
    assert any(helped)
    assert not any(one.clipped for one in findings.scores if one.kind in {"seasonal", "paced"})


def test_a_sink_with_a_minimum_is_recommended_where_it_is_the_best(
    tmp_path: Path, findings: Findings
) -> None:
    choice = Candidate(HOUR, 1, "uniform", clipped=True)
    one = Findings(QUESTION, findings.tally, scores={choice: findings.scores[findings.best]})
    one.left_out[Bounding(HOUR, 1), False] = 0.0
    path = tmp_path / "t.yaml"
    write_topology(str(path), plan_of(one, stream(), "shop", one.tally.origin, ()))
    (written,) = load(str(path), {}).streams
    assert written.sink.minimum == 0
    assert "`minimum: 0`" in " ".join(recommendation(one))
    whole = perform(one.trial(choice, 0, whole=True))
    assert whole.released is not None
    assert whole.released.min() == 0
    assert (whole.sums == whole.clipped).all()
    assert perform(one.trial(replace(choice, clipped=False), 0)).clipped.tolist() == whole.sums.tolist()


def test_the_same_seed_gives_the_same_noise_in_other_processes_too(findings: Findings) -> None:
    trials = [findings.trial(choice, 1) for choice in [*findings.scores][::7]]
    here = [one.sums.tolist() for one in alone(trials)]
    with in_processes(2) as run:
        assert [one.sums.tolist() for one in run(trials)] == here
    other = Findings(replace(QUESTION, seed=2), findings.tally)
    drawn = [perform(one.trial(Candidate(HOUR, 1, "uniform"), 0)).sums.tolist() for one in (findings, other)]
    assert drawn[0] != drawn[1]


def test_errors_are_parts_of_all_events_and_contain_what_bounding_leaves_out() -> None:
    totals = np.array([[100, 10, 0], [300, 10, 0]])
    runs = [np.array([[90, 15, 1], [290, 5, 0]]), np.array([[80, 15, 0], [310, 5, 0]])]
    one = score(totals, runs)
    # (10 + 10 + 20 + 10) / 2 over 400; 10 over 20.
    assert one.columns[:2].tolist() == [25 / 400, 10 / 20]
    assert np.isnan(one.columns[2])
    assert one.pooled == (50 / 2 + 20 / 2 + 1 / 2) / 420
    assert within(one, 0.1) == 1
    assert pooled(one, totals, np.array([0, 1])) == 35 / 420
    assert np.isnan(pooled(one, totals, np.array([2])))


def test_columns_are_large_middle_or_small() -> None:
    groups = sizes(np.arange(25)[None, :])
    assert groups.large.tolist() == [24, 23, 22]
    assert [len(groups.middle), len(groups.small)] == [10, 12]
    assert [len(one) for one in (sizes(np.ones((1, 1))).large, sizes(np.ones((1, 1))).small)] == [1, 0]


def test_hopeless_columns_become_one_and_the_topology_counts_them_there(tmp_path: Path) -> None:
    question = replace(QUESTION, labels=labels(60), protect=7 * DAY, bound=2)
    one = found(question, tally(columns=60, skew=1.5))
    assert one.best.rolled
    hopeless = {
        label for label, error in zip(question.labels, best_errors(one), strict=True) if not error < 0.5
    }
    path = tmp_path / "t.yaml"
    write_topology(str(path), plan_of(one, stream(), "shop", one.tally.origin, ("why",)))
    (written,) = load(str(path), {}).streams
    assert written.counts.labels == one.labels(one.best)
    assert written.counts.labels[-1] == OTHER
    assert written.counts.unknown_column == len(written.counts.labels) - 1
    assert hopeless
    assert hopeless.isdisjoint(written.counts.labels)
    assert int(one.totals(one.best).sum()) == one.tally.events
    told = " ".join(impossible(one))
    assert "off by more than half" in told
    assert f"and {len(hopeless) - 8} more" in told


def test_where_all_columns_are_hopeless_the_total_may_be_had() -> None:
    question = replace(QUESTION, labels=labels(200), epsilon="0.2", bound=16)
    one = found(question, tally(columns=200, skew=0))
    assert one.labels(one.best) == (OTHER,)
    assert one.scores[one.best].pooled < 0.5 < min(best_errors(one))
    told = " ".join(recommendation(one))
    assert f"Too small to be released alone, and counted in `{OTHER}`: home, search" in told
    assert "and 192 more" in told


def test_what_was_asked_for_is_no_help(findings: Findings) -> None:
    def told(unit: int, protect: int) -> str:
        asked = replace(findings.question, unit=unit, protect=protect, accuracy=1e-4)
        return " ".join(recommendation(replace(findings, question=asked)))

    assert "What helps: a shorter time to protect, more epsilon, or more users." in told(DAY, DAY)
    assert "What helps: days instead of hours, more epsilon, or more users." in told(HOUR, HOUR)


def test_how_far_the_largest_column_is_off_is_told_for_most_days(findings: Findings) -> None:
    one = findings.scores[findings.best]
    first = percent(float(one.columns.min())), percent(float(one.worst[one.columns.argmin()]))
    told = " ".join(recommendation(findings))
    assert f"is off by {first[0]} on average, and by at most {first[1]} on 95 % of days: " in told
    enough = within(one, findings.question.accuracy)
    assert f" {enough} of 6 columns {'is' if enough == 1 else 'are'} within 5 %." in told


def test_columns_that_can_be_read_are_told_apart_from_those_out_of_reach(findings: Findings) -> None:
    asked = replace(findings.question, accuracy=0.001)
    told = [*impossible(replace(findings, question=asked))]
    readable = [
        label
        for label, error in zip(asked.labels, best_errors(findings), strict=True)
        if 0.001 < error <= HOPELESS
    ]
    assert readable
    assert told[-1] == (
        f"Not within 0.1 % with any choice that was tried, but readable: {', '.join(readable)}."
    )


def test_the_bound_is_not_chosen_if_it_is_given() -> None:
    one = found(replace(QUESTION, bound=3))
    assert {choice.bound for choice in one.scores} == {3}


def test_the_table_has_the_best_choice_first_and_each_interval_and_kind_once(findings: Findings) -> None:
    lines = rows(findings)
    assert lines[0].choice == findings.best
    assert [one.best for one in lines].count(True) == 1
    places = [(one.choice.interval, one.choice.kind, one.choice.rolled) for one in lines]
    assert len(set(places)) == len(places)
    head, first, *_ = table(lines)
    assert head.split() == [
        "timestamp", "per", "user", "window", "kind", "large", "middle", "small", "all", "left", "out",
    ]  # fmt: skip
    assert first.count("%") == 5


def test_too_much_work_is_left_out() -> None:
    wide = Tally(draw(Traffic(MONDAY, 7, 5_000, 60_000, 50)), 60_000, MONDAY, DAY)
    _, _, begun = next(search(replace(QUESTION, labels=labels(60_000), bound=1), wide, alone))
    assert begun.skipped == (HOUR // 4,)
