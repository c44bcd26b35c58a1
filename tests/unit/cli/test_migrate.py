"""What `migrate` and `reset` say of the terms of a stream."""

from __future__ import annotations

from fractions import Fraction

import pytest

from eventveil.cli.migrate import _show, words
from eventveil.formats.change import ChangeLimit, Difference, Terms
from eventveil.lifecycle.apply import MigrationStep
from tests.unit.support import stream, topology

PURE, NORMAL = (
    Terms("uniform", Fraction(1), 24, 24),
    Terms("uniform", Fraction(1), 48, 48, Fraction(1, 10**9)),
)


def test_terms_with_gaussian_noise_are_told_with_their_delta() -> None:
    assert words(NORMAL) == "epsilon 1 and delta 1e-09 for any 48 timestamps"
    assert words(PURE) == "epsilon 1 for any 24 timestamps"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (PURE, NORMAL, "epsilon 1 and delta 1e-09"),
        (NORMAL, NORMAL, "epsilon 1 and delta 1e-09"),
        (NORMAL, NORMAL._replace(delta=Fraction(1, 10**6)), "epsilon 1 and delta 1e-06"),
        (PURE, PURE, "epsilon 1"),
    ],
)
def test_so_is_the_limit_across_a_change(
    before: Terms, after: Terms, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = ChangeLimit.between(7, before, after)
    _show(
        topology(stream("visits")),
        MigrationStep("visits", 7, {"mechanism.window": Difference(24, 48)}, before, after, limit),
        apply=False,
    )
    assert capsys.readouterr().out.splitlines()[:3] == [
        "visits: would continue from timestamp 7 (1970-01-01T00:00:01.060Z) with",
        "  mechanism.window 48, was 24",
        f"  windows of {limit.window} timestamps across the change cost at most {told}: a release that would"
        " cost more repeats the one before it",
    ]


@pytest.mark.parametrize(
    ("before", "after", "changed", "forgets"),
    [
        ("uniform", "uniform", "mechanism.epsilon", False),
        ("seasonal", "a plug-in", "mechanism.kind", False),
        ("uniform", "seasonal", "mechanism.kind", True),
        ("seasonal", "seasonal", "mechanism.epsilon", False),
        ("seasonal", "seasonal", "sink.topic", False),
        ("seasonal", "seasonal", "mechanism.periods", True),
        ("seasonal", "seasonal", "source.filter", True),
        ("seasonal", "seasonal", "counts.contributions", True),
        ("paced", "paced", "mechanism.epsilon", True),
    ],
)
def test_a_kind_that_predicts_may_forget_and_that_is_told(
    before: str, after: str, changed: str, forgets: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = (PURE._replace(mechanism=kind) for kind in (before, after))
    step = MigrationStep("visits", 7, {changed: Difference(1, 2)}, old, new, ChangeLimit.between(7, old, new))
    _show(topology(stream("visits")), step, apply=True)
    assert (f"{after} does not take over what it has learned" in capsys.readouterr().out) == forgets
