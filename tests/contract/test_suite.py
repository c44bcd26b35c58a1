"""The suite of the contract: every kind passes, the example passes, what is unsound is found out."""

from __future__ import annotations

import sys
from math import exp, lgamma, log, log1p
from types import ModuleType

import pytest

from docs.examples.stride import Stride
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.contract import PROPERTIES, Property, examine, judge
from eventveil.mechanisms.contract.distinguishing import ERROR, RUNS, above, below
from eventveil.mechanisms.contract.subject import Subject
from eventveil.mechanisms.registry import KINDS
from eventveil.mechanisms.uniform import Uniform
from tests.contract import unsound
from tests.contract.noises import CASES

BY_NAME = {one.name: one for one in PROPERTIES}
#: Takes seconds; ``loss`` says more where it can judge, which it can for every kind but totals.
EXACT = [
    # What no window may spend takes two thirds of the time; unit tests of a kind have budgets of its own.
    pytest.param(one, id=one.name, marks=[pytest.mark.slow] if one.name.startswith("budget") else [])
    for one in PROPERTIES
    if one.name != "distinguishing"
]
UNSOUND = [(broken, name) for broken, names in unsound.FOUND_BY.items() for name in names.split()]


@pytest.mark.parametrize("one", EXACT)
@pytest.mark.parametrize("case", sorted(CASES))
def test_every_kind_keeps_the_contract(case: str, one: Property) -> None:
    kind, options = CASES[case]
    finding = judge(one, Subject(KINDS[kind], options))
    assert finding.counterexample is None, finding
    # Of totals the exact loss is in test_totals: it adds no draw to a count as it is.
    is_judged = (case, one.name) != ("totals", "loss")
    assert finding.tried.startswith("not judged") != is_judged


def test_the_example_keeps_the_contract_and_so_does_its_statistical_audit() -> None:
    found = {finding.property.name: finding for finding in examine(Subject(Stride, {"stride": 3}))}
    assert found.keys() == BY_NAME.keys()
    assert {name for name, finding in found.items() if finding.counterexample} == set()


@pytest.mark.parametrize(("broken", "name"), UNSOUND, ids=lambda one: getattr(one, "__name__", one))
def test_an_unsound_mechanism_fails_the_property_with_a_counterexample(
    broken: type[Mechanism], name: str
) -> None:
    finding = judge(BY_NAME[name], Subject(broken))
    assert finding.counterexample
    assert "raised" not in finding.counterexample or name in {"inputs", "states"}


def test_every_property_finds_something_out() -> None:
    assert {name for _, name in UNSOUND} | {"statement"} == BY_NAME.keys()


@pytest.mark.parametrize("lacking", ["**Guarantee.**", "ssumptions", "PVLDB 2014", "**Proof.**"])
def test_a_module_without_its_statement_fails(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("unproven", (sys.modules[Uniform.__module__].__doc__ or "").replace(lacking, ""))
    monkeypatch.setitem(sys.modules, "unproven", module)
    broken = type("Unproven", (Uniform,), {"kind": "unproven", "__module__": "unproven"})
    assert "lacks" in (judge(BY_NAME["statement"], Subject(broken)).counterexample or "")


def test_noise_that_is_not_simply_added_is_left_to_the_statistical_audit() -> None:
    finding = judge(BY_NAME["loss"], Subject(unsound.HalvesNoise))
    assert finding.counterexample is None
    assert finding.tried.startswith("not judged")


@pytest.mark.parametrize("hits", [0, 1, 20, 500, 990, RUNS])
def test_the_bounds_of_the_statistical_audit_are_wrong_as_seldom_as_they_say(hits: int) -> None:
    """The chance of so few hits at the upper bound, of this many at the lower one, summed exactly."""

    def chance(p: float, some: range) -> float:
        return sum(exp(lgamma(RUNS + 1) - lgamma(k + 1) - lgamma(RUNS - k + 1) + k * log(p)
                       + (RUNS - k) * log1p(-p)) for k in some)  # fmt: skip

    if hits < RUNS:
        assert chance(above(hits), range(hits + 1)) <= ERROR * 1.001
    if hits:
        assert chance(below(hits), range(hits, RUNS + 1)) <= ERROR * 1.001
    assert below(hits) <= hits / RUNS <= above(hits)


def test_a_mechanism_that_cannot_even_be_made_fails_every_property() -> None:
    class Refuses(Uniform):
        kind = "refuses"

        def __init__(self, *arguments: object) -> None:
            raise TypeError("no")

    failed = [one.property.name for one in examine(Subject(Refuses)) if one.counterexample]
    assert failed == [one.name for one in PROPERTIES]
