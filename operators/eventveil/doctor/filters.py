"""What a filter leaves out, and which condition is at fault where hardly any record passes. Raw data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from eventveil.decoding.places import MISSING, Filter, compile_field
from eventveil.decoding.rules import Rejection, parse
from eventveil.doctor.pointers import absent, beside, similar
from eventveil.doctor.sample import SampledRecord, SourceSample
from eventveil.model import fields
from eventveil.model.topology import Condition, Source

#: Of the events that a stream asks for, or of all: a smaller share is hardly anything.
HARDLY = 0.01
_SHOWN, _LONGEST = 5, 60


@dataclass(frozen=True, slots=True)
class Blocking:
    """A condition that ``passing`` of ``readable`` records meet, by itself.

    ``there`` of them have something at its field. ``values`` are the commonest that they have, as JSON, with
    their numbers; ``similar`` are fields with a like name, if it is never there.
    """

    condition: Condition
    readable: int
    passing: int
    there: int
    values: Sequence[tuple[str, int]]
    similar: Sequence[str]

    def told(self) -> str:
        """What it is and what to change, in words."""
        field = self.condition.field
        number = f"{self.passing} of {self.readable} records that can be read meet it"
        if not self.there:
            like = f"; similar ones that are there: {', '.join(self.similar)}" if self.similar else ""
            return f"{number}: {field} is in none of them{like}. Correct the name of the field"
        seen = ", ".join(f"{value} ({count})" for value, count in self.values)
        return f"{number}; most common at {field}: {seen}. Correct the value, its type, or the field"


def passing(records: Sequence[SampledRecord], source: Source, sample: SourceSample) -> list[SampledRecord]:
    """The records that pass the filter, and those that cannot be read; all if there is no filter."""
    if not source.filter:
        return [*records]
    rules = Filter(source.filter)

    def passes(record: SampledRecord) -> bool:
        around = record.around
        if not rules.passes_around(around):
            return False
        document = _document(record, source, sample)
        return isinstance(document, Rejection) or rules.passes_inside(document, around)

    return [one for one in records if passes(one)]


def blocking(sample: SourceSample, source: Source) -> list[Blocking]:
    """The conditions that hardly any record meets by itself; all of them if there is none."""
    found = [_tried(sample, source, one) for one in source.filter]
    alone = [one for one in found if one.passing < HARDLY * max(1, one.readable)]
    return alone or found


def _tried(sample: SourceSample, source: Source, condition: Condition) -> Blocking:
    rules, find = Filter([condition]), compile_field(condition.field)
    known, readable, met = Counter[str](), 0, 0
    names: dict[str, None] = {}
    for record in sample.records:
        around = record.around
        document = None if fields.in_envelope(condition.field) else _document(record, source, sample)
        if isinstance(document, Rejection):
            continue
        readable += 1
        met += rules.passes_around(around) and rules.passes_inside(document, around)
        value = find(document, around)
        if value is not MISSING:
            known[_json(value)] += 1
        names |= dict.fromkeys(beside(condition.field, document, record))
    like = [] if known else similar(condition.field, [*names])
    return Blocking(condition, readable, met, known.total(), known.most_common(_SHOWN), like)


def never_there(
    records: Sequence[SampledRecord], source: Source, sample: SourceSample
) -> dict[str, list[str]]:
    """Fields that are in no record though none lacks them, with similar ones that are there.

    Those are one of several for the user or the time, in whose place another one of the list always stands,
    and those of a filter that asks for nothing there, or for another value. Empty if no record can be read.
    """
    asked = [one for several in (source.user, source.time) for one in _alternatives(several)]
    asked += [one.field for one in source.filter if one.test in ("absent", "not-in")]
    return {
        one.field: [name for name, _ in one.similar] for one in absent(asked, records, source, sample.schemas)
    }


def _alternatives(several: str) -> Sequence[str]:
    """The fields of a list that stand in for each other; of a single field nothing."""
    listed = fields.listed(several)
    return listed if len(listed) > 1 else ()


def _document(record: SampledRecord, source: Source, sample: SourceSample) -> Any:
    return parse(record.value, source.max_bytes, source.format, sample.schemas)


def _json(value: Any) -> str:
    """A value as JSON has it, so that 7 and "7" differ, cut off; bytes as Python has them."""
    text = orjson.dumps(value, default=repr).decode(errors="replace")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
