"""What a successor concludes of the last transaction before it."""

from __future__ import annotations

import pytest

from eventveil.kafka.outgoing import Producer
from eventveil.kafka.succession import LastTransaction, was_committed


def seen(*states: tuple[str, int]) -> list[LastTransaction]:
    return [LastTransaction(Producer(7, epoch), state) for state, epoch in states]


@pytest.mark.parametrize(
    ("states", "epoch", "expected"),
    [
        ([("CompleteCommit", 3)], 4, True),
        ([("PrepareCommit", 3), ("PrepareCommit", 3), ("CompleteCommit", 3)], 4, True),
        ([("CompleteAbort", 3)], 4, False),
        ([("Ongoing", 3)], 5, False),
        ([("Ongoing", 3), ("PrepareCommit", 3)], 4, True),
        ([("Ongoing", 3), ("PrepareAbort", 4)], 5, False),
        ([("Empty", 3)], 4, False),
        # Another transaction had begun since then, and was aborted.
        ([("CompleteCommit", 3)], 5, False),
        # The answer to the first attempt was lost.
        ([("CompleteCommit", 3), ("Empty", 4)], 5, True),
        ([("CompleteAbort", 3), ("Empty", 4)], 5, False),
        ([("CompleteCommit", 3), ("Empty", 4), ("Empty", 5)], 6, True),
        # Somebody else was there.
        ([("CompleteCommit", 3), ("Empty", 5)], 6, False),
        ([("CompleteCommit", 3), ("CompleteAbort", 4)], 5, False),
    ],
)
def test_the_last_transaction_was_committed_if_the_coordinator_said_so(
    states: list[tuple[str, int]], epoch: int, expected: bool
) -> None:
    assert was_committed(seen(*states), Producer(7, epoch)) is expected


def test_of_another_producer_nothing_is_known_and_nothing_of_none() -> None:
    assert was_committed(seen(("CompleteCommit", 3)), Producer(8, 0)) is False
    assert was_committed([], Producer(8, 0)) is None
