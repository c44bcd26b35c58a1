"""What an audit of releases can show: the sound kinds keep within epsilon, and broken ones do not.

The games are played through ``replay``, the intruder's through the pan-private mechanisms, for no replay has
one. Seeds are fixed: a bound that holds or fails does so every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eventveil.counting.bounding_by_column import ColumnContributions
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.pan_private import PAN_PRIVATE, Counters, PanPrivate
from eventveil.mechanisms.registry import KINDS
from eventveil.model.topology import MechanismSettings
from eventveil.privacy import discovery
from eventveil.privacy.gaussian import mu_squared
from eventveil.privacy.noise import NoiseSource, SeededNoise
from eventveil.process import kernel
from tests.contract.broken import pan_private, windows
from tests.contract.distinguishing import (
    RISK,
    Alone,
    Game,
    InBulk,
    Signature,
    audit,
    audit_delta,
    audit_mu,
    bound,
    play,
    probability_bounds,
)
from tests.contract.noises import RescaledNoise, attach

pytestmark = pytest.mark.slow

EPSILON = Fraction(2)
IN_STREAMS: Any = {"streams": 100, "replays": 9}

#: A user who moves between columns and groups, where there are several.
GAMES = {
    "uniform": Game("uniform", EPSILON, 2, [[1, 0], [0, 2]], [0, 1], users=2000),
    "sample": Game("sample", EPSILON, 2, [[1, 0], [0, 2]], [0, 1], cells=[(0, 0)], users=2000),
    # Samples at timestamps 1 and 3, and in the second block 5 and 6: a window holds three of the four.
    "fast": Game(
        "fast", EPSILON, 4, [[1, 0]] * 6, [None, None, 0, None, 1, 0], users=6000,
        options={"max_samples": 2, "drift": Fraction(10**6)},
    ),
    "budget-distribution": Game("budget-distribution", EPSILON, 1, [[2]], [0], **IN_STREAMS),
    "budget-absorption": Game("budget-absorption", EPSILON, 1, [[1]], [0], **IN_STREAMS),
    # Far above the cut, where the filter shows its first sample as it is.
    "paced": Game("paced", EPSILON, 1, [[50]], [0], **IN_STREAMS),
    "seasonal": Game("seasonal", EPSILON, 1, [[50]], [0], **IN_STREAMS),
    **{
        f"{kind} groups": Game(
            kind, EPSILON, 2, [[2, 0], [0, 4]], [0, 1], users=500, replays=6, options={"groups": 1000}
        )
        for kind in ("budget-distribution", "budget-absorption")
    },
    "time-unit": Game("time-unit", EPSILON, 1, [[1]], [0], users=2000),
    "retroactive-grouping": Game(
        "retroactive-grouping", EPSILON, 1, [[1], [3]], [None, 0], users=6000, replays=2,
        cells=[(0, 0), (1, 0)], resolution=3, options={"share": Fraction(1, 2)},
    ),
    # The timestamp after the visit tells the noise that both share.
    "totals": Game(
        "totals", EPSILON, 1, [[1], [1]], [0, None], cells=[(0, 0), (1, 0)], resolution=3, users=2000,
        replays=4, options={"blocks": "2"},
    ),
    "shp-point": Game("shp-point", EPSILON, 2, [[1], [0]], [0, 0], **IN_STREAMS),
    "shp-window": Game("shp-window", EPSILON, 2, [[1], [0]], [0, 0], options={"span": 2}, **IN_STREAMS),
    "shp-adaptive": Game(
        "shp-adaptive", EPSILON, 2, [[1], [0]], [0, 0], options={"samples": Fraction(1)}, **IN_STREAMS
    ),
}  # fmt: skip
EVERY_GAME = pytest.mark.parametrize("name", GAMES)


DELTA = Fraction(1, 10**4)
MU = float(mu_squared(EPSILON, DELTA)) ** 0.5
NORMAL: Any = {"noise": "gaussian", "delta": DELTA}

#: The same through streams with Gaussian noise, of about 1.5 for a whole budget.
GAUSSIAN_GAMES = {
    "uniform": Game(
        "uniform", EPSILON, 2, [[3, 0], [0, 2]], [0, 1], users=2000, replays=4, resolution=5, options=NORMAL
    ),
    "sample": Game(
        "sample", EPSILON, 2, [[1, 0], [0, 2]], [0, 1], cells=[(0, 0)], users=2000, replays=4, options=NORMAL
    ),
    "seasonal": Game("seasonal", EPSILON, 1, [[50]], [0], streams=100, replays=6, options=NORMAL),
    "time-unit": Game("time-unit", EPSILON, 1, [[1]], [0], users=2000, replays=4, options=NORMAL),
    # Of three events two count, each in a column of its own.
    "uniform, each column": Game(
        "uniform", EPSILON, 1, [[3, 2]], [(0, 0, 1)], users=2000, replays=6, resolution=5, options=NORMAL,
        contributions=2, per_column=1,
    ),
    # The timestamp after the visit makes up for what the one of the visit erred by.
    "totals": Game(
        "totals", EPSILON, 1, [[1], [1]], [0, None], cells=[(0, 0), (1, 0)], resolution=6, users=2000,
        replays=8, options={**NORMAL, "blocks": "2"},
    ),
}  # fmt: skip
EVERY_GAUSSIAN_GAME = pytest.mark.parametrize("name", GAUSSIAN_GAMES)


def half_noise(seed: int) -> NoiseSource:
    return RescaledNoise(InBulk(seed), Fraction(1, 2))


def test_every_kind_is_audited() -> None:
    assert {game.kind for game in GAMES.values()} == set(KINDS)


@EVERY_GAME
def test_what_is_released_tells_no_more_than_epsilon(name: str) -> None:
    found = audit(GAMES[name])
    assert found <= EPSILON
    assert found > EPSILON / 4  # a game that nobody can win proves nothing


def test_every_kind_with_gaussian_noise_is_audited() -> None:
    assert {game.kind for game in GAUSSIAN_GAMES.values()} == {
        kind for kind in KINDS if "noise" in KINDS[kind].options
    }


@EVERY_GAUSSIAN_GAME
def test_what_is_released_with_gaussian_noise_tells_no_more_than_mu(name: str) -> None:
    assert MU / 3 < audit_mu(GAUSSIAN_GAMES[name]) <= MU


@EVERY_GAUSSIAN_GAME
def test_half_the_gaussian_noise_is_rejected(name: str) -> None:
    assert audit_mu(GAUSSIAN_GAMES[name], half_noise) > MU


def test_noise_for_a_bound_of_each_column_that_is_not_kept_to_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both events in one column, with the noise of one in each of two."""
    game = replace(GAUSSIAN_GAMES["uniform, each column"], cells=[(0, 0)], resolution=8)
    monkeypatch.setattr(kernel, "NATIVE", None)
    assert audit_mu(game) <= MU
    monkeypatch.setattr(ColumnContributions, "admit", lambda self, users, _: self._in_all.admit(users))
    assert audit_mu(game) > MU


