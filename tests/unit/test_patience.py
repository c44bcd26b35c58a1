"""How long a doubt may stand."""

from __future__ import annotations

from eventveil.errors import StateRefused, Unsettled, doubt
from eventveil.patience import Patience

REFUSED = StateRefused("topic raw", "it is gone", "Create it")


def patient(seconds: float, times: list[float]) -> Patience:
    return Patience(seconds, lambda: times.pop(0))


def test_a_doubt_that_stays_is_refused_after_the_time_and_not_before() -> None:
    same = Unsettled("topic raw", "it is not there", REFUSED)
    # The clock is asked twice when a doubt is new.
    waiting = patient(30.0, [0.0, 0.0, 10.0, 29.9, 30.0])
    assert [waiting.refusal(same) for _ in range(4)] == [None, None, None, REFUSED]


def test_a_doubt_is_looked_at_three_times_however_long_that_takes() -> None:
    same = Unsettled("topic raw", "it is not there", REFUSED)
    waiting = patient(30.0, [0.0, 0.0, 1000.0, 2000.0])
    assert [waiting.refusal(same) for _ in range(3)] == [None, None, REFUSED]


def test_another_doubt_begins_anew_and_so_does_one_that_was_settled_meanwhile() -> None:
    one, other = (Unsettled("topic raw", what, REFUSED) for what in ("it is not there", "it is another one"))
    waiting = patient(0.0, [float(second) for second in range(99)])
    assert [waiting.refusal(found) for found in (one, one, other, one, one)] == [None] * 5
    waiting.settle()
    assert [waiting.refusal(one) for _ in range(3)] == [None, None, REFUSED]


def test_a_doubt_tells_what_was_seen_and_its_refusal_the_remedy() -> None:
    found = doubt("topic raw", "it was deleted", "Give the stream a new name")
    assert str(found) == "topic raw: it was deleted. This may pass, and is worth another look"
    assert str(found.refusal) == (
        "topic raw: it was deleted. Every look found the same. Give the stream a new name"
    )
