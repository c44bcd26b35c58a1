"""What a run leaves in ledger and sink, to be rewritten and audited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import cycle
from typing import Any

import numpy as np
import orjson

from eventveil.audit.findings import Kept, Report
from eventveil.audit.records import FoundRecord
from eventveil.audit.stream import StreamAudit
from eventveil.formats.change import Terms
from eventveil.formats.release import ledger_entry, release_record
from eventveil.mechanisms.pan_private import PanPrivate
from eventveil.mechanisms.publishing import units_of
from eventveil.mechanisms.registry import KINDS, build
from eventveil.model.topology import Counts, MechanismSettings, Option, Sink, Source, Stream, Timeline
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import W_EVENT_KINDS, ForcedNoise, attach, columns_of

NAME, FIRST, RELEASES, WINDOW, PARTITION = "visits", 17, 12, 4, 1
LAST = FIRST + RELEASES - 1
INSTANCE = "9f8e"
SETTINGS = MechanismSettings("budget-distribution", Fraction(1), "1.0", WINDOW)
UNITS = 2 * WINDOW * 2**20


def terms_of(settings: MechanismSettings) -> Terms:
    return Terms(settings.kind, settings.epsilon, settings.window, units_of(settings.window), settings.delta)


Names = set[tuple[str, int | None]]


TIMELINE = Timeline(interval=1000, origin=0)
OBJECT = Sink("sink", "object")
HORIZON = 8


def settings_of(kind: str, **options: Option) -> MechanismSettings:
    """Settings that any kind takes; a horizon ends before the story does."""
    level = KINDS[kind].level
    window = {"w-event": WINDOW, "event": 1, "user": HORIZON}[level]
    extent: dict[str, Option] = {"blocks": "2,4"} if kind == "totals" else {"span": 2}
    given: dict[str, Option] = {} if level == "w-event" else {**extent, **options}
    return replace(SETTINGS, kind=kind, window=window, options=given)


def stream_of(
    settings: MechanismSettings = SETTINGS, sink: Sink = OBJECT, labels: tuple[str, ...] = ()
) -> Stream:
    return Stream(
        name=NAME,
        source=Source("raw", "/u", "/c", "/t"),
        timeline=TIMELINE,
        counts=Counts(labels or ("a", "b")[: columns_of(settings.kind)]),
        mechanism=settings,
        sink=sink,
        dead_letter="dead",
    )


def releases(stream: Stream, timestamps: int = RELEASES) -> Iterator[bytes]:
    """Real release records; every third decision is to publish, and the counts differ at each timestamp."""
    kind, columns = stream.mechanism.kind, len(stream.counts.labels)
    forced = ForcedNoise(cycle([False, True, False]))
    noise = forced if kind in W_EVENT_KINDS else SeededNoise(1)
    mechanism = attach(build(stream.mechanism, columns, 1, noise))
    for timestamp in range(FIRST, FIRST + timestamps):
        discards = isinstance(mechanism, PanPrivate) and mechanism.opening() is None
        release = mechanism.step(timestamp * np.arange(1, columns + 1) * (not discards))
        yield release_record(stream, timestamp, release, mechanism.units)


@dataclass
class Item:
    """A record of the story; ``committed`` and the place can be rewritten."""

    value: bytes | None
    committed: bool = True
    partition: int = 0
    key: bytes | None = NAME.encode()
    newer: bool = False

    @property
    def fields(self) -> dict[str, Any]:
        assert self.value is not None
        return dict(orjson.loads(self.value))

    def edit(self, **changes: Any) -> None:
        self.value = orjson.dumps({**self.fields, **changes})


@dataclass
class Story:
    """What ledger and sink of a run hold: the records of timestamp FIRST + i at index i."""

    ledger: list[Item] = field(default_factory=list)
    sink: list[Item] = field(default_factory=list)
    ledger_start: int = 0

    @classmethod
    def clean(cls, stream: Stream | None = None, timestamps: int = RELEASES) -> Story:
        records = list(releases(stream or stream_of(), timestamps))
        entries = [Item(ledger_entry(record, INSTANCE), partition=PARTITION) for record in records]
        return cls(entries, [Item(record) for record in records])

    def charge(self, index: int, **changes: Any) -> None:
        """Change what entry and record of a timestamp say of its charge, as a faulty worker would."""
        self.sink[index].edit(**changes)
        value = self.sink[index].value
        assert value is not None
        self.ledger[index].value = ledger_entry(value, INSTANCE)

    def audit(
        self,
        settings: MechanismSettings = SETTINGS,
        kept: Kept = "everything",
        columns: int = 0,
        options: Mapping[str, Option] | None = None,
        timeline: Timeline = TIMELINE,
        names: tuple[str, ...] = (),
    ) -> Report:
        audit = audit_of(settings, columns, options, timeline, names)
        audit.ledger_begins("ledger", PARTITION, self.ledger_start)
        for found, _ in _found("ledger", self.ledger):
            audit.entry(found)
        for found, newer in _found("sink", self.sink):
            audit.record(found, newer=newer)
        return audit.report(kept)


def audit_of(
    settings: MechanismSettings = SETTINGS,
    columns: int = 0,
    options: Mapping[str, Option] | None = None,
    timeline: Timeline = TIMELINE,
    names: tuple[str, ...] = (),
) -> StreamAudit:
    """The audit for a mechanism, which may be told of other options than it has, and of another file."""
    columns = columns or columns_of(settings.kind)
    guarantee = build(settings, columns, 1, ForcedNoise([])).guarantee
    told = settings.options if options is None else options
    terms = terms_of(settings)
    return StreamAudit(NAME, timeline, terms, terms, PARTITION, guarantee, columns, (told, told), names=names)


def _found(topic: str, items: list[Item]) -> Iterator[tuple[FoundRecord, bool]]:
    for offset, item in enumerate(items):
        place = (topic, item.partition)
        yield FoundRecord.read(place, offset, item.key, item.value, item.committed), item.newer


def other_draw(item: Item, **changes: Any) -> Item:
    """A record of the same timestamp with other noise."""
    other = replace(item, **changes)
    other.edit(counts={"a": -1, "b": -1})
    return other


def entry_of(record: Item, **changes: Any) -> Item:
    assert record.value is not None
    return Item(ledger_entry(record.value, INSTANCE), partition=PARTITION, **changes)


def named(report: Report) -> Names:
    return {(finding.invariant, finding.timestamp) for finding in report.findings}
