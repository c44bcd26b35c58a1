"""``eventveil tail``: releases as they arrive, with intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing, suppress

import click
import numpy as np
import orjson

from eventveil.cli.loading import load_or_exit
from eventveil.cli.words import exit_on_error, say
from eventveil.describe.drawn import how_drawn
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import AnyStream, Topology
from eventveil.read.following import followed
from eventveil.read.readings import Reading
from eventveil.read.releases import Releases
from eventveil.read.sources import stream_of
from eventveil.read.status import status_of


@click.command()
@click.argument("topology")
@click.option("--stream", help="Print this stream only.")
@click.option(
    "--last", type=click.IntRange(0, 10_000), default=1, show_default=True,
    help="Begin with this many existing releases of each stream.",
)  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="Stop after this many releases.")
@click.option(
    "--columns", "shown", type=click.IntRange(1), default=20, show_default=True,
    help="Show this many columns of a release, the largest counts; with --json all.",
)  # fmt: skip
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True,
    help="Confidence level of the intervals.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def tail(
    topology: str, stream: str | None, last: int, count: int | None, shown: int, level: float, as_json: bool
) -> None:
    """Print the releases of TOPOLOGY as they arrive, until interrupted.

    Every count comes with an interval. For a stream of values it prints readings, --last of each
    partition. Only public data is read: committed releases in the sinks.
    """
    loaded = load_or_exit(topology)
    printed = 0
    with exit_on_error("tail"), suppress(KeyboardInterrupt):
        streams = loaded.all_streams if stream is None else (_chosen(loaded, stream),)
        with closing(
            released(loaded, streams, last, lambda one: say(f"eventveil tail: {awaited(loaded, one.name)}"))
        ) as found:
            for one in found:
                if isinstance(one, Reading):
                    text = orjson.dumps(reading_fields(one)).decode() if as_json else shown_reading(one)
                elif as_json:
                    text = orjson.dumps(fields(one, level)).decode()
                else:
                    text = shown_release(one, level, shown)
                click.echo(text)
                printed += 1
                if printed == count:
                    return


def _chosen(topology: Topology, name: str) -> AnyStream:
    """Raises ReadingError."""
    values = {one.name: one for one in topology.readings}
    return values[name] if name in values else stream_of(topology, name)


def released(
    topology: Topology, streams: tuple[AnyStream, ...], last: int, without: Callable[[AnyStream], None]
) -> Generator[Releases | Reading, None, None]:
    """One release or reading at a time: the ``last`` ones of each stream, then those to come.

    ``without`` is called for each stream that has none yet, if any are asked for. Raises EventveilError and
    KafkaException.
    """
    waiting = {one.name: one for one in streams} if last else {}
    with closing(followed(topology, streams, lambda _: last)) as found:
        for one in found:
            if one is None:
                for stream in waiting.values():
                    without(stream)
                waiting = {}
                continue
            waiting.pop(one.stream.name, None)
            if told := one.taken():
                yield told


def awaited(topology: Topology, name: str, now: int | None = None) -> str:
    """That a stream has not released yet, and when the first release is due; ``now`` in epoch ms."""
    stream = next((one for one in topology.streams if one.name == name), None)
    if stream is None:
        return f"{name}: no reading yet"
    found = status_of(stream, {}, time.time_ns() // 1_000_000 if now is None else now)
    if found.due is not None:
        late = ": is a worker running and ready?" if found.is_late else ""
        due = f"{format_rfc3339(found.due)}{late}"
    else:
        assert found.due_by is not None, "without a start the latest time is known"
        due = f"{format_rfc3339(found.due_by)} at the latest, if the topics exist and a worker is ready"
    return f"{stream.name}: nothing released yet; the first release is due at {due}"


def reading_fields(reading: Reading) -> dict[str, object]:
    """A reading for programs; its value is null if it was held back."""
    return {
        "stream": reading.stream,
        "partition": reading.partition,
        "position": reading.position,
        "mechanism": reading.mechanism,
        "value": reading.value,
    }


def shown_reading(reading: Reading) -> str:
    """A reading for people."""
    place = f"partition {reading.partition}, position {reading.position}"
    return f"{reading.stream}, {place}: {reading.shown}"


def fields(release: Releases, level: float) -> dict[str, object]:
    """A release for programs: counts with their intervals, null where no error is known."""
    low, high = release.bounds(level)
    columns = release.columns
    return {
        "stream": release.stream,
        "timestamp": int(release.timestamps[0]),
        "start": format_rfc3339(int(release.starts[0].astype(np.int64))),
        "end": format_rfc3339(int(release.ends[0].astype(np.int64))),
        "fresh": bool(release.fresh[0]),
        "mechanism": release.mechanism,
        "counts": dict(zip(columns, release.counts[0].tolist(), strict=True)),
        "low": dict(zip(columns, _known(low[0].tolist()), strict=True)),
        "high": dict(zip(columns, _known(high[0].tolist()), strict=True)),
    }


def _known(values: list[float]) -> list[float | None]:
    return [None if np.isnan(value) else round(value, 1) for value in values]


def shown_release(release: Releases, level: float, shown: int) -> str:
    """A release for people, the largest counts first where not all are shown."""
    low, high = release.bounds(level)
    order = [*range(len(release.columns))]
    if len(release.columns) > shown:
        order = sorted(order, key=lambda at: -release.counts[0, at])[:shown]
    fresh, exhausted = bool(release.fresh[0]), any(release.exhausted)
    kind = how_drawn(release.mechanism, fresh=fresh, exhausted=exhausted)
    start = format_rfc3339(int(release.starts[0].astype(np.int64)))
    width = max(len(release.columns[at]) for at in order)
    known = not np.isnan(low[0, order]).all()
    intervals = f"; {100 * level:g} % intervals" if known else ""
    told = [f"{start}  {release.stream}, timestamp {int(release.timestamps[0])}, {kind}{intervals}"]
    for at in order:
        count = release.counts[0, at]
        interval = "" if np.isnan(low[0, at]) else f"  {round(low[0, at])} to {round(high[0, at])}"
        told.append(f"  {release.columns[at]:<{width}}  {count:>8}{interval}")
    if hidden := len(release.columns) - len(order):
        told.append(f"  and {hidden} more {'column' if hidden == 1 else 'columns'}; --columns shows more")
    return "\n".join(told)
