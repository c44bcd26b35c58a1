"""The events of one user change the counts of a timestamp by no more than mechanisms take into account.

Two worlds differ in the events of one user at some timestamps: one has all of them, the other none. Both go
through the tasks of a worker with the same clock. In both the same tasks lag behind, crash and are taken over
at the same steps. At the other timestamps all counts are equal, so whether an event of somebody else counts
depends on nothing that the user sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random

import numpy as np

from eventveil.model.topology import Stream, Topology
from eventveil.privacy.gaussian import largest_square
from tests.fuzz.histories import History, random_history
from tests.fuzz.topologies import low_limits, random_topology
from tests.fuzz.worlds import World


def compare(seed: int, world: type[World] = World) -> Counter[str]:
    """One random history with and without a user, in the way that is chosen; what there was to compare.

    Raises AssertionError where counts differ by more than they may, or where a task fails.
    """
    chance = Random(seed)
    try:
        topology = random_topology(chance)
        history = random_history(chance, topology)
        user, timestamps = _left_out(chance, history)
        with low_limits(chance):
            found = compare_without(topology, history, user, timestamps, world)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    return found + _kinds(topology, history)


def _left_out(chance: Random, history: History) -> tuple[str, Collection[int]]:
    """A user, and the timestamps without its events: all, one or some."""
    user = chance.choice(sorted({one.user for one in history.events if one.user is not None}) or [""])
    every = range(1, history.last + 1)
    some = chance.sample(every[:-4], chance.choice((1, chance.randint(1, len(every) - 4))))
    return user, chance.choice((every, some))


def compare_without(
    topology: Topology, history: History, user: str, timestamps: Collection[int], world: type[World] = World
) -> Counter[str]:
    """The history with and without the events of a user at some timestamps; what there was to compare."""
    fewer = [one for one in history.events if one.user != user or one.timestamp not in timestamps]
    counts = world(topology, history).run(history.events)
    without = world(topology, history).run(fewer)
    found: Counter[str] = Counter(histories=1)
    for (name, timestamp), whole in counts.items():
        (stream,) = (one for one in topology.streams if one.name == name)
        difference = Counter({**whole})
        difference.subtract(without[name, timestamp])
        difference = Counter({column: number for column, number in difference.items() if number})
        try:
            check(stream, difference, left_out=timestamp in timestamps)
        except AssertionError as error:
            raise AssertionError(f"stream {name}, timestamp {timestamp}: {error}") from error
        found["timestamps"] += 1
        found["timestamps that differ"] += bool(difference)
        found["timestamps that differ by the bound"] += difference.total() == stream.counts.contributions
    return found


def check(stream: Stream, difference: Counter[str], *, left_out: bool) -> None:
    """Raise AssertionError if one user cannot have made this difference, by the bounds of the stream."""
    most, per_column = stream.counts.contributions, stream.counts.per_column
    assert left_out or not difference, f"{difference}, of events of other timestamps"
    assert min(difference.values(), default=0) >= 0, f"{difference}: more without the user"
    assert difference.total() <= most, f"{difference}, of a user with {most} events at most"
    if per_column is None:
        return
    assert max(difference.values(), default=0) <= per_column, f"{difference}, with {per_column} in a column"
    labels = stream.counts.labels
    vector = np.array([difference[label] for label in labels])
    for size in (one for one in range(1, len(labels) + 1) if len(labels) % one == 0):
        # As ``Gaussian.squared_sensitivity_of``: the sums over blocks of ``size`` columns.
        square = int((vector.reshape(-1, size).sum(axis=1) ** 2).sum())
        bound = largest_square(most, min(most, size * per_column))
        assert square <= bound, f"{difference}: {square} in L2 squared by {size} columns, not {bound}"


def _kinds(topology: Topology, history: History) -> Counter[str]:
    streams, source = topology.streams, topology.streams[0].source
    kinds = {
        "re-keyed": source.raw is not None,
        "by boundary": source.append_time == "boundary",
        "with more partitions": history.growing is not None,
        "of two streams": len(streams) > 1,
        "with a bound of each column": any(one.counts.per_column is not None for one in streams),
        "with columns that are found": any(one.counts.discover is not None for one in streams),
        "read one by one": not all(one.is_read_in_bulk for one in streams),
        f"with users by {source.user_type}": True,
    }
    return Counter({f"histories {kind}": 1 for kind, there in kinds.items() if there})
