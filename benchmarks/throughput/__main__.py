"""``make bench``: measures, writes ``benchmarks/results/latest.json`` and the tables of docs/performance.md.

Needs Java 17 and Maven (it starts an Apache Kafka), and Linux.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks.throughput.measuring import ROOT, save
from benchmarks.throughput.report import write_report
from benchmarks.throughput.series import SERIES, Session
from tests.kafka.broker import local_broker

#: Kafka's own default, which the tests do without: workers that start together share the partitions at once.
BROKER = {"group.initial.rebalance.delay.ms": "3000"}
RESULTS = ROOT / "benchmarks" / "results" / "latest.json"


@click.command()
@click.option(
    "--only",
    type=click.Choice(list(SERIES)),
    multiple=True,
    help="These; default: all but worldcup, deadline.",
)
@click.option("--events", type=click.IntRange(10), default=1_000_000, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Of each; medians count.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default="latest.json")
@click.option("--report/--no-report", default=True, help="Whether to renew docs/performance.md.")
def main(only: tuple[str, ...], events: int, runs: int, results: Path, report: bool) -> None:
    """Measure, and exit with 1 if anybody counted wrong."""
    correct = True
    for name in only or [name for name in SERIES if name not in {"worldcup", "deadline"}]:
        with local_broker(settings=BROKER) as broker:
            for result in SERIES[name](Session(broker.bootstrap, events, runs)):
                save(results, [result])
                correct = correct and result.correct
    if report:
        write_report(json.loads(results.read_text()))
    if not correct:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
