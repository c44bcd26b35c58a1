"""The steps of the protocol at which a worker can be made to fail, as it names them to its fault hook."""

from __future__ import annotations

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
