"""Counting whole chunks must come to what counting one record after the other comes to."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import islice
from random import Random
from typing import Any

import orjson
import pytest

from eventveil.counting import users
from eventveil.counting.assigner import Assigner
from eventveil.counting.counter import CounterState, Partial, StreamCounter
from eventveil.counting.users import Users
from eventveil.decoding.places import Envelope
from eventveil.decoding.rules import Decoder, Rejection, parse, weigh
from eventveil.model.fields import joined
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, Chunk
from eventveil.model.topology import Condition, Discover, NameMap, Source, Stream
from eventveil.tasks import passed_on
from eventveil.tasks.aggregate import PartitionAggregator
from tests.fuzz import avro
from tests.fuzz.passing import fetched
from tests.fuzz.values import mutated
from tests.unit.support import counter_state, stream


class OneByOne:
    """Counts a stream without numbers for users and without arrays: by rule, record and whole user."""

    def __init__(self, one: Stream, partitions: int, state: CounterState) -> None:
        self.stream, self.state = one, state
        self.next = state.next
        self.outcomes: Counter[str] = Counter()
        known = Users(one.source, partitions, state.partition)
        self._assigner = Assigner(one, partitions, state.partition, state.first, known)
        self._decoder = Decoder(one.source, one.counts)
        self.open: dict[int, dict[bytes, list[tuple[Any, Any]]]] = {}
        self.first_offset: dict[int, int] = {}

    def judge(
        self, offset: int, value: bytes | None, around: Envelope, order: Any, boundaries: Any
    ) -> Rejection | None:
        """Of each user the first events by ``order`` count, within both bounds; the last may be displaced."""
        if offset < self.state.resume:
            return None
        verdict: Any = None
        if self._decoder.filter.passes_around(around):
            source = self.stream.source
            if self._decoder.reads_value:
                document = parse(value, source.max_bytes, source.format, avro.KNOWN)
            else:
                document = weigh(value, source.max_bytes)
            verdict = self._assigner.verdict(
                offset, around.append_time, document, self.next, boundaries, around
            )
        if verdict is None:
            outcome = "filtered"
        elif isinstance(verdict, Rejection):
            outcome = verdict.reason.value
        else:
            outcome = self._count(offset, verdict, order)
        if offset < self.state.judged:
            return None
        self.outcomes[outcome] += 1
        return verdict if isinstance(verdict, Rejection) else None

    def _count(self, offset: int, placed: Any, order: Any) -> str:
        if placed.event.column is None:
            return "ignored"
        self.first_offset.setdefault(placed.timestamp, offset)
        counted = self.open.setdefault(placed.timestamp, {}).setdefault(placed.event.user, [])
        before, counts = len(counted), self.stream.counts
        names = self._assigner.names
        insort(counted, (order, placed.event.column if names is None else names.texts[placed.event.column]))
        columns: Counter[Any] = Counter()
        for event in [*counted]:
            full = columns[event[1]] == (counts.per_column or counts.contributions)
            if full or columns.total() == counts.contributions:
                counted.remove(event)
            else:
                columns[event[1]] += 1
        return "counted" if len(counted) > before else "bounded"

    def close(self) -> dict[Any, int]:
        """The counts of the next timestamp by column, or by name."""
        users = self.open.pop(self.next, {})
        self.first_offset.pop(self.next, None)
        self.next += 1
        return dict(Counter(column for counted in users.values() for _, column in counted))


def compare(seed: int) -> Counter[str]:
    """One random partition, chunk by chunk; what became of its records. AssertionError where they differ."""
    chance = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        if chance.random() < 0.5:
            # So few users are kept that some are forgotten in every other chunk.
            patch.setattr(users, "_FREE", chance.choice((2, 8)))
        try:
            return _compared(chance)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def _compared(chance: Random) -> Counter[str]:
    streams = _streams(chance)
    partitions = chance.choice((1, 1, 2))
    partition = chance.randrange(partitions)
    resume = chance.randrange(5)
    states = {}
    for one in streams:
        first = chance.randrange(1, 4)
        judged = resume + chance.choice((0, 0, 10))
        states[one.name] = counter_state(
            partition=partition, first=first, next=first + chance.randrange(2), resume=resume, judged=judged
        )
    aggregator = PartitionAggregator(partitions, {one.name: (one, states[one.name]) for one in streams})
    singles = {one.name: OneByOne(one, partitions, states[one.name]) for one in streams}
    position, clock, values = aggregator.position, 1000, mutated(chance)
    for _ in range(12):
        clock += chance.choice((0, 1, 5, 30))
        chunk = _chunk(chance, position, clock, islice(values, chance.choice((0, 1, 20, 60))), streams[0])
        _observe(aggregator, singles, chunk)
        position = chunk.next_offset
        for name, counter in aggregator.counters.items():
            _check(counter, singles[name], position)
            while chance.random() < 0.4:
                assert _by_column(counter.close()) == singles[name].close(), name
            _check(counter, singles[name], position)
        if chance.random() < 0.3:
            aggregator.capture_end(max(clock, 1018), position)
    return sum((single.outcomes for single in singles.values()), Counter())


def _by_column(one: Partial) -> dict[Any, int]:
    return dict(zip(one.names or one.columns.tolist(), one.counts.tolist(), strict=True))


#: Of fields that are there or not, strings or not, and of those that events are counted by.
_CONDITIONS = (
    Condition("/type", "in", ("viewed", "bought", 7)),
    Condition("/type", "not-in", ("viewed", True)),
    Condition("/member", "present"),
    Condition("/member", "absent"),
    Condition("/column", "in", ("a", "b")),
    Condition("/page/section", "not-in", ("b",)),
)
#: The same of what is around values.
_AROUND = (
    Condition("$headers/kind", "in", ("viewed", 7)),
    Condition("$headers/kind", "not-in", ("bought",)),
    Condition("$headers/kind", "present"),
    Condition("$key", "absent"),
    Condition("$time", "not-in", (1003,)),
)


#: Values, prefixes and what other texts are called.
_NAMES = (
    ((("a", "b"), ("b", "a")), (), None),
    ((), (("a", "b"), ("", "other")), None),
    ((("c", "a"),), (("b", "nobody"),), "b"),
)


#: What is found is for others to decide; here each name counts that may be one.
_DISCOVER = Discover(Fraction(1, 2), Fraction(1, 10**7), Fraction(1, 2), most=10, longest=6)


def _streams(chance: Random) -> list[Stream]:
    # Most events of usual streams get far; of others, most are refused early.
    usual = chance.random() < 0.6
    shared: dict[str, Any] = {
        "append_time": chance.choice(("broker", "broker", "boundary")),
        "max_ahead": chance.choice((7, 200)),
        "lateness": chance.choice((0, 5, 50)),
    }
    if chance.random() < 0.25:
        shared |= {"raw": "raw", "topic": "re-keyed", "append_time": "broker"}
    shared["user_type"] = chance.choice(("string", "string", "string", "integer", "integer"))
    if chance.random() < 0.3:
        shared["user"] = joined(["/user", "/id"])
    if not usual:
        shared["user_type"] = chance.choice(("string", "integer", "either"))
        shared["user"] = chance.choice(("/user", "/user", "$key", "$headers/user", joined(["$key", "/user"])))
        shared["format"] = chance.choice(("json", "json", "json-schema", "avro"))
        shared["time_unit"] = chance.choice(("ms", "ms", "us", "ns", "s"))
        shared["partitioner"] = chance.choice(("murmur2", "crc32"))
    made = []
    for name in ("one", "two", "three")[: chance.choice((1, 2, 3))]:
        own = {
            **dict(
                zip(
                    ("contributions", "per_column"),
                    chance.choice(((1, None), (1, None), (2, None), (3, None), (2, 1), (3, 2))),
                    strict=True,
                )
            ),
            **chance.choice(({}, {"unknown": "ignore"}, {"unknown": "column", "unknown_column": 1})),
            "column": chance.choice(("/column", "/page/section", *([] if usual else ["$headers/column"]))),
            "time": chance.choice(("/time", "/time", *([] if usual else ["$time"]))),
            "own_time": chance.random() < 0.5,
            "max_bytes": chance.choice((3, 100, 130, *[1_000_000] * 9)),
            "filter": tuple(
                chance.sample(_CONDITIONS + (() if usual else _AROUND), chance.choice((0, 0, 0, 1, 2)))
            ),
            "time_zone": chance.choice((None, None, "Europe/Berlin")),
        }
        mapped = own["column"]
        if chance.random() < 0.2:
            own |= {"discover": _DISCOVER, "labels": ("other",), "unknown": "dead-letter", "per_column": None}
        elif not usual and chance.random() < 0.4:
            own |= {
                "column": joined([mapped, "/type"]),
                "labels": ("a|viewed", "b|viewed", "a|7", "b|bought"),
            }
        if chance.random() < 0.3:
            own["maps"] = (NameMap(mapped, *chance.choice(_NAMES)),)
        made.append(stream(name, **shared, **own))
    return made


def _chunk(chance: Random, position: int, clock: int, values: Any, one: Stream) -> Chunk:
    values = [_value(chance, clock, one.source, value) for value in values]
    offsets = []
    at = position - chance.choice((0, 0, 2)) if position > 8 else position
    for _ in values:
        at += chance.choice((0, 0, 0, 3))
        offsets.append(at)
        at += 1
    times = [max(0, clock - chance.choice((0, 0, 0, 4, 40))) for _ in values]
    keys = [_text(chance) for _ in values]
    headers: Any = [_headers(chance) for _ in values] if chance.random() < 0.8 else ()
    if one.source.raw is not None:
        every = headers or [()] * len(values)
        headers = [*map(partial(_rekeyed, chance), offsets, times, keys, every)]
        keys = [None] * len(values)
    elif chance.random() < 0.1:
        times = [NO_APPEND_TIME] * len(times)
    own_times = [_own_time(chance, clock) for _ in values]
    packed, own_times = chance.random() < 0.5, chance.choice(([], own_times))
    every = [one or () for one in headers] or [()] * len(values)
    if packed and values and (as_read := fetched([*zip(keys, values, every, strict=True)])):
        keys, values, headers = as_read.keys, as_read.values, as_read.headers
    return Chunk(
        one.source.topic, 0, 1, min([position, *offsets[:1]]), offsets, times, keys, values,
        max(position, at), headers, own_times=own_times, schemas=avro.KNOWN,
    )  # fmt: skip


def _own_time(chance: Random, clock: int) -> int:
    return chance.choice((NO_OWN_TIME, clock - 9, clock - 2, 2**60))


def _rekeyed(chance: Random, offset: int, time: int, key: bytes | None, headers: Any) -> list[Any]:
    """The headers of a record that was passed on."""
    carried = [(passed_on._OWN + name, value) for name, value in headers]
    own_time = _own_time(chance, time)
    return [
        (passed_on._PARTITION, b"%d" % chance.randrange(2)),
        (passed_on._OFFSET, b"%d" % offset),
        (passed_on._TIME, b"%d" % time),
        *([] if own_time == NO_OWN_TIME else [(passed_on._OWN_TIME, b"%d" % own_time)]),
        *([] if key is None else [(passed_on._KEY, key)]),
        *carried,
    ]


def _text(chance: Random) -> bytes | None:
    """What may be in a key or a header."""
    return chance.choice(
        (b"u%d" % chance.randrange(8),) * 4 + (b"a", b"%d" % chance.randrange(8), b"", b"\xff", None)
    )


def _headers(chance: Random) -> list[tuple[str, Any]]:
    kinds = (b"viewed", b"viewed", b"viewed", b"bought", b"", b"\xfe", None)
    made = [("user", _text(chance)), ("column", chance.choice((b"a", b"b", b"c", None)))]
    made += [("kind", chance.choice(kinds)) for _ in range(chance.choice((0, 1, 1, 1, 2)))]
    return chance.sample(made, chance.choice((len(made), len(made), len(made) - 1)))


def _value(chance: Random, clock: int, source: Source, value: bytes | None) -> bytes | None:
    """A value in the format of the source."""
    event = None if chance.random() < 0.3 else _event(chance, clock, source)
    if source.format == "avro":
        return value if event is None else avro.written(chance, event)
    if event is not None:
        value = orjson.dumps(event)
        if chance.random() < 0.2:
            # A key that is there twice the kernel leaves to the rule: those lie between certain events.
            value = b'{"time":0,' + value[1:]
    if source.format == "json" or value is None or chance.random() < 0.05:
        return value
    return b"\0\0\0\0\1" + value


def _event(chance: Random, clock: int, source: Source) -> dict[str, Any]:
    """A good event, mostly, of few users at a time: some must meet a bound, and others be forgotten."""
    number: Any = clock // 16 + chance.randrange(6)
    user = number if source.user_type == "integer" else f"u{number}"
    if source.user_type == "either":
        # The number and the text are one user.
        user = chance.choice((number, str(number)))
    time = clock + chance.randrange(-25, 12)
    unit = {"ms": 1, "s": 1, "us": 1000, "ns": 1_000_000}[source.time_unit]
    time = time // 1000 if source.time_unit == "s" else unit * time + chance.randrange(unit)
    column = chance.choice(("a", "a", "b", "b", "b", "c", "a|viewed", "a\u200b", "longer than six"))
    more: dict[str, Any] = {}
    if chance.random() < 0.7:
        more["type"] = chance.choice(("viewed", "viewed", "bought", "returned", 7, None))
    if chance.random() < 0.7:
        more["member"] = chance.choice(("yes", "", True, None))
    if chance.random() < 0.2:
        more["id"] = f"u{chance.randrange(8)}"
        user = chance.choice((user, "", None, 7))
    return {"user": user, "column": column, "time": time, "page": {"section": column}, **more}


def _observe(aggregator: PartitionAggregator, singles: dict[str, OneByOne], chunk: Chunk) -> None:
    expected: dict[str, list[dict[str, bytes]]] = {name: [] for name in singles}
    rekeyed = any(single.stream.source.raw is not None for single in singles.values())
    for index, offset in enumerate(chunk.offsets):
        if offset < aggregator.position:
            continue
        append_time, order = chunk.append_times[index], (0, 0, offset)
        headers = chunk.headers[index] or () if chunk.headers else ()
        own_time = chunk.own_times[index] if chunk.own_times else NO_OWN_TIME
        around = Envelope(chunk.keys[index], headers, append_time, own_time)
        if rekeyed:
            told = dict(headers)
            order = append_time, int(told[passed_on._PARTITION]), offset
            own_time = int(told.get(passed_on._OWN_TIME, NO_OWN_TIME))
            around = Envelope(
                told.get(passed_on._KEY), passed_on._own_headers(headers), append_time, own_time
            )
        for name, single in singles.items():
            boundaries = aggregator.counters[name].boundaries
            rejection = single.judge(offset, chunk.values[index], around, order, boundaries)
            if rejection is not None:
                reason, detail = rejection.reason.encode(), rejection.detail.encode()
                expected[name].append({"reason": reason, "detail": detail, "offset": b"%d" % offset})
    before = {name: len(letters) for name, letters in aggregator._dead_letters.items()}
    aggregator.process(chunk)
    for name, letters in aggregator._dead_letters.items():
        found = [dict(letter.headers) for part in letters[before[name] :] for letter in part]
        told = [{key: one[f"eventveil.{key}"] for key in ("reason", "detail", "offset")} for one in found]
        assert told == expected[name]


def _check(counter: StreamCounter, single: OneByOne, position: int) -> None:
    assert counter.outcomes == single.outcomes, f"{counter.outcomes} in bulk, {single.outcomes} one by one"
    assert counter.last_open == max(single.open, default=None)
    resume = min([*single.first_offset.values()], default=max(position, single.state.resume))
    judged = max(position, single.state.judged)
    expected = single.state.replace(next=single.next, resume=resume, judged=judged)
    found = counter.state_at(position)
    assert found.replace(boundaries=(), passed=()) == expected