@EVERY_GAME
def test_half_the_noise_is_rejected(name: str) -> None:
    game = GAMES[name]
    # A third of what the sound kind has to stand is enough here.
    assert audit(replace(game, replays=3) if game.streams > 1 else game, half_noise) > EPSILON


#: Both ways in which a user who is alone is shown most often, at an epsilon where each sets the threshold.
ALONE = {
    "one column": Alone("seasonal", Fraction(3), DELTA, 3, 1, apart=False, users=100_000, replays=2),
    "one event each": Alone("uniform", Fraction(1, 2), DELTA, 3, 2, apart=True, users=50_000, replays=4),
}
EVERY_WAY_ALONE = pytest.mark.parametrize("way", ALONE)


@EVERY_WAY_ALONE
def test_a_column_that_one_user_alone_brings_is_shown_no_more_often_than_delta(way: str) -> None:
    found = audit_delta(ALONE[way])
    assert float(DELTA) / 5 < found <= DELTA


def without_contributions(scale: Fraction, events: int, delta: Fraction) -> int:
    """As if a user had one event in a window."""
    return 1 + discovery._beyond(scale, delta)


def in_one_column(scale: Fraction, events: int, delta: Fraction) -> int:
    """As if a user had one column."""
    return events + discovery._beyond(scale, delta)


def in_many_columns(scale: Fraction, events: int, delta: Fraction) -> int:
    """As if a user had no column with more than one event."""
    return 1 + discovery._beyond(scale, delta / events)


