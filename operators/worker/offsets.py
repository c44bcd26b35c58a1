"""Does a log still hold what a state relies on? One that lost records stops the worker.

No offset is named in a refusal: differences between two are exact counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from operators.errors import StateRefused
from operators.kafka.cluster import Cluster
from operators.kafka.lost import first_appended
from operators.regrounding import lost_span
from operators.topology.changes import MIGRATE_LOST, RENAME, remedy, remedy_for_values
from operators.topology.model import Timeline
from operators.worker.ground import Ground
from operators.worker.owner import Blocking

Place = tuple[str, int]
#: By name of a stream: its timeline and its next timestamp.
Open = Mapping[str, tuple[Timeline, int]]


def check_resume(
    cluster: Cluster, place: Place, resume: int, known: int | None = None, open_: Open | None = None
) -> None:
    """Raise StateRefused if a partition no longer, or not yet, holds the offset to resume from.

    ``known`` is the offset behind the last record that the state knows of, if that is another; ``open_`` are
    the streams that count its events, if they can go on without some.
    """
    first, end = cluster.first_offsets([place])[place], cluster.end_offsets([place])[place]
    if resume < first:
        what = "it begins after the first record that the state needs"
        raise truncated(place, what, _lacking(cluster, place, open_))
    if max(resume, known or 0) > end:
        what = "it ends before the last record that the state has read"
        raise truncated(place, what, None if open_ is None else "")


def _lacking(cluster: Cluster, place: Place, open_: Open | None) -> str | None:
    """Which timestamps of which streams may lack events."""
    if open_ is None:
        return None
    gone = first_appended(cluster.kafka, place, time.time_ns() // 1_000_000)
    spans = {name: lost_span(rules, following, gone) for name, (rules, following) in sorted(open_.items())}
    told = ", ".join(f"timestamps {first} to {last} of {name}" for name, (first, last) in spans.items())
    return f"; {told} may lack events"


async def end_behind(
    blocking: Blocking, cluster: Cluster, place: Place, position: int, ground: Ground
) -> int:
    """Where a partition ends now.

    Raises StateRefused if that is before ``position``, and Unsettled if it is another topic by now.
    """
    end: int = (await blocking(cluster.end_offsets, [place]))[place]
    if end < position:
        await ground.check()
        raise truncated(place, "it ends before the last record that was read")
    return end


def truncated(place: Place, what: str, lacking: str | None = "") -> StateRefused:
    """The refusal of a log that has lost records that the state relies on.

    ``lacking`` says which timestamps may lack events, None if no stream can go on without them.
    """
    topic, partition = place
    remedy = MIGRATE_LOST if lacking is not None else f"Records are lost. Lengthen the retention. {RENAME}"
    return StateRefused(f"{topic}, partition {partition}", f"{what}{lacking or ''}", remedy)


def grown(topic: str, partitions: int, role: str) -> StateRefused:
    """The refusal of a topic of events that has more than the ``partitions`` that its state is of."""
    return StateRefused(
        f"topic {topic}",
        f"it has more partitions than the {partitions} that its streams are counted in, so nothing more is "
        "closed",
        remedy_for_values("source.partitions") if role == "perturb" else remedy("source.partitions"),
    )
