"""The named steps of the protocol, at which a test can make a worker fail.

A worker calls its fault hook with the name of each step. The product's own hook does nothing; only a
constructor argument can set another, which no flag, file or variable of the product does.
"""

from __future__ import annotations

from collections.abc import Callable

FaultHook = Callable[[str], None]

#: In the order in which an event meets them.
TRANSACTIONS = ("pass-on", "close", "judge", "expose", "decide", "publish")
_STEPS = ("before-begin", "begun", "before-produce", "produced", "before-commit", "committed")

#: Every name that a hook is called with, in the order of a partition's life.
FAULT_POINTS = (
    "rebalance:revoked",
    "rebalance:before-assign",
    "rebalance:assigned",
    "take-over:before-fence",
    "take-over:fenced",
    "take-over:settled",
    *(f"mark:{step}" for step in (*_STEPS[:-1], "aborted")),
    *(f"barrier:{step}" for step in _STEPS),
    "restore:before-read",
    "restore:read",
    "seek:before",
    "seek:done",
    *(f"{transaction}:{step}" for transaction in TRANSACTIONS for step in _STEPS),
)


def no_fault(_: str) -> None:
    """The fault hook of a real worker."""
