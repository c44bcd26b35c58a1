"""Random events, and what happens to those who count them: lags, crashes, more partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal, NamedTuple

import orjson

from eventveil.model import timeline
from eventveil.model.partitioners import PARTITIONERS
from eventveil.model.records import Headers
from eventveil.model.topology import Source, Topology
from tests.fuzz.topologies import INTERVAL, ORIGIN

#: From where on a take-over judges what the one before has judged: nowhere, where it has to if the rules have
#: changed, or from the beginning.
JudgedAnew = Literal["nothing", "possible", "everything"]
_ANEW: tuple[JudgedAnew, ...] = ("nothing",) * 14 + ("possible",) * 3 + ("everything",) * 3


class Event(NamedTuple):
    """A record that is appended ``at`` a time; ``user`` is None where nobody can tell whose it is."""

    at: int
    partition: int
    key: bytes
    value: bytes | None
    headers: Headers
    user: str | None
    timestamp: int


class Growing(NamedTuple):
    """A topic of events gets more ``partitions``, and is migrated ``at`` a time.

    They count ``later`` timestamps later than they could.
    """

    at: int
    partitions: int
    later: int


class Who(NamedTuple):
    """Who runs a task: of re-keying or of counting, of one partition."""

    stage: Literal["re-key", "count"]
    partition: int


class Step(NamedTuple):
    """What happens at a time.

    ``reads`` says how many records are read at most; who is not named reads all. Who is in ``aborts`` crashes
    before its next commit. ``taken_over``: another owner goes on with what is durable.
    """

    now: int
    taken_over: Mapping[Who, JudgedAnew]
    reads: Mapping[Who, int]
    aborts: frozenset[Who]


class History(NamedTuple):
    """Events in order, and the steps of who counts them; both begin at ORIGIN or later.

    ``last`` is the last timestamp that an event can belong to.
    """

    partitions: int
    events: Sequence[Event]
    steps: Sequence[Step]
    last: int
    growing: Growing | None = None


def random_history(chance: Random, topology: Topology) -> History:
    """Some seconds of a few users."""
    source = topology.streams[0].source
    partitions, last = chance.choice((1, 1, 2, 3)), chance.randint(1, 6)
    growing = None
    if source.raw is None and chance.random() < 0.35:
        at = ORIGIN + chance.randint(0, last * INTERVAL)
        growing = Growing(at, partitions + chance.randint(1, 2), chance.choice((0, 0, 1, 2)))
    placing = _Placing(chance, source, partitions, growing)
    users = _users(chance, source)
    until = ORIGIN + (last + 2) * INTERVAL
    many = chance.randint(10, chance.choice((50, 160)))
    events = [one for _ in range(many) for one in _sent(chance, source, users, placing, until)]
    events.sort(key=lambda one: one.at)
    times = {one.at for one in events}
    for stream in topology.streams:
        times |= {timeline.due_of(stream.timeline, one) for one in range(1, last + 4)}
    now = partitions if growing is None else growing.partitions
    everyone = [Who("count", number) for number in range(now)]
    if source.raw is not None:
        everyone += [Who("re-key", number) for number in range(partitions)]
    return History(partitions, events, [*_steps(chance, sorted(times), everyone)], last + 6, growing)


def _users(chance: Random, source: Source) -> list[str]:
    many = chance.randint(2, 6)
    if source.user_type == "string":
        return chance.sample(("u", "v", "w", "x", "yy", "zzz", "07", "7", "é"), many)
    return [str(one) for one in chance.sample(range(1, 60), many)]


class _Placing:
    """Where producers write an event: mostly where its user belongs, once they know of all partitions."""

    def __init__(self, chance: Random, source: Source, partitions: int, growing: Growing | None) -> None:
        self._chance, self._source = chance, source
        self._before = self._after = partitions
        self._known_at = 0
        if growing is not None:
            self._after = growing.partitions
            # Nobody counts between that and the migration, or the producers are the last to know.
            self._known_at = growing.at + chance.choice((-300, 0, 0, 900))

    def of(self, user: str | None, at: int) -> int:
        """The partition of an event."""
        partitions = self._before if at < self._known_at else self._after
        if self._source.raw is not None or user is None or self._chance.random() < 0.03:
            return self._chance.randrange(partitions)
        return PARTITIONERS[self._source.partitioner](user.encode(), partitions)


def _sent(
    chance: Random, source: Source, users: Sequence[str], placing: _Placing, until: int
) -> Iterator[Event]:
    """An event, perhaps several times: in time, late, ahead or at the bound of a timestamp, or malformed."""
    at, user = chance.randint(ORIGIN, until), chance.choice(users)
    when = _when(chance, at)
    document = _document(chance, source, when)
    known = _name(chance, source, user, users, document)
    value: bytes | None = orjson.dumps(document)
    if chance.random() < 0.03:
        value, known = chance.choice((b"{nope", b"{nope", None)), None
    headers = [("c", chance.choice("abcdefgh").encode())]
    if chance.random() < 0.7:
        headers.append(("h", chance.choice((b"v", b"w"))))
    timestamp = (when - ORIGIN) // INTERVAL + 1
    for _ in range(1 if chance.random() < 0.85 else chance.randint(2, 4)):
        yield Event(at, placing.of(known, at), user.encode(), value, headers, known, timestamp)
        at += chance.choice((0, 0, 1, 400))


def _when(chance: Random, at: int) -> int:
    """When something happened of which an event is written ``at`` a time."""
    when = at - int(abs(chance.gauss(0, 700)))
    if chance.random() < 0.2:
        when += chance.randint(0, 2500)
    if chance.random() < 0.05:
        when = at - 100_000
    if chance.random() < 0.2:
        when = ORIGIN + (when - ORIGIN) // INTERVAL * INTERVAL + chance.choice((0, -1, INTERVAL - 1))
    return when


def _document(chance: Random, source: Source, when: int) -> dict[str, Any]:
    """An event without its user."""
    time = "t2" if source.time.startswith("[") and chance.random() < 0.4 else "t"
    document: dict[str, Any] = {
        time: when if chance.random() < 0.6 else timeline.format_rfc3339(when),
        "c": chance.choice("abcdefgh") if chance.random() < 0.97 else chance.choice((None, 5, "", "\u200b")),
        "n": chance.randint(-1, 6) if chance.random() < 0.95 else "1",
    }
    if chance.random() < 0.7:
        document["f"] = chance.choice((1, 1, 2, "1", None))
    if chance.random() < 0.7:
        document["g"] = chance.choice("pqz")
    return document


def _name(
    chance: Random, source: Source, user: str, users: Sequence[str], document: dict[str, Any]
) -> str | None:
    """Write down whose an event is, and return that; None if nobody can tell."""
    if source.user == "$key":
        return user
    written = _written(chance, user, source.user_type)
    if source.user == "/u":
        document["u"] = written
    elif source.user == "/d/u":
        document["d"] = {"u": written}
    elif chance.random() < 0.4:
        other = chance.choice(users) if chance.random() < 0.5 else None
        document |= {"u": written, "s": other}
        written = other if written == "" else written
    else:
        document |= chance.choice(({"u": None}, {"u": ""}, {})) | {"s": written}
    return None if written in (None, "", [1]) else str(written)


def _written(chance: Random, user: str, user_type: str) -> Any:
    """A user as the type says, or nobody."""
    if chance.random() < 0.05:
        return chance.choice(([1], [1], ""))
    text = user_type == "string" or (user_type == "either" and chance.random() < 0.5)
    return user if text else int(user)


def _steps(chance: Random, times: Iterable[int], everyone: Sequence[Who]) -> Iterator[Step]:
    taken_over, aborts = chance.choice((0, 0, 0.05, 0.2)), chance.choice((0, 0, 0.1))
    lags, changes = chance.choice((0, 0.2, 0.6, 0.9)), chance.choice((1, 1, 0.3))
    reads: dict[Who, int] = {}
    for now in times:
        if chance.random() < changes:
            reads = {who: chance.choice((0, 0, 1, 3)) for who in everyone if chance.random() < lags}
        yield Step(
            now,
            # More often from one that stands still.
            {
                who: chance.choice(_ANEW)
                for who in everyone
                if chance.random() < taken_over * (1 if reads.get(who, 1) else 4)
            },
            reads,
            frozenset(who for who in everyone if chance.random() < aborts),
        )
