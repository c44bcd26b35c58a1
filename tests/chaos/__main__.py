"""``python -m tests.chaos --seed N --seconds N``: faults for so long, then the verdict."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path

import click

from operators.faults import FAULT_POINTS
from tests.chaos.schedule import faults
from tests.chaos.stage import WORKERS, Stage, stage
from tests.worker.waiting import settle

#: The reasons for which a worker may stop under these faults; any other is a violation.
_GOOD_REASONS = ("transaction failed", "no broker of", "KafkaError")


@click.command()
@click.option("--seed", type=int, default=None, help="Of schedule and traffic; by default a new one.")
@click.option("--seconds", type=click.IntRange(10), default=60, show_default=True, help="Of faults.")
def main(seed: int | None, seconds: int) -> None:
    """Let workers on a real Kafka suffer, then verify everything that came of it."""
    seed = time.time_ns() % 1_000_000 if seed is None else seed
    print(f"make chaos CHAOS_SEED={seed} CHAOS_SECONDS={seconds}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="eventveil-chaos-"))
    violations, summary = run(folder, seed, seconds)
    for violation in violations[:100]:
        print(f"VIOLATION {violation}", file=sys.stderr)
    print(summary)
    if violations:
        print(f"logs of the workers and of the broker: {folder}", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


def run(folder: Path, seed: int, seconds: float) -> tuple[list[str], str]:
    """The violations of a run, and what it did in one line."""
    with stage(folder, seed) as made:
        violations, early = _suffer(made, seed, seconds)
        return _verdict(made, violations, early, seed, seconds)


def _suffer(made: Stage, seed: int, seconds: float) -> tuple[list[str], int]:
    """Faults, recovery, and as the last act clocks that go an hour ahead; from when they did."""
    violations: list[str] = []
    made.tend(5)
    end = time.monotonic() + seconds
    for fault in faults(seed, WORKERS):
        if time.monotonic() >= end:
            break
        print(f"{end - time.monotonic():6.1f} {fault.kind} {fault.point} {fault.worker}", flush=True)
        made.perform(fault)
        made.tend(fault.pause)
    made.calm_down()
    try:
        settle(made.application, 90, meanwhile=lambda: made.tend(0.3))
    except TimeoutError as error:
        violations.append(f"no recovery: {error}")
    early = made.clock_forward()
    made.tend(2)
    made.traffic.stop()
    try:
        settle(made.application, 90, meanwhile=lambda: made.tend(0.3))
    except TimeoutError as error:
        violations.append(f"no recovery: {error}")
    return violations, early


def _verdict(
    made: Stage, violations: list[str], early: int, seed: int, seconds: float
) -> tuple[list[str], str]:
    made.end()
    timestamps = 0
    for stream in made.application.document["streams"]:
        report = made.application.verify(stream, early=early)
        violations += report.violations
        timestamps += report.timestamps
        print(f"{stream}: {report}")
        if stream != "silent" and report.produced != made.traffic.produced:
            violations.append(f"{report.produced} records in the log, {made.traffic.produced} produced")
    stops = [reason for worker in made.workers for reason in worker.stops]
    violations += [
        f"a worker stopped: {reason}" for reason in stops if not any(good in reason for good in _GOOD_REASONS)
    ]
    for reason in stops:
        print(f"stopped: {reason}")
    with contextlib.suppress(AssertionError):
        print(made.application.command("ledger", str(made.application.path)))
    reached = set().union(*(worker.reached for worker in made.workers))
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(made.faults.items()))
    missed = sum(made.missed.values())
    return violations, (
        f"seed {seed}, {seconds:.0f} s: {made.faults.total()} faults ({kinds}); {missed} came to nothing; "
        f"{len(reached)} of {len(FAULT_POINTS)} points reached; {timestamps} timestamps verified; "
        f"{len(violations)} violations"
    )


if __name__ == "__main__":
    main()
