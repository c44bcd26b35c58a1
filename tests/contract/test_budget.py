"""No window ever spends more than epsilon: exhaustively for short windows, at random for long ones."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np
import orjson
import pytest

from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.dissimilarity import DissimilarityMechanism
from eventveil.mechanisms.registry import KINDS
from eventveil.model.errors import BudgetExceeded
from eventveil.model.topology import Option
from eventveil.privacy.ledger import Spend
from eventveil.privacy.noise import SeededNoise
from tests.contract.broken.windows import Greedy, Impatient, PermissiveLedger
from tests.contract.noises import (
    COLUMNS,
    W_EVENT_CASES,
    ForcedNoise,
    ZeroNoise,
    attach,
    largest_window,
    make,
    settings,
    spends,
)

pytestmark = pytest.mark.slow

LENGTH = 12

#: A mechanism between two steps: what it keeps, and the spends of the last ``window - 1`` timestamps.
State = tuple[bytes, tuple[tuple[int, int], ...]]


def kept(mechanism: Mechanism) -> bytes:
    """The state without its error, if the kind decides by tests: as in versions that had no errors.

    These kinds write their error and never read it (a test below checks that), and it would distinguish any
    two histories. Other kinds may decide by it.
    """
    snapshot = mechanism.snapshot()
    if not isinstance(mechanism, DissimilarityMechanism):
        return snapshot
    state = orjson.loads(snapshot)
    del state["error"]
    return orjson.dumps(state)


def largest_over_all_decisions(
    case: str,
    window: int,
    length: int = LENGTH,
    columns: int = COLUMNS,
    by: type[Mechanism] | None = None,
    **options: Option,
) -> int:
    """The most that any window spends, over all that each group can do in turn.

    Sequences that led to the same state and the same last ``window - 1`` spends are followed as one: all that
    a step spends and all that is asserted of it follow from these two and from its decision.
    """
    largest = 0
    zeros = np.zeros(columns, np.int64)
    mechanism = make(case, ForcedNoise([]), window, columns, by=by, **options)
    given = settings(case, window, **options).options
    texts = {name: str(value) for name, value in given.items()}
    groups = int(given.get("groups", 1))
    reached: set[State] = {(kept(mechanism), ())}
    for _ in range(length // groups):
        before, reached = reached, set()
        for (state, spent), decision in itertools.product(
            before, itertools.product((True, False), repeat=groups)
        ):
            noise = ForcedNoise([decision])
            attach(mechanism, noise).restore(state)
            release = mechanism.step(zeros)
            now = (*spent, (release.test, release.publish))
            assert release.window_spent == sum(test + publish for test, publish in now)
            # The audit, which knows no more than this, holds nothing against it.
            assert by or mechanism.can_spend(Spend(*now[-1]), window, mechanism.units, columns, texts)
            largest = max(largest, release.window_spent)
            if largest > mechanism.units:
                return largest
            reached.add((kept(mechanism), now[1:] if len(now) == window else now))
            # Where no test ran, the decision is not asked for, and all of them lead to one state.
            assert noise.asked == 0 or release.fresh == any(decision)
    return largest


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", W_EVENT_CASES)
def test_no_sequence_of_twelve_decisions_spends_more_than_epsilon_in_a_window(kind: str, window: int) -> None:
    units = 2 * window * 2**20
    largest = largest_over_all_decisions(kind, window)
    assert largest <= units
    assert largest >= units * (2 if kind == "fast" else 3) // 4  # and the budget is not left lying about


@pytest.mark.parametrize("window", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", [kind for kind in W_EVENT_CASES if kind.startswith("budget-")])
def test_what_is_spent_does_not_depend_on_the_error(kind: str, window: int) -> None:
    generator = random.Random(f"{kind} {window}")
    groups = int(settings(kind, window).options.get("groups", 1))
    decisions = [tuple(generator.random() < 0.4 for _ in range(groups)) for _ in range(200)]
    whole, without = (make(kind, ForcedNoise(decisions), window) for _ in range(2))
    errors = set()
    for _ in range(150):
        without.restore(kept(without))
        expected, found = whole.step(np.zeros(COLUMNS, np.int64)), without.step(np.zeros(COLUMNS, np.int64))
        assert (found.test, found.publish, found.fresh) == (expected.test, expected.publish, expected.fresh)
        assert found.window_spent == expected.window_spent
        assert kept(without) == kept(whole)
        errors.add(whole.snapshot() == without.snapshot())
    assert False in errors  # else nothing was left out


@pytest.mark.parametrize("columns", [3, 5, 9, 64])
@pytest.mark.parametrize("window", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["budget-distribution", "budget-absorption"])
def test_the_shifted_budget_is_all_of_epsilon_and_no_more(kind: str, window: int, columns: int) -> None:
    units = 2 * window * 2**20
    largest = largest_over_all_decisions(kind, window, 10, columns, shift="true")
    assert units // 2 < largest <= units  # Budget Distribution offers half of what is left, here once


@pytest.mark.parametrize(("window", "samples"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_no_schedule_of_samples_spends_more_than_epsilon_in_a_window(window: int, samples: int) -> None:
    """Every subset of twelve timestamps that a controller may want to sample; equal states as one."""

    class Wanted(KINDS["fast"]):  # type: ignore[misc]  # looked up, so that a variant can take its place
        wanted = False

        def _due(self) -> bool:
            return self.wanted

    largest = 0
    units = 2 * window * 2**20
    mechanism = make("fast", ZeroNoise(), window, 1, by=Wanted, max_samples=samples)
    reached: set[State] = {(kept(mechanism), ())}
    for _ in range(LENGTH):
        before, reached = reached, set()
        for (state, spent), mechanism.wanted in itertools.product(before, (False, True)):
            mechanism.restore(state)
            release = mechanism.step(np.zeros(1, np.int64))
            now = (*spent, (release.test, release.publish))
            largest = max(largest, largest_window(list(now), window))
            reached.add((kept(mechanism), now[1:] if len(now) == window else now))
    assert largest <= units
    # Late in one block and early in the next: all of epsilon, as far as a window has room for that.
    assert largest == units // 2 // samples * min(2 * samples, window)


@pytest.mark.parametrize("window", [3, 10, 40])
def test_many_columns_are_sampled_together(window: int) -> None:
    mechanism = make("fast", SeededNoise(1), window, columns=50)
    generator = np.random.default_rng(1)
    spent = []
    for i in range(5 * window):
        release = mechanism.step(generator.integers(0, 10, 50) + i * np.arange(50))
        spent.append((release.test, release.publish))
        assert mechanism.can_spend(Spend(*spent[-1]), window, mechanism.units, 50, {})
    assert largest_window(spent, window) <= mechanism.units
    blocks = [spent[start : start + window] for start in range(0, len(spent), window)]
    assert all(sum(publish for _, publish in block) <= mechanism.units // 2 for block in blocks)


@pytest.mark.parametrize("broken", [Impatient, Greedy])
def test_the_check_catches_a_mechanism_that_overspends(
    broken: type[Mechanism], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventveil.mechanisms.publishing.BudgetLedger", PermissiveLedger)
    assert largest_over_all_decisions(broken.kind, 3, 6, by=broken) > 2 * 3 * 2**20


@pytest.mark.parametrize("broken", [Impatient, Greedy])
def test_the_ledger_refuses_a_mechanism_that_overspends(broken: type[Mechanism]) -> None:
    with pytest.raises(BudgetExceeded):
        largest_over_all_decisions(broken.kind, 3, 6, by=broken)


@pytest.mark.parametrize("share", [0.02, 0.5, 1.0])
@pytest.mark.parametrize("window", [7, 333])  # the suite of the contract has more of the short ones
@pytest.mark.parametrize("kind", W_EVENT_CASES)
def test_no_window_of_a_long_random_run_spends_more_than_epsilon(
    kind: str, window: int, share: float
) -> None:
    generator = random.Random(f"{kind} {window} {share}")
    timestamps = 2 * window + 500
    decisions = (generator.random() < share for _ in range(timestamps))
    mechanism = make(kind, ForcedNoise(decisions), window)
    assert largest_window(spends(mechanism, timestamps), window) <= mechanism.units


@pytest.mark.parametrize("kind", ["budget-distribution", "budget-absorption"])
def test_no_window_of_ten_thousand_spends_more_than_epsilon(kind: str) -> None:
    window, timestamps = 10_000, 25_000
    generator = random.Random(kind)
    decisions = (generator.random() < 0.01 for _ in range(timestamps))
    mechanism = make(kind, ForcedNoise(decisions), window, epsilon=Fraction(1, 10))
    spent = np.array(spends(mechanism, timestamps)).sum(axis=1)
    sums = np.concatenate([[0], np.cumsum(spent)])
    assert (sums[window:] - sums[:-window]).max() <= mechanism.units
    assert spent.max() > mechanism.units // window
