"""``make demo``: real flights through a real worker on a real Kafka, and a picture of what came out.

The true counts that it shows are its own: it adds up the flights that it produces. Outside the demo nobody
knows them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click
from confluent_kafka import KafkaException

from benchmarks.demo import interruption
from benchmarks.demo.eventveil import CommandFailed, Worker, eventveil
from benchmarks.demo.feed import Feed
from benchmarks.demo.flights import LONGEST, Flight, first_flights, true_counts
from benchmarks.demo.kafka import NoKafka, choose, running_kafka
from benchmarks.demo.page import write_page
from benchmarks.demo.picture import draw
from benchmarks.demo.releases import Outlet, Series
from benchmarks.demo.screen import screen
from benchmarks.demo.topology import AIRPORTS, DESTINATIONS, Timetable, write_topology
from eventveil.model.topology import Topology
from eventveil.topology.loading import load
from tests.kafka.jars import BrokerError

ROOT = Path(__file__).parents[2]
#: A Kafka of the demo's own; any other is somebody else's.
STARTING = {"local": "Starting Kafka (local)", "docker": "Starting Kafka (docker)"}
COLUMN_OF: Mapping[str, Callable[[Flight], str]] = {
    AIRPORTS: lambda flight: flight.origin,
    DESTINATIONS: lambda flight: flight.destination,
}
#: Topics want some seconds, on a busy machine many. Flights from before the worker is there are merely
#: released late; those from before there is a topic would not count.
_HEAD_STARTS_MS = (12_000, 60_000, 300_000)
_PATIENCE_SECONDS = 60.0
_FRAME_SECONDS = 0.1


class DemoFailed(Exception):
    """The demo did not show what it should; the message says what is missing."""


@dataclass(frozen=True)
class Run:
    """One run: what it produces, the series by the names of their streams, and where its files go."""

    results: Path
    timetable: Timetable
    topology: Topology
    flights: list[Flight]
    series: dict[str, Series]

    @property
    def topology_file(self) -> Path:
        """The topology of this run."""
        return self.results / "topology.yaml"

    @property
    def worker_log(self) -> Path:
        """What the worker says."""
        return self.results / "worker.log"

    def complete(self) -> bool:
        """Whether every release is there."""
        return all(series.complete for series in self.series.values())


@click.command()
@click.option("--hours", type=click.IntRange(24, LONGEST), default=672, show_default=True, help="Of flights.")
@click.option(
    "--interval",
    type=click.IntRange(100, 60_000),
    default=250,
    show_default=True,
    help="Milliseconds an hour takes.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=ROOT / "demo-results",
    help="Folder of the results; every run makes a folder of its own in it.  [default: demo-results]",
)
@click.option("--kafka", envvar="KAFKA", help="local, docker or host:port; default: what this machine has.")
def main(hours: int, interval: int, results: Path, kafka: str | None) -> None:
    """See Eventveil work on four weeks of real flights, in three minutes."""
    interruption.raise_once()
    try:
        _demo(hours, interval, results, kafka)
    except interruption.Interrupted as interrupted:
        print("\nInterrupted: what the demo started is stopped.", file=sys.stderr)
        sys.exit(interrupted.exit_code)
    except (BrokerError, CommandFailed, DemoFailed, KafkaException, NoKafka, RuntimeError) as failure:
        print(f"\nThe demo failed. {failure}", file=sys.stderr)
        sys.exit(1)


def _demo(hours: int, interval: int, results: Path, kafka: str | None) -> None:
    with ExitStack() as cleanup:
        try:
            choice = choose(kafka)
            folder = _new_folder(results)
            name = f"flights-demo-{secrets.token_hex(3)}"
            temporary = Path(tempfile.gettempdir()) / f"eventveil-{name}"
            cleanup.callback(shutil.rmtree, temporary, ignore_errors=True)
            temporary.mkdir(mode=0o700)
            print(f"{STARTING.get(choice, f'Looking for Kafka at {choice}')} ...", flush=True)
            bootstrap = cleanup.enter_context(running_kafka(choice, temporary, name))
            environment = {**os.environ, "KAFKA_BOOTSTRAP": bootstrap, "TMPDIR": str(temporary)}
            print(f"Kafka is at {bootstrap}. Creating topics, starting the worker ...", flush=True)
            run = _with_topics(name, folder, hours, interval, environment)
            _play(run, bootstrap, environment)
            _conclude(run, environment)
        finally:
            interruption.ignore()


def _new_folder(results: Path) -> Path:
    """A folder of this run's own, named after the time; two runs may begin in the same second."""
    results.mkdir(parents=True, exist_ok=True)
    begin = f"{datetime.now():%Y-%m-%d-%H%M%S}"
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        try:
            (results / (begin + suffix)).mkdir()
        except FileExistsError:
            continue
        return results / (begin + suffix)
    raise DemoFailed(f"{results} has too many folders that begin with {begin}")


