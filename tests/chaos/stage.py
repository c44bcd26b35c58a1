"""Where chaos happens: brokers, workers behind proxies, traffic, and what each fault does to workers.

What happens to a cluster of brokers is in ``tests.chaos.sabotage``.
"""

from __future__ import annotations

import heapq
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path

from confluent_kafka import KafkaException

from eventveil.kinds.registry import plan_streams
from eventveil.topology.loading import load
from tests.chaos.ground import OneBroker, ThreeBrokers, ground
from tests.chaos.points import TRANSACTIONS
from tests.chaos.process import ChaosWorker
from tests.chaos.schedule import Fault
from tests.chaos.streams import ChaosApplication
from tests.kafka.broker import LocalBroker
from tests.kafka.topics import abandon, read, transactional_producer
from tests.worker.application import Application

WORKERS = 3
SESSION = 2.0
#: Longer than the workers' transaction timeout.
_OUTLIVING = 22.0
_PAUSE = 20.0
_HOUR = 3_600_000


class Stage:
    """Use as ``with stage(...)``; ``perform`` a fault, ``tend`` in between, then ``calm_down``."""

    def __init__(self, ground: OneBroker | ThreeBrokers, folder: Path, seed: int) -> None:
        self.faults: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.application = ChaosApplication(ground.bootstrap, folder, ground.replication)
        #: By source topic.
        self.traffic = self.application.all_traffic(seed)
        self.workers = [
            ChaosWorker(
                self.application.path,
                folder / f"worker-{number}.log",
                session=SESSION,
                bootstrap=ground.bootstrap_for(number),
            )
            for number in range(WORKERS)
        ]
        self.ground, self.folder = ground, folder
        self._diary = folder / "faults.log"
        self._wanted = [True, True, False]
        self._frozen: set[int] = set()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._calm = False

    def perform(self, fault: Fault) -> None:
        """Let a fault happen. What ends it, if something does, happens in ``tend``."""
        self.say(fault)
        getattr(self, "_" + fault.kind.replace("-", "_"))(fault)

    def say(self, fault: object) -> None:
        """Write down what happens."""
        with self._diary.open("a") as diary:
            print(datetime.now().isoformat(), fault, file=diary)

    def tend(self, seconds: float) -> None:
        """Do what is due for so long, and start again the workers that have ended."""
        end = time.monotonic() + seconds
        while True:
            while self._later and self._later[0][0] <= time.monotonic():
                heapq.heappop(self._later)[2]()
            for number, worker in enumerate(self.workers):
                if self._wanted[number] and not worker.running:
                    self._frozen.discard(number)
                    worker.start()
            if time.monotonic() >= end:
                return
            time.sleep(0.05)

    def calm_down(self) -> None:
        """End every fault: all that is left is to recover."""
        self._calm = True
        while self._later:
            self.tend(0.2)
        self.tend(0)

    def resume(self) -> None:
        """Faults may happen again."""
        self._calm = False

    def end(self) -> None:
        """Stop all workers."""
        for worker in self.workers:
            worker.stop()
            worker.end()

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._order), action))

    def _live(self, first: int) -> list[int]:
        """The workers that are neither frozen nor gone, beginning with ``first``."""
        order = [(first + step) % WORKERS for step in range(WORKERS)]
        return [one for one in order if self.workers[one].running and one not in self._frozen]

    # Workers

    def _at_point(self, fault: Fault, action: str, hold: float) -> None:
        """Kill or freeze a worker at a point; a worker of its own comes to those of a rebalance."""
        if fault.point.split(":")[0] in TRANSACTIONS:
            fired = self._armed_while_running(fault, action)
        else:
            fired = self._armed_from_start(fault, action)
        if fired is None:
            self.missed[fault.kind] += 1
            return
        self.faults[fault.kind] += 1
        if action == "freeze":
            self._frozen.add(fired)
            self._after(hold, lambda: self._thaw(fired))

    def _armed_while_running(self, fault: Fault, action: str) -> int | None:
        for number in self._live(fault.worker):
            self.workers[number].arm(action, fault.point, 1 + int(3 * fault.share))
            if self.workers[number].wait_until_fired(2):
                return number
        return None

    def _armed_from_start(self, fault: Fault, action: str) -> int | None:
        for number in self._live(fault.worker)[:1]:
            self.workers[number].start(f"arm {action} {fault.point} 1")
            if self.workers[number].wait_until_fired(10):
                return number
        return None

    def _thaw(self, number: int) -> None:
        self._frozen.discard(number)
        self.workers[number].thaw()

    def _kill_at_point(self, fault: Fault) -> None:
        self._at_point(fault, "kill", 0)

    def _freeze_at_point(self, fault: Fault) -> None:
        self._at_point(fault, "freeze", SESSION + 1 + 2 * fault.share)

    def _outlive_transaction(self, fault: Fault) -> None:
        self._at_point(fault, "freeze", _OUTLIVING)

    def _kill(self, fault: Fault) -> None:
        for number in self._live(fault.worker)[:1]:
            self.workers[number].kill()
            self.faults["kill"] += 1

    def _restart(self, fault: Fault) -> None:
        for number in self._live(fault.worker)[:1]:
            self.workers[number].stop()
            self.faults["restart"] += 1

    def _downtime(self, fault: Fault) -> None:
        for worker in self.workers:
            worker.end()
        self._frozen.clear()
        # At least 500 timestamps of the quick stream.
        time.sleep(20 + 2 * fault.share)
        self.faults["downtime"] += 1

    def _rebalance_storm(self, fault: Fault) -> None:
        """The last worker joins and leaves, by turns with kill and SIGTERM, while other faults continue."""
        joiner = self.workers[-1]

        def turn(left: int) -> None:
            if self._calm:
                return
            self._wanted[-1] = not self._wanted[-1]
            if not self._wanted[-1]:
                if left % 4:
                    joiner.end()
                else:
                    joiner.stop()
            self.faults["rebalance-storm turn"] += 1
            if left > 1:
                self._after(3, lambda: turn(left - 1))

        turn(fault.turns)

    def _step_clock(self, fault: Fault) -> None:
        for number in self._live(fault.worker)[:1]:
            worker = self.workers[number]
            worker.tell(f"clock {-_HOUR if fault.kind == 'clock-back' else _HOUR}")
            self._after(3 + 2 * fault.share, partial(worker.tell, "clock 0"))
            self.faults[fault.kind] += 1

    _clock_back = _clock_forward = _step_clock

    # Broker and network

    def _broker_kill(self, fault: Fault) -> None:
        broker = self._only_broker()
        broker.kill()
        time.sleep(fault.share)
        broker.start()
        self.faults["broker-kill"] += 1

    def _broker_pause(self, fault: Fault) -> None:
        broker = self._only_broker()
        broker.pause()
        time.sleep(_PAUSE)
        broker.resume()
        self.faults["broker-pause"] += 1

    def _only_broker(self) -> LocalBroker:
        assert isinstance(self.ground, OneBroker)
        return self.ground.broker

    def _network_cut(self, fault: Fault) -> None:
        self.ground.cut(fault.worker)
        self._after(1 + 7 * fault.share, partial(self.ground.heal, fault.worker))
        self.faults["network-cut"] += 1

    def _network_delay(self, fault: Fault) -> None:
        self.ground.delay(fault.worker, 0.05 + 0.4 * fault.share)
        self._after(8, partial(self.ground.heal, fault.worker))
        self.faults["network-delay"] += 1

    # Forgeries

    def _aborted_partials(self, fault: Fault) -> None:
        """Partial counts of the coming timestamps, false and complete, in a transaction that is aborted."""
        try:
            forge_partials(self.application, "places")
        except (KafkaException, TimeoutError):
            # The cluster is not well enough for a forger either.
            self.missed["aborted-partials"] += 1
            return
        self.faults["aborted-partials"] += 1


