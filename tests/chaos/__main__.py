"""``make chaos``: faults of every kind for this many seconds, then the verdict."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.chaos.run import run


@click.command()
@click.option("--seed", type=int, default=None, help="Of faults and traffic; by default a new one.")
@click.option("--seconds", type=click.IntRange(10), default=60, show_default=True, help="Of faults.")
@click.option("--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True)
def main(seed: int | None, seconds: int, brokers: str) -> None:
    """Let workers on a real Kafka suffer, and verify what came of it; exit status 1 on a violation."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    seed = time.time_ns() % 1_000_000 if seed is None else seed
    print(f"make chaos CHAOS_BROKERS={brokers} CHAOS_SEED={seed} CHAOS_SECONDS={seconds}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="eventveil-chaos-"))
    try:
        result = run(folder, seed, seconds, int(brokers))
    except SystemExit:
        shutil.rmtree(folder)
        raise
    for violation in result.violations[:100]:
        print(f"VIOLATION {violation}", file=sys.stderr)
    print(result)
    if result.violations:
        print(f"The faults, and the logs of workers and brokers, are in {folder}.", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)


def _leave(number: int, _: object) -> None:
    # As an exception, so that workers and brokers are ended on the way out, those that are frozen too.
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
