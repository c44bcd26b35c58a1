"""Which tests `make test` runs side by side, in four processes.

Tests on Kafka mostly wait: for a broker, a rebalance, or a timestamp. So four lanes of them run at once, each
in a process with a broker of its own; what starts clusters or kills brokers does that there. All other tests
fill up what is left of the time, a file at a time.
"""

from __future__ import annotations

from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

#: The files of tests/integration by lane, each about ten minutes; those that no lane names are in the last.
_LANES = {
    "chaos": {"chaos"},
    "apart": {
        "bench", "broker", "cluster", "demo", "longrun", "memory", "missing", "stale_reads",
        "topics_without_a_broker", "unclean", "worker_killed",
    },
    "lifecycle": {
        "clusters", "migrate", "migrate_ground", "topics", "topics_changed", "values_grown", "witness",
    },
    "shared": set[str](),
}  # fmt: skip


def lane(nodeid: str) -> str:
    """What runs in one process, one after another: a name for the tests that this one belongs to."""
    file = PurePath(nodeid.partition("::")[0])
    if file.parent.name != "integration":
        return str(file)
    name = file.stem.removeprefix("test_")
    return next((one for one, files in _LANES.items() if name in files), "shared")


class Lanes(LoadScopeScheduling):
    """Gives each process a lane, and the next one when it is done. Needs ``--no-loadscope-reorder``."""

    def _split_scope(self, nodeid: str) -> str:
        return lane(nodeid)


def longest_first(items: list[pytest.Item]) -> None:
    """The lanes of tests/integration before all other tests, which fill up what is left of the time."""
    items.sort(key=lambda item: lane(item.nodeid) not in _LANES)
