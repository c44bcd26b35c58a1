"""A distinguishing game: was the user there? What a player wins bounds epsilon from below, with confidence.

Two neighbouring inputs go through the whole of ``replay``, many times, with seeded noise. On the first part
of the transcripts the player learns which of them speak for presence, or for absence; on the rest the event
that was chosen is counted in both worlds, and Clopper-Pearson bounds on its probabilities give a lower bound
on epsilon. It holds whatever the player chose, and exceeds the epsilon of a private mechanism with
probability RISK at most. With Gaussian noise it is mu that is bounded: mu-GDP says that no event has
quantile(its probability with the user) - quantile(without) above mu, for standard normal quantiles.

Games are played side by side where they do not disturb each other: users in columns of their own, whose
noise is independent, and streams of their own. A user is then one of many who are all there or all absent,
which the others' games do not depend on, as long as what is decided for all columns together comes out the
same in both worlds; games in which it may not are played in streams.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import exp, log
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.model.topology import (
    Counts,
    Discover,
    Kafka,
    MechanismSettings,
    Option,
    Sink,
    Source,
    Stream,
    Timeline,
    TopicSettings,
    Topology,
)
from eventveil.privacy.noise import NoiseSource, SeededNoise
from eventveil.replay.run import replay
from tests.unit.replay.history import HOUR, ORIGIN, Recorded, event

Floats = NDArray[np.float64]
NORMAL = NormalDist()
RISK = 1e-3
SELDOM = 5
Signature = tuple[int, ...]
BULK = 2000
MakeNoise = Callable[[int], NoiseSource]
Draw = Callable[[Fraction, int], NDArray[np.int64]]


@dataclass(frozen=True)
class Game:
    """``users`` users, each in columns of their own, in ``streams`` streams, ``replays`` times.

    ``others``: the counts of everybody else in a user's columns, per timestamp; ``visits``: in which of them
    the user is, one of them per timestamp, None if absent; or the columns of several events, in their order,
    of which ``contributions`` and ``per_column`` let some count. The player looks at the released counts of
    ``cells``, (timestamp, column) from 0, by default those visited, each cut off ``resolution`` away from
    others' count; and at whether they differ from the release before.
    """

    kind: str
    epsilon: Fraction
    extent: int
    others: Sequence[Sequence[int]]
    visits: Sequence[int | tuple[int, ...] | None]
    options: Mapping[str, Option] = field(default_factory=dict)
    cells: Sequence[tuple[int, int]] = ()
    resolution: int = 1
    users: int = 1
    streams: int = 1
    replays: int = 1
    contributions: int = 1
    per_column: int | None = None

    @property
    def visited(self) -> list[tuple[int, ...]]:
        """By timestamp, the columns of a user's events."""
        return [() if one is None else (one,) if isinstance(one, int) else one for one in self.visits]

    @property
    def looked_at(self) -> Sequence[tuple[int, int]]:
        """``cells``, or what is visited."""
        visited = [(at, column) for at, one in enumerate(self.visited) for column in sorted({*one})]
        return self.cells or visited

    @property
    def topology(self) -> Topology:
        """As many streams as there are, over the same events."""
        columns = tuple(map(str, range(self.users * len(self.others[0]))))
        settings = MechanismSettings(
            self.kind, self.epsilon, str(self.epsilon), self.extent, options=self.options
        )
        streams = (
            Stream(
                name=f"game-{number}",
                source=Source("events", "/user", "/to", "/at"),
                timeline=Timeline(HOUR, ORIGIN),
                counts=Counts(columns, contributions=self.contributions, per_column=self.per_column),
                mechanism=settings,
                sink=Sink(f"game-{number}", "array"),
                dead_letter="dead",
            )
            for number in range(self.streams)
        )
        return Topology("t.yaml", 1, "app", Kafka("nowhere:1"), TopicSettings(), tuple(streams))

    def events(self, present: bool) -> Iterator[tuple[int, bytes]]:
        """Append time and value, everybody else's and those of the users if they are ``present``."""
        width = len(self.others[0])
        for at, (counts, visited) in enumerate(zip(self.others, self.visited, strict=True)):
            time = ORIGIN + at * HOUR
            for user in range(self.users):
                for column, count in enumerate(counts):
                    to = str(user * width + column)
                    yield from ((time, event(f"{to} {n}", to, time)) for n in range(count))
                for column in visited if present else ():
                    yield time, event(f"user {user}", str(user * width + column), time)

    def signatures(self, transcript: Sequence[Mapping[str, Any]]) -> Iterator[Signature]:
        """What the player makes of the records of one stream: for each user, what was seen of the cells."""
        width = len(self.others[0])
        released = np.array([record["counts"] for record in transcript]).reshape(-1, self.users, width)
        before = np.concatenate([np.zeros((1, self.users, width), np.int64), released[:-1]])
        parts = []
        for at, column in self.looked_at:
            far = released[at, :, column] - self.others[at][column]
            cut = far.clip(1 - self.resolution, self.resolution)
            parts.append(np.where(released[at, :, column] == before[at, :, column], 2**20, cut))
        if self.kind == "shp-window":
            assert self.users == 1
            parts = [
                np.array([int(count > others[0])])
                for at, record in enumerate(transcript)
                if record["fresh"]
                for count, others in zip(
                    record["history"], self.others[at + 1 - len(record["history"]) :], strict=False
                )
            ]
        yield from map(tuple, np.array(parts).T.tolist())


