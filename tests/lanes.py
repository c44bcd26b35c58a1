"""Which tests `make test` runs side by side, in four processes.

Tests on Kafka mostly wait: for a session to end, a timestamp to be due, a broker to start. So three lanes of
them run at once, each in a process of its own and with a broker of its own. They take the processors three
quarters of the time. What is left goes to the other tests, which run in the fourth process, a file at a time,
and in the first three when their lanes are done. Those compute and wait for nothing, so they give way.
"""

from __future__ import annotations

import os
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling

#: The files of tests/integration by lane, each lane about as long; a file that no lane names is in the last.
#: What starts clusters, kills brokers or takes all of a processor is in the first: one of them at a time.
_LANES = {
    "apart": {
        "bench", "broker", "chaos", "cluster", "demo", "longrun", "missing", "stale_reads",
        "topics_without_a_broker", "unclean",
    },
    "changes": {
        "clusters", "held", "memory", "migrate", "migrate_ground", "repartition", "rights", "surroundings",
        "topics", "topics_changed", "values_grown", "witness", "worker_killed",
    },
    "shared": set[str](),
}  # fmt: skip
#: Of the other tests beside the lanes; a process of the lanes has 0.
_NICENESS = 15


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


def give_way(item: pytest.Item) -> None:
    """Before a test: from the first one that belongs to no lane on, this process gives way to the lanes.

    Only where lanes run beside it, so that `make quick` and single files have the machine to themselves.
    """
    beside = "PYTEST_XDIST_WORKER" in os.environ and lane(item.session.items[0].nodeid) in _LANES
    if beside and lane(item.nodeid) not in _LANES:
        os.nice(max(0, _NICENESS - os.nice(0)))
