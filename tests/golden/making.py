"""Every durable and every public record, made again by the program as it is.

A line of ``records.jsonl`` is a record: the case that it is of, its topic, key, value and headers.
``python -m tests.golden.making`` adds the lines of new cases and changes none that is there: a record that is
written in another way needs a new version of its format, and what is there has to be read for as long as
anybody may have it.

Where the program has a dated version, the command also writes ``states/VERSION.jsonl``, the states of that
version, and ``states/VERSION.sha256``, their digest and that of the program. Neither is touched any more: all
later versions read those states, and a program that changes needs the version that comes next (``.dev0``).

``earlier.jsonl`` has lines of kinds whose releases have come out otherwise since, in formats that are the
same: of `fast` before errors were told from the noise alone, and of `seasonal` before they were learned from
the columns that are more than noise. It also has states from before boundaries were kept for as long as
events between them can count, and states of re-keying from before they named the skew of their captures.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from fractions import Fraction
from pathlib import Path
from typing import Any

from eventveil import __version__
from eventveil.formats.announcement import Announcement
from eventveil.formats.change import Change, Difference, Terms
from eventveil.formats.witness import Line, Sighting, Witness
from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.mechanisms.registry import KINDS
from eventveil.model.partitioners import Growth
from eventveil.model.records import Outgoing
from eventveil.model.topology import Stream
from eventveil.privacy.noise import SeededNoise
from tests.crashes.values import ValueWorld
from tests.crashes.world import DISCOVERS, FORGETS, World
from tests.unit.local.streams import send
from tests.unit.local.test_serving import EARLY, feed, sanitizer
from tests.unit.support import INSTANCE, stream
from tests.unit.tasks.test_pan_private import World as PanPrivateWorld
from tests.unit.tasks.test_pan_private import pan_private
from tests.unit.values.streams import readings

FILE, EARLIER = (Path(__file__).with_name(name) for name in ("records.jsonl", "earlier.jsonl"))
STATES = Path(__file__).with_name("states")
PROGRAM = Path(__file__).parents[2] / "operators"
#: What running and building the program leaves in its folders.
_BUILT = ("__pycache__", "target", "*.egg-info", "*.so", ".*")
ROUNDS = 9
TIMELINE = {
    "interval": 10_000,
    "origin": 1_000_000,
    "lateness": 5_000,
    "max_ahead": 7_000,
    "clock_skew": 3_000,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "retroactive-grouping": {"window": 1, "span": 3, "factor": 2},
    "time-unit": {"window": 1, "span": 3},
    "totals": {"window": 1, "blocks": "2,4"},
    "shp-point": {"labels": ("a",), "window": 6, "span": 2, "on_horizon": "renew"},
    "shp-window": {"labels": ("a",), "window": 30, "span": 3},
    "shp-adaptive": {"labels": ("a",), "window": 30, "span": 3, "samples": 0.5},
    "seasonal": {"periods": "2,4"},
}
GROUPS = {"groups": 2, "regroup": 2}
#: Cases of counts that came when the file had others behind them.
ADDED = ("re-keyed, by boundaries", "totals")
GAUSSIAN = {"noise": "gaussian", "delta": Fraction(1, 10**6)}
NEWEST = ("totals, Gaussian", "found", "forgotten")
#: Of Eventveil, in cases where it is recorded: always the same one, whichever makes them.
VERSION = "0.1.0"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a case."""

    case: str
    topic: str
    key: str | None
    value: str | None
    headers: Mapping[str, str]

    @property
    def line(self) -> str:
        """As it stands in the file."""
        fields = {"case": self.case, "topic": self.topic, "key": self.key, "value": self.value}
        return json.dumps(fields | ({"headers": dict(self.headers)} if self.headers else {}))


def is_state(one: Record) -> bool:
    """Whether a worker or a command reads it back."""
    return one.topic.startswith("genesis") or one.topic.endswith(("changelog", "-partials"))


def states(version: str = __version__) -> Path:
    """Where the states of a version are."""
    return STATES / f"{version}.jsonl"


def is_dated(version: str = __version__) -> bool:
    """Whether this is a released version, not one that comes next."""
    return not version.endswith(".dev0")


def digests(version: str) -> dict[str, str]:
    """What was written down of a dated version: SHA-256 in hex of its states and of the program."""
    text = STATES.joinpath(f"{version}.sha256").read_text(encoding="utf-8")
    return {name: digest for digest, name in (line.split() for line in text.splitlines())}


def digests_now(version: str, program: Path = PROGRAM) -> dict[str, str]:
    """The same of the states and the program as they are."""
    of_states = hashlib.sha256(states(version).read_bytes()).hexdigest()
    return {states(version).name: of_states, PROGRAM.name: _digest(program)}


