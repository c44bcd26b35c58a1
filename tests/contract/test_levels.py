"""The exact privacy loss at event level and at user level: every noisy value of a transcript, in closed form.

The noise source sees what it is added to and makes the noisy value come out as the script says; so the
likelihood of the noisy values is known exactly, and everything else that is public has to be a function of
them: it must not differ between neighbouring streams. This is more than a release shows, so the loss that is
bounded here is at least that of the releases.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.mechanisms.base import Counts, Mechanism
from eventveil.mechanisms.registry import KINDS
from eventveil.model.topology import MechanismSettings, Option
from tests.contract.noises import ObservedNoise, make

EPSILON = Fraction(1)
FLOAT_ERROR = 1e-9
VALUES = (-3, 4)  # noisy values that are looked at: below and above all counts in use
OTHERS = (0, 2, 1, 0, 1)  # counts of everybody else in each column, per timestamp
Visits = dict[int, tuple[int, ...]]  # timestamp: what one user adds to each column


class _More(Exception):
    """The script is too short: the next draw has this size."""

    def __init__(self, size: int) -> None:
        self.size = size


class Neighbours:
    """The same mechanism over two streams, with noise that gives both the same noisy values."""

    def __init__(
        self, kind: type[Mechanism], columns: int, sensitivity: int, scale: Fraction, **options: Option
    ):
        window = 1 if kind.level == "event" else int(options.pop("horizon"))
        settings = MechanismSettings(kind.kind, EPSILON, "1", window, options=options)
        self._script: list[Counts] = []
        self._scale = scale
        self.noises = [ObservedNoise(self._next) for _ in range(2)]
        self.mechanisms = [kind(settings, columns, sensitivity, noise) for noise in self.noises]
        self.raw = kind.raw

    def _next(self, size: int) -> Counts:
        if not self._script:
            raise _More(size)
        return self._script.pop(0)

    def step(self, states: Sequence[bytes], counts: Sequence[Counts], script: list[Counts]) -> float:
        """The loss of this timestamp, one stream's log-likelihood minus the other's."""
        seen = []
        for mechanism, noise, state, count in zip(self.mechanisms, self.noises, states, counts, strict=True):
            self._script = list(script)
            noise.draws.clear()
            mechanism.restore(state)
            release = mechanism.step(count)
            public = orjson.loads(mechanism.snapshot())
            for part in self.raw:
                del public[part]
            seen.append((release.counts.tolist(), release.fresh, release.history, release.groups, public))
        assert seen[0] == seen[1], "what is public differs, although all noisy values agree"
        loss = 0.0
        for (scale, one, value), (other_scale, other, _) in zip(*(n.draws for n in self.noises), strict=True):
            assert scale == other_scale, "what is public differs: the scale of the noise"
            loss += float(int((np.abs(value - other) - np.abs(value - one)).sum()) / (scale * self._scale))
        return loss

    def largest_loss(self, visits: Visits, length: int) -> float:
        columns = len(next(iter(visits.values())))
        without = [
            np.array(OTHERS[i : i + columns] + OTHERS[: max(0, i + columns - 5)]) for i in range(length)
        ]
        streams = [without, [c + np.array(visits.get(i, (0,) * columns)) for i, c in enumerate(without)]]
        largest = 0.0
        start = [mechanism.snapshot() for mechanism in self.mechanisms]
        pending: list[tuple[int, list[bytes], float, list[Counts]]] = [(0, start, 0.0, [])]
        while pending:
            i, states, loss, script = pending.pop()
            try:
                now = loss + self.step(states, [stream[i] for stream in streams], script)
            except _More as more:
                outcomes = itertools.product(VALUES, repeat=more.size)
                pending += [(i, states, loss, [*script, np.array(one)]) for one in outcomes]
                continue
            largest = max(largest, abs(now))
            if i + 1 < length:
                pending.append((i + 1, [mechanism.snapshot() for mechanism in self.mechanisms], now, []))
        return largest


def loss_of(
    kind: type[Mechanism] | str,
    visits: Visits,
    length: int,
    *,
    sensitivity: int = 1,
    noise: Fraction = Fraction(1),
    **options: Any,
) -> float:
    """The largest loss; the mechanism's noise is really ``noise`` times what it asks for."""
    made = KINDS[kind] if isinstance(kind, str) else kind
    columns = len(next(iter(visits.values())))
    return Neighbours(made, columns, sensitivity, noise, **options).largest_loss(visits, length)


# A threshold of 2.5: a noisy count of 4 joins the group after 2 or 4, one of -3 is published.
GROUPING = {"share": Fraction(1, 2), "factor": Fraction(25, 32)}
EVENT = pytest.mark.parametrize(("kind", "options"), [("time-unit", {}), ("retroactive-grouping", GROUPING)])
USER = pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("shp-point", {"horizon": 3}),
        ("shp-point", {"horizon": 3, "span": 2, "parts": 2}),
        ("shp-window", {"horizon": 3}),
        ("shp-window", {"horizon": 3, "span": 2, "parts": 1}),
        ("shp-window", {"horizon": 4, "span": 3, "parts": 2}),
        ("shp-adaptive", {"horizon": 4, "samples": Fraction(1, 2)}),
        ("shp-adaptive", {"horizon": 4, "samples": Fraction(1)}),
        ("shp-adaptive", {"horizon": 4, "samples": Fraction(3, 4), "span": 2, "parts": 2}),
    ],
)


