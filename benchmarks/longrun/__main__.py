"""``python -m benchmarks.longrun``: a million timestamps through a worker, as fast as it can and steadily.

Prints a Markdown table for each. Needs Java 17 and Maven (it starts an Apache Kafka), and Linux.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from benchmarks.longrun.run import LongRun, Restart, halves, hasten_cleaner, median_memory
from tests.kafka.broker import local_broker

_MEBIBYTE = 1024 * 1024
_MECHANISM: dict[str, object] = {"kind": "budget-absorption", "epsilon": 1, "window": 100}


@click.command()
@click.option("--timestamps", type=click.IntRange(1000), default=1_000_000, show_default=True)
@click.option("--rate", type=float, default=2000, show_default=True, help="Timestamps a second, steadily.")
@click.option("--only", type=click.Choice(["catch-up", "steady"]), help="One of the two runs; default: both.")
def main(timestamps: int, rate: float, only: str | None) -> None:
    """Run a worker through very many timestamps and show what it takes."""
    with tempfile.TemporaryDirectory(prefix="eventveil-longrun-") as folder, local_broker() as broker:
        hasten_cleaner(broker.bootstrap)
        if only != "steady":
            click.echo(f"Catching up with {timestamps:,} timestamps without events:")
            _run(LongRun(broker, Path(folder), mechanism=_MECHANISM, behind=timestamps), timestamps, 500)
        if only != "catch-up":
            click.echo(f"{timestamps:,} timestamps at {rate:g} a second, events in every tenth:")
            _run(LongRun(broker, Path(folder), mechanism=_MECHANISM, rate=rate), timestamps, rate / 4)


def _run(run: LongRun, timestamps: int, slowest: float) -> None:
    click.echo("| timestamps released | seconds | records in the changelogs | restart, s | take-over, s |")
    click.echo("| --: | --: | --: | --: | --: |")
    with run:
        for count in (timestamps // 100, timestamps // 10, timestamps):
            seconds = run.run_until(count, 60 + count / slowest)
            restart = run.restart()
            click.echo(_row(restart, seconds))
    _conclude(run, timestamps)


def _row(restart: Restart, seconds: float) -> str:
    return (
        f"| {restart.released:,} | {seconds:.0f} | {restart.records} | {restart.seconds:.1f} "
        f"| {restart.take_over:.1f} |"
    )


def _conclude(run: LongRun, timestamps: int) -> None:
    """Memory and changelogs of the longest life of the worker: from a tenth of the timestamps to the end."""
    early, late = halves(run.samples, timestamps // 8, timestamps)
    for name, samples in (("first", early), ("second", late)):
        largest = max(sample.changelogs for sample in samples) / _MEBIBYTE
        click.echo(
            f"{name} half: memory {median_memory(samples) / _MEBIBYTE:.0f} MiB (median), "
            f"changelogs at most {largest:.1f} MiB on disk"
        )
    before, after = early[0], late[-1]
    speed = (after.released - before.released) / (after.seconds - before.seconds)
    click.echo(f"{speed:,.0f} timestamps a second; every one released once: {run.is_gapless()}\n")


if __name__ == "__main__":
    main()
