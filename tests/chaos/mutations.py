"""``python -m tests.chaos.mutations``: does the verifier see that a worker is broken?

Every mutant goes through a scenario made for it, and so does the worker as it is: the verifier must find
fault with the one and none with the other. All of them run on a real Kafka here, also those whose defect the
log in memory can show: what is tried is the verifier, on logs as brokers keep them. ``make test`` tries the
latter on the log in memory (``tests.chaos.histories``), which a broker certifies (``tests.conformance``).
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import click

from tests.chaos.mutants import MUTANTS
from tests.chaos.process import ChaosWorker
from tests.chaos.stage import forge_partials
from tests.kafka.broker import local_broker
from tests.kafka.cluster import Cluster, three_brokers
from tests.kafka.links import Link
from tests.worker.application import Application, Traffic
from tests.worker.placed import place_topics
from tests.worker.waiting import last_release, settle

#: Scenarios wait more than they work.
_AT_ONCE = 3
_PATIENCE = 150.0
#: Some broken workers never catch up. What is wrong with them is in the topics long before.
_MUTANT_PATIENCE = 60.0
#: Enough for a worker that believes what it is shown to draw again, on a busy machine.
_MISLED_SECONDS = 40.0
_ATTEMPTS = 3
#: The clients by which a worker on the cluster reads.
READERS = "readers"
#: The commands of this process share standard output.
_creating = threading.Lock()


class Play:
    """One worker and perhaps a second one on an application of their own, with traffic."""

    def __init__(self, kafka: str | Cluster, folder: Path, mutant: str, stack: ExitStack) -> None:
        if isinstance(kafka, str):
            self.application = Application(kafka, folder, partitions=2)
        else:
            self.cluster = kafka
            # All of it is led by broker 1, and nobody begins there.
            self.application = Application(kafka.bootstrap_of(2, 3), folder, partitions=2, replication=3)
            # Replicas may lag for lack of processors.
            self.application.document["streams"]["places"]["timeline"]["clock_skew"] = "1s"
            self.application.write()
            place_topics(self.application, kafka, [1, 2, 3])
        with _creating:
            self.application.create()
        name = f"{self.application.name}-{mutant or 'intact'}"
        # On a cluster the first one is as it should be: it makes the truth that the second one may miss.
        first = mutant if isinstance(kafka, str) else ""
        self.one, self.two = (
            ChaosWorker(self.application.path, folder / f"{name}-{number}.log", mutant=kind)
            for number, kind in (("one", first), ("two", mutant))
        )
        for worker in (self.one, self.two):
            stack.callback(worker.end)
        self.traffic = stack.enter_context(Traffic(self.application, seed=1, per_second=200))

    def run_one(self) -> None:
        """Start the first worker and let it release something."""
        self.one.start()
        self.release(4)

    def release(self, timestamps: int) -> None:
        """Wait for this many more releases. Raises TimeoutError."""
        wanted = last_release(self.application, self.application.sink) + timestamps
        if timestamps == wanted:
            wanted = 1
        deadline = time.monotonic() + _PATIENCE
        while last_release(self.application, self.application.sink) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"timestamp {wanted} was not released")
            time.sleep(0.1)

    def fire(self, worker: ChaosWorker, action: str, point: str) -> None:
        """Let a worker come to a fault point. Raises TimeoutError."""
        worker.arm(action, point)
        if not worker.wait_until_fired(_PATIENCE):
            raise TimeoutError(f"{point} was not reached")


def killed_while_publishing(play: Play) -> None:
    """kill -9 when the records of B are with the broker; then a successor."""
    play.run_one()
    play.fire(play.one, "kill", "publish:before-commit")
    play.one.start()
    play.release(4)


def zombie_decides(play: Play) -> None:
    """An owner frozen before it commits A resumes when its successor has read the state, and dies after A.

    Had it come to B, the successor would have refused its state: the ledger would have been ahead of it.
    """
    play.run_one()
    play.fire(play.one, "freeze", "decide:before-commit")
    play.one.arm("kill", "decide:committed")
    play.two.start()
    play.two.wait_until_reached("restore:read", _PATIENCE)
    time.sleep(0.5)
    play.one.thaw()
    play.release(4)


def zombie_publishes(play: Play) -> None:
    """An owner frozen before it commits B resumes when its successor is well ahead."""
    play.run_one()
    play.fire(play.one, "freeze", "publish:before-commit")
    play.two.start()
    play.release(3)
    play.one.thaw()
    play.release(4)


def killed_between(play: Play) -> None:
    """kill -9 while timestamps are open; then a successor."""
    play.run_one()
    time.sleep(1)
    play.one.kill()
    play.one.start()
    play.release(4)


def false_partials(play: Play) -> None:
    """Somebody's partial counts of the coming timestamps, in a transaction that is aborted."""
    play.run_one()
    forge_partials(play.application, "places")
    play.release(8)