def _digest(program: Path) -> str:
    """Of all source files, with their paths."""
    paths = sorted(path.relative_to(program) for path in program.rglob("*") if path.is_file())
    told = "".join(
        f"{hashlib.sha256((program / path).read_bytes()).hexdigest()}  {path.as_posix()}\n"
        for path in paths
        if _is_source(path)
    )
    return hashlib.sha256(told.encode()).hexdigest()


def _is_source(path: Path) -> bool:
    """Of the program, by a path that begins at its folder."""
    return not any(fnmatch(part, pattern) for part in path.parts for pattern in _BUILT)


def kept(file: Path = FILE) -> list[Record]:
    """The records of the file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Record(**{"headers": {}, **json.loads(line)}) for line in lines]


def counts() -> dict[str, Stream]:
    """A stream of counts for each case."""
    kinds = {kind: of_kind(kind, **OPTIONS.get(kind, {})) for kind in sorted(KINDS)}
    grouped = {
        f"{kind}, groups": of_kind(kind, **GROUPS) for kind in ("budget-absorption", "budget-distribution")
    }
    return {
        **kinds,
        **grouped,
        "as an array": of_kind("uniform", form="array"),
        "re-keyed": of_kind("uniform", raw="events"),
        "by boundaries": of_kind("uniform", append_time="boundary"),
        "re-keyed, by boundaries": of_kind("uniform", raw="events", append_time="boundary"),
        "totals, Gaussian": of_kind("totals", **OPTIONS["totals"], **GAUSSIAN),
        "found": DISCOVERS,
        "forgotten": FORGETS,
    }


def of_kind(kind: str, form: str = "object", **fields: Any) -> Stream:
    """A stream of this kind; what is no field of a stream is an option."""
    known = {"labels", "raw", "append_time", "window"}
    options = {name: value for name, value in fields.items() if name not in known}
    fields = {"window": 3, **{name: value for name, value in fields.items() if name in known}}
    return stream(form=form, kind=kind, options=options, **TIMELINE, **fields)


def made() -> Iterator[Record]:
    """All records, in the order of the file."""
    for case, one in counts().items():
        if case not in {*ADDED, *NEWEST}:
            yield from of_world(case, World(1, SeededNoise(1), one))
    for kind in ("tops", "pak"):
        yield from of_world(kind, OfValues(kind))
    for looks in ("single", "announced"):
        yield from of_pan_private(looks)
    yield from of_local_reports()
    yield from by_hand()
    for case in ADDED:
        yield from of_world(case, World(1, SeededNoise(1), counts()[case]))
    yield from of_a_version()
    for case in NEWEST:
        yield from of_world(case, World(1, SeededNoise(1), counts()[case]))


def of_a_version() -> Iterator[Record]:
    """Lives in which the version of Eventveil is recorded, of each kind of ledger entry."""
    world = World(1, SeededNoise(1), of_kind("uniform"))
    world.versions = (VERSION,)
    yield from of_world("uniform, of a version", world)
    values = OfValues("tops")
    values.versions = (VERSION,)
    yield from of_world("tops, of a version", values)
    yield from of_pan_private("single", VERSION)


def of_world(case: str, world: World) -> Iterator[Record]:
    """What one life of a stream leaves, in which nothing fails."""
    world._armed = False
    for _ in range(ROUNDS):
        world.append(12)
        world.pass_time(10_000)
        world._finish()
    for topic in sorted({place.topic for place in world.log._partitions}):
        if topic not in {world.stream.source.topic_of_events, "values"}:
            yield from chosen(case, world.public(topic))


def chosen(case: str, records: list[Outgoing]) -> Iterator[Record]:
    """Of each group the first record, one in the middle, and the last two."""
    for group in sorted({group_of(one) for one in records}):
        found = [one for one in records if group_of(one) == group]
        for number in sorted({0, len(found) // 2, len(found) - 2, len(found) - 1} & {*range(len(found))}):
            yield record(case, found[number])
            if group.startswith("dead"):
                break


def group_of(one: Outgoing) -> str:
    """Dead letters have a group for each reason, re-keyed events one beside that of the marks."""
    headers = dict(one.headers)
    if "eventveil.reason" in headers:
        return f"dead: {headers['eventveil.reason'].decode()}"
    if one.topic == "raw":
        return "event" if one.value else "mark"
    return (one.key or b"").decode()


def record(case: str, one: Outgoing) -> Record:
    """A record as text."""
    headers = {name: value.decode() for name, value in one.headers}
    key = None if one.key is None else one.key.decode()
    return Record(case, one.topic, key, None if one.value is None else one.value.decode(), headers)


class OfValues(ValueWorld):
    """Streams of values of a kind."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        super().__init__(1, SeededNoise(1))

    def _create(self) -> None:
        self.readings = readings(self._kind)
        super()._create()


