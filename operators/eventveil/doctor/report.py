"""What the doctor has seen, as lines for people and as JSON: both are raw data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eventveil.counting.written import WORDS, Written, explained
from eventveil.decoding.rules import Reason
from eventveil.doctor.diagnosis import NULL, Diagnosis, in_json, is_no_value, remedy_of, setting_of
from eventveil.doctor.editing import Edits
from eventveil.doctor.filters import blocking
from eventveil.doctor.framing import REASONS
from eventveil.doctor.judging import Example, Verdicts
from eventveil.doctor.keys import Keys
from eventveil.doctor.pointers import FoundField
from eventveil.doctor.proposal import UNWATCHED, Proposal, doubtful_user, is_unwatched, suggested_maps
from eventveil.doctor.sample import SourceSample
from eventveil.kinds.registry import kind_of
from eventveil.model import fields
from eventveil.model.topology import AnyStream, Stream, Topology
from eventveil.topology.scalars import duration_text

_SHOWN, _FIELDS_SHOWN, _LONGEST, _END = 10, 20, 200, 60
_COLUMNS_ARE_PUBLIC = "raw data: list a column only if it is known publicly"


@dataclass(frozen=True)
class DoctorReport:
    """A topology and its ``text``, samples by source, diagnoses by stream before and after the proposal."""

    topology: Topology
    text: str
    samples: Mapping[str, SourceSample]
    before: Mapping[str, Diagnosis]
    after: Mapping[str, Diagnosis]
    proposal: Proposal

    @property
    def is_well(self) -> bool:
        """Whether nothing is to be changed: few events are lost, and a worker would accept the topics."""
        refused = any(sample.mistakes for sample in self.samples.values())
        return not refused and all(one.is_well for one in self.before.values())

    def lines(self) -> Iterator[str]:
        """For people."""
        for sample in self.samples.values():
            yield from self._source(sample)
        for diagnosis in self.before.values():
            yield ""
            yield from self._stream(diagnosis)
        yield ""
        yield from self._changes()

    def _source(self, sample: SourceSample) -> Iterator[str]:
        places = "" if sample.is_file else f", {_number(sample.partitions, 'partition')}"
        held = _number(sample.held, "record")
        yield f"{sample.source}: read the newest {len(sample.records)} of {held}{places}"
        if not sample.is_file:
            yield f"  times: {times_of(sample)}; retention: {retention_of(sample)}"
        if not sample.records:
            yield "  there is no record, so nothing can be said of events: send some, and run this again"
        yield from (f"  {one}" for one in (*sample.mistakes, *sample.notes))

    def _stream(self, seen: Diagnosis) -> Iterator[str]:
        verdicts, name = seen.verdicts, seen.stream.name
        judged, counting = verdicts.judged, verdicts.counting
        others = [f"{number} {words}" for number, words in _not_counting(verdicts) if number]
        told = ", ".join([f"{counting} of {judged} events would count{_share(counting, judged)}", *others])
        yield f"Stream {name}: {told}"
        if bounded := verdicts.outcomes["bounded"]:
            beyond = "are beyond the contributions of their user, which the bound leaves out"
            yield f"  of the {counting}, {bounded} {beyond}"
        if is_unwatched(seen.stream):
            at = self._place(name, "counts.expected")
            yield f"  {at}: counts.expected is not set, {UNWATCHED}"
        for problem in self._left_out(seen):
            yield f"  {problem['what']}"
            yield f"    {problem['place']}: {_printable(problem['setting'])}: {_printable(problem['remedy'])}"
        for reason, number in verdicts.reasons.items():
            yield from self._reason(seen, reason, number, verdicts)
        if hidden := _hidden(seen):
            yield "  other problems, if the broker had stamped the records:"
            for reason, number in hidden.items():
                yield from self._reason(seen, reason, number, seen.stamped)
        if seen.keys is not None:
            yield from _keys(seen.keys, seen.stream)
        yield from self._doubts(seen)
        if unlisted := seen.unlisted:
            shown = ", ".join(f"{_plain(one)} ({number})" for one, number in unlisted.most_common(_SHOWN))
            values = _number(len(unlisted), "value")
            yield f"  not listed: {values} of the column field ({_COLUMNS_ARE_PUBLIC})"
            yield f"    {shown}"
            if isinstance(seen.stream, Stream) and (maps := suggested_maps(seen.stream, unlisted)):
                yield f"    some are paths to listed columns; to count them there: source.maps: {maps}"

    def _doubts(self, seen: Diagnosis) -> Iterator[str]:
        """Whether what is called a user may be none: then epsilon would protect single events."""
        at = self._place(seen.stream.name, "source.user")
        if seen.user_is_an_event:
            what = "it is the id of a CloudEvent: epsilon would protect events, not persons"
            yield f"  {at}: source.user: {what}"
        elif seen.users_hardly_come_again:
            yield (
                f"  {at}: source.user: most users occur once here, as event ids do. With such an id"
                f" epsilon would protect events, not persons: {_more_records(seen.sample)}make sure that the"
                " field names people"
            )

        for field, similar in seen.never_there.items():
            yield from self._never_there(seen, field, similar)

    def _never_there(self, seen: Diagnosis, field: str, similar: Sequence[str]) -> Iterator[str]:
        assert isinstance(seen.stream, Stream)
        source = seen.stream.source
        lists = [one for one in ("user", "time") if field in fields.listed(getattr(source, one))]
        what, then = "so another field always stands in for it", " or leave it out"
        if not lists:
            what, then = "so no event is left out by it here", ", unless it is rare"
        path = ("source", *(lists[:1] or ("filter", field)))
        at = Edits(self.text).position(("streams", seen.stream.name, *path))
        like = f"; similar ones that are there: {', '.join(map(_plain, similar))}" if similar else ""
        place = f"{self.topology.path}:{at.line}:{at.column}: {_plain('.'.join(path))}"
        none = f"{_plain(field)} is in none of {_number(len(seen.passing), 'record')}"
        yield f"  {place}: {none}, {what}{like}. Correct it{then}"

    def _left_out(self, seen: Diagnosis) -> list[dict[str, str]]:
        """Which settings leave out nearly all events, or mix them up: what, setting, place and remedy."""
        stream, found = seen.stream, []
        if not isinstance(stream, Stream):
            return []
        if seen.hardly_passes:
            what = "hardly any event passes the filter, so there is nothing to count"
            for one in blocking(seen.sample, stream.source):
                path = ("source", "filter", one.condition.field)
                found.append(self._problem(stream.name, what, path, one.told()))
        if seen.hardly_listed:
            what = "hardly any event has a listed column, and `unknown: ignore` leaves out the others"
            column = fields.in_words(stream.source.column, "and")
            remedy = f"list what {column} holds, as far as it is known publicly, or correct source.column"
            found.append(self._problem(stream.name, what, ("counts", "columns"), remedy))
        if seen.hardly_told_apart:
            other = stream.counts.labels[stream.counts.unknown_column or 0]
            what = f"nearly every event counts as {_plain(str(other))}, for its column is not listed"
            column = fields.in_words(stream.source.column, "and")
            remedy = f"list what {column} holds, as far as it is known publicly, or map it (source.maps)"
            found.append(self._problem(stream.name, what, ("counts", "columns"), remedy))
        return found

    def _problem(self, stream: str, what: str, path: tuple[str, ...], remedy: str) -> dict[str, str]:
        at = Edits(self.text).position(("streams", stream, *path))
        place = f"{self.topology.path}:{at.line}:{at.column}"
        return {"what": what, "setting": ".".join(path), "place": place, "remedy": remedy}

    def _reason(self, seen: Diagnosis, reason: str, number: int, verdicts: Verdicts) -> Iterator[str]:
        example = verdicts.examples(reason)[0]
        setting = setting_of(reason, example.detail)
        yield f"  {number} {reason}: {_plain(in_json(reason, example.detail))}"
        key = f"key {shown_value(example.key)}, " if _reads_keys(seen.stream) else ""
        yield f"    for example {_where(seen.sample, example)}: {key}{shown_value(example.value)}"
        remedy = self._remedy(seen, reason, example.detail)
        yield f"    {self._place(seen.stream.name, setting)}: {setting}: {remedy}"
        if seen.fields and (_is_absent(reason, example.detail) or is_no_value(reason, example.detail)):
            shown = ", ".join(f"{_plain(one.pointer)} ({one.kind})" for one in _shown_fields(seen.fields))
            yield f"    most records have: {shown}"
        if example.detail.startswith("no user at ") and (doubtful := doubtful_user(seen)):
            yield (
                f"    {_plain(doubtful)} may be meant, but here most of its values occur once, as event"
                f" ids do, so it is not proposed; {_more_records(seen.sample)}if it names people, set it"
            )

    def _remedy(self, seen: Diagnosis, reason: str, first: str) -> str:
        keys = seen.keys
        if reason == Reason.WRONG_PARTITION and keys is not None and isinstance(seen.stream, Stream):
            return explained(keys.users, seen.stream.source.partitioner)
        registry = self.topology.registry is not None
        of_format = seen.framing.remedy(seen.stream.source.format, registry) if reason in REASONS else None
        if of_format is not None:
            return of_format
        text = remedy_of(reason, first, seen.stream)
        if _is_absent(reason, first) and first.startswith(_WITH_SECOND):
            name = first.split()[1]
            several = ", ".join(fields.listed(getattr(seen.stream.source, name)))
            text += f"; if these records have it in another field, list both: {name}: [{several}, ...]"
        return text

    def _place(self, stream: str, setting: str) -> str:
        return self._at(("streams", stream, *setting.split(".")))

    def _at(self, path: Sequence[str]) -> str:
        at = Edits(self.text).position(path)
        return f"{self.topology.path}:{at.line}:{at.column}"

    def _changes(self) -> Iterator[str]:
        changes = self.proposal.changes
        if not changes:
            yield "No change of the file is proposed."
        else:
            yield "Proposed changes of the file"
        for one in changes:
            value = "leave it out" if one.value is None else one.value
            yield f"  {self._at(one.path)}: {one.setting}: {value}  ({_plain(one.why)})"
        yield from (f"  {one}" for one in self.proposal.beside)
        if changes or self.proposal.beside:
            for name, seen in self.after.items():
                verdicts = seen.stamped
                others = [f"{number} {words}" for number, words in _not_counting(verdicts) if number]
                counting = f"{verdicts.counting} of {verdicts.judged} events of {name} would count"
                yield f"  then {', '.join([counting, *others])}"

    def fields(self) -> dict[str, Any]:
        """For programs; see docs/doctor.md."""
        return {
            "topology": self.topology.path,
            "well": self.is_well,
            "sources": [_source_fields(sample) for sample in self.samples.values()],
            "streams": [self._stream_fields(seen) for seen in self.before.values()],
            "changes": [
                {"stream": one.stream, "setting": one.setting, "value": one.value, "why": one.why}
                | {"place": self._at(one.path)}
                for one in self.proposal.changes
            ],
            "beside": self.proposal.beside,
        }

    def _stream_fields(self, seen: Diagnosis) -> dict[str, Any]:
        verdicts, after = seen.verdicts, self.after[seen.stream.name].stamped
        return {
            "stream": seen.stream.name,
            "source": kind_of(seen.stream).source(seen.stream),
            "events": verdicts.judged,
            "would_count": verdicts.counting,
            "left_out_by_filter": verdicts.outcomes["filtered"],
            "in_ignored_columns": verdicts.outcomes["ignored"],
            "would_not_count": verdicts.lost,
            "expected": seen.stream.counts.expected if isinstance(seen.stream, Stream) else None,
            "would_count_as_proposed": after.counting,
            "left_out_nearly_all": self._left_out(seen),
            "outcomes": dict(verdicts.outcomes.most_common()),
            "reasons": [self._reason_fields(seen, *one, verdicts) for one in verdicts.reasons.items()],
            "hidden": [self._reason_fields(seen, *one, seen.stamped) for one in _hidden(seen).items()],
            "keys": None if seen.keys is None else _key_fields(seen.keys, seen.stream),
            "doubts": [one.strip() for one in self._doubts(seen)],
            "unlisted": [[value, number] for value, number in seen.unlisted.most_common(_SHOWN)],
        }

    def _reason_fields(self, seen: Diagnosis, reason: str, number: int, verdicts: Verdicts) -> dict[str, Any]:
        examples = verdicts.examples(reason)
        setting = setting_of(reason, examples[0].detail)
        return {
            "reason": reason,
            "events": number,
            "setting": setting,
            "place": self._place(seen.stream.name, setting),
            "remedy": self._remedy(seen, reason, examples[0].detail),
            "examples": [
                {
                    "partition": one.partition,
                    "offset": one.offset,
                    "detail": one.detail,
                    "value": shown_value(one.value),
                    **({"key": shown_value(one.key)} if _reads_keys(seen.stream) else {}),
                }
                for one in examples
            ],
        }


def _reads_keys(stream: AnyStream) -> bool:
    """Whether a key says who the user is, or else what an event is about."""
    return isinstance(stream, Stream) and fields.KEY in stream.source.looked_at


def _hidden(seen: Diagnosis) -> dict[str, int]:
    """What else is wrong with records that are reported as having no append time."""
    said = seen.verdicts.reasons
    behind = seen.stamped.reasons if Reason.NO_APPEND_TIME.value in said else {}
    return {reason: number for reason, number in behind.items() if reason not in said}


#: How details begin where a second field can be listed.
_WITH_SECOND = ("no user at ", "no time at ", "the user at ", "the time at ")


def _shown_fields(found: Sequence[FoundField]) -> list[FoundField]:
    """The first ones in values, and the first ones around them."""
    inside = [one for one in found if not fields.in_envelope(one.pointer)]
    around = [one for one in found if fields.in_envelope(one.pointer)]
    return inside[:_FIELDS_SHOWN] + around[:_FIELDS_SHOWN]


def _is_absent(reason: str, detail: str) -> bool:
    """Whether a record has nothing at a field, or null."""
    null = reason == Reason.WRONG_TYPE and detail.endswith(NULL)
    return null or reason == Reason.MISSING_FIELD


def _not_counting(verdicts: Verdicts) -> Iterator[tuple[int, str]]:
    """With those that would count, these are all."""
    yield verdicts.outcomes["filtered"], "are left out by the filter"
    yield verdicts.outcomes["ignored"], "have a column that `unknown: ignore` leaves out"
    yield verdicts.lost, "would not count"


def times_of(sample: SourceSample) -> str:
    """Whose times the records have."""
    appended = sum(one.appended for one in sample.records)
    stated = None if sample.settings is None else sample.settings.get("message.timestamp.type")
    found = f"{appended} of {_number(len(sample.records), 'record')} stamped by the broker"
    return found if stated is None else f"{stated} ({found})"


def retention_of(sample: SourceSample) -> str:
    """How long the topic keeps records, as far as that is known."""
    text = (sample.settings or {}).get("retention.ms")
    if text is None:
        return "not known"
    return "without end" if int(text) < 0 else duration_text(int(text))


def _keys(keys: Keys, stream: Any) -> Iterator[str]:
    users = keys.users
    what = "user" if stream.source.count is None else "column"
    if not keys.readable:
        yield f"  keys: no record has a {what} that can be read"
        return
    yield (
        f"  keys: the {what} in {keys.equal} of {_number(keys.readable, 'record')};"
        f" written with {_name(keys.keys, stream)} ({_fits(keys.keys)})"
    )
    if keys.differing is not None:
        user, key = keys.differing
        yield f"    for example, {what} {shown_value(user)} has the key {shown_value(key)}"
    if keys.equal < keys.readable:
        yield f"    partitioner by which {what}s are placed: {_name(users, stream)} ({_fits(users)})"
    several = f"{users.scattered} of them{_share(users.scattered, users.keys)} in several partitions"
    yield f"  {what}s: {users.keys}, {several}"


def _name(found: Written, stream: Any) -> str:
    name = found.name(stream.source.partitioner)
    return f"{name}: {WORDS[name]}"


def _fits(found: Written) -> str:
    told = ", ".join(f"{name} {fit}" for name, fit in found.fits.items())
    return f"of {_number(found.keys, 'key')} in {_number(found.places, 'place')} it explains: {told}"


def _key_fields(keys: Keys, stream: Any) -> dict[str, Any]:
    return {
        "readable": keys.readable,
        "equal": keys.equal,
        "keys": _written_fields(keys.keys, stream),
        "users": _written_fields(keys.users, stream),
        "users_in_several_partitions": keys.users.scattered,
    }


def _written_fields(found: Written, stream: Any) -> dict[str, Any]:
    return {
        "partitioner": found.name(stream.source.partitioner),
        "distinct": found.keys,
        "places": found.places,
        "fits": dict(found.fits),
    }


def _source_fields(sample: SourceSample) -> dict[str, Any]:
    return {
        "source": sample.source,
        "partitions": None if sample.is_file else sample.partitions,
        "read": len(sample.records),
        "held": sample.held,
        "stamped_by_broker": None if sample.is_file else sum(one.appended for one in sample.records),
        "timestamp_type": (sample.settings or {}).get("message.timestamp.type"),
        "retention_ms": (sample.settings or {}).get("retention.ms"),
        "mistakes": [*sample.mistakes],
        "notes": [*sample.notes],
    }


def _where(sample: SourceSample, example: Example) -> str:
    if sample.is_file:
        return f"event {example.offset + 1} of the file"
    return f"partition {example.partition}, offset {example.offset}"


def _more_records(sample: SourceSample) -> str:
    """How to look at more, if there are more."""
    return (
        f"--records {10 * len(sample.records)} looks at more; " if sample.held > len(sample.records) else ""
    )


def shown_value(value: bytes | None) -> str:
    """Bytes of a record as text that a terminal can show: where it is long, the beginning and the end."""
    if not value:
        return "nothing" if value is None else "an empty value"
    if len(value) <= _LONGEST:
        return _printable(value.decode("utf-8", "backslashreplace"))
    first, last = (
        part.decode("utf-8", "backslashreplace") for part in (value[: _LONGEST - _END], value[-_END:])
    )
    return f"{_printable(first)} ... {_printable(last)}"


def _plain(text: str) -> str:
    """A text without characters that a terminal would obey, cut off."""
    return _printable(text[:_LONGEST] + ("..." if len(text) > _LONGEST else ""))


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _share(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.3g} %)" if whole else ""


def report_on(
    topology: Topology, text: str, samples: Mapping[str, SourceSample], proposal: Proposal, now: int
) -> DoctorReport:
    """Diagnose every stream as the file is and as the proposal has it."""

    def diagnosed(streams: Sequence[Any]) -> dict[str, Diagnosis]:
        return {one.name: Diagnosis(one, samples[kind_of(one).source(one)], now) for one in streams}

    after = diagnosed(proposal.topology.all_streams)
    return DoctorReport(topology, text, samples, diagnosed(topology.all_streams), after, proposal)