@dataclass(frozen=True)
class Alone:
    """``users`` users who alone bring columns, into a stream that finds its columns; ``replays`` times.

    Each is there at all timestamps of a window, with two events more than count: all in one column, or
    ``apart``, each event in a column of its own. The player looks whether any of the user's columns is shown
    once the block has ended. Without the user there is no such column, so that is never: the probability of
    it is at most delta, whatever epsilon is. ``epsilon`` is that of finding columns.
    """

    kind: str
    epsilon: Fraction
    delta: Fraction
    contributions: int
    window: int
    apart: bool
    users: int
    replays: int = 1

    @property
    def stream(self) -> Stream:
        """One that finds its columns."""
        how = Discover(self.epsilon, self.delta, Fraction(1, 2), 10_000, 64)
        return Stream(
            name="alone",
            source=Source("events", "/user", "/to", "/at"),
            timeline=Timeline(HOUR, ORIGIN),
            counts=Counts(("other",), contributions=self.contributions, discover=how),
            mechanism=MechanismSettings(self.kind, Fraction(1), "1", self.window),
            sink=Sink("alone"),
            dead_letter="dead",
        )

    def events(self) -> Iterator[tuple[int, bytes]]:
        """Append time and value: a crowd that is found, then those who are alone."""
        for at in range(self.window):
            time = ORIGIN + at * HOUR
            yield from ((time, event(f"one of {n}", "crowd", time)) for n in range(200))
            for user in range(self.users):
                for number in range(self.contributions + 2):
                    to = f"{user} {at} {number}" if self.apart else f"{user} alone"
                    yield time, event(f"user {user}", to, time)

    def shown(self, seed: int, events: Sequence[tuple[int, bytes]]) -> int:
        """Of how many users a column was shown after the block, by the records of one replay."""
        topology = Topology("t.yaml", 1, "app", Kafka("nowhere:1"), TopicSettings(), (self.stream,))
        end, noise = ORIGIN + (self.window + 1) * HOUR, SeededNoise(seed)
        source = Recorded({0: events}, size=len(events) + 1)
        *before, after = [
            json.loads(one.record)["counts"]
            for one in replay(topology, source, end=end, noise=lambda _: noise)
        ]
        assert before == [{"other": one["other"]} for one in before]
        assert "crowd" in after
        return len({name.split()[0] for name in after.keys() - {"other", "crowd"}})


def audit_delta(game: Alone) -> float:
    """A lower bound on the delta of a window, by RISK."""
    events = list(game.events())
    shown = sum(game.shown(seed, events) for seed in range(1, game.replays + 1))
    return probability_bounds(shown, game.users * game.replays, RISK)[0]


class InBulk:
    """The program's own noise, reproducible, drawn for many small requests at once: so it is quicker."""

    def __init__(self, seed: int) -> None:
        self._source = SeededNoise(seed)
        self._drawn: dict[tuple[Draw, Fraction], NDArray[np.int64]] = {}

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self._taken(self._source.discrete_laplace, scale, size)

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return self._taken(self._source.rounded_normal, sigma, size)

    def _taken(self, draw: Draw, scale: Fraction, size: int) -> NDArray[np.int64]:
        left = self._drawn.get((draw, scale), np.empty(0, np.int64))
        if len(left) < size:
            left = draw(scale, max(size, BULK))
        self._drawn[draw, scale] = left[size:]
        return left[:size].copy()


def play(game: Game, present: bool, seeds: Iterable[int], noise: MakeNoise = InBulk) -> list[Signature]:
    """All signatures of one world; the transcripts are those of ``replay``."""
    found: list[Signature] = []
    events = list(game.events(present))
    end = ORIGIN + len(game.others) * HOUR
    for seed in seeds:
        source = Recorded({0: events}, size=len(events) + 1)
        transcripts: dict[str, list[Any]] = {}
        drawn = noise(seed)  # streams take from it in turn
        for one in replay(game.topology, source, end=end, noise=lambda _, drawn=drawn: drawn):  # type: ignore[misc]
            transcripts.setdefault(one.stream.name, []).append(json.loads(one.record))
        for transcript in transcripts.values():
            found += game.signatures(transcript)
    return found


def audit(game: Game, noise: MakeNoise = InBulk) -> float:
    """A lower bound on the epsilon of what is released, by RISK."""
    return bound(*worlds(game, noise))


def audit_mu(game: Game, noise: MakeNoise = InBulk) -> float:
    """A lower bound on the mu of what is released, by RISK."""
    return bound_on_mu(*worlds(game, noise))


def worlds(game: Game, noise: MakeNoise) -> tuple[list[Signature], list[Signature]]:
    """All signatures without and with the users, with noise of their own, as two runs of a worker would."""
    absent, present = (
        play(game, there, [2 * seed + there for seed in range(1, game.replays + 1)], noise)
        for there in (False, True)
    )
    return absent, present


