"""Does a log still hold what a state relies on? One that lost records stops the worker.

No offset is named in a refusal: differences between two are exact counts.
"""

from __future__ import annotations

from operators.errors import StateRefused
from operators.kafka.cluster import Cluster
from operators.topology.changes import remedy, remedy_for_values
from operators.worker.ground import Ground
from operators.worker.owner import Blocking

Place = tuple[str, int]


def check_resume(cluster: Cluster, place: Place, resume: int, known: int | None = None) -> None:
    """Raise StateRefused if a partition no longer, or not yet, holds the offset to resume from.

    ``known`` is the offset behind the last record that the state knows of, if that is another.
    """
    first, end = cluster.first_offsets([place])[place], cluster.end_offsets([place])[place]
    if resume < first:
        raise truncated(place, "it begins after the first record that the state needs")
    if max(resume, known or 0) > end:
        raise truncated(place, "it ends before the last record that the state has read")


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


def truncated(place: Place, what: str) -> StateRefused:
    """The refusal of a log that has lost records that the state relies on."""
    topic, partition = place
    return StateRefused(
        f"{topic}, partition {partition}",
        what,
        "Records are lost. Lengthen the retention, and give the stream a new name (whose epsilon adds up)",
    )


def grown(topic: str, partitions: int, role: str) -> StateRefused:
    """The refusal of a topic of events that has more than the ``partitions`` that its state is of."""
    return StateRefused(
        f"topic {topic}",
        f"it has more partitions than the {partitions} that its streams are counted in, so nothing more is "
        "closed",
        remedy_for_values("source.partitions") if role == "perturb" else remedy("source.partitions"),
    )