@EVENT
@pytest.mark.parametrize("at", range(4))
def test_one_timestamp_of_a_user_costs_epsilon_and_no_more(kind: str, options: Any, at: int) -> None:
    assert loss_of(kind, {at: (1,)}, 4, **options) <= EPSILON + FLOAT_ERROR
    losses = [loss_of(kind, {at % 3: place}, 3, **options) for place in ((1, 0), (0, 1))]
    assert max(losses) == pytest.approx(float(EPSILON) if at % 3 or kind == "time-unit" else 0.5, abs=1e-6)


@EVENT
def test_two_contributions_are_covered_by_a_sensitivity_of_two(kind: str, options: Any) -> None:
    for visit in ((1, 1), (2, 0)):
        assert loss_of(kind, {1: visit}, 3, sensitivity=2, **options) <= EPSILON + FLOAT_ERROR
        assert loss_of(kind, {1: visit}, 3, sensitivity=1, **options) > EPSILON + FLOAT_ERROR


@EVENT
def test_event_level_is_not_more_than_it_says_a_second_timestamp_costs_epsilon_again(
    kind: str, options: Any
) -> None:
    loss = loss_of(kind, {1: (1, 0), 2: (0, 1)}, 3, **options)
    assert loss == pytest.approx(2 * float(EPSILON), abs=1e-6)


@USER
def test_a_user_at_every_timestamp_of_a_horizon_costs_epsilon_and_no_more(kind: str, options: Any) -> None:
    horizon = options["horizon"]
    loss = loss_of(kind, dict.fromkeys(range(horizon), (1,)), horizon, **options)
    assert loss <= EPSILON + FLOAT_ERROR
    # With two possible values per sample, some of them are as predicted and leave the last sample unused.
    assert loss >= EPSILON * (Fraction(2, 3) if kind == "shp-adaptive" else 1) - FLOAT_ERROR * 1000


@USER
def test_two_contributions_at_every_timestamp_are_covered_by_a_sensitivity_of_two(
    kind: str, options: Any
) -> None:
    visits: Visits = dict.fromkeys(range(options["horizon"]), (2,))
    assert loss_of(kind, visits, options["horizon"], sensitivity=2, **options) <= EPSILON + FLOAT_ERROR
    assert loss_of(kind, visits, options["horizon"], sensitivity=1, **options) > EPSILON + FLOAT_ERROR


@USER
def test_after_the_horizon_nothing_more_is_learned(kind: str, options: Any) -> None:
    length = min(5, options["horizon"] + 2)
    visits: Visits = dict.fromkeys(range(length), (1,))
    assert loss_of(kind, visits, length, **options) <= EPSILON + FLOAT_ERROR


RENEWING = {"horizon": 2, "on_horizon": "renew"}


@pytest.mark.parametrize("kind", ["shp-point", "shp-window", "shp-adaptive"])
def test_a_horizon_that_renews_costs_epsilon_for_each_horizon_that_a_user_is_in(kind: str) -> None:
    options: dict[str, Any] = RENEWING | ({"samples": Fraction(1)} if kind == "shp-adaptive" else {"span": 2})
    for visits in ({0: (1,), 1: (1,)}, {2: (1,), 3: (1,)}):
        assert loss_of(kind, visits, 4, **options) == pytest.approx(float(EPSILON), abs=1e-6)
    both = loss_of(kind, dict.fromkeys(range(4), (1,)), 4, **options)
    assert both == pytest.approx(2 * float(EPSILON), abs=1e-6)


def test_a_window_does_not_reach_back_into_the_last_horizon() -> None:
    loss = loss_of("shp-window", {0: (1,), 1: (1,)}, 3, **RENEWING, span=2)
    assert loss <= EPSILON + FLOAT_ERROR


@pytest.mark.parametrize(
    "kind", sorted(kind for kind in KINDS if KINDS[kind].level != "w-event" and kind != "totals")
)  # totals adds no draw to a count as it is: see test_totals
def test_half_the_noise_is_found_out(kind: str) -> None:
    options: Any = GROUPING if kind == "retroactive-grouping" else {}
    if KINDS[kind].level == "user":
        options = {"horizon": 3}
    visits: Visits = dict.fromkeys(range(3), (1,)) if options.get("horizon") else {1: (1,)}
    assert loss_of(kind, visits, 3, noise=Fraction(1, 2), **options) > EPSILON * 3 / 2


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("shp-adaptive", {"samples": Fraction(1), "horizon": 4}),
        ("shp-point", {"horizon": 4, "span": 4, "parts": 2}),
    ],
)
def test_what_is_decided_follows_from_noisy_counts_alone(kind: str, options: Any) -> None:
    """A user who moves true counts far enough for every decision that is taken from them to change."""
    assert loss_of(kind, {i: (3 * (i % 2),) for i in range(4)}, 4, sensitivity=3, **options) <= EPSILON


def horizon_spends(surprises: Callable[[int], int]) -> list[int]:
    noise = ObservedNoise(lambda size: np.array([surprises(len(noise.draws))]))
    mechanism = make("shp-adaptive", noise, horizon=10, samples=Fraction(2, 5))
    return [mechanism.step(np.zeros(1, np.int64)).publish for _ in range(14)]


def test_no_sequence_of_surprises_spends_more_than_epsilon_in_a_horizon() -> None:
    units = 2 * 10 * 2**20
    totals = set()
    for surprises in itertools.product((0, 1), repeat=5):
        spent = horizon_spends(lambda i, s=surprises: 10**6 * s[i % 5])  # type: ignore[misc]
        assert sum(spent) <= units
        assert not any(spent[10:])
        totals.add(sum(spent))
    assert max(totals) == units
