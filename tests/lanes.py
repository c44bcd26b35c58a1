"""Which tests `make test` runs side by side, in two processes.

Those of tests/integration share a broker and run one after another in one process. Beside them run those that
start clusters of their own or compute for minutes, and then all others, a file at a time.
"""

from __future__ import annotations

from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

_APART = {
    "bench", "broker", "chaos", "cluster", "demo", "longrun", "memory", "missing", "stale_reads",
    "topics_without_a_broker", "unclean", "worker_killed",
}  # fmt: skip


def lane(nodeid: str) -> str:
    """What runs in one process, one after another: a name for the tests that this one belongs to."""
    file = PurePath(nodeid.partition("::")[0])
    if file.parent.name != "integration":
        return str(file)
    return "apart" if file.stem.removeprefix("test_") in _APART else "shared"


class Lanes(LoadScopeScheduling):
    """Gives each process a lane, and the next one when it is done. Needs ``--no-loadscope-reorder``."""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)


def longest_first(items: list[pytest.Item]) -> None:
    """The two lanes of tests/integration before all other tests, which fill up what is left of the time."""
    items.sort(key=lambda item: lane(item.nodeid) not in {"apart", "shared"})
