"""What holds for every mechanism."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from operators.errors import BudgetExceeded
from operators.mechanisms import KINDS
from operators.mechanisms.base import RELEASE_LIMIT, Counts
from operators.privacy.noise import SATURATION, SeededNoise
from tests.contract.noises import (
    HORIZON,
    ObservedNoise,
    WatchedNoise,
    ZeroNoise,
    columns_of,
    eager,
    make,
)

EVERY_KIND = pytest.mark.parametrize("kind", sorted(KINDS))
ALWAYS_FRESH = {"uniform", "time-unit", "retroactive-grouping", "shp-point", "shp-window"}
RAW = pytest.mark.parametrize("kind", ["retroactive-grouping", "shp-window"])


def stream(length: int, kind: str) -> list[Counts]:
    """Counts that jump often enough for every mechanism to publish and to repeat."""
    columns = columns_of(kind)
    generator = np.random.default_rng(7)
    levels = generator.integers(0, 500, (length // 5 + 1, columns))
    return [levels[i // 5] + generator.integers(0, 3, columns) for i in range(length)]


@EVERY_KIND
def test_the_same_noise_gives_the_same_releases(kind: str) -> None:
    one, other = make(kind, SeededNoise(1)), make(kind, SeededNoise(1))
    for counts in stream(30, kind):
        assert one.step(counts).counts.tolist() == other.step(counts).counts.tolist()
    assert one.snapshot() == other.snapshot()


@EVERY_KIND
@pytest.mark.parametrize("window", [1, 4])
def test_a_mechanism_restored_in_mid_stream_goes_on_as_if_nothing_had_happened(
    kind: str, window: int
) -> None:
    noise = SeededNoise(2)
    uninterrupted, interrupted = make(kind, SeededNoise(2), window), make(kind, noise, window)
    for counts in stream(40, kind):
        expected, release = uninterrupted.step(counts), interrupted.step(counts)
        assert release.counts.tolist() == expected.counts.tolist()
        assert (release.fresh, release.test, release.publish) == (
            expected.fresh,
            expected.test,
            expected.publish,
        )
        assert release.window_spent == expected.window_spent
        state = interrupted.snapshot()
        interrupted = make(kind, noise, window)
        interrupted.restore(state)
        assert interrupted.snapshot() == state


@EVERY_KIND
def test_a_mechanism_publishes_and_what_it_does_not_publish_it_repeats(kind: str) -> None:
    mechanism = make(kind, SeededNoise(3), window=4)
    last = [0] * columns_of(kind)
    fresh = 0
    for counts in stream(40, kind):
        release = mechanism.step(counts)
        assert release.fresh == (release.publish > 0)
        if not (release.fresh or mechanism.guarantee.predicts):
            assert release.counts.tolist() == last
        last, fresh = release.counts.tolist(), fresh + release.fresh
    assert fresh == 40 if kind in ALWAYS_FRESH else 0 < fresh < 40


@EVERY_KIND
@pytest.mark.parametrize("sign", [1, -1])
def test_releases_are_integers_within_the_limit_whatever_the_noise(kind: str, sign: int) -> None:
    class Extreme:
        def discrete_laplace(self, scale: Fraction, size: int) -> Counts:
            test = size == 1 and columns_of(kind) > 1
            return np.full(size, SATURATION if test else sign * SATURATION)

    release = make(kind, Extreme()).step(np.full(columns_of(kind), RELEASE_LIMIT))
    assert release.fresh
    assert release.counts.dtype == np.int64
    assert release.counts.tolist() == [sign * RELEASE_LIMIT] * columns_of(kind)


@EVERY_KIND
def test_a_release_cannot_be_changed_afterwards(kind: str) -> None:
    counts = np.array([4, 5][: columns_of(kind)])
    release = make(kind, eager(kind)).step(counts)
    before = counts.tolist()
    counts[0] = 9
    assert release.counts.tolist() == before
    with pytest.raises(ValueError, match="read-only"):
        release.counts[0] = 1


@EVERY_KIND
@pytest.mark.parametrize(
    "wrong",
    [
        [1, 2],
        np.array([1, 2, 3]),
        np.array([], np.int64),
        np.array([[1, 2]]),
        np.array(1),
        np.array([1.0, 2.0]),
        np.array([1, 2], np.int32),
        np.array([1, 2], np.uint64),
        np.array([1, 2], ">i8"),
        np.array([True, False]),
        np.ma.masked_array([1, 2], [True, False]),
        np.array([0, -1]),
        np.array([0, RELEASE_LIMIT + 1]),
        np.array([0, -(2**63)]),
    ],
    ids=str,
)
def test_wrong_counts_are_refused_and_change_nothing(kind: str, wrong: Any) -> None:
    mechanism = make(kind, SeededNoise(4))
    right = np.array([1, 2][: columns_of(kind)])
    mechanism.step(right)
    before = mechanism.snapshot()
    with pytest.raises(ValueError, match="counts should"):
        mechanism.step(wrong)
    assert mechanism.snapshot() == before
    mechanism.step(right)


@EVERY_KIND
def test_every_draw_was_charged_before_and_has_the_scale_of_its_charge(kind: str) -> None:
    epsilon, sensitivity, window = Fraction(3, 7), 2, 4
    drawn = 0

    def watch(scale: Fraction, size: int) -> None:
        nonlocal drawn
        drawn += 1
        charged = mechanism._ledger.current  # type: ignore[attr-defined]  # no other way to see the moment
        units = charged.publish or charged.test  # the test comes first
        assert scale == sensitivity * Fraction(mechanism.units, units) / epsilon

    mechanism = make(
        kind, WatchedNoise(SeededNoise(5), watch), window, sensitivity=sensitivity, epsilon=epsilon
    )
    for counts in stream(40, kind):
        mechanism.step(counts)
    assert drawn >= 10


@EVERY_KIND
def test_a_refused_spend_draws_nothing_and_stops_the_mechanism(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(scale: Fraction, size: int) -> None:
        pytest.fail("noise was drawn for a spend that was refused")

    mechanism = make(kind, WatchedNoise(ZeroNoise(), watch))
    state = mechanism.snapshot()
    with monkeypatch.context() as exhausted:
        for ledger in ("BudgetLedger", "HorizonLedger"):
            exhausted.setattr(f"operators.privacy.ledger.{ledger}.remaining", 0)
        with pytest.raises(BudgetExceeded):
            mechanism.step(np.full(columns_of(kind), 500))
    with pytest.raises(RuntimeError, match="restore"):
        mechanism.step(np.full(columns_of(kind), 500))
    with pytest.raises(RuntimeError, match="no state"):
        mechanism.snapshot()
    mechanism.restore(state)
    assert mechanism.snapshot() == state


@EVERY_KIND
def test_a_noise_source_that_breaks_its_contract_stops_the_mechanism(kind: str) -> None:
    far = np.array([SATURATION + 1] * columns_of(kind))
    for broken in (np.zeros(1), np.zeros(5, np.int64), far, np.zeros(2)):

        class Broken:
            def discrete_laplace(self, scale: Fraction, size: int, noise: Any = broken) -> Any:
                return noise

        mechanism = make(kind, Broken())
        with pytest.raises(ValueError, match="noise source"):
            mechanism.step(np.full(columns_of(kind), 500))
        with pytest.raises(RuntimeError, match="restore"):
            mechanism.step(np.full(columns_of(kind), 500))


def states(kind: str, raw: int, **options: Any) -> list[dict[str, Any]]:
    """The states after each of twelve timestamps, in which noise hides what the counts are."""
    columns, found, i = columns_of(kind), [], 0
    noise = ObservedNoise(lambda size: np.array([10 + i // 3, 20][:size]) if size else np.zeros(0))
    mechanism = make(kind, noise, window=4, **options)
    for i in range(12):
        mechanism.step(np.array([raw + i, raw * 2][:columns]))
        found.append(orjson.loads(mechanism.snapshot()))
    return found


@EVERY_KIND
def test_but_for_its_raw_parts_the_state_is_a_function_of_the_releases_and_not_of_the_counts(
    kind: str,
) -> None:
    """Two streams without a common count, noise that hides the difference: not one byte may differ."""
    some, others = states(kind, 123_456), states(kind, 654_321)
    for state, other in zip(some, others, strict=True):
        for part in KINDS[kind].raw:
            del state[part], other[part]
        assert state == other
        assert "1234" not in str(state)


@RAW
def test_raw_parts_of_a_state_are_declared_where_there_are_some(kind: str) -> None:
    some, others = states(kind, 123_456, **RAW_OPTIONS[kind]), states(kind, 654_321, **RAW_OPTIONS[kind])
    assert any(state != other for state, other in zip(some, others, strict=True))
    assert [kind for kind in KINDS if KINDS[kind].raw] == ["retroactive-grouping", "shp-window"]


RAW_OPTIONS: dict[str, dict[str, Any]] = {
    "retroactive-grouping": {"factor": Fraction(10**4)},
    "shp-window": {},
}


@EVERY_KIND
def test_another_mechanism_s_state_is_refused(kind: str) -> None:
    mechanism = make(kind, ZeroNoise())
    others = [
        *(make(other, ZeroNoise()) for other in KINDS if other != kind),
        make(kind, ZeroNoise(), sensitivity=2),
        make(kind, ZeroNoise(), epsilon=Fraction(2)),
    ]
    level = KINDS[kind].level
    if level != "user":
        others.append(make(kind, ZeroNoise(), columns=3))
    if level != "event":
        others.append(make(kind, ZeroNoise(), window=4, horizon=4))
    if level != "w-event":
        others.append(make(kind, ZeroNoise(), span=2))
    for other in others:
        with pytest.raises(ValueError, match=r"belongs to|should be an object"):
            mechanism.restore(other.snapshot())


MISSING = object()
SPAN: dict[str, dict[str, Any]] = {"event": {"span": 3}, "user": {"span": 3}}


@EVERY_KIND
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
def test_a_damaged_state_is_refused_and_changes_nothing(kind: str, field: str, value: object) -> None:
    mechanism = make(kind, SeededNoise(6), **SPAN.get(KINDS[kind].level, {}))
    for counts in stream(4, kind):
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
@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"null", b"1", b"\xff", b"{}", b"[" * 5000])
def test_bytes_that_are_no_state_are_refused(kind: str, damaged: bytes) -> None:
    mechanism = make(kind, ZeroNoise())
    with pytest.raises(ValueError, match=r".+"):
        mechanism.restore(damaged)


@EVERY_KIND
@pytest.mark.parametrize("window", [1, 2, 40])
def test_the_guarantee_is_declared_and_bounds_the_noise_of_every_publication(kind: str, window: int) -> None:
    scales: list[Fraction] = []

    def watch(scale: Fraction, size: int) -> None:
        if mechanism._ledger.current.publish:  # type: ignore[attr-defined]  # else it is a test's
            scales.append(scale)

    noise = WatchedNoise(SeededNoise(8), watch)
    mechanism = make(kind, noise, window, sensitivity=2, epsilon=Fraction(5, 2))
    guarantee = mechanism.guarantee
    covered = {"w-event": window, "event": 1, "user": HORIZON}[guarantee.level]
    assert (guarantee.level, guarantee.epsilon, guarantee.window, guarantee.sensitivity) == (
        KINDS[kind].level,
        Fraction(5, 2),
        covered,
        2,
    )
    assert mechanism.units == 2 * covered * 2**20
    for counts in stream(HORIZON, kind):
        mechanism.step(counts * 1000)
    assert guarantee.worst_scale is not None
    assert scales
    assert all(guarantee.best_scale <= scale <= guarantee.worst_scale for scale in scales)


@EVERY_KIND
def test_the_module_states_its_guarantee_and_proof(kind: str) -> None:
    text = sys.modules[KINDS[kind].__module__].__doc__ or ""
    for part in ("**Guarantee.**", "neighbours", "assumptions", "**Proof.**", "Changed"):
        assert part in text, part
    assert any(source in text for source in ("PVLDB 2014", "CIKM 2015", "Zhang and Meng (2016"))
    assert KINDS[kind].kind == kind
    assert KINDS[kind].summary
    assert "\n" not in KINDS[kind].summary


@EVERY_KIND
def test_twice_the_sensitivity_is_twice_the_noise(kind: str) -> None:
    def scales(sensitivity: int) -> list[Fraction]:
        seen: list[Fraction] = []
        noise = WatchedNoise(eager(kind), lambda scale, size: seen.append(scale))
        mechanism = make(kind, noise, sensitivity=sensitivity)
        for i in range(5):  # always far from the release before
            mechanism.step(np.full(columns_of(kind), 10**6 * (i % 2 + 1)))
        return seen

    assert scales(2) == [2 * scale for scale in scales(1)]


@pytest.mark.parametrize("kind", [kind for kind in sorted(KINDS) if columns_of(kind) > 1])
def test_a_hundred_thousand_columns_and_a_window_of_ten_thousand_are_possible(kind: str) -> None:
    columns = 100_000
    mechanism = make(kind, SeededNoise(9), window=10_000, columns=columns)
    counts = np.full(columns, 2**30)
    first = mechanism.step(counts)
    second = mechanism.step(counts)
    assert first.fresh
    assert second.counts.shape == (columns,)
    # A draw exceeds 60 times its scale once in 1e26; 100,000 of them all but surely exceed 5 times.
    largest = int(np.abs(first.counts - counts).max())
    assert 5 < largest * Fraction(first.publish, mechanism.units) < 60
    again = make(kind, SeededNoise(9), window=10_000, columns=columns)
    again.restore(mechanism.snapshot())
    assert again.snapshot() == mechanism.snapshot()