def bound_on_mu(absent: Sequence[Signature], present: Sequence[Signature]) -> float:
    """A lower bound on mu from as many transcripts of either world."""
    assert len(absent) == len(present)
    third = len(absent) // 3
    event, _ = _best_event(Counter(absent[:third]), Counter(present[:third]), _promised_mu)
    tested = len(absent) - third
    fewer, more = (sum(one in event for one in world[third:]) for world in (absent, present))
    lowest = probability_bounds(more, tested, RISK / 2)[0]
    highest = probability_bounds(fewer, tested, RISK / 2)[1]
    if lowest <= 0 or highest >= 1:
        return -np.inf
    return NORMAL.inv_cdf(lowest) - NORMAL.inv_cdf(highest)


def bound(absent: Sequence[Signature], present: Sequence[Signature]) -> float:
    """A lower bound on epsilon from as many transcripts of either world."""
    assert len(absent) == len(present)
    third = len(absent) // 3
    learned = [Counter(world[:third]) for world in (absent, present)]
    (for_absence, _), (for_presence, _) = choices = [
        _best_event(one, other) for one, other in (learned[::-1], learned)
    ]
    tested = len(absent) - third
    if choices[0][1] > choices[1][1]:
        event, fewer, more = for_absence, present, absent
    else:
        event, fewer, more = for_presence, absent, present
    hits = [sum(signature in event for signature in world[third:]) for world in (fewer, more)]
    return log_ratio(hits[1], hits[0], tested)


def _promised_epsilon(hits: Floats, misses: Floats) -> Floats:
    """About what the bound will be of an event with this many hits and misses."""
    promised: Floats = np.log(hits / misses) - 3 * np.sqrt(1 / hits + 1 / misses)
    return promised


def _promised_mu(hits: Floats, misses: Floats) -> Floats:
    """The same of the bound on mu; the last event is that of all signatures."""
    promised = np.zeros(len(hits))
    for counted, sign in ((hits, 1), (misses, -1)):
        size = counted[-1] + 0.5
        for place, share in enumerate(counted / size):
            quantile = NORMAL.inv_cdf(share)
            spread = np.sqrt(share * (1 - share) / size) / NORMAL.pdf(quantile)
            promised[place] += sign * quantile - 3 * spread
    return promised


def _best_event(
    rare: Counter[Signature],
    common: Counter[Signature],
    promised: Callable[[Floats, Floats], Floats] = _promised_epsilon,
) -> tuple[set[Signature], float]:
    """The signatures that together promise the largest bound, the most telling ones first."""
    likely, unlikely = _each_part_alone(common), _each_part_alone(rare)

    def telling(seen: Signature) -> tuple[float, Signature]:
        # What was seen seldom is judged by its parts, as if they had nothing to do with each other.
        share = 1 / (1 + exp(unlikely(seen) - likely(seen)))
        return (common[seen] + SELDOM * share) / (rare[seen] + SELDOM * (1 - share)), seen

    ordered = sorted(common | rare, key=telling, reverse=True)
    hits = 0.5 + np.cumsum([common[seen] for seen in ordered])
    misses = 0.5 + np.cumsum([rare[seen] for seen in ordered])
    promise = promised(hits, misses)  # it decides which event is tried, and nothing else
    best = int(np.argmax(promise))
    return set(ordered[: best + 1]), float(promise[best])


def _each_part_alone(world: Counter[Signature]) -> Callable[[Signature], float]:
    """The log-likelihood of a signature if its parts were independent."""
    parts = [Counter[int]() for _ in next(iter(world))]
    for signature, count in world.items():
        for part, value in zip(parts, signature, strict=True):
            part[value] += count
    return lambda seen: sum(log(part[value] + 0.5) for part, value in zip(parts, seen, strict=True))


def log_ratio(more: int, fewer: int, size: int) -> float:
    """A lower bound, by RISK, on the logarithm of p / q from ``more`` and ``fewer`` of ``size`` trials."""
    lowest = probability_bounds(more, size, RISK / 2)[0]
    highest = probability_bounds(fewer, size, RISK / 2)[1]
    return log(lowest / highest) if lowest > 0 else -np.inf


def probability_bounds(hits: int, size: int, risk: float) -> tuple[float, float]:
    """Clopper and Pearson (Biometrika 1934): each bound is wrong with probability ``risk`` at most."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size + 1)))])
    ways = factorials[size] - factorials - factorials[::-1]

    def tail(p: float, upper: bool) -> float:
        """The probability of at least, or at most, this many hits."""
        k = np.arange(hits, size + 1) if upper else np.arange(hits + 1)
        return float(np.exp(ways[k] + k * log(p) + (size - k) * np.log1p(-p)).sum())

    def solve(upper: bool) -> float:
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            if (tail(middle, upper) > risk) == upper:
                high = middle
            else:
                low = middle
        return low if upper else high

    return (solve(True) if hits else 0.0), (solve(False) if hits < size else 1.0)
