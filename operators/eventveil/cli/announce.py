"""``eventveil announce``: asks that a pan-private stream may be looked at, and waits for the answer."""

from __future__ import annotations

import sys
import time
import uuid

import click

from eventveil.cli.loading import EXIT_FAILED, load_or_exit
from eventveil.cli.words import exit_on_error
from eventveil.formats.announcement import Announcement
from eventveil.kafka.changelog import write_once
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import read_partition
from eventveil.kinds.registry import kind_of
from eventveil.lifecycle.apply import pan_private_manifest
from eventveil.model import timeline
from eventveil.model.errors import StateRefused
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Stream, Topology
from eventveil.tasks.pan_private import Exposure

_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0


@click.command()
@click.argument("topology")
@click.option("--stream", "name", required=True, help="The stream to look at.")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
    help="How long to wait for the worker. Default: interval plus lateness plus one minute.",
)  # fmt: skip
def announce(topology: str, name: str, timeout: float | None) -> None:
    """Announce a look at the counters of a stream of TOPOLOGY with pan_private: announced.

    Wait until the command says which timestamp the worker will publish because of it, look once, and finish
    before that timestamp closes. Each announcement covers one look, and a timestamp takes one announcement.
    Exit status 1, and no look, if no worker answers in time; the announcement is void then.
    """
    loaded = load_or_exit(topology)
    announced = [one for one in loaded.streams if loaded.announcements in kind_of(one).beside(loaded, one)]
    stream = next((stream for stream in loaded.streams if stream.name == name), None)
    if stream is None:
        names = ", ".join(stream.name for stream in announced) or "none"
        raise click.UsageError(f"there is no stream {name!r} in {topology}; for announced looks: {names}")
    if stream not in announced:
        raise click.UsageError(f"{name} does not accept announced looks; set `pan_private: announced`")
    rules = stream.timeline
    patience = (rules.interval + rules.lateness) / 1000 + _PATIENCE_SECONDS
    try:
        with exit_on_error("announce"):
            until = _announce(loaded, stream, timeout or patience)
    except KeyboardInterrupt:
        click.echo("do not look; a timestamp may be published for it anyway", err=True)
        sys.exit(EXIT_FAILED)
    if until <= time.time_ns() // 1_000_000:
        click.echo(
            "do not look: the timestamp is over and the worker is behind; announce again later", err=True
        )
        sys.exit(EXIT_FAILED)
    click.echo(f"look once, and finish before {timeline.format_rfc3339(until)}")


def _announce(topology: Topology, stream: Stream, timeout: float) -> int:
    """When the timestamp that was announced may close, in epoch milliseconds."""
    cluster, plan = Cluster(topology.kafka), kind_of(stream).plan(topology, stream)
    # What the command says of times must be what the worker goes by.
    manifest, changelog = pan_private_manifest(topology, cluster, plan)
    place = str(changelog)
    where = TopicPartition(topology.announcements, 0)
    since = cluster.end_offsets([changelog])[changelog]
    number = uuid.uuid4().hex
    until = time.time_ns() // 1_000_000 + int(1000 * timeout)
    said = Announcement(stream.name, manifest.instance, until, number).encode()
    record = Outgoing(topology.announcements, said, stream.name.encode(), 0)
    written = write_once(topology.kafka, f"{topology.name}-announce-{number}", lambda _: [record])
    give_up = time.monotonic() + timeout
    click.echo(f"announced a look at {stream.name}; waiting for the worker that counts it")
    while time.monotonic() < give_up:
        for message in read_partition(topology.kafka, *changelog, start=since):
            if message.key() == Exposure.key(stream.name):
                exposure = Exposure.decode(message.value() or b"", place)
                # Exactly this announcement: each is answered with a timestamp of its own.
                if exposure.heard == written[where] + 1:
                    click.echo(f"{stream.name}: timestamp {exposure.announced} will be published")
                    return timeline.deadline_of(stream.timeline, exposure.announced)
        time.sleep(_POLL_SECONDS)
    raise StateRefused(
        f"stream {stream.name}",
        f"no worker answered within {timeout:g} s",
        "Do not look. Check that a worker is running and no other look is announced; then announce again",
    )