def silence(play: Play) -> None:
    """Timestamps without a single event."""
    play.run_one()
    play.traffic.stop()
    play.release(8)


def ordinary(play: Play) -> None:
    """Nothing but the events, some of which are late."""
    play.run_one()
    play.release(8)


def clock_ahead(play: Play) -> None:
    """The clock of the worker goes five seconds ahead for a while: fifty times what is declared."""
    play.run_one()
    play.one.tell("clock 5000")
    time.sleep(3)
    play.one.tell("clock 0")
    play.release(8)


def leader_cut_off(play: Play) -> None:
    """The broker that leads everything keeps answering, cut off, while others lead on; then a successor.

    The clients by which the successor reads meet the one that is cut off.
    """
    play.run_one()
    play.one.kill()
    play.cluster.cut(1, from_="controller")
    play.cluster.cut(1, from_="brokers")
    _wait_until_led_elsewhere(play.application, play.cluster)
    play.one.start()
    play.release(8)
    play.one.kill()
    others = [Link(READERS, play.cluster.nodes[broker].name) for broker in (2, 3)]
    play.cluster.links.cut(others)
    play.two.start(f"readers {play.cluster.bootstrap_of(1, client=READERS)}")
    with suppress(TimeoutError):  # The worker as it is waits until it is shown everything.
        play.two.wait_until_reached("publish:committed", _MISLED_SECONDS)
    play.cluster.heal(1)
    play.cluster.links.heal(others)
    play.release(4)


def _wait_until_led_elsewhere(application: Application, cluster: Cluster) -> None:
    deadline = time.monotonic() + _PATIENCE
    while {
        leader
        for (topic, _), leader in cluster.asked(2).leaders.items()
        if topic.startswith(application.name)
    } & {1, -1}:
        if time.monotonic() > deadline:
            raise TimeoutError("no other broker leads")
        time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the verifier said of one play, and how long that took."""

    violations: list[str]
    seconds: float


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutant, what it goes through, and the words by which the verifier must accuse it.

    ``brokers``: on how many. ``in_memory``: random histories of the log in memory show it as well
    (``tests.chaos.histories``).
    """

    mutant: str
    scenario: Callable[[Play], None]
    accusation: str
    brokers: int = 1
    in_memory: bool = False

    def accuses(self, violations: Sequence[str]) -> list[str]:
        """The violations in these words."""
        return [violation for violation in violations if self.accusation in violation]


TRIALS = (
    Trial("one-transaction", killed_while_publishing, "shows 2 draws", in_memory=True),
    Trial("fresh-noise-on-retry", killed_while_publishing, "shows 2 draws", in_memory=True),
    Trial("read-before-fence", zombie_decides, "was decided twice", in_memory=True),
    Trial("retry-in-place", zombie_publishes, "is published again", in_memory=True),
    Trial("trusting-the-group", killed_between, "counts "),
    Trial("reading-uncommitted", false_partials, "counts ", in_memory=True),
    Trial("skipping-empty", silence, "are missing", in_memory=True),
    Trial("reopening-for-late-events", ordinary, "should be a dead letter, late", in_memory=True),
    Trial("trusting-its-clock", clock_ahead, "is a dead letter, after-close", in_memory=True),
    Trial("without-the-barrier", leader_cut_off, "shows 2 draws", brokers=3),
)


