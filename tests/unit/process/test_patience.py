"""How long a doubt may stand."""

from __future__ import annotations

import pytest

from eventveil.model.errors import StateRefused, Unsettled, doubt, missing
from eventveil.process.patience import Doubts, Patience, look

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
    assert str(found) == "topic raw: it was deleted. This may be temporary"
    assert str(found.refusal) == (
        "topic raw: it was deleted. Repeated checks gave the same result. Give the stream a new name"
    )


def test_of_a_missing_topic_is_told_at_once_what_costs_nothing() -> None:
    remedy = (
        "If its name is right in the file, run `eventveil topics TOPOLOGY`, which says what is missing and"
        " how to create it"
    )
    assert str(missing("raw")) == f"topic raw: it does not exist. A broker may not know of it yet. {remedy}"
    assert str(missing("raw").refusal) == (
        f"topic raw: it does not exist. Repeated checks gave the same result. {remedy}"
    )


SAME = Unsettled("topic raw", "it is not there", REFUSED)


class Looks:
    """Looks that find what the test says, one after the other, and the pauses between them."""

    def __init__(self, found: list[str | Unsettled]) -> None:
        self.found, self.told, self.pauses = found, 0, list[float]()

    def once(self) -> str:
        found = self.found.pop(0)
        if isinstance(found, Unsettled):
            raise found
        return found

    def tell(self, _: Unsettled) -> None:
        self.told += 1

    def result(self, seconds: float = 0.0) -> str:
        def doubt_of(found: str) -> Unsettled | None:
            return Unsettled("stream a", "lost") if found == "lost" else None

        patience = Patience(seconds, lambda: float(len(self.pauses)))
        return look(self.once, doubt_of, patience, self.tell, self.pauses.append)


def test_a_command_looks_again_and_goes_on_with_the_look_that_leaves_no_doubt() -> None:
    looks = Looks([SAME, "lost", SAME, "good"])
    assert looks.result() == "good"
    assert (looks.told, looks.pauses) == (3, [0.5, 1.0, 2.0])


def test_it_refuses_what_every_look_doubts() -> None:
    looks = Looks([SAME] * 9)
    with pytest.raises(StateRefused, match="it is gone"):
        looks.result(4.0)
    assert looks.pauses == [0.5, 1.0, 2.0, 4.0]


def test_it_believes_a_loss_that_every_look_finds() -> None:
    looks = Looks(["lost"] * 9)
    assert looks.result() == "lost"
    assert len(looks.pauses) == 2


def test_it_does_not_look_again_at_what_would_refuse_nothing() -> None:
    looks = Looks([Unsettled("changelog", "it has been moved meanwhile"), "good"])
    with pytest.raises(Unsettled, match="moved meanwhile"):
        looks.result()
    assert looks.pauses == []


def test_a_take_over_settles_the_doubts_of_take_overs_and_a_healthy_life_those_of_lives() -> None:
    doubts = Doubts(0.0, lambda: 0.0)

    def life(*, takes_over: bool, healthy: bool = False) -> bool:
        doubts.begin()
        if takes_over:
            doubts.taken_over()
        if healthy:
            doubts.healthy()
        return doubts.refusal(SAME) is not None

    assert [life(takes_over=one) for one in (False, False, True, False, False, False)] == [False] * 5 + [True]
    doubts = Doubts(0.0, lambda: 0.0)
    assert [life(takes_over=True) for _ in range(3)] == [False, False, True]
    doubts = Doubts(0.0, lambda: 0.0)
    assert not any(life(takes_over=True, healthy=number == 2) for number in range(4))
