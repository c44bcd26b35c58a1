"""``counts.per_column``: what a user who is bounded in each column tells through Gaussian noise, exactly.

The largest squares are found by trying all that a user can add. Of each kind, neighbours whose noisy counts
come out alike have the same releases and states, so what is told is the sum of (what the user moves in a
draw)^2 / sigma^2, as in ``tests.contract.test_gaussian``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any, ClassVar

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from eventveil.mechanisms import contrasts, plugins
from eventveil.mechanisms.gaussian import GaussianNoise, gaussian_of
from eventveil.mechanisms.plugins import Plugin
from eventveil.mechanisms.registry import KINDS, build, draws_by_column
from eventveil.mechanisms.rolled import RolledUp
from eventveil.mechanisms.uniform import Uniform
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import Adjacency, MechanismSettings, Option
from eventveil.privacy import gaussian
from eventveil.privacy.gaussian import largest_square
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import ObservedNoise
from tests.contract.test_gaussian import exact_delta
from tests.contract.test_totals import run

EPSILON, DELTA = Fraction(1), Fraction(1, 10**5)
ALLOWED = float(gaussian.mu_squared(EPSILON, DELTA))
GAUSSIAN: dict[str, Option] = {"noise": "gaussian", "delta": DELTA}
LENGTH, COLUMNS = 3, 6
CASES: dict[str, tuple[str, dict[str, Option]]] = {
    "uniform": ("uniform", GAUSSIAN),
    "uniform rollups 2": ("uniform", {**GAUSSIAN, "rollups": "2"}),
    "uniform rollups 3": ("uniform", {**GAUSSIAN, "rollups": "3"}),
    "uniform rollups 2, 6": ("uniform", {**GAUSSIAN, "rollups": "2,6"}),
    "sample": ("sample", GAUSSIAN),
    "seasonal": ("seasonal", GAUSSIAN),
    "seasonal periods": ("seasonal", {**GAUSSIAN, "periods": "3,8"}),
    "time-unit": ("time-unit", GAUSSIAN),
    "time-unit span": ("time-unit", {**GAUSSIAN, "span": 3}),
    "time-unit rollups": ("time-unit", {**GAUSSIAN, "rollups": "3"}),
    "totals": ("totals", {**GAUSSIAN, "blocks": "3"}),
}
#: Contributions and per_column: divisible, with a rest, one each, and as many as there are.
BOUNDS = [(4, 2), (5, 2), (6, 1), (5, 3), (3, 3)]
Added = tuple[int, ...]


@cache
def histories(columns: int, bound: int, per_column: int) -> tuple[Added, ...]:
    """All that a user can add to the counts of a timestamp."""
    every = itertools.product(range(per_column + 1), repeat=columns)
    return tuple(one for one in every if sum(one) <= bound)


def square(one: Sequence[int], other: Sequence[int] | None = None) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other or [0] * len(one), strict=True))


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_no_history_has_a_larger_square_and_one_has_it_where_the_bound_can_be_reached(columns: int) -> None:
    for bound in range(1, 9):
        for per_column in range(1, bound + 1):
            largest = max(map(square, histories(columns, bound, per_column)))
            assert largest <= largest_square(bound, per_column)
            if bound <= per_column * columns:
                assert largest == largest_square(bound, per_column)


@pytest.mark.parametrize(
    ("bound", "per_column", "columns"), [(2, 1, 4), (3, 2, 4), (4, 2, 4), (3, 3, 2), (3, 2, 3)]
)
def test_two_histories_differ_by_twice_the_square_and_no_more(
    bound: int, per_column: int, columns: int
) -> None:
    every = histories(columns, bound, per_column)
    largest = max(square(one, other) for one in every for other in every)
    assert largest <= 2 * largest_square(bound, per_column)
    if columns >= 2 * -(-bound // per_column):
        assert largest == 2 * largest_square(bound, per_column)


def test_the_square_is_never_less_than_with_a_smaller_column_nor_more_than_with_all_in_one() -> None:
    for bound in range(1, 40):
        found = [largest_square(bound, per_column) for per_column in range(1, bound + 1)]
        assert found == sorted(found)
        assert (found[0], found[-1]) == (bound, bound**2)


def sums(added: Sequence[int], block: int) -> Added:
    return tuple(sum(added[start : start + block]) for start in range(0, len(added), block))


@pytest.mark.parametrize(("bound", "per_column"), BOUNDS)
@pytest.mark.parametrize("levels", [(1, 2), (1, 3), (1, 2, 6)])
@pytest.mark.parametrize("adjacency", ["add-remove", "substitute"])
def test_sums_over_blocks_differ_by_what_is_said_of_their_level(
    bound: int, per_column: int, levels: tuple[int, ...], adjacency: Adjacency
) -> None:
    twice = adjacency == "substitute"
    settings = MechanismSettings("uniform", EPSILON, "1", 1, adjacency, GAUSSIAN, per_column=per_column)
    noise = gaussian_of(settings, bound * (1 + twice))
    every = histories(COLUMNS, bound, per_column)
    of_levels = [[square(sums(one, block)) for one in every] for block in levels]
    for block, found in zip(levels, of_levels, strict=True):
        assert max(found) * (1 + twice) == noise.squared_sensitivity_of(block)
    # All levels at once: the noise of a level cannot be less because others have their largest elsewhere.
    together = max(map(sum, zip(*of_levels, strict=True)))
    assert together * (1 + twice) == sum(map(noise.squared_sensitivity_of, levels))


def make(
    case: str, noise: Any, bound: int, per_column: int | None, adjacency: Adjacency = "add-remove"
) -> Any:
    kind, options = CASES[case]
    extent = 1 if KINDS[kind].level == "event" else LENGTH
    settings = MechanismSettings(kind, EPSILON, "1", extent, adjacency, options, per_column=per_column)
    return build(settings, COLUMNS, bound * (2 if adjacency == "substitute" else 1), noise)


def spent(
    case: str,
    bounds: tuple[int, int | None],
    added: Added,
    instead: Added = (0,) * COLUMNS,
    adjacency: Adjacency = "add-remove",
) -> float:
    """What a user tells who adds this, or that instead, in mu squared, over what epsilon and delta allow.

    The user is there at all timestamps that epsilon covers.
    """
    kind, options = CASES[case]
    if "rollups" in options:
        return spent_in_blocks(case, bounds, np.array(added) - instead, adjacency)
    present = range(1 if KINDS[kind].level == "event" else LENGTH)
    seen = []
    for own in (added, instead):
        noise = ObservedNoise(lambda size: np.arange(size) + 9)
        mechanism, states = make(case, noise, *bounds, adjacency), []
        for i in range(LENGTH):
            release = mechanism.step(np.arange(COLUMNS) * (i + 1) + np.array(own) * (i in present))
            kept = orjson.loads(mechanism.snapshot())
            public = {name: part for name, part in kept.items() if name not in mechanism.raw}
            states.append((public, release.counts.tolist(), release.fresh))
        seen.append((states, noise.draws))
    (states, draws), (other_states, other_draws) = seen
    assert states == other_states
    assert [one[0] for one in draws] == [one[0] for one in other_draws]
    told = zip(draws, other_draws, strict=True)
    return sum(float(((one[1] - other[1]) ** 2).sum()) / float(one[0]) ** 2 for one, other in told) / ALLOWED


def spent_in_blocks(
    case: str, bounds: tuple[int, int | None], moved: NDArray[np.int64], adjacency: Adjacency
) -> float:
    """The same with draws for blocks, too: those that hide the user move by what their blocks have of it."""
    kind, options = CASES[case]
    settings = MechanismSettings(kind, EPSILON, "1", 1, adjacency, options, per_column=bounds[1])
    sensitivity = bounds[0] * (2 if adjacency == "substitute" else 1)
    lengths = 1, *map(int, str(options["rollups"]).split(","))
    moves = looks(moved.tolist(), lengths)
    draws = [(7 * i * i + 3) % 19 - 9 for i in range(len(moves))]
    counts = np.arange(COLUMNS) + 20
    expected, noise = run(settings, [counts], tuple(draws), sensitivity)
    shifted = tuple(one - move for one, move in zip(draws, moves, strict=True))
    assert run(settings, [counts + moved], shifted, sensitivity)[0] == expected
    return sum((move / float(scale)) ** 2 for move, scale in zip(moves, noise.scales, strict=True)) / ALLOWED


def looks(moved: list[int], lengths: Sequence[int]) -> list[int]:
    """By how much each look moves that columns are drawn from, in the order of the draws."""
    found = [*sums(moved, lengths[-1])]
    for length, longer in reversed([*itertools.pairwise(lengths)]):
        parts, fanout = sums(moved, length), longer // length
        blocks = [[tuple(parts[at : at + fanout])] for at in range(0, len(parts), fanout)]
        while sizes := {len(group) for block in blocks for group in block} - {1}:
            for size in sorted(sizes):
                a, b = size // 2, size - size // 2
                for block in blocks:
                    alike = [group for group in block if len(group) == size]
                    found += [b * sum(group[:a]) - a * sum(group[a:]) for group in alike]
            blocks = [[half for group in block for half in halves(group)] for block in blocks]
    return found


def halves(group: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [half for half in (group[: len(group) // 2], group[len(group) // 2 :]) if half]


def fullest(bound: int, per_column: int, start: int = 0) -> Added:
    """All events, in as few columns as can be, from this one on."""
    added = [0] * COLUMNS
    for column in range(start, COLUMNS):
        added[column] = min(per_column, bound - sum(added))
    return tuple(added)


def others(bound: int, per_column: int) -> Iterator[Added]:
    """A few other histories: every second column first, all alike, and at random."""
    added = [0] * COLUMNS
    for column in (*range(0, COLUMNS, 2), *range(1, COLUMNS, 2)):
        added[column] = min(per_column, bound - sum(added))
    yield tuple(added)
    chance = np.random.default_rng(bound)
    every = histories(COLUMNS, bound, per_column)
    yield from (every[i] for i in chance.integers(len(every), size=4))


FULL = pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("case", CASES)
def test_a_user_who_fills_columns_tells_as_much_as_is_paid_and_nobody_tells_more(
    case: str, bounds: tuple[int, int]
) -> None:
    assert spent(case, bounds, fullest(*bounds)) == FULL
    for added in (fullest(*bounds), *others(*bounds)):
        assert spent(case, bounds, added) <= 1 + 1e-12


@pytest.mark.parametrize("case", CASES)
def test_a_user_who_was_elsewhere_is_paid_for_by_substitute(case: str) -> None:
    bounds = (3, 1)
    one, other = fullest(*bounds), fullest(*bounds, start=3)
    found = spent(case, bounds, one, other, "substitute")
    assert found <= 1 + 1e-12
    # Blocks of 2 columns, and of 6, have some of both.
    if "2" not in case:
        assert found == FULL
        assert spent(case, bounds, one, other) > 1.3


@pytest.mark.parametrize("bounds", [(2, 1), (4, 2)])
def test_delta_of_the_rounded_numbers_is_what_is_promised_and_little_less(bounds: tuple[int, int]) -> None:
    """Of two columns that are full, in one publication with the whole budget."""
    sigma = float(make("sample", SeededNoise(1), *bounds).guarantee.best_scale)
    found = exact_delta([sigma, sigma], bounds[1])
    assert found <= DELTA
    assert found > DELTA * Fraction(7, 10)


def test_ten_contributions_with_one_in_each_column_cost_a_factor_of_root_ten() -> None:
    def sigma(bound: int, per_column: int | None) -> float:
        settings = MechanismSettings("uniform", EPSILON, "1", 3, options=GAUSSIAN, per_column=per_column)
        return float(build(settings, 20, bound, SeededNoise(1)).guarantee.best_scale)

    assert sigma(10, 1) / sigma(1, None) == pytest.approx(10**0.5)
    assert sigma(10, 10) == sigma(10, None) == pytest.approx(10 * sigma(1, None))


@pytest.mark.parametrize("kind", ["uniform", "sample", "seasonal", "time-unit", "paced", "totals"])
def test_laplace_noise_stays_as_it_is(kind: str) -> None:
    window = 1 if KINDS[kind].level == "event" else 3
    settings = MechanismSettings(kind, EPSILON, "1", window)
    one, other = (build(replace(settings, per_column=most), 4, 4, SeededNoise(1)) for most in (1, None))
    assert one.guarantee == other.guarantee
    assert one.snapshot() == other.snapshot()


def test_a_state_goes_on_with_the_same_bound_of_a_column_only() -> None:
    for case in CASES:
        one, other = make(case, SeededNoise(1), 5, 2), make(case, SeededNoise(1), 5, 3)
        one.step(np.zeros(COLUMNS, np.int64))
        with pytest.raises(ValueError, match="belongs to"):
            other.restore(one.snapshot())
        make(case, SeededNoise(1), 5, 2).restore(one.snapshot())
        # All in one column is what a stream without the bound has: its state is the same.
        make(case, SeededNoise(1), 5, None).restore(make(case, SeededNoise(1), 5, 5).snapshot())


class ForBlocks(Uniform):
    """Derived from a kind that draws for columns: nobody has looked at what it draws for."""

    kind: ClassVar[str] = "for-blocks"


def test_a_class_that_does_not_say_it_itself_takes_no_bound_of_a_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {kind for kind, one in KINDS.items() if draws_by_column(one)} == {
        kind for kind, _ in CASES.values()
    }
    assert not draws_by_column(ForBlocks)
    plugin = Plugin("module:ForBlocks", ForBlocks, "", "")
    monkeypatch.setattr(plugins, "load", lambda kind, built_in: plugin)
    settings = MechanismSettings("module:ForBlocks", EPSILON, "1", 3, options=GAUSSIAN)
    build(settings, 4, 4, SeededNoise(1))
    with pytest.raises(UnfitSetting, match="may draw Gaussian noise for sums over columns") as refused:
        build(replace(settings, per_column=2), 4, 4, SeededNoise(1))
    assert refused.value.setting == "per_column"
    build(replace(settings, options={}, per_column=2), 4, 4, SeededNoise(1))
    monkeypatch.setattr(ForBlocks, "columns_apart", True)
    build(replace(settings, per_column=2), 4, 4, SeededNoise(1))


@pytest.mark.parametrize("per_column", [0, 5])
def test_a_bound_of_a_column_beyond_all_is_refused(per_column: int) -> None:
    settings = MechanismSettings("uniform", EPSILON, "1", 3, options=GAUSSIAN, per_column=per_column)
    with pytest.raises(UnfitSetting):
        build(settings, 4, 4, SeededNoise(1))


def square_of(formula: Callable[[int, int], int]) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gaussian, "largest_square", formula)
        monkeypatch.setitem(globals(), "largest_square", formula)

    return patch


def block_as_columns(patch: pytest.MonkeyPatch) -> None:
    """The levels of roll-ups as if no block had more of a user than a column."""
    patch.setattr(
        GaussianNoise,
        "squared_sensitivity_of",
        lambda self, columns: self.histories * largest_square(self.contributions, self.per_column),
    )


def block_as_product(patch: pytest.MonkeyPatch) -> None:
    """p k for the upper levels."""
    of = GaussianNoise.squared_sensitivity_of

    def product(self: GaussianNoise, columns: int) -> int:
        return of(self, 1) if columns == 1 else self.histories * self.per_column * self.contributions

    patch.setattr(GaussianNoise, "squared_sensitivity_of", product)


def one_level(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RolledUp, "_levels", lambda self: Fraction(1))


def nearly_free(patch: pytest.MonkeyPatch) -> None:
    """As if the parts of a block told two of their number less, not one."""

    def price(squares: Sequence[int], lengths: Sequence[int]) -> Fraction:
        shares = [1 - Fraction(2 * short, long) for short, long in itertools.pairwise(lengths)]
        return squares[0] + sum((a * b for a, b in zip(squares[1:], shares, strict=True)), Fraction(0))

    patch.setattr(contrasts, "price", price)


def halves_too_well(patch: pytest.MonkeyPatch) -> None:
    deviation = RolledUp._deviation
    patch.setattr(RolledUp, "_deviation", lambda self, units, times: deviation(self, units, -(-times // 2)))


def substitute_as_one(patch: pytest.MonkeyPatch) -> None:
    made = GaussianNoise.__init__

    def once(self: GaussianNoise, *terms: Any) -> None:
        made(self, *terms[:4])

    patch.setattr(GaussianNoise, "__init__", once)


FILLS = test_a_user_who_fills_columns_tells_as_much_as_is_paid_and_nobody_tells_more
LARGEST = test_no_history_has_a_larger_square_and_one_has_it_where_the_bound_can_be_reached
LEVELS = test_sums_over_blocks_differ_by_what_is_said_of_their_level
EXACT = test_delta_of_the_rounded_numbers_is_what_is_promised_and_little_less
ELSEWHERE = test_a_user_who_was_elsewhere_is_paid_for_by_substitute
without_rest = square_of(lambda bound, per_column: bound // per_column * per_column**2)
product = square_of(lambda bound, per_column: bound * per_column)
of_l1 = square_of(lambda bound, per_column: bound)
rest_as_full = square_of(lambda bound, per_column: -(-bound // per_column) * per_column**2)
MUTANTS: dict[str, tuple[Callable[..., None], dict[str, Any], Callable[[pytest.MonkeyPatch], None]]] = {
    "without the rest: by all histories": (LARGEST, {"columns": 3}, without_rest),
    "without the rest: by a mechanism": (FILLS, {"case": "uniform", "bounds": (5, 2)}, without_rest),
    "p k, more than is needed": (LARGEST, {"columns": 3}, product),
    "k, as if each column had one": (FILLS, {"case": "seasonal", "bounds": (4, 2)}, of_l1),
    "the rest as a full column": (FILLS, {"case": "totals", "bounds": (5, 3)}, rest_as_full),
    "blocks as columns": (FILLS, {"case": "uniform rollups 2", "bounds": (4, 2)}, block_as_columns),
    "p k for blocks": (FILLS, {"case": "time-unit rollups", "bounds": (5, 2)}, block_as_product),
    "p k for blocks: by all histories": (
        LEVELS, {"bound": 5, "per_column": 2, "levels": (1, 3), "adjacency": "add-remove"}, block_as_product
    ),
    "one level paid for": (FILLS, {"case": "uniform rollups 3", "bounds": (4, 2)}, one_level),
    "blocks nearly for free": (FILLS, {"case": "uniform rollups 2, 6", "bounds": (4, 2)}, nearly_free),
    "halves told too well": (FILLS, {"case": "uniform rollups 3", "bounds": (4, 2)}, halves_too_well),
    "k: told by the exact delta": (EXACT, {"bounds": (4, 2)}, of_l1),
    "substitute as add-remove": (ELSEWHERE, {"case": "sample"}, substitute_as_one),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_broken_variant_fails_the_named_test_which_passes_without_it(
    mutant: tuple[Callable[..., None], dict[str, Any], Callable[[pytest.MonkeyPatch], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test, arguments, patch = mutant
    test(**arguments)
    patch(monkeypatch)
    with pytest.raises(AssertionError):
        test(**arguments)