def _with_topics(name: str, folder: Path, hours: int, interval: int, environment: dict[str, str]) -> Run:
    """A run with its topics, made before its first flight. Raises DemoFailed."""
    for attempt, head_start in enumerate(_HEAD_STARTS_MS, 1):
        own = name if attempt == 1 else f"{name}-{attempt}"
        run = _prepare(own, folder, hours, interval, environment, head_start)
        eventveil(["topics", str(run.topology_file), "--create", "--sources"], environment)
        if time.time_ns() // 1_000_000 < run.timetable.origin:
            return run
    raise DemoFailed(f"Within {head_start // 1000} s no topics were created: the machine is too busy.")


def _prepare(
    name: str, folder: Path, hours: int, interval: int, environment: dict[str, str], head_start: int
) -> Run:
    origin = (time.time_ns() // 1_000_000 + head_start) // 1000 * 1000
    timetable = Timetable(origin, interval, hours)
    write_topology(folder / "topology.yaml", name, timetable)
    topology = load(str(folder / "topology.yaml"), environment)
    flights = first_flights(hours)
    series = {}
    for stream in topology.streams:
        truth = true_counts(flights, COLUMN_OF[stream.name], stream.counts.labels, hours)
        series[stream.name] = Series(stream.counts.labels, truth, stream.mechanism)
    return Run(folder, timetable, topology, flights, series)


def _play(run: Run, bootstrap: str, environment: dict[str, str]) -> None:
    """Run the worker, produce the flights, read what is released, and show it."""
    streams = run.topology.streams
    source, dead_letter = streams[0].source.topic, streams[0].dead_letter
    feed = Feed(bootstrap, source, run.timetable, run.flights)
    sinks = {stream.sink.topic: run.series[stream.name] for stream in streams}
    outlet = Outlet(bootstrap, sinks, dead_letter, run.results / "releases.jsonl")
    with ExitStack() as closing:
        closing.callback(outlet.close)
        worker = Worker(run.topology_file, run.worker_log, environment)
        closing.callback(worker.stop)
        worker.start()
        with screen(run.series[AIRPORTS], run.series[DESTINATIONS]) as shown:
            _turn(run, feed, outlet, worker, shown.show)
        print("Every timestamp is released. Stopping the worker ...", flush=True)
        if status := worker.stop():
            raise DemoFailed(f"the worker ended with status {status}, see {run.worker_log}")
        outlet.read(1.0)
    for reason, number in outlet.dead_letters.items():
        print(f"{number} of {feed.produced} events went to the dead letters: {reason}")


def _turn(run: Run, feed: Feed, outlet: Outlet, worker: Worker, show: Callable[[float], None]) -> None:
    """Continue until every release is there."""
    timetable = run.timetable
    last_end = timetable.origin + timetable.hours * timetable.interval
    give_up = None
    while not (feed.done and run.complete()):
        now = time.time_ns() // 1_000_000
        feed.catch_up(now)
        outlet.read(_FRAME_SECONDS)
        show(min((now - timetable.origin) / timetable.interval, timetable.hours))
        worker.expect_running()
        if now >= last_end:
            give_up = give_up or time.monotonic() + _PATIENCE_SECONDS
            if time.monotonic() > give_up:
                raise DemoFailed(_missing(run))
    feed.finish()


def _missing(run: Run) -> str:
    told = [f"{stream}: {one.released} of {len(one.truth)}" for stream, one in run.series.items()]
    return f"Releases are missing ({', '.join(told)}), see {run.worker_log}"


def _conclude(run: Run, environment: dict[str, str]) -> None:
    """Audit the ledger, draw the picture, write the page, say where everything is."""
    print("Auditing the ledger: eventveil ledger topology.yaml", flush=True)
    audit = eventveil(["ledger", str(run.topology_file)], environment)
    print("".join(f"  {line}\n" for line in audit.strip().splitlines()), end="", flush=True)
    (run.results / "ledger.txt").write_text(audit, encoding="utf-8")
    airports, destinations = run.series[AIRPORTS], run.series[DESTINATIONS]
    draw(run.results / "flights.png", airports, destinations)
    write_page(run.results / "flights.html", run.results / "flights.png", airports, destinations, audit)
    for series, what in ((airports, "airports that flights leave"), (destinations, "destinations")):
        print(
            f"Mean error of a released count, over {len(series.columns)} {what}: "
            f"{series.share():.0%} of the mean count."
        )
    print(f"Results in {run.results}:")
    for file, what in _FILES.items():
        print(f"  {file:15} {what}")


_FILES = {
    "flights.html": "sanitized against true counts, to explore",
    "flights.png": "the same as a picture",
    "releases.jsonl": "every release as it was published",
    "ledger.txt": "the audit",
    "topology.yaml": "what the worker ran",
    "worker.log": "what it said",
}


if __name__ == "__main__":
    main()