class OfPanPrivate(PanPrivateWorld):
    """Remembers all that was committed."""

    def __init__(self, looks: str, version: str) -> None:
        self.written: list[Outgoing] = []
        one = pan_private(looks, epsilon=Fraction(1), window=3)
        super().__init__(one, (), lambda: SeededNoise(1), version)

    def commit(self, records: Any) -> None:
        written = [*records]
        self.written += written
        super().commit(written)


def of_pan_private(looks: str, version: str = "") -> Iterator[Record]:
    """A few timestamps, of which one is given up and one was looked at."""
    world = OfPanPrivate(looks, version)
    case = f"pan-private, {looks}{', of a version' if version else ''}"
    for number in range(5):
        if looks == "announced" and number == 3:
            world.announce(7)
        if number == 2:
            world.release("exposed")
        world.release()
    for topic in sorted({one.topic for one in world.written}):
        yield from chosen(case, [one for one in world.written if one.topic == topic])


def of_local_reports() -> Iterator[Record]:
    """Two timestamps, after which a threshold is asked for, and one more."""
    worker = sanitizer()
    for first, sent in ((1, EARLY), (3, [send([5], 8), []])):
        feed(worker, sent, first=first)
        for records in (worker.decide(), worker.publish()):
            yield from (record("topl", one) for one in records)
        worker.published()


def by_hand() -> Iterator[Record]:
    """Records that commands and people write."""
    one = stream()
    plan = StreamPlan(one, 4)
    fields = plan.budget_fields(12, "the id of the sink")
    manifest = ManifestRecord(one.name, INSTANCE, fields, "raw", "the id of the source", 3, 17, 40, 5)
    key = ManifestRecord.key(one.name)
    terms = Terms("uniform", Fraction(1, 2), 4, 8 * 2**20)
    change = {
        "stream": one.name, "start": 30, "before": terms, "after": terms._replace(epsilon=Fraction(1)),
        "instance": "1" * 32, "previous": INSTANCE,
    }  # fmt: skip
    differences = {"sink.topic": Difference("old", "new"), "counts.contributions": Difference(1, 2)}
    sighting = Sighting(one.name, None, INSTANCE, 7, "ab" * 32, "app-ledger", 1, 9)
    line = Line(one.name)
    for topic, key_, value in (
        ("genesis, without a cluster", key, manifest.encode()),
        ("genesis", key, manifest.replace(cluster="the cluster", ledger_id="the ledger").encode()),
        ("genesis, grown", key, manifest.replace(cluster="c", ledger_id="l", grown=(Growth(9, 6),)).encode()),
        ("change", b"visits", Change(kind="migration", fields=differences, **change).encode()),
        ("change", b"visits", Change(kind="reset", fields={}, **change).encode()),
        ("announcement", b"visits", Announcement(one.name, INSTANCE, 1_000_000, "7").encode()),
        ("witness", None, Witness("app", "the cluster", 1_000_000, {line: sighting}).encode()),
    ):
        yield record("by hand", Outgoing(topic, value, key_))


def main() -> None:
    """Add the records of cases that the file does not have; for a dated version also write its states."""
    now = list(made())
    _add(FILE, now)
    if is_dated():
        STATES.mkdir(exist_ok=True)
        _date([one for one in now if is_state(one)])


def _add(file: Path, now: list[Record]) -> None:
    known = kept(file)
    cases = {one.case for one in known}
    added = [one for one in now if one.case not in cases]
    file.write_text(_text([*known, *added]), encoding="utf-8")
    print(f"{file.name}: {len(known)} records kept, {len(added)} added")


def _date(now: list[Record]) -> None:
    digest = STATES / f"{__version__}.sha256"
    if digest.exists():
        if digests(__version__) != digests_now(__version__):
            sys.exit(
                f"{__version__} has been dated: give the program the version that comes next, with .dev0"
            )
        return
    states().write_text(_text(now), encoding="utf-8")
    lines = [f"{hexed}  {name}\n" for name, hexed in digests_now(__version__).items()]
    digest.write_text("".join(lines), encoding="utf-8")
    print(f"{states().name}: {len(now)} states")


def _text(records: list[Record]) -> str:
    return "".join(f"{one.line}\n" for one in records)


if __name__ == "__main__":
    main()
