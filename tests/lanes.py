"""Which tests `make test` runs side by side, in five processes.

Tests on Kafka mostly wait: for a session to end, a timestamp to be due, a broker to start. So four processes
run them at once, each with a broker of its own: a file at a time, the longest files first, and whichever
process is done takes the next file. The other tests compute and wait for nothing: a fifth process runs them,
and the first four when no file on Kafka is left. They give way to the tests on Kafka.
"""

from __future__ import annotations

import os
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: Lanes of tests/integration, of each of which one file runs at a time, in the order in which they begin:
#: files with several brokers, and those that kill a broker of their own or take all of a processor.
CLUSTERS, OWN = "clusters", "brokers of their own"
_LANES = {
    CLUSTERS: {"chaos", "cluster", "stale_reads", "unclean"},
    OWN: {"bench", "broker", "demo", "longrun", "lost_end", "missing"},
}
_LANE_OF = {subject: lane for lane, subjects in _LANES.items() for subject in subjects}
#: The others that take longest, longest first, so that none of them begins when all others are done.
_LONG = (
    "flink", "mutants", "migrate_ground", "pan_private", "worker_killed", "repartition", "doctor",
    "surroundings", "formats", "clusters", "migrate", "security", "faust_regressions", "worker", "writer",
    "witness", "ledger", "fail_closed", "rights", "topics_without_a_broker",
)  # fmt: skip
#: Files of the other tests that compute longest. Most others of tests/contract come next.
_COMPUTING = (
    "test_likelihood", "test_suite", "test_searching", "test_crash_histories", "test_audit",
    "test_utility_seasonal", "test_utility", "test_migration", "test_budget", "test_intervals",
    "test_processes",
)  # fmt: skip
#: Of the other tests beside those on Kafka, which have 0.
_NICENESS = 15


def scope(nodeid: str) -> str:
    """What runs in one process, one after another: a name for the tests that this one belongs to."""
    file = nodeid.partition("::")[0]
    return _LANE_OF.get(_subject(nodeid), file) if on_kafka(nodeid) else file


def on_kafka(nodeid: str) -> bool:
    """Whether a test, or a scope, is of those that need a broker."""
    return nodeid in _LANES or _file(nodeid).parent.name == "integration"


class Lanes(LoadScopeScheduling):
    """Gives files on Kafka to all processes but the last. Needs ``--no-loadscope-reorder``."""

    #: The process that runs no tests on Kafka; it may be gone before the others.
    _computing: WorkerController | None = None

    def schedule(self) -> None:
        if self.collection is None and len(self.nodes) > 1:
            self._computing = self.nodes[-1]
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        for_node = self._next_for(node)
        if for_node is None:
            # Without a word it would wait for more before its last test.
            node.shutdown()
            return
        self.workqueue.move_to_end(for_node, last=False)
        super()._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> str | None:
        """The first scope in the queue that this process may run."""
        others = (one for one in self.workqueue if not on_kafka(one))
        return next(others if node is self._computing else iter(self.workqueue), None)


def longest_first(items: list[pytest.Item]) -> None:
    """Tests on Kafka before all others, and among both what takes long before what does not."""
    items.sort(key=lambda item: _place(item.nodeid))


def _place(nodeid: str) -> tuple[int, int]:
    if scope(nodeid) in _LANES:
        return 0, [*_LANES].index(scope(nodeid))
    if on_kafka(nodeid):
        return 1, _index(_LONG, _subject(nodeid))
    return 2, _index(_COMPUTING, _file(nodeid).stem) + (_file(nodeid).parent.name != "contract")


def _index(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _file(nodeid: str) -> PurePath:
    return PurePath(nodeid.partition("::")[0])


def _subject(nodeid: str) -> str:
    return _file(nodeid).stem.removeprefix("test_")


def give_way(item: pytest.Item) -> None:
    """Before a test: from the first one on that needs no broker, this process gives way to those that do.

    Only where they run beside it, so that `make quick` and single files have the machine to themselves.
    """
    beside = "PYTEST_XDIST_WORKER" in os.environ and on_kafka(item.session.items[0].nodeid)
    if beside and not on_kafka(item.nodeid):
        os.nice(max(0, _NICENESS - os.nice(0)))
