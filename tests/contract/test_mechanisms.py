"""What holds for every kind, beyond the suite of the contract (``test_suite``)."""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.mechanisms.base import RELEASE_LIMIT, Counts
from eventveil.mechanisms.registry import KINDS
from eventveil.model.errors import BudgetExceeded
from eventveil.privacy.noise import SATURATION, SeededNoise
from tests.contract.noises import (
    CASES,
    ObservedNoise,
    Scripted,
    WatchedNoise,
    ZeroNoise,
    columns_of,
    eager,
    kind_of,
    make,
)

EVERY_CASE = pytest.mark.parametrize("case", sorted(CASES))
EVERY_KIND = pytest.mark.parametrize("kind", sorted(KINDS))
NEVER_NEGATIVE = {"paced", "seasonal", "seasonal periods"}
ALWAYS_FRESH = {
    *NEVER_NEGATIVE, "uniform", "time-unit", "retroactive-grouping", "totals", "shp-point", "shp-window"
}  # fmt: skip
RAW = pytest.mark.parametrize("case", ["retroactive-grouping", "shp-window"])
#: A charge is divided among as many draws, one of each level of blocks.
DRAWS = {"totals": 3}


def stream(length: int, case: str) -> list[Counts]:
    """Counts that jump often enough for every mechanism to publish and to repeat."""
    columns = columns_of(case)
    generator = np.random.default_rng(7)
    levels = generator.integers(0, 500, (length // 5 + 1, columns))
    return [levels[i // 5] + generator.integers(0, 3, columns) for i in range(length)]


@EVERY_CASE
def test_a_mechanism_publishes_and_what_it_does_not_publish_it_repeats(case: str) -> None:
    mechanism = make(case, SeededNoise(3), window=4)
    last = [0] * columns_of(case)
    fresh = 0
    for counts in stream(40, case):
        release = mechanism.step(counts)
        assert release.fresh == (release.publish > 0)
        if not (release.fresh or mechanism.predicts):
            assert release.counts.tolist() == last
        last, fresh = release.counts.tolist(), fresh + release.fresh
    assert fresh == 40 if case in ALWAYS_FRESH else 0 < fresh < 40


@EVERY_CASE
@pytest.mark.parametrize("sign", [1, -1])
def test_releases_are_integers_within_the_limit_whatever_the_noise(case: str, sign: int) -> None:
    class Extreme(Scripted):
        def test(self, scale: Fraction, size: int) -> Counts:
            return np.full(size, SATURATION)

        def publication(self, scale: Fraction, size: int) -> Counts:
            return np.full(size, sign * SATURATION)

    release = make(case, Extreme()).step(np.full(columns_of(case), RELEASE_LIMIT))
    assert release.fresh
    assert release.counts.dtype == np.int64
    lowest = 0 if case in NEVER_NEGATIVE else -RELEASE_LIMIT
    assert release.counts.tolist() == [RELEASE_LIMIT if sign > 0 else lowest] * columns_of(case)


@EVERY_CASE
@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(100)])
@pytest.mark.parametrize("window", [1, 24])
def test_counts_of_any_size_are_released(case: str, epsilon: Fraction, window: int) -> None:
    """What raises here would raise at each restart, and the stream would never go on."""
    generator = np.random.default_rng(4)
    for columns in {1} if columns_of(case) == 1 else {3} if "groups" in case else {1, 3}:
        mechanism = make(case, SeededNoise(2), window, columns=columns, epsilon=epsilon)
        for largest in (RELEASE_LIMIT, *(10**power for power in range(3, 13)), 0, RELEASE_LIMIT):
            counts = generator.integers(largest // 2, largest, columns, endpoint=True)
            for _ in range(3):
                release = mechanism.step(counts)
                assert int(abs(release.counts).max()) <= RELEASE_LIMIT
                assert release.error is None or (release.error >= 0).all()
        mechanism.restore(mechanism.snapshot())


@EVERY_CASE
def test_every_draw_was_charged_before_and_has_the_scale_of_its_charge(case: str) -> None:
    epsilon, sensitivity, window = Fraction(3, 7), 2, 4
    drawn = 0

    def watch(scale: Fraction, is_test: bool) -> None:
        nonlocal drawn
        drawn += 1
        charged = mechanism._ledger.current  # type: ignore[attr-defined]  # no other way to see the moment
        units = charged.test if is_test else charged.publish
        assert scale == DRAWS.get(case, 1) * sensitivity * Fraction(mechanism.units, units) / epsilon

    mechanism = make(
        case, WatchedNoise(SeededNoise(5), watch), window, sensitivity=sensitivity, epsilon=epsilon
    )
    for counts in stream(40, case):
        mechanism.step(counts)
    assert drawn >= 10


@EVERY_CASE
def test_no_two_publications_carry_the_same_noise(case: str) -> None:
    columns = 1 if columns_of(case) == 1 else 64
    mechanism = make(case, SeededNoise(10), columns=columns, epsilon=Fraction(1, 1000))
    errors = []
    for level in (10**6, 2 * 10**6) * 10:
        release = mechanism.step(np.full(columns, level))
        if release.fresh:
            errors.append(tuple(release.counts - level))
    assert len(errors) >= 3
    assert len(set(errors)) == len(errors)


@EVERY_CASE
def test_a_refused_spend_draws_nothing_and_stops_the_mechanism(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(scale: Fraction, is_test: bool) -> None:
        pytest.fail("noise was drawn for a spend that was refused")

    mechanism = make(case, WatchedNoise(ZeroNoise(), watch))
    state = mechanism.snapshot()
    with monkeypatch.context() as exhausted:
        for ledger in ("BudgetLedger", "HorizonLedger"):
            exhausted.setattr(f"eventveil.privacy.ledger.{ledger}.remaining", 0)
        with pytest.raises(BudgetExceeded):
            mechanism.step(np.full(columns_of(case), 500))
    with pytest.raises(RuntimeError, match="restore"):
        mechanism.step(np.full(columns_of(case), 500))
    with pytest.raises(RuntimeError, match="no state"):
        mechanism.snapshot()
    mechanism.restore(state)
    assert mechanism.snapshot() == state


@EVERY_CASE
def test_a_noise_source_that_breaks_its_contract_stops_the_mechanism(case: str) -> None:
    far = np.array([SATURATION + 1] * columns_of(case))
    for broken in (np.zeros(1), np.zeros(5, np.int64), far, np.zeros(2)):

        class Broken:
            def discrete_laplace(self, scale: Fraction, size: int, noise: Any = broken) -> Any:
                return noise

        mechanism = make(case, Broken())
        with pytest.raises(ValueError, match="noise source"):
            mechanism.step(np.full(columns_of(case), 500))
        with pytest.raises(RuntimeError, match="restore"):
            mechanism.step(np.full(columns_of(case), 500))


@EVERY_CASE
def test_what_is_wrong_with_counts_is_said(case: str) -> None:
    mechanism = make(case, SeededNoise(4))
    for wrong in ([1, 2], np.array([1, 2, 3]), np.array([1.0, 2.0]), np.array([0, -1]), np.array([[1, 2]])):
        with pytest.raises(ValueError, match="counts should"):
            mechanism.step(wrong)  # type: ignore[arg-type]  # that is the point


def states(case: str, raw: int, **options: Any) -> list[dict[str, Any]]:
    """The states after each of twelve timestamps, in which noise hides what the counts are."""
    columns, found, i = columns_of(case), [], 0
    noise = ObservedNoise(lambda size: np.array([10 + i // 3, 20][:size]) if size else np.zeros(0))
    mechanism = make(case, noise, window=4, **options)
    for i in range(12):
        mechanism.step(np.array([raw + i, raw * 2][:columns]))
        found.append(orjson.loads(mechanism.snapshot()))
    return found


@RAW
def test_raw_parts_of_a_state_are_declared_where_there_are_some(case: str) -> None:
    some, others = states(case, 123_456, **RAW_OPTIONS[case]), states(case, 654_321, **RAW_OPTIONS[case])
    assert any(state != other for state, other in zip(some, others, strict=True))
    # What totals has drawn ahead does not depend on counts, and gives them away beside releases.
    assert [kind for kind in KINDS if KINDS[kind].raw] == ["retroactive-grouping", "totals", "shp-window"]


RAW_OPTIONS: dict[str, dict[str, Any]] = {
    "retroactive-grouping": {"factor": Fraction(10**4)},
    "shp-window": {},
}


@EVERY_CASE
def test_another_mechanism_s_state_is_refused(case: str) -> None:
    mechanism = make(case, ZeroNoise())
    others = [
        *(make(other, ZeroNoise()) for other in CASES if other != case),
        make(case, ZeroNoise(), sensitivity=2),
        make(case, ZeroNoise(), epsilon=Fraction(2)),
    ]
    level = kind_of(case).level
    if level != "user":
        others.append(make(case, ZeroNoise(), columns=3))
    if level != "event":
        others.append(make(case, ZeroNoise(), window=4, horizon=4))
    if level != "w-event":
        others.append(make(case, ZeroNoise(), **(OTHER_BLOCKS if case == "totals" else {"span": 2})))
    for other in others:
        with pytest.raises(ValueError, match=r"belongs to|should be an object"):
            mechanism.restore(other.snapshot())


#: Named alike in every process, for the ids of tests.
MISSING = Enum("Missing", "FIELD").FIELD
SPAN: dict[str, dict[str, Any]] = {"event": {"span": 3}, "user": {"span": 3}}
OTHER_BLOCKS: dict[str, Any] = {"blocks": "6,144"}


@EVERY_CASE
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timestamp", -1),
        ("timestamp", 2),
        ("timestamp", 4.0),
        ("timestamp", True),
        ("timestamp", "4"),
        ("timestamp", 2**63),
        ("last", [1]),
        ("last", [1, 2, 3]),
        ("last", [1, True]),
        ("last", [1, 2.0]),
        ("last", [1, None]),
        ("last", [1, RELEASE_LIMIT + 1]),
        ("last", {"0": 1, "1": 2}),
        ("ledger", None),
        ("ledger", {}),
        ("ledger", {"window": 3, "units": 3 * 2**21, "runs": []}),
        ("ledger", {"window": 3, "units": 3 * 2**21, "runs": [[3, 0, 2**22]]}),
        ("settings", None),
        ("surprise", 1),
        ("ledger", {"window": 100, "units": 100 * 2**21, "opened": 3, "current": [0, 0], "spent": [0, 0]}),
        ("ledger", {"window": 100, "units": 100 * 2**21, "opened": 4, "current": [0, 9], "spent": [0, 8]}),
        (
            "ledger",
            {"window": 100, "units": 100 * 2**21, "opened": 4, "current": [0, 0], "spent": [0, 2**40]},
        ),
        *((field, MISSING) for field in ("settings", "timestamp", "last", "ledger")),
    ],
    ids=str,
)
def test_a_damaged_state_is_refused_and_changes_nothing(case: str, field: str, value: object) -> None:
    mechanism = make(case, SeededNoise(6), **({} if case == "totals" else SPAN.get(kind_of(case).level, {})))
    for counts in stream(4, case):
        mechanism.step(counts)
    before = mechanism.snapshot()
    damaged = orjson.loads(before)
    if value is MISSING:
        del damaged[field]
    else:
        damaged[field] = value
    with pytest.raises(ValueError, match=r"should|belongs|ledger"):
        mechanism.restore(orjson.dumps(damaged))
    assert mechanism.snapshot() == before


@EVERY_KIND
def test_a_kind_goes_by_its_name_and_is_described_in_one_line(kind: str) -> None:
    assert KINDS[kind].kind == kind
    assert KINDS[kind].summary
    assert "\n" not in KINDS[kind].summary


@EVERY_CASE
def test_twice_the_sensitivity_is_twice_the_noise(case: str) -> None:
    def scales(sensitivity: int) -> list[Fraction]:
        seen: list[Fraction] = []
        noise = WatchedNoise(eager(), lambda scale, is_test: seen.append(scale))
        mechanism = make(case, noise, sensitivity=sensitivity)
        for i in range(5):  # always far from the release before
            mechanism.step(np.full(columns_of(case), 10**6 * (i % 2 + 1)))
        return seen

    assert scales(2) == [2 * scale for scale in scales(1)]


@pytest.mark.parametrize("case", [case for case in sorted(CASES) if columns_of(case) > 1])
def test_a_hundred_thousand_columns_and_a_window_of_ten_thousand_are_possible(case: str) -> None:
    columns = 100_000
    mechanism = make(case, SeededNoise(9), window=10_000, columns=columns)
    counts = np.full(columns, 2**30)
    first = mechanism.step(counts)
    second = mechanism.step(counts)
    assert first.fresh
    assert second.counts.shape == (columns,)
    # A draw exceeds 60 times its scale once in 1e26; 100,000 of them all but surely exceed 5 times.
    largest = int(np.abs(first.counts - counts).max())
    assert 5 < largest * Fraction(first.publish, mechanism.units) < 60
    again = make(case, SeededNoise(9), window=10_000, columns=columns)
    again.restore(mechanism.snapshot())
    assert again.snapshot() == mechanism.snapshot()