@pytest.mark.parametrize(
    ("broken", "way", "replays"),
    [
        (without_contributions, "one column", 1),
        (in_many_columns, "one column", 2),
        (without_contributions, "one event each", 1),
        (in_one_column, "one event each", 1),
    ],
)
def test_a_threshold_that_is_too_low_is_rejected(
    broken: Any, way: str, replays: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mostly by fewer replays than the sound one has to stand."""
    monkeypatch.setattr(discovery, "threshold", broken)
    assert audit_delta(replace(ALONE[way], replays=replays)) > DELTA


# Four columns that are quiet for a window and then move one after another, with a user who follows them.
FOLLOWING = Game(
    "budget-absorption", Fraction(3), 4, [[0] * 4] * 4 + (24 * np.eye(4, dtype=int)).tolist(),
    [None] * 4 + [0, 1, 2, 3], users=200, replays=16, options={"groups": 800, "factor": Fraction(16)},
)  # fmt: skip
EVERY_COLUMN = Game("fast", EPSILON, 3, [[0] * 3] * 3, [0, 1, 2], users=9000, options={"max_samples": 1})
STILL = Game("uniform", EPSILON, 2, [[1], [1]], [None, 0], cells=[(0, 0), (1, 0)], resolution=4, users=1000)


@pytest.mark.parametrize(
    ("broken", "game"),
    [
        (windows.IndependentGroups, FOLLOWING),
        (windows.ScheduleForEachColumn, EVERY_COLUMN),
        (windows.SeededTwice, STILL),
    ],
)
def test_a_broken_kind_is_rejected_and_the_sound_one_is_not(
    broken: type[Mechanism], game: Game, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert audit(replace(game, replays=1)) <= game.epsilon
    monkeypatch.setitem(KINDS, broken.kind, broken)
    monkeypatch.setattr("eventveil.mechanisms.publishing.BudgetLedger", windows.PermissiveLedger)
    assert audit(game) > game.epsilon


class DrawsAgain:
    """After a crash at the second timestamp: what was drawn before it is known, and then it is drawn anew."""

    def __init__(self, seed: int) -> None:
        self._sources = [InBulk(seed), InBulk(10_000 + seed)]

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self._sources.pop(0).discrete_laplace(scale, size)


@pytest.mark.parametrize("recovered", ["the same bytes", "fresh noise"])
def test_a_second_draw_after_a_crash_is_rejected_and_the_same_bytes_are_not(recovered: str) -> None:
    """Timestamp 2 was published, and is published again by a successor that knows timestamp 1 alone."""
    game = GAMES["uniform"]
    transcripts = []
    for present in (False, True):
        before = play(game, present, [2 + present])
        after = play(game, present, [2 + present], DrawsAgain if recovered == "fresh noise" else InBulk)
        transcripts.append([(*one, again[1]) for one, again in zip(before, after, strict=True)])
    assert (bound(*transcripts) > EPSILON) == (recovered == "fresh noise")


# Pan-private


def intrusion(
    kind: type[PanPrivate], present: bool, published: Sequence[bool], before: bool, seed: int
) -> list[Signature]:
    """One intrusion into timestamp 1; users in columns of their own, at every timestamp.

    They come to timestamp 1 ``before`` or after the intruder has seen its counters. Budget is shifted to
    publications, which the counts of everybody else bring about where they are wanted.
    """
    users, window = 250_000, len(published)
    settings = MechanismSettings(
        kind.kind, EPSILON, "2", window, options={"pan_private": "single", "shift": "true"}
    )
    noise = SeededNoise(seed)
    mechanism = kind(settings, users, 1, noise)
    attach(mechanism)
    seen: list[NDArray[Any]] = []
    level = 0
    for i, wanted in enumerate(published):
        scale = mechanism.opening()
        assert scale is not None
        counters = Counters(users, scale, noise).cells
        level += 1000 * wanted
        if i == 0:
            sight = counters + (present and before)
            seen.append(sight)
        counters += level + present
        release = mechanism.step(counters)
        assert release.fresh == wanted
        if wanted:
            seen.append(release.counts - level if before else release.counts - level - sight)
    cut = [part.clip(0, 1) if before else part.clip(-3, 3) for part in seen[not before :]]
    return list(map(tuple, np.array(cut).T.tolist()))


def test_the_printed_pan_private_rule_is_rejected_and_the_sound_one_is_not() -> None:
    """A third of the remainder for every publication, and an offer that was seen besides."""
    played = [False, *[True] * 7]
    for kind, sound in ((PAN_PRIVATE["budget-distribution"], True), (pan_private.AsPrinted, False)):
        worlds = [intrusion(kind, present, played, True, 1 + present) for present in (False, True)]
        assert (bound(*worlds) <= EPSILON) == sound


def test_an_intruder_who_knows_the_noise_of_the_release_knows_who_came_later() -> None:
    for kind, sound in ((PAN_PRIVATE["budget-distribution"], True), (pan_private.ReusedNoise, False)):
        worlds = [intrusion(kind, present, [True], False, 1 + present) for present in (False, True)]
        assert (bound(*worlds) <= EPSILON) == sound


# The bound itself


@pytest.mark.parametrize(
    ("hits", "size", "lowest", "highest"),
    [(0, 10, 0.0, 0.3085), (3, 10, 0.0667, 0.6525), (10, 10, 0.6915, 1.0), (50, 1000, 0.0373, 0.0654)],
)
def test_bounds_are_those_of_clopper_and_pearson(hits: int, size: int, lowest: float, highest: float) -> None:
    """At 95 %, from the published tables."""
    assert probability_bounds(hits, size, 0.025) == pytest.approx((lowest, highest), abs=1e-4)


@pytest.mark.parametrize("chance", [0.01, 0.2, 0.5, 0.9])
def test_bounds_are_wrong_as_rarely_as_they_say(chance: float) -> None:
    """Over all numbers of hits, with their exact probabilities."""
    size, wrong = 60, [0.0, 0.0]
    for hits in range(size + 1):
        lowest, highest = probability_bounds(hits, size, RISK)
        mass = comb(size, hits) * chance**hits * (1 - chance) ** (size - hits)
        wrong[0] += mass * (lowest > chance)
        wrong[1] += mass * (highest < chance)
    assert max(wrong) <= RISK


def test_a_player_without_a_clue_wins_nothing() -> None:
    chance = np.random.default_rng(2)
    worlds = [list(map(tuple, chance.integers(0, 3, (3000, 3)).tolist())) for _ in range(2)]
    assert bound(*worlds) <= 0
