"""A run: faults for some time, recovery, and the verdict."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException

from tests.chaos import batches
from tests.chaos.ground import ThreeBrokers
from tests.chaos.points import FAULT_POINTS
from tests.chaos.sabotage import Sabotage
from tests.chaos.schedule import cluster_faults, faults
from tests.chaos.stage import WORKERS, Stage, stage
from tests.worker.waiting import settle

_RECOVERY_SECONDS = 90
_RECOVERIES = 10
#: At most this many times the time that was asked for, faults go on.
_LONGEST = 5
#: After this time workers are left alone until every stream gets on. Else a slow machine spends all of
#: the time on take-overs, and no fault meets a release.
_SUFFERING_SECONDS = 60
_REST_SECONDS = 60
#: The reasons for which a worker may stop under these faults; any other is a violation.
_GOOD_REASONS = ("transaction failed", "no broker of", "KafkaConnectionError")


@dataclass(frozen=True, slots=True)
class Result:
    """What happened in a run.

    ``missed`` faults waited for a point that nobody came to. ``meanwhile`` timestamps were released while
    faults went on.
    """

    seed: int
    seconds: float
    faults: Counter[str]
    missed: int
    reached: frozenset[str]
    timestamps: int
    readings: int
    events: int
    meanwhile: int
    violations: list[str]

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(self.faults.items()))
        return (
            f"seed {self.seed}, {self.seconds:.0f} s: {self.faults.total()} faults ({kinds}; "
            f"{self.missed} more came to nothing), "
            f"{len(self.reached)} of {len(FAULT_POINTS)} points reached, "
            f"{self.timestamps} timestamps, {self.meanwhile} of them released before the last fault, "
            f"{self.readings} readings and {self.events} events verified, "
            f"{len(self.violations)} violations"
        )


def run(
    folder: Path, seed: int, seconds: float, brokers: int = 1, least: int = 0, *, everywhere: bool = False
) -> Result:
    """Let it happen in ``folder``, which keeps the logs of workers and brokers; ``brokers`` is 1 or 3.

    Faults go on for longer, at most ``_LONGEST`` times as long, until workers have met ``least`` of them
    and, with ``everywhere``, have come to every fault point: a slow machine gets less done in a minute.
    """
    with stage(folder, seed, brokers) as made:
        made.tend(5)
        if isinstance(made.ground, ThreeBrokers):
            sabotage = Sabotage(made.ground.cluster, made.application.name)
            sabotage.begin(cluster_faults(seed), made.say)
            meanwhile = _suffer(made, seed, seconds, brokers, least, everywhere)
            sabotage.end()
            made.faults += sabotage.faults
        else:
            meanwhile = _suffer(made, seed, seconds, brokers, least, everywhere)
        for traffic in made.traffic.values():
            traffic.stop()
        violations = _recover(made)
        made.end()
        made.application.nothing_runs()
        return _verdict(made, violations, seed, seconds, meanwhile)


def _suffer(made: Stage, seed: int, seconds: float, brokers: int, least: int, everywhere: bool) -> int:
    """Faults for some time, as ``run`` says; how many timestamps were released meanwhile."""
    end = time.monotonic() + seconds
    rest = time.monotonic() + _SUFFERING_SECONDS
    for fault in faults(seed, WORKERS, brokers):
        now = time.monotonic()
        if now >= end and (_met(made, least, everywhere) or now >= end + (_LONGEST - 1) * seconds):
            break
        if time.monotonic() >= rest:
            _rest(made)
            rest = time.monotonic() + _SUFFERING_SECONDS
        made.perform(fault)
        made.tend(fault.pause)
    return made.application.released()


def _met(made: Stage, least: int, everywhere: bool) -> bool:
    """Whether there were enough faults, and workers came to all points if that is asked for."""
    return made.faults.total() >= least and (not everywhere or _reached(made) == set(FAULT_POINTS))


def _reached(made: Stage) -> frozenset[str]:
    return frozenset[str]().union(*(worker.reached for worker in made.workers))


def _rest(made: Stage) -> None:
    """Leave the workers alone until every stream has a release more, or for some time."""
    made.calm_down()
    before = made.application.progress()
    deadline = time.monotonic() + _REST_SECONDS
    while time.monotonic() < deadline:
        made.tend(1)
        after = made.application.progress()
        if all(after[stream] > before[stream] for stream in before):
            break
    made.resume()


def _recover(made: Stage) -> list[str]:
    """End all faults and wait until every event has had its verdict; the violation if that never comes.

    A busy machine may take longer to catch up: then every stream has to get on meanwhile. Nothing is
    produced any more, so that what they have to reach stays where it is.
    """
    made.calm_down()
    now = time.time_ns() // 1_000_000
    lagging = ""
    for _ in range(_RECOVERIES):
        before = made.application.progress()
        try:
            settle(made.application, _RECOVERY_SECONDS, meanwhile=lambda: made.tend(0.3), now=now)
            made.application.settle_values(_RECOVERY_SECONDS, meanwhile=lambda: made.tend(0.3))
        except (TimeoutError, KafkaException) as error:
            lagging = f"the workers do not recover: {error}"
            after = made.application.progress()
            if any(after[stream] <= before[stream] for stream in before):
                return [lagging]
        else:
            return []
    return [lagging]


def _verdict(made: Stage, violations: list[str], seed: int, seconds: float, meanwhile: int) -> Result:
    timestamps = 0
    for stream, fields in made.application.counting.items():
        report = made.application.verify(stream)
        violations += report.violations
        timestamps += report.timestamps
        traffic = made.traffic.get(fields["source"]["topic"])
        produced = 0 if traffic is None else traffic.produced
        # More is possible: after a lost answer an idempotent producer may begin a new epoch and send again.
        if report.produced < produced:
            violations.append(f"{stream}: {report.produced} records in the log, {produced} produced")
    readings = made.application.verify_values()
    violations += readings.violations
    stops = [reason for worker in made.workers for reason in worker.stops]
    violations += [
        f"a worker stopped: {reason}" for reason in stops if not any(good in reason for good in _GOOD_REASONS)
    ]
    violations += batches.told(made.folder, stops)
    try:
        made.application.command("ledger", str(made.application.path))
    except AssertionError as error:
        violations.append(f"eventveil ledger: {error}")
    return Result(
        seed=seed,
        seconds=seconds,
        faults=made.faults,
        missed=made.missed.total(),
        reached=_reached(made),
        timestamps=timestamps,
        readings=readings.readings,
        meanwhile=meanwhile,
        events=sum(traffic.produced for traffic in made.traffic.values()),
        violations=violations,
    )
