"""What `migrate` and `reset` say of the terms of a stream."""

from __future__ import annotations

from fractions import Fraction

import pytest

from eventveil.cli.migrate import _show, words
from eventveil.formats.change import Difference, Terms
from eventveil.lifecycle.apply import Step

BEFORE, AFTER = Terms("uniform", Fraction(1), 24, 24), Terms("uniform", Fraction(1), 48, 48)


def test_terms_with_gaussian_noise_are_told_with_their_delta() -> None:
    assert words(AFTER, Fraction(1, 10**9)) == "epsilon 1 and delta 1e-09 for any 48 timestamps"
    assert words(AFTER, None) == "epsilon 1 for any 48 timestamps"


def test_so_is_the_limit_across_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    step = Step("visits", 7, {"mechanism.window": Difference(24, 48)}, BEFORE, AFTER)
    _show(step, Fraction(1, 10**9), apply=False)
    assert "stay within epsilon 1 and delta 1e-09: what they" in capsys.readouterr().out
    _show(step, None, apply=False)
    assert "stay within epsilon 1: what they" in capsys.readouterr().out
