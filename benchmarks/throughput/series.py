"""What is measured: the contenders, and how the cost of ``eventveil`` grows with the size of the task."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
import numpy as np

from benchmarks.throughput import live
from benchmarks.throughput.events import Feed, Workload, produce
from benchmarks.throughput.malformed import CHUNK, costs
from benchmarks.throughput.measuring import BASELINE, ROOT, TWO_READERS, Result, Run, repeat, run_client
from benchmarks.throughput.product import run_replay, run_workers
from eventveil.decoding.kernel import SWITCH

CLIENTS = "benchmarks.throughput.contenders."
#: The environment of the other frameworks, which ``make bench`` makes.
PYTHON = ROOT / ".cache" / "contenders" / "bin" / "python"
FOREIGN = (("Bytewax, map", "bytewax_flow"), ("Quix Streams, update", "quix"))
_FAUST_EVENTS = 50_000
_LIVE_TIMESTAMPS, _FULL_TIMESTAMPS = 60, 20
#: In which about a million events are written.
_WORLD_CUP_MS = 2000


@dataclass(frozen=True)
class Session:
    """A broker, and how much to measure: this many events, this many runs of each."""

    bootstrap: str
    events: int
    runs: int
    python: str = str(PYTHON)
    interval: int = 1000

    def measure(
        self, name: str, events: int, run: Callable[[], Run], a: float | None = None, **details: object
    ) -> Result:
        """Run a contender; what was found is printed, too."""
        load = os.getloadavg()[0]
        result = Result.of(name, events, repeat(self.runs, run), a, **circumstances(load), **details)
        ratio = "" if result.ratio_to_a is None else f", {result.ratio_to_a:.2f} of A"
        click.echo(
            f"{name}: {result.cpu_us_per_event:.2f} us, {result.events_per_second:,.0f} events/s{ratio}"
            + ("" if result.correct else ", WRONG COUNTS")
        )
        return result

    def feed(self, workload: Workload, *, live: bool = False) -> Feed:
        """A workload in a topic, see ``produce``."""
        return produce(self.bootstrap, workload, live=live)

    def baseline(self, feed: Feed) -> Result:
        """A, with itself as the measure."""
        result = self.measure(BASELINE, feed.workload.events, partial(run_client, f"{CLIENTS}raw", feed))
        return replace(result, ratio_to_a=1.0)


def circumstances(load: float) -> dict[str, object]:
    """When and where a figure was taken, and how busy the machine was."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "machine": f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_before": round(load, 1),
        "taken": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "commit": commit.stdout.strip(),
    }


def contenders(session: Session) -> Iterator[Result]:
    """Everybody on the same events; stock Faust on fewer."""
    feed = session.feed(Workload(session.events, interval=session.interval))
    few = session.feed(Workload(min(session.events, _FAUST_EVENTS), interval=session.interval))
    first = session.baseline(feed)
    yield first
    a = first.cpu_us_per_event
    runs: list[tuple[str, Feed, Callable[[], Run]]] = [
        (TWO_READERS, feed, partial(run_client, f"{CLIENTS}raw", feed, processes=2)),
        ("confluent-kafka, msgspec on batches", feed, partial(run_client, f"{CLIENTS}batch", feed)),
        *(
            (name, feed, partial(run_client, f"{CLIENTS}{module}", feed, python=session.python))
            for name, module in FOREIGN
        ),
        (
            "stock Faust agent, bytes and orjson",
            few,
            partial(run_client, f"{CLIENTS}stock_faust", few, "bytes"),
        ),
        ("stock Faust agent, Record", few, partial(run_client, f"{CLIENTS}stock_faust", few, "record")),
        ("eventveil run", feed, partial(run_workers, [feed])),
        ("eventveil run, two workers", feed, partial(run_workers, [feed], 2)),
        ("eventveil replay, topic", feed, partial(run_replay, feed, from_file=False)),
        ("eventveil replay, file", feed, partial(run_replay, feed, from_file=True)),
    ]
    for name, given, run in runs:
        yield session.measure(name, given.workload.events, run, a)


def kinds(session: Session) -> Iterator[Result]:
    """Friendly and messy events, with the compiled kernel and in plain Python, each beside A."""
    for kind in ("friendly", "messy"):
        feed = session.feed(Workload(session.events, messy=kind == "messy"))
        baseline = session.measure(
            f"kinds: {kind}, A", session.events, partial(run_client, f"{CLIENTS}raw", feed)
        )
        yield replace(baseline, ratio_to_a=1.0)
        for switch, told in (("on", "kernel"), ("off", "plain Python")):
            name, a = f"kinds: {kind}, {told}", baseline.cpu_us_per_event
            yield session.measure(name, session.events, partial(_switched, switch, feed), a)


def _switched(switch: str, feed: Feed) -> Run:
    """A worker for which the kernel is on or off."""
    before = os.environ.get(SWITCH, "on")
    os.environ[SWITCH] = switch
    try:
        return run_workers([feed])
    finally:
        os.environ[SWITCH] = before


def events(session: Session) -> Iterator[Result]:
    """More events; 1, 2 and 5 times as many."""
    for factor in (1, 2, 5):
        count = factor * session.events
        feed = session.feed(Workload(count))
        yield session.measure(f"events: {count}, run", count, partial(run_workers, [feed]))
        yield session.measure(f"events: {count}, two workers", count, partial(run_workers, [feed], 2))
        yield session.measure(
            f"events: {count}, replay topic", count, partial(run_replay, feed, from_file=False)
        )
        yield session.measure(
            f"events: {count}, replay file", count, partial(run_replay, feed, from_file=True)
        )