def forge_partials(application: Application, stream: str) -> None:
    """Write false partial counts of all partitions for the coming timestamps, and abort."""
    topology = load(str(application.path), {})
    plan = next(plan for plan in plan_streams(topology) if plan.name == stream)
    written = read(application.bootstrap, topology.partials, partition=plan.partials_partition)
    partials = [json.loads(message.value() or b"") for message in written]
    own = [partial for partial in partials if partial["stream"] == stream]
    if not own:
        return
    last = max(partial["timestamp"] for partial in own)
    forged = [
        json.dumps(
            {**own[-1], "timestamp": last + ahead, "partition": partition, "columns": [0], "counts": [99]}
        )
        # A busy machine takes seconds from the reading above to the abort.
        for ahead in range(1, 80)
        for partition in range(application.partitions)
    ]
    forger = transactional_producer(application.bootstrap, f"{application.name}-forger")
    abandon(forger, topology.partials, forged, plan.partials_partition)
    forger.abort_transaction(30)


@contextmanager
def stage(folder: Path, seed: int, brokers: int = 1) -> Iterator[Stage]:
    """A stage with traffic and two workers running."""
    with ExitStack() as stack:
        made = Stage(stack.enter_context(ground(brokers, folder, WORKERS)), folder, seed)
        stack.callback(made.end)
        made.tend(0)
        for traffic in made.traffic.values():
            stack.enter_context(traffic)
        yield made
