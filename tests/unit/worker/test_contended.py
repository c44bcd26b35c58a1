"""A worker that shares its name in the group warns, and no other one does."""

from __future__ import annotations

import pytest

from eventveil.worker.contended import ContendedName


def warned(
    caplog: pytest.LogCaptureFixture, member: str | None, *, seconds: float, fenced: int, times: int = 4
) -> int:
    """How many warnings come of ``times`` assignments, ``seconds`` and ``fenced`` owners from one another."""
    at = iter(seconds * number for number in range(times))
    lost = iter(range(0, 1000, fenced) if fenced else [0] * times)
    name = ContendedName(member, lambda: next(lost), lambda: next(at))
    for _ in range(times):
        name.assigned()
    return caplog.text.count("another worker may run with --member a")


@pytest.mark.parametrize(("times", "warnings"), [(3, 0), (4, 1), (7, 1), (8, 2)])
def test_assignments_in_short_order_with_fenced_owners_are_told(
    caplog: pytest.LogCaptureFixture, times: int, warnings: int
) -> None:
    assert warned(caplog, "a", seconds=5, fenced=6, times=times) == warnings


@pytest.mark.parametrize(("member", "seconds", "fenced"), [("a", 21, 6), ("a", 5, 0), (None, 5, 6)])
def test_rebalances_now_and_then_or_without_fencing_or_a_name_are_not(
    caplog: pytest.LogCaptureFixture, member: str | None, seconds: float, fenced: int
) -> None:
    assert warned(caplog, member, seconds=seconds, fenced=fenced) == 0
