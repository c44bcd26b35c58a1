"""The verifier of local reports knows the sums that must come of them, and the one threshold."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from eventveil.local import Hybrid
from tests.chaos.sums import LocalRules, check_sums

RULES = LocalRules("1/2", 8)
TRUTH = {
    1: Counter({"distribution/1/2/8/3": 2}),
    2: Counter({"sums/1/2/8/4/1": 3, "sums/1/2/8/4/0": 1, "sums/1/2/8/5/1": 1}),
}


def release(timestamp: int, **changes: Any) -> dict[str, Any]:
    if timestamp == 1:
        made = {"counts": {"sum": 0, "reports": 2, "unused": 0}, "phase": "distribution", "threshold": 4}
    else:
        # 4 (1 +- 4.083) / 2 each: three that say 4, one that says 0.
        made = {"counts": {"sum": 24, "reports": 4, "unused": 1}, "phase": "sums", "threshold": 4}
    return {"timestamp": timestamp, **made, **changes}


def test_sound_releases_have_no_violation() -> None:
    assert check_sums(RULES, [release(1), release(2), release(3, counts=zero())], TRUTH) == []


def zero() -> dict[str, int]:
    return {"sum": 0, "reports": 0, "unused": 0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"counts": {"sum": 24, "reports": 5, "unused": 0}}, "not 4 reports and 1 others"),
        ({"counts": {"sum": 21, "reports": 4, "unused": 1}}, "sums up to 21"),
        ({"threshold": 5}, "has threshold 5 after 4"),
        ({"phase": "distribution"}, "is of phase distribution, not sums"),
    ],
)
def test_each_corruption_is_named(changes: dict[str, Any], words: str) -> None:
    violations = check_sums(RULES, [release(1), release(2, **changes)], TRUTH)
    assert [one for one in violations if words in one], violations


def test_an_estimate_is_that_of_the_paper() -> None:
    hybrid = Hybrid(Fraction(1, 2), 4, 128)
    for report in (0, 1):
        assert RULES.estimate(f"sums/1/2/8/4/{report}", 4) == pytest.approx(float(hybrid.estimate(report)))