def columns(session: Session) -> Iterator[Result]:
    """More columns."""
    for count in (100, 1_000, 10_000, 100_000):
        feed = session.feed(Workload(session.events, columns=count))
        yield session.measure(f"columns: {count}, run", session.events, partial(run_workers, [feed]))


def users(session: Session) -> Iterator[Result]:
    """More users, so that fewer of their events are repetitions."""
    for count in (1_000, 10_000, 100_000, 1_000_000):
        feed = session.feed(Workload(session.events, users=count))
        yield session.measure(f"users: {count}, run", session.events, partial(run_workers, [feed]))


def streams(session: Session) -> Iterator[Result]:
    """More streams of 100 columns, each over a topic of its own of one partition; the same events in all."""
    for count in (1, 20, 200):
        share = max(1, session.events // count)
        feeds = [
            session.feed(
                Workload(share, columns=100, users=max(1, 100_000 // count), partitions=1, seed=seed)
            )
            for seed in range(count)
        ]
        yield session.measure(f"streams: {count}, run", share * count, partial(run_workers, feeds))


def releases(session: Session) -> Iterator[Result]:
    """Timestamps with few events, as fast as they go: what one stream can do, and several on more workers.

    The figures are for releases, not for events.
    """
    for columns, streams, workers in ((1_000, 1, 1), (100_000, 1, 1), (1_000, 4, 1), (1_000, 4, 2)):
        timestamps = 100 if columns > 10_000 else 1_000
        workload = Workload(10_000, columns=columns, interval=10_000 // timestamps, timestamps=timestamps)
        feeds = [session.feed(replace(workload, seed=seed)) for seed in range(streams)]
        name = f"releases: {columns} columns, {streams} streams, {workers} workers"
        yield session.measure(name, timestamps * streams, partial(run_workers, feeds, workers))


def latency(session: Session) -> Iterator[Result]:
    """From deadline to release with 100,000 columns, at shares of the most that comes through live.

    That is what a producer can send that is asked for all that the worker could catch up with; it shares the
    machine with broker and worker.
    """
    workload = Workload(session.events, columns=100_000)
    most = session.measure(
        "latency: 100,000 columns, catching up",
        session.events,
        partial(run_workers, [session.feed(workload)]),
    )
    yield most
    run, _ = live.latency(
        session.bootstrap, replace(workload, timestamps=_FULL_TIMESTAMPS), most.events_per_second
    )
    full = run.events * 1000 / (_FULL_TIMESTAMPS * workload.interval)
    click.echo(f"latency: live, {full:,.0f} events/s at most")
    for percent in (0, 50, 90):
        rate = full * percent / 100
        load = os.getloadavg()[0]
        run, delays = live.latency(session.bootstrap, replace(workload, timestamps=_LIVE_TIMESTAMPS), rate)
        p50, p99 = (round(float(np.percentile(delays, share))) for share in (50, 99))
        name = f"latency: load {percent} %"
        click.echo(f"{name} ({run.events / _LIVE_TIMESTAMPS:,.0f} events/s): p50 {p50} ms, p99 {p99} ms")
        yield Result.of(name, max(1, run.events), [run], p50_ms=p50, p99_ms=p99, **circumstances(load))


def takeover(session: Session) -> Iterator[Result]:
    """How long a worker needs after kill -9 of another, by contributions to open timestamps."""
    for count in (session.events // 10, session.events):
        load = os.getloadavg()[0]
        owned, held, contributions = live.take_over(session.bootstrap, Workload(count, users=count))
        name = f"takeover: {contributions} open contributions"
        click.echo(f"{name}: owned after {owned:.2f} s, read again after {held:.2f} s")
        run = Run(0.0, held, True)
        yield Result.of(
            name, contributions, [run], owned_s=round(owned, 2), held_s=round(held, 2), **circumstances(load)
        )


def worldcup(session: Session) -> Iterator[Result]:
    """As many columns and users as the World Cup of 1998 had, and 10 and 50 times the events, as they happen.

    A timestamp takes in about a million of them, as in the papers, and is closed while the next are read.
    """
    once = replace(session, runs=1)
    for factor in (10, 50):
        count = factor * session.events
        feed = once.feed(Workload(count, columns=89_997, users=2_770_000, interval=_WORLD_CUP_MS), live=True)
        run = partial(run_workers, [feed])
        yield once.measure(f"worldcup: {count}, run", count, run, timestamps=feed.workload.timestamps)


def malformed(session: Session) -> Iterator[Result]:
    """Chunks of malformed events against one of good events, in one process; the ratio is to that."""
    load, good = os.getloadavg()[0], None
    for kind, seconds, right in costs(session.runs):
        runs = [Run(one, one, right) for one in seconds]
        result = Result.of(f"malformed: {kind}", CHUNK, runs, good, **circumstances(load))
        good = good or result.cpu_us_per_event
        ratio = result.ratio_to_a or 1.0
        click.echo(f"{result.name}: {result.cpu_us_per_event:.2f} us, {ratio:.2f} of good")
        yield replace(result, ratio_to_a=ratio)


SERIES: dict[str, Callable[[Session], Iterator[Result]]] = {
    "contenders": contenders,
    "kinds": kinds,
    "events": events,
    "columns": columns,
    "users": users,
    "streams": streams,
    "releases": releases,
    "latency": latency,
    "takeover": takeover,
    "malformed": malformed,
    "worldcup": worldcup,
}
