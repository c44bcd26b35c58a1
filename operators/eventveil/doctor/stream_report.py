"""What is said of a stream of any kind: how many events would count, and why the others would not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eventveil.decoding.details import shown_detail
from eventveil.describe.guarantee import count
from eventveil.doctor.diagnosis import Diagnosis, is_absent, is_no_value, remedy_of, setting_of
from eventveil.doctor.editing import Edits
from eventveil.doctor.framing import REASONS
from eventveil.doctor.judging import Example, Verdicts
from eventveil.doctor.pointers import FoundField
from eventveil.doctor.wording import plain, share, shown_value
from eventveil.model import fields
from eventveil.model.topology import Stream, Topology

_FIELDS_SHOWN = 20


@dataclass(frozen=True)
class StreamReport:
    """A diagnosis in words, and one as proposed; the topology and its ``text`` say where settings stand."""

    seen: Diagnosis
    after: Diagnosis
    topology: Topology
    text: str

    def lines(self) -> Iterator[str]:
        """For people."""
        yield self._total()
        yield from self._reasons(self.seen.verdicts.reasons, self.seen.verdicts)

    def _total(self) -> str:
        verdicts = self.seen.verdicts
        counting, judged = verdicts.counting, verdicts.judged
        told = f"{counting} of {judged} events would count{share(counting, judged)}"
        return f"Stream {self.seen.stream.name}: {', '.join([told, *not_counting(verdicts)])}"

    @property
    def _timed(self) -> Stream | None:
        """The stream, if it has a timeline."""
        return None

    def _reasons(self, reasons: Mapping[str, int], verdicts: Verdicts) -> Iterator[str]:
        for reason, number in reasons.items():
            yield from self._reason(reason, number, verdicts.examples(reason)[0])

    def _reason(self, reason: str, number: int, example: Example) -> Iterator[str]:
        seen, detail = self.seen, example.detail
        setting = setting_of(reason, detail, self._timed)
        yield f"  {number} {reason}: {plain(shown_detail(reason, detail))}"
        yield f"    for example {self._where(example)}: {self._example(example)}"
        yield f"    {self._place(*setting.split('.'))}: {setting}: {self._remedy(reason, detail)}"
        if seen.fields and (is_absent(reason, detail) or is_no_value(reason, detail)):
            shown = ", ".join(f"{plain(one.pointer)} ({one.kind})" for one in _shown_fields(seen.fields))
            yield f"    most records have: {shown}"
        for name, number, readable in self._meant(reason, detail):
            there = f"{number} of {count(readable, 'record')} of the sample"
            yield f"    Did you mean {plain(name)}? It is in {there}"

    def _meant(self, reason: str, detail: str) -> Iterator[tuple[str, int, int]]:
        """Fields like one that no record has, where no change of it is proposed: in how many, of how many."""
        if not is_absent(reason, detail):
            return
        setting = setting_of(reason, detail, self._timed)
        kept = fields.listed(getattr(self.after.stream.source, setting.removeprefix("source.")))
        for one in self.seen.absent(setting):
            if one.field in kept:
                yield from ((*pair, one.readable) for pair in one.similar)

    def _where(self, example: Example) -> str:
        if self.seen.sample.is_file:
            return f"event {example.offset + 1} of the file"
        return f"partition {example.partition}, offset {example.offset}"

    def _example(self, example: Example) -> str:
        return shown_value(example.value)

    def _remedy(self, reason: str, detail: str) -> str:
        return self._of_format(reason) or remedy_of(reason, detail, self._timed)

    def _of_format(self, reason: str) -> str | None:
        """What to do about values in another format than the stated one; None if that is not it."""
        if reason not in REASONS:
            return None
        return self.seen.framing.remedy(self.seen.stream.source.format, self.topology.registry is not None)

    def _place(self, *path: str) -> str:
        """Where a setting of the stream stands."""
        return Edits(self.text).place(self.topology.path, ("streams", self.seen.stream.name, *path))

    def fields(self) -> dict[str, Any]:
        """For programs. Empty is what not every kind of stream has."""
        stream, verdicts = self.seen.stream, self.seen.verdicts
        return {
            "stream": stream.name,
            "source": stream.source.topic_of_events,
            "events": verdicts.judged,
            "would_count": verdicts.counting,
            "left_out_by_filter": verdicts.outcomes["filtered"],
            "in_ignored_columns": verdicts.outcomes["ignored"],
            "would_not_count": verdicts.lost,
            "expected": None,
            "would_count_as_proposed": self.after.stamped.counting,
            "left_out_nearly_all": [],
            "outcomes": dict(verdicts.outcomes.most_common()),
            "reasons": self._reasons_fields(verdicts.reasons, verdicts),
            "hidden": [],
            "keys": None,
            "doubts": [],
            "unlisted": [],
        }

    def _reasons_fields(self, reasons: Mapping[str, int], verdicts: Verdicts) -> list[dict[str, Any]]:
        return [self._reason_fields(*one, verdicts.examples(one[0])) for one in reasons.items()]

    def _reason_fields(self, reason: str, number: int, examples: Sequence[Example]) -> dict[str, Any]:
        detail = examples[0].detail
        setting = setting_of(reason, detail, self._timed)
        return {
            "reason": reason,
            "events": number,
            "setting": setting,
            "place": self._place(*setting.split(".")),
            "remedy": self._remedy(reason, detail),
            "similar": [[name, number] for name, number, _ in self._meant(reason, detail)],
            "examples": [self._example_fields(one) for one in examples],
        }

    def _example_fields(self, example: Example) -> dict[str, Any]:
        return {
            "partition": example.partition,
            "offset": example.offset,
            "detail": example.detail,
            "value": shown_value(example.value),
        }


def _shown_fields(found: Sequence[FoundField]) -> list[FoundField]:
    """The first ones in values, and the first ones around them."""
    inside = [one for one in found if not fields.in_envelope(one.pointer)]
    around = [one for one in found if fields.in_envelope(one.pointer)]
    return inside[:_FIELDS_SHOWN] + around[:_FIELDS_SHOWN]


def not_counting(verdicts: Verdicts) -> list[str]:
    """How many would not count; with those that would, these are all."""
    numbers = (
        (verdicts.outcomes["filtered"], "are left out by the filter"),
        (verdicts.outcomes["ignored"], "have a column that `unknown: ignore` leaves out"),
        (verdicts.lost, "would not count"),
    )
    return [f"{number} {words}" for number, words in numbers if number]