def play(kafka: str | Cluster, folder: Path, scenario: Callable[[Play], None], mutant: str = "") -> Outcome:
    """Put a scenario on, with a mutant or with the worker as it is."""
    begin = time.monotonic()
    stuck = []
    with ExitStack() as stack:
        made = Play(kafka, folder, mutant, stack)
        try:
            scenario(made)
            made.traffic.stop()
            settle(made.application, _MUTANT_PATIENCE if mutant else _PATIENCE)
        except TimeoutError as error:
            stuck = [f"stuck: {error}"]
        for worker in (made.two, made.one):
            worker.end()
    return Outcome([*made.application.verify().violations, *stuck], time.monotonic() - begin)


def run(kafka: str, folder: Path, trials: Sequence[Trial] = TRIALS) -> dict[Trial, tuple[Outcome, Outcome]]:
    """What the verifier says of every mutant, and of the worker as it is in the same scenario."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        plays = {
            trial: (
                pool.submit(_mutated, kafka, folder, trial),
                pool.submit(play, kafka, folder, trial.scenario),
            )
            for trial in trials
            if trial.brokers == 1
        }
        found = {trial: (mutated.result(), intact.result()) for trial, (mutated, intact) in plays.items()}
    return found | _on_a_cluster(folder, [trial for trial in trials if trial.brokers == 3])


def _on_a_cluster(folder: Path, trials: Sequence[Trial]) -> dict[Trial, tuple[Outcome, Outcome]]:
    """One after the other, for each does something to the brokers."""
    found = {}
    if trials:
        with three_brokers(clients=[READERS]) as cluster:
            for trial in trials:
                intact = play(cluster, folder, trial.scenario)
                cluster.repair()
                found[trial] = _mutated(cluster, folder, trial), intact
                cluster.repair()
    return found


def _mutated(kafka: str | Cluster, folder: Path, trial: Trial) -> Outcome:
    """The play of a mutant; a second and a third one where a race kept its defect from mattering."""
    for _ in range(_ATTEMPTS):
        outcome = play(kafka, folder, trial.scenario, trial.mutant)
        if trial.accuses(outcome.violations):
            break
    return outcome


def mistakes(trial: Trial, mutated: Outcome, intact: Outcome) -> list[str]:
    """In what the verifier was wrong: a mutant not accused, or the worker as it is accused."""
    found = [f"as it is, in the scenario of {trial.mutant}: {one}" for one in intact.violations]
    if not trial.accuses(mutated.violations):
        found.append(f"{trial.mutant} was not caught ({trial.accusation!r}): {mutated.violations[:5]}")
    return found


@click.command()
@click.argument("mutants", nargs=-1, type=click.Choice(sorted(MUTANTS)))
def main(mutants: tuple[str, ...]) -> None:
    """Try MUTANTS (default: all), print the table; exit 1 if one escapes."""
    trials = [trial for trial in TRIALS if not mutants or trial.mutant in mutants]
    wrong = []
    with tempfile.TemporaryDirectory() as folder, local_broker() as broker:
        for trial, (mutated, intact) in run(broker.bootstrap, Path(folder), trials).items():
            told = next(iter(trial.accuses(mutated.violations)), "")
            verdict = "caught" if told else "ESCAPED"
            print(
                f"{trial.mutant:26} {verdict}  {mutated.seconds:4.1f} s  {len(mutated.violations):3}  {told}"
            )
            print(f"{'as it is':26} {len(intact.violations)} violations  {intact.seconds:4.1f} s")
            wrong += mistakes(trial, mutated, intact)
    for mistake in wrong:
        print(mistake, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
