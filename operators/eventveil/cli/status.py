"""``eventveil status``: how the streams of a topology are doing, from anywhere, by public topics alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click
import orjson

from eventveil.cli.loading import EXIT_FAILED, EXIT_UNWELL, load_or_exit
from eventveil.cli.words import exit_on_error, say, words_of
from eventveil.describe.drawn import how_drawn
from eventveil.describe.guarantee import count
from eventveil.kafka.cluster import Cluster
from eventveil.model.errors import EventveilError
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import ReadingStream, Topology
from eventveil.read.health import looked_at
from eventveil.read.newest import newest_releases
from eventveil.read.readings import Reading, newest_readings, reading_of
from eventveil.read.status import Status, status_of

_WHICH_FILE = "is it the file that the workers run?"


@click.command()
@click.argument("topology")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(topology: str, as_json: bool) -> None:
    """Show for each stream of TOPOLOGY what was released last, what is due next, and the window's spend.

    Reads the newest releases in the sinks, which are public. It needs neither a worker nor rights to raw
    data. Streams of values have no timestamps: for these it shows the newest reading of each partition.

    Exit status 0 if all is well; 3 if the next release of a stream is overdue by more than a minute, or its
    releases show that nothing counts, or less than half of counts.expected, or have another timeline or
    other columns than TOPOLOGY; 1 if a sink cannot be read.
    """
    loaded = load_or_exit(topology)
    now = time.time_ns() // 1_000_000
    with exit_on_error("status"):
        cluster = Cluster(loaded.kafka)
        found, unread = _read(loaded, cluster, now)
        values = _read_values(loaded, cluster)
    if as_json:
        fields = {
            "topology": loaded.name,
            "at": format_rfc3339(now),
            "streams": [{**one.fields(), "well": _is_well(one)} for one in found],
            "values": [_value_fields(*one) for one in values],
            "unread": unread,
        }
        click.echo(orjson.dumps(fields, option=orjson.OPT_INDENT_2).decode())
    else:
        for one in found:
            say("\n".join(lines(one)), err=False)
        for stream, newest in values:
            click.echo("\n".join(value_lines(stream, newest)))
    for told in unread:
        say(f"eventveil status: {told}")
    sys.exit(EXIT_FAILED if unread else 0 if all(map(_is_well, found)) else EXIT_UNWELL)


def _read(topology: Topology, cluster: Cluster, now: int) -> tuple[list[Status], list[str]]:
    """The streams that can be read, and why others cannot: one that was added may have no sink yet.

    Raises KafkaException.
    """
    found, unread = [], []
    for one in topology.streams:
        try:
            newest = newest_releases(cluster, one, looked_at(one.mechanism.window), topology.registry)
        except EventveilError as error:
            unread.append(f"stream {one.name}: {words_of(error)}")
        else:
            found.append(status_of(one, newest, now))
    return found, unread


def _read_values(topology: Topology, cluster: Cluster) -> list[tuple[ReadingStream, list[Reading]]]:
    """The last reading of each partition of the streams of values. Raises EventveilError, KafkaException."""
    return [
        (
            stream,
            [
                reading_of(stream, newest.value or b"", f"{place}, offset {newest.offset}")
                for place, (newest,) in newest_readings(cluster, stream, 1).items()
            ],
        )
        for stream in topology.readings
    ]


def _is_well(one: Status) -> bool:
    return one.is_of_file and not one.is_late and one.state in {"counting", "unknown"}


def _value_fields(stream: ReadingStream, newest: list[Reading]) -> dict[str, object]:
    settings = stream.mechanism
    return {
        "stream": stream.name,
        "mechanism": settings.kind,
        "epsilon_of_a_value": float(settings.epsilon),
        "partitions": [
            {"partition": one.partition, "position": one.position, "value": one.value} for one in newest
        ],
    }


def value_lines(stream: ReadingStream, newest: list[Reading]) -> Iterator[str]:
    """A stream of values for people."""
    yield f"{stream.name} ({stream.mechanism.kind}, epsilon {stream.mechanism.epsilon_text} for each value)"
    if not newest:
        yield "  no reading yet: is a worker running, and are there values?"
    for one in newest:
        yield f"  released  partition {one.partition}, position {one.position}: {one.shown}"


def lines(one: Status) -> Iterator[str]:
    """A stream for people."""
    yield f"{one.stream} ({one.mechanism}, epsilon {one.promise} for a window of {one.window})"
    if one.last is not None and one.until is not None:
        kind = how_drawn(one.mechanism, fresh=bool(one.fresh), exhausted=one.exhausted)
        yield f"  released  timestamp {one.last}, until {format_rfc3339(one.until)}, {kind}"
    else:
        yield "  released  nothing yet"
    yield from _next_lines(one)
    if one.last is not None:
        yield from _spent_lines(one)


def _spent_lines(one: Status) -> Iterator[str]:
    """What the releases say of the file, the budget and the events."""
    if one.other_timeline:
        yield f"  timeline  not that of this file: {one.other_timeline}: {_WHICH_FILE}"
    if one.other_columns:
        yield f"  columns   not those of this file: {one.other_columns}: {_WHICH_FILE}"
    if one.foreign:
        yield "  terms     not those of this file: it was edited and not migrated (`eventveil migrate` shows"
        yield "            the changes), it is older than a migration, or the first release after one is due"
    yield f"  budget    {one.spent:.4g} of {one.promise} spent {one.spent_in()}"
    yield f"  health    {one.health} (last {count(one.releases, 'release')})"


def _next_lines(one: Status) -> Iterator[str]:
    """When the next release is due."""
    if one.due_by is not None:
        yield f"  next      the first timestamp, due at {format_rfc3339(one.due_by)} or before, if the topics"
        yield "            were created by then: is a worker running and ready?"
    if one.due is not None:
        late = ": late, is a worker running and ready?" if one.is_late else ""
        overdue = f", overdue for {one.overdue // 1000} s{late}" if one.overdue >= 1000 else ""
        yield f"  next      timestamp {one.following}, due at {format_rfc3339(one.due)}{overdue}"
