"""Column groups and the shifted budget: who is published, what it costs, how groups are formed."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eventveil.mechanisms.groups import Groups
from eventveil.model.errors import UnfitSetting
from tests.contract.noises import HUGE, ProbingNoise, WatchedNoise, ZeroNoise, make

KINDS = pytest.mark.parametrize("kind", ["budget-distribution", "budget-absorption"])


def group_of(groups: Groups) -> list[int]:
    return list(groups.snapshot()["group"])


def moved(groups: Groups, *amounts: int) -> None:
    groups.observe(np.zeros(len(amounts), np.int64), np.array(amounts))


def test_sizes_differ_by_one_at_most_and_the_first_groups_are_columns_in_order() -> None:
    groups = Groups(8, 3, 5)
    assert groups.sizes.tolist() == [3, 3, 2]
    assert group_of(groups) == [0, 0, 0, 1, 1, 1, 2, 2]


def test_columns_that_moved_most_come_first_and_ties_stay_where_they_were() -> None:
    groups = Groups(6, 3, 5)
    moved(groups, 0, -7, 3, 0, 0, 9)
    groups.form(6)
    assert group_of(groups) == [1, 0, 1, 2, 2, 0]
    groups.form(11)  # nothing has moved since
    assert group_of(groups) == [1, 0, 1, 2, 2, 0]


def test_movements_add_up_over_the_period_and_are_forgotten_after_it() -> None:
    groups = Groups(2, 2, 2)
    moved(groups, 5, 4)
    moved(groups, 0, -4)
    groups.form(3)
    assert group_of(groups) == [1, 0]
    moved(groups, 1, 0)
    groups.form(4)  # not yet
    assert group_of(groups) == [1, 0]
    groups.form(5)
    assert group_of(groups) == [0, 1]


@KINDS
def test_a_group_is_published_by_itself_and_the_others_repeat(kind: str) -> None:
    noise = ProbingNoise(3)
    mechanism = make(kind, noise, columns=3, groups=3)
    noise.target, noise.test_noise = np.array([5, 6, 7]), np.array([-HUGE, HUGE, -HUGE])
    release = mechanism.step(np.zeros(3, np.int64))
    assert release.fresh
    assert release.counts.tolist() == [0, 6, 0]


@KINDS
def test_groups_that_publish_together_share_one_offer(kind: str) -> None:
    scales: list[tuple[bool, Fraction]] = []
    probe = ProbingNoise(4)
    alone = make(kind, probe, columns=4)
    noise = WatchedNoise(probe, lambda scale, is_test: scales.append((is_test, scale)))
    mechanism = make(kind, noise, columns=4, groups=2)
    for decisions in ([HUGE, -HUGE], [-HUGE, HUGE], [HUGE, HUGE]):
        probe.test_noise = np.array(decisions)
        spent = mechanism.step(np.zeros(4, np.int64))
        probe.mechanism = alone
        probe.test_noise = HUGE
        expected = alone.step(np.zeros(4, np.int64))
        probe.mechanism = mechanism
        # Whichever group published: the ledger is one, and paid once.
        assert (spent.test, spent.publish) == (expected.test, expected.publish)
    assert len(scales) == 6


@KINDS
def test_the_error_that_a_group_is_compared_with_is_that_of_its_own_columns(kind: str) -> None:
    first_scale = {"budget-distribution": 4, "budget-absorption": 6}[kind]
    mechanism = make(kind, ZeroNoise(), columns=3, groups=2)
    at, above = 2 * first_scale, first_scale + 1
    assert mechanism.step(np.array([at, 0, above])).counts.tolist() == [0, 0, above]


@KINDS
@pytest.mark.parametrize(
    ("columns", "groups", "parts"), [(5, 1, 6), (12, 1, 12), (12, 2, 6), (14, 2, 7), (15, 2, 7)]
)
def test_a_shifted_test_spends_the_smaller_of_half_a_share_and_one_part_per_column(
    kind: str, columns: int, groups: int, parts: int
) -> None:
    mechanism = make(kind, ZeroNoise(), 3, columns, shift="true", groups=groups)
    assert mechanism.step(np.zeros(columns, np.int64)).test == mechanism.units // parts


def test_what_the_test_saves_goes_to_publications() -> None:
    counts = np.full(12, 1000)
    for kind, part in (("budget-distribution", Fraction(3, 8)), ("budget-absorption", Fraction(1, 4))):
        mechanism = make(kind, ZeroNoise(), 3, 12, shift="true")
        release = mechanism.step(counts)
        assert Fraction(release.publish, mechanism.units) == pytest.approx(part, abs=1e-6)
        assert mechanism.guarantee.best_scale <= Fraction(mechanism.units, release.publish)


@KINDS
def test_columns_change_their_groups_with_what_was_released(kind: str) -> None:
    noise = ProbingNoise(2)
    mechanism = make(kind, noise, 2, groups=2, regroup=2)
    noise.target = np.array([3, 8])
    noise.test_noise = HUGE
    mechanism.step(np.zeros(2, np.int64))
    assert json.loads(mechanism.snapshot())["groups"] == {"group": [0, 1], "moved": [3, 8]}
    noise.test_noise = -HUGE
    for _ in range(2):
        mechanism.step(np.zeros(2, np.int64))
    assert json.loads(mechanism.snapshot())["groups"] == {"group": [1, 0], "moved": [0, 0]}


@KINDS
@pytest.mark.parametrize(
    "options",
    [{"groups": 3}, {"groups": 0}, {"groups": 1001}, {"groups": 2, "regroup": 0}, {"regroup": 5}],
    ids=str,
)
def test_groups_that_cannot_be_are_refused(kind: str, options: dict[str, int]) -> None:
    with pytest.raises(UnfitSetting) as refusal:
        make(kind, ZeroNoise(), **options)  # type: ignore[arg-type]  # options by name
    assert refusal.value.setting == list(options)[-1]


@KINDS
@pytest.mark.parametrize(
    "groups",
    [
        None,
        {},
        {"group": [0, 1]},
        {"group": [0, 0], "moved": [0, 0]},
        {"group": [0, 2], "moved": [0, 0]},
        {"group": [0, True], "moved": [0, 0]},
        {"group": [0, 1, 1], "moved": [0, 0]},
        {"group": [0, 1], "moved": [0, -1]},
        {"group": [0, 1], "moved": [0, 2**62]},
        {"group": [0, 1], "moved": "00"},
    ],
    ids=str,
)
def test_a_state_of_groups_that_cannot_be_is_refused(kind: str, groups: Any) -> None:
    mechanism = make(kind, ZeroNoise(), groups=2)
    before = mechanism.snapshot()
    with pytest.raises(ValueError, match=r"should"):
        mechanism.restore(json.dumps({**json.loads(before), "groups": groups}).encode())
    assert mechanism.snapshot() == before
