"""Were the promises of a value stream kept? Pure; no code of the program.

The noise of the worker under test must be multiples of ``verifier.NOISE``, so that a reading shows the true
value, cut at the threshold of its partition, which nobody is told. A stream has no levels without noise.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.verifier import NOISE, Record


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """What the topology says of a value stream: values to ``maximum``, of which ``held`` get no reading."""

    stream: str
    partitions: int
    maximum: int
    held: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReadingLogs:
    """The topics of a value stream, each partition in the order of its offsets."""

    raw: Sequence[Record]
    sink: Sequence[Record]
    ledger: Sequence[Record]
    state_changelog: Sequence[Record]


@dataclass(slots=True)
class ReadingReport:
    """How many values and readings there were, and every violation in words."""

    produced: int
    readings: int
    aborted: int
    violations: list[str] = field(default_factory=list)


def true_value(value: bytes | None, rules: ReadingRules) -> int:
    """The value of an event; 0 if it cannot be read."""
    if value is None or len(value) > rules.max_bytes:
        return 0
    try:
        found = json.loads(value)["value"]
    except (ValueError, TypeError, KeyError):
        return 0
    if isinstance(found, bool) or not isinstance(found, int):
        return 0
    return max(0, min(rules.maximum, found))


def verify_readings(rules: ReadingRules, logs: ReadingLogs) -> ReadingReport:
    """Hold the records against every promise."""
    key = rules.stream.encode()
    raw = [record for record in logs.raw if record.committed]
    sink = [record for record in logs.sink if record.key == key]
    shown = [record for record in sink if record.committed]
    found: list[str] = []
    for partition in range(rules.partitions):
        values = [record for record in raw if record.partition == partition]
        readings = [json.loads(one.value or b"") for one in shown if one.partition == partition]
        found += _check_places(partition, values, readings)
        found += _check_truth(rules, partition, values, readings)
        found += _check_spans(rules, partition, len(readings), logs.ledger)
    found += _check_one_draw(sink)
    found += _check_decided(key, sink, logs.state_changelog)
    violations = [f"{rules.stream}: {violation}" for violation in found]
    return ReadingReport(len(raw), len(shown), len(sink) - len(shown), violations)


def _check_places(
    partition: int, values: Sequence[Record], readings: Sequence[Mapping[str, Any]]
) -> Iterable[str]:
    """A reading per value, in order."""
    positions = [reading["position"] for reading in readings]
    if positions != list(range(len(values))):
        odd = next((at for at, one in enumerate(positions) if at != one), len(positions))
        yield f"partition {partition}: {len(values)} values have readings that are odd from the {odd}th on"
    for reading, value in zip(readings, values, strict=False):
        if reading["offset"] != value.offset or reading["partition"] != partition:
            place = reading["position"]
            yield f"partition {partition}: the reading at {place} is not of offset {value.offset}"


def _check_truth(
    rules: ReadingRules, partition: int, values: Sequence[Record], readings: Sequence[Mapping[str, Any]]
) -> Iterable[str]:
    """The first ones are held back; the others show the values, cut at one threshold."""
    shown = [reading["reading"] for reading in readings]
    if any(one is not None for one in shown[: rules.held]) or None in shown[rules.held :]:
        yield f"partition {partition}: others than the first {rules.held} values are held back"
        return
    true = [true_value(record.value, rules) for record in values]
    pairs = [
        (one % NOISE, value) for one, value in zip(shown[rules.held :], true[rules.held :], strict=False)
    ]
    threshold = max((one for one, _ in pairs), default=0)
    for place, (one, value) in enumerate(pairs, rules.held):
        if one != min(value, threshold):
            yield f"partition {partition}: the reading at {place} shows {one}, not {value} cut at {threshold}"


def _check_spans(
    rules: ReadingRules, partition: int, readings: int, ledger: Sequence[Record]
) -> Iterable[str]:
    """Each position is charged once, in spans that follow each other, at most epsilon."""
    entries = [json.loads(one.value or b"") for one in ledger if one.committed]
    own = [one for one in entries if one["stream"] == rules.stream and one["partition"] == partition]
    end = 0
    for entry in own:
        if entry["start"] != end or entry["stop"] <= entry["start"]:
            yield f"partition {partition}: a span from {entry['start']} is charged after one up to {end}"
        if not 0 < entry["spent"] <= entry["units"]:
            yield f"partition {partition}: the span from {entry['start']} costs {entry['spent']}"
        end = max(end, entry["stop"])
    # The threshold's span is charged once all of its values are there.
    if readings > end and readings >= rules.held:
        yield f"partition {partition}: {readings} readings are public and {end} positions charged"


def _check_one_draw(sink: Iterable[Record]) -> Iterable[str]:
    """Nobody sees two draws of a reading, not even in records of aborted transactions."""
    draws: defaultdict[tuple[int, int], set[bytes | None]] = defaultdict(set)
    for record in sink:
        draws[record.partition, json.loads(record.value or b"")["position"]].add(record.value)
    for place, values in draws.items():
        if len(values) > 1:
            yield f"position {place} shows {len(values)} draws"


def _check_decided(key: bytes, sink: Iterable[Record], changelog: Iterable[Record]) -> Iterable[str]:
    """What anybody could see had been decided, once, in a transaction committed before."""
    decided: dict[tuple[int, int], tuple[int, int | None]] = {}
    for record in changelog:
        if not record.committed or record.key != key:
            continue
        state = json.loads(record.value or b"")
        pending = state["pending"]
        readings = list(zip(pending["offsets"], pending["readings"], strict=True))
        for position, one in enumerate(readings, state["position"] - len(readings)):
            place = state["partition"], position
            if decided.setdefault(place, one) != one:
                yield f"position {place} was decided twice"
    for record in sink:
        fields = json.loads(record.value or b"")
        place = fields["partition"], fields["position"]
        if decided.get(place) != (fields["offset"], fields["reading"]):
            yield f"position {place} shows a reading that was never decided"
