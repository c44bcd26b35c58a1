"""What is measured: the contenders, and how the cost of ``eventveil`` grows with the size of the task."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.throughput import live
from benchmarks.throughput.events import MALFORMED, Feed, Kind, Workload, produce, produce_hidden
from benchmarks.throughput.foreign import FOREIGN, Foreign, NotHere
from benchmarks.throughput.formats import costs as format_costs
from benchmarks.throughput.malformed import CHUNK, costs
from benchmarks.throughput.measuring import BASELINE, ROOT, TWO_READERS, Result, Run, repeat, run_client
from benchmarks.throughput.product import run_replay, run_workers
from benchmarks.throughput.rules import CHUNK as FORMAT_CHUNK
from eventveil.process.kernel import SWITCH

CLIENTS = "benchmarks.throughput.contenders."
#: The environment of the other frameworks, which ``make bench`` makes.
PYTHON = ROOT / ".cache" / "contenders" / "bin" / "python"
FRAMEWORKS = (("Bytewax, map", "bytewax_flow"), ("Quix Streams, update", "quix"))
_FAUST_EVENTS = 50_000
_LIVE_TIMESTAMPS, _FULL_TIMESTAMPS = 60, 20
_DEADLINE_TIMESTAMPS = 600
_RATES = (1_000, 20_000, 80_000)
_REKEYED_RATES, _REKEYED_MS = (30, 300, 2_000, 20_000), 5_000
_CODECS = ("none", "gzip", "lz4", "zstd")
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

    def foreign(self, one: Foreign, name: str, feed: Feed, a: float) -> Iterator[Result]:
        """Run a contender in another language, unless this machine cannot build it, which is printed."""
        try:
            yield self.measure(name, feed.workload.events, partial(one.run, feed), a)
        except NotHere as reason:
            click.echo(f"{name}: left out: {reason}")

    def feed(self, workload: Workload, *, live: bool = False) -> Feed:
        """A workload in a topic, see ``produce``."""
        return produce(self.bootstrap, workload, live=live)

    def baseline(self, feed: Feed) -> Result:
        """A, with itself as the measure."""
        result = self.measure(BASELINE, feed.workload.events, partial(run_client, f"{CLIENTS}raw", feed))
        return replace(result, ratio_to_a=1.0)


def circumstances(load: float) -> dict[str, Any]:
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
            for name, module in FRAMEWORKS
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
    for one in FOREIGN:
        yield from session.foreign(one, one.name, feed, a)


def kinds(session: Session) -> Iterator[Result]:
    """Events of every kind, with the compiled kernel and in plain Python, beside A and others."""
    for kind in ("friendly", "messy"):
        yield from _kind(session, kind, "none", kind)
    for codec in _CODECS:
        yield from _kind(session, "nested", codec, f"nested, {codec}")


def _kind(session: Session, kind: Kind, codec: str, told: str) -> Iterator[Result]:
    feed = session.feed(Workload(session.events, kind=kind, codec=codec))
    read_by_a = partial(run_client, f"{CLIENTS}raw", feed)
    baseline = session.measure(f"kinds: {told}, A", session.events, read_by_a)
    yield replace(baseline, ratio_to_a=1.0)
    a = baseline.cpu_us_per_event
    for switch, way in (("on", "kernel"), ("off", "plain Python")):
        name = f"kinds: {told}, {way}"
        yield session.measure(name, session.events, partial(_switched, switch, feed), a)
    for one in FOREIGN:
        if kind in one.kinds:
            yield from session.foreign(one, f"kinds: {told}, {one.name}", feed, a)


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
    """More streams of 100 columns, each over a topic of its own of one partition, with as many events each.

    Events are committed once all partitions are owned, and cost what is spent from then on: a worker takes
    over once, and counts for months. The ratio is to one stream, with the events of them all. Timestamps are
    long: what a stream owes for those that have become due since its events is not what these cost.
    """
    one: float | None = None
    share = max(1, session.events // 40)
    for count in (1, 20, 200):
        events = share * (count if count > 1 else 20)
        workload = Workload(
            events // count, columns=100, users=max(1, 100_000 // count), partitions=1,
            interval=10 * session.interval,
        )  # fmt: skip
        run = partial(_hidden, session.bootstrap, [replace(workload, seed=seed) for seed in range(count)])
        found = session.measure(f"streams: {count}, run", events, run, one)
        one = one or found.cpu_us_per_event
        yield replace(found, ratio_to_a=round(found.cpu_us_per_event / one, 3))


def _hidden(bootstrap: str, workloads: Sequence[Workload]) -> Run:
    """A worker that owns everything before it sees an event."""
    feeds, show = produce_hidden(bootstrap, workloads)
    return run_workers(feeds, show=show)


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
    most, full = _most_live(session, workload, "latency")
    yield most
    for percent in (0, 50, 90):
        rate = full * percent / 100
        load = os.getloadavg()[0]
        run, delays = live.latency(session.bootstrap, replace(workload, timestamps=_LIVE_TIMESTAMPS), rate)
        p50, p99 = (round(float(np.percentile(delays, share))) for share in (50, 99))
        name = f"latency: load {percent} %"
        click.echo(f"{name} ({run.events / _LIVE_TIMESTAMPS:,.0f} events/s): p50 {p50} ms, p99 {p99} ms")
        yield Result.of(name, max(1, run.events), [run], p50_ms=p50, p99_ms=p99, **circumstances(load))


def _most_live(session: Session, workload: Workload, series: str) -> tuple[Result, float]:
    """Catching up, and the most events a second that come through live."""
    feed = session.feed(workload)
    most = session.measure(
        f"{series}: 100,000 columns, catching up", session.events, partial(run_workers, [feed])
    )
    run, _ = live.latency(
        session.bootstrap, replace(workload, timestamps=_FULL_TIMESTAMPS), most.events_per_second
    )
    full = run.events * 1000 / (_FULL_TIMESTAMPS * workload.interval)
    click.echo(f"{series}: live, {full:,.0f} events/s at most")
    return most, full


def deadline(session: Session) -> Iterator[Result]:
    """As ``latency`` at half of the load, over ten minutes, once for each run: for p99 and its spread."""
    workload = Workload(session.events, columns=100_000)
    most, full = _most_live(session, workload, "deadline")
    yield most
    load, found, runs = os.getloadavg()[0], [], []
    for _ in range(session.runs):
        run, delays = live.latency(
            session.bootstrap, replace(workload, timestamps=_DEADLINE_TIMESTAMPS), full / 2
        )
        found.append([round(float(np.percentile(delays, share))) for share in (50, 99)])
        runs.append(run)
        click.echo(f"deadline: p50 {found[-1][0]} ms, p99 {found[-1][1]} ms")
    p50s, p99s = zip(*sorted(found, key=lambda one: one[1]), strict=True)
    middle = len(found) // 2
    details = {
        "p50_ms": p50s[middle],
        "p99_ms": p99s[middle],
        "least_p99_ms": p99s[0],
        "worst_p99_ms": p99s[-1],
    }
    name = f"deadline: load 50 %, {_DEADLINE_TIMESTAMPS} timestamps"
    yield Result.of(name, runs[0].events, runs, **details, **circumstances(load))


def keeping(session: Session) -> Iterator[Result]:
    """A worker that keeps up with events as they come, at several rates, and A at the same time beside it."""
    for rate in _RATES:
        load = os.getloadavg()[0]
        runs, beside = list[Run](), list[Run]()
        workload = Workload(timestamps=_FULL_TIMESTAMPS)
        for _ in range(session.runs):
            runs.append(live.latency(session.bootstrap, workload, rate, beside)[0])
        a = Result.of(f"keeping: {rate} events/s, A", beside[0].events, beside, **circumstances(load))
        yield replace(a, ratio_to_a=1.0)
        core = round(100 * sum(run.cpu for run in runs) / sum(run.wall for run in runs), 1)
        found = Result.of(
            f"keeping: {rate} events/s, eventveil run", runs[0].events, runs, a.cpu_us_per_event,
            core_percent=core, **circumstances(load),
        )  # fmt: skip
        click.echo(f"{found.name}: {found.ratio_to_a} of A, {core} % of a core")
        yield found


def rekeyed(session: Session) -> Iterator[Result]:
    """A worker that re-keys events as they come, at several rates: share of a core, how late."""
    workload = Workload(partitions=12, interval=_REKEYED_MS, timestamps=_FULL_TIMESTAMPS)
    for rate in _REKEYED_RATES:
        load = os.getloadavg()[0]
        run, delays = live.latency(session.bootstrap, workload, rate, rekeyed=True)
        core = round(100 * run.cpu / run.wall, 1)
        p50, most = round(float(np.median(delays))), round(max(delays))
        name = f"rekeyed: {rate} events/s"
        click.echo(f"{name}: {core} % of a core, p50 {p50} ms, at most {most} ms")
        yield Result.of(
            name, run.events, [run], core_percent=core, p50_ms=p50, most_ms=most, **circumstances(load)
        )


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
    """As many columns and users as the World Cup of 1998 had; 10 and 100 times the events, as they happen.

    A timestamp takes in about a million of them, as in the papers, and is closed while the next are read.
    """
    once = replace(session, runs=1)
    for factor in (10, 100):
        count = factor * session.events
        feed = once.feed(Workload(count, columns=89_997, users=2_770_000, interval=_WORLD_CUP_MS), live=True)
        run = partial(run_workers, [feed])
        yield once.measure(f"worldcup: {count}, run", count, run, timestamps=feed.workload.timestamps)


def malformed(session: Session) -> Iterator[Result]:
    """Events that do not count, through a worker and into dead letters; the ratio is to friendly events."""
    base: float | None = None
    for kind in ("friendly", *MALFORMED):
        feed = session.feed(Workload(session.events, kind=kind))
        result = session.measure(f"malformed: {kind}", session.events, partial(run_workers, [feed]), base)
        base = base or result.cpu_us_per_event
        yield replace(result, ratio_to_a=result.ratio_to_a or 1.0)


def judging(session: Session) -> Iterator[Result]:
    """Chunks of malformed events against one of good events, in one process; the ratio is to that."""
    load, good = os.getloadavg()[0], None
    for kind, seconds, right in costs(session.runs):
        runs = [Run(one, one, right) for one in seconds]
        result = Result.of(f"judging: {kind}", CHUNK, runs, good, **circumstances(load))
        good = good or result.cpu_us_per_event
        ratio = result.ratio_to_a or 1.0
        click.echo(f"{result.name}: {result.cpu_us_per_event:.2f} us, {ratio:.2f} of good")
        yield replace(result, ratio_to_a=ratio)


def formats(session: Session) -> Iterator[Result]:
    """Chunks of the same events in each format of a source, in one process; the ratio is to JSON."""
    load, plain = os.getloadavg()[0], None
    for form, size, seconds, right in format_costs(session.runs):
        runs = [Run(one, one, right) for one in seconds]
        name = f"formats: {form}, {size:.0f} bytes"
        result = Result.of(name, FORMAT_CHUNK, runs, plain, **circumstances(load))
        plain = plain or result.cpu_us_per_event
        ratio = result.ratio_to_a or 1.0
        click.echo(f"{result.name}: {result.cpu_us_per_event:.2f} us, {ratio:.2f} of JSON")
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
    "deadline": deadline,
    "keeping": keeping,
    "rekeyed": rekeyed,
    "takeover": takeover,
    "malformed": malformed,
    "judging": judging,
    "formats": formats,
    "worldcup": worldcup,
}
