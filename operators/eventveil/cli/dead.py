"""``eventveil dead``: dead letters by reason, with samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import orjson
from confluent_kafka import KafkaException

from eventveil.cli.loading import load_or_exit
from eventveil.cli.words import exit_on_error
from eventveil.decoding.details import shown_detail
from eventveil.doctor.letters import Letter, LetterGroup, groups
from eventveil.doctor.sampling import newest
from eventveil.doctor.wording import plain, shown_value
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.rights import is_denied
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Topology


@click.command()
@click.argument("topology")
@click.option("--stream", "name", help="Show only this stream.")
@click.option(
    "--records", type=click.IntRange(1, 10_000_000), default=10_000, show_default=True,
    help="Number of newest dead letters to read from each topic.",
)  # fmt: skip
@click.option(
    "--samples",
    type=click.IntRange(0, 1000),
    default=1,
    show_default=True,
    help="Number of samples of each reason.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def dead(topology: str, name: str | None, records: int, samples: int, as_json: bool) -> None:
    """Show why events of TOPOLOGY did not count: the newest dead letters by reason, with samples.

    For each reason it names the setting that is the probable cause, and the remedy. The output is raw data.
    Needs the right to read the topics of dead letters.

    Exit status 0, even if there are none; 1 if they cannot be read.
    """
    loaded = load_or_exit(topology)
    streams = {stream.name: stream for stream in loaded.streams}
    if name is not None and name not in streams:
        raise click.UsageError(
            f"there is no stream {name!r} with dead letters; there are {', '.join(streams)}"
        )
    chosen = [streams[name]] if name is not None else [*streams.values()]
    with exit_on_error("dead", OSError):
        letters, held, whole = _read(loaded, sorted({one.dead_letter for one in chosen}), records)
        letters = [one for one in letters if name is None or one.stream == name]
        partitions = _partitions(loaded)
        text = Path(loaded.path).read_text(encoding="utf-8-sig")
    found = groups(loaded, text, letters, partitions, samples)
    if as_json:
        fields = {"read": len(letters), "held": held, "reasons": [one.fields() for one in found]}
        click.echo(orjson.dumps(fields, option=orjson.OPT_INDENT_2).decode())
        return
    click.echo(f"{len(letters)} dead letters read{'' if whole else '; there are older ones, see --records'}")
    for group in found:
        click.echo("\n".join(lines(group)))


def _read(topology: Topology, topics: list[str], records: int) -> tuple[list[Letter], int, bool]:
    """The letters, how many offsets the topics hold, and whether all of these were read.

    Offsets also number the markers at the end of transactions. Raises EventveilError and KafkaException.
    """
    cluster, held, whole = Cluster(topology.kafka), 0, True
    letters: list[Letter] = []
    for topic in topics:
        found, size = newest(cluster, cluster.topic(topic), records)
        held, whole = held + size, whole and size <= records
        letters += [letter for one in found if (letter := Letter.read(one)) is not None]
    return letters, held, whole


def _partitions(topology: Topology) -> dict[str, int]:
    """Of the topics of events, if this principal may ask for them. Raises KafkaException."""
    topics = {one.source.topic_of_events for one in topology.streams}
    try:
        found = Cluster(topology.kafka).topics(topics)
    except KafkaException as error:
        if not is_denied(error.args[0]):
            raise
        click.echo(
            "eventveil dead: no right to describe the sources, so partitioners are not reported", err=True
        )
        return {}
    return {name: topic.partitions for name, topic in found.items()}


def lines(group: LetterGroup) -> Iterator[str]:
    """A reason for people."""
    yield f"{group.stream}: {group.number} {group.reason}"
    yield f"  {group.place}: {group.setting}: {group.remedy}"
    for name, number in group.similar:
        yield f"  Did you mean {plain(name)}? It is in {number} of these"
    for one in group.samples:
        place = TopicPartition(one.topic, one.partition).at(one.offset)
        yield f"  {place}: {shown_value(shown_detail(one.reason, one.detail).encode())}"
        yield f"    key {shown_value(one.key)}, value {shown_value(one.value)}"
