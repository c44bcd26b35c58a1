"""All that a sample says about one stream of a topology."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eventveil.counting.remedies import FOUND_COLUMNS, REMEDIES, remedy
from eventveil.decoding.rules import NO_COLUMN, Reason
from eventveil.doctor.filters import HARDLY, never_there, passing
from eventveil.doctor.framing import Framing, framing
from eventveil.doctor.judging import Verdicts, judge, judge_behind_users, judge_values, unlisted
from eventveil.doctor.keys import Keys, keys_of
from eventveil.doctor.people import comes_again, that_come_again
from eventveil.doctor.pointers import AbsentField, FoundField, absent, epochs, event_ids, fields_of
from eventveil.doctor.sample import SampledRecord, SourceSample
from eventveil.doctor.times import about_time
from eventveil.model.fields import listed
from eventveil.model.topology import AnyStream, ReadingStream, Stream, TimeUnit

#: A stream that loses this share of its events, or more, is to be looked at.
MUCH = 0.1
#: How the detail of a number with decimals ends, and that of a null.
DECIMALS, NULL = ", not float", ", not NoneType"
#: What a user, a column or a time never is, whatever type the file gives it, and what to do about it.
NO_VALUE: Mapping[str, str] = {
    NULL: "it is null: send a value there, or correct the pointer",
    ", not dict": "it is an object: point to a value inside it",
    ", not list": "it is an array: point to one of its elements",
}
#: Which setting points to each field that a detail names.
_POINTERS: Mapping[str, str] = {"user": "source.user", "column": "source.column", "time": "source.time"}
#: How far a record gets that is refused for a reason: the order in which it is judged.
_STAGES: Mapping[Reason, int] = {
    Reason.TOMBSTONE: 0,
    Reason.TOO_LARGE: 0,
    Reason.NOT_JSON: 0,
    Reason.UNKNOWN_SCHEMA: 0,
    Reason.NOT_OF_SCHEMA: 0,
    Reason.NO_APPEND_TIME: 0,
    Reason.UNKNOWN_COLUMN: 2,
    Reason.TIME_UNREADABLE: 3,
    Reason.WRONG_PARTITION: 4,
}
_FURTHEST = 6
#: How details begin of records whose user cannot be read.
_NO_USER = ("no user at ", "the user at ")
#: Fewer records with a user say little of whether users come again.
_MANY_RECORDS = 100


@dataclass(frozen=True)
class Diagnosis(ABC):
    """A stream of any kind and the sample of its source, by wall clock time ``now`` (epoch ms)."""

    stream: AnyStream
    sample: SourceSample
    now: int

    @cached_property
    @abstractmethod
    def verdicts(self) -> Verdicts:
        """What becomes of the records as file and topic are."""

    @property
    def stamped(self) -> Verdicts:
        """The same, had the topic stamped them with their own times."""
        return self.verdicts

    @cached_property
    def framing(self) -> Framing:
        """In which format the values are."""
        return framing(self.sample)

    @property
    def passing(self) -> Sequence[SampledRecord]:
        """The records that the file asks for."""
        return self.sample.records

    @cached_property
    def fields(self) -> list[FoundField]:
        """What fields most of the records have that the file asks for."""
        return fields_of(self.passing, self.stream.source, self.sample.schemas)

    def absent(self, setting: str) -> list[AbsentField]:
        """The fields of a setting, such as ``source.user``, that no record has that the file asks for."""
        source = self.stream.source
        asked = listed(getattr(source, setting.removeprefix("source.")))
        return absent(asked, self.passing, source, self.sample.schemas)

    @property
    def loses_much(self) -> bool:
        """Whether too many of the events that the file does not leave out would not count."""
        return self.verdicts.lost >= MUCH * max(1, self.verdicts.asked)

    @property
    def is_well(self) -> bool:
        """Whether the file leaves out and loses no more than it seems to mean."""
        return not self.loses_much


@dataclass(frozen=True)
class ValuesDiagnosis(Diagnosis):
    """That of a stream of values."""

    stream: ReadingStream

    @cached_property
    def verdicts(self) -> Verdicts:
        """See ``Diagnosis``."""
        return judge_values(self.stream, self.sample)


@dataclass(frozen=True)
class CountsDiagnosis(Diagnosis):
    """That of a stream that counts: what may be wrong with filter, user, column and time."""

    stream: Stream

    @cached_property
    def verdicts(self) -> Verdicts:
        """See ``Diagnosis``."""
        return judge(self.stream, self.sample, self.now)

    @cached_property
    def stamped(self) -> Verdicts:
        """See ``Diagnosis``."""
        return judge(self.stream, self.sample, self.now, stamped=True)

    @property
    def hardly_has_users(self) -> bool:
        """Whether hardly any record has a user that can be read, so that it is not judged any further."""
        told = [pair for details in self.stamped.details.values() for pair in details.items()]
        wrong = sum(number for detail, number in told if detail.startswith(_NO_USER))
        return (
            self.stream.source.keyed_by == "user" and wrong > 0 and wrong >= (1 - MUCH) * self.stamped.asked
        )

    @cached_property
    def behind_users(self) -> Verdicts:
        """What would happen to the records if stamps and users were as they should be."""
        return judge_behind_users(self.stream, self.sample, self.now)

    @cached_property
    def framing(self) -> Framing:
        """See ``Diagnosis``."""
        return framing(self.sample, self.stream.source.filter)

    @cached_property
    def passing(self) -> Sequence[SampledRecord]:
        """The records that pass the filter; where none does, all of them, which show what is there."""
        records = self.sample.records
        return passing(records, self.stream.source, self.sample) or records

    @property
    def asked(self) -> SourceSample:
        """The sample with these records alone.

        Of events that the filter leaves out nobody is protected: an id may come again in these alone.
        """
        return replace(self.sample, records=self.passing)

    @cached_property
    def keys(self) -> Keys | None:
        """How the records got to their partitions; None of files."""
        return keys_of(self.stream, self.sample)

    @cached_property
    def epochs(self) -> list[tuple[str, TimeUnit]]:
        """See ``epochs``."""
        return epochs(self.passing, self.stream.source, self.sample.schemas)

    @cached_property
    def unlisted(self) -> Counter[str]:
        """The values of the column field that are not listed."""
        return unlisted(self.stream, self.sample, self.now)

    @cached_property
    def user_is_an_event(self) -> bool:
        """Whether the user is the id of an event, so that each event would be a user of its own."""
        return self.stream.source.user in event_ids(self.fields)

    @cached_property
    def users_hardly_come_again(self) -> bool:
        """Whether most users of the sample are there once, as ids of events are."""
        if self.stream.source.keyed_by != "user" or self.keys is None:
            return False
        source = self.stream.source
        return self.keys.readable >= _MANY_RECORDS and not comes_again(self.asked, source, source.user)

    @cached_property
    def other_users(self) -> list[str]:
        """Fields beside the user that most records have, and whose values come again as those of users do."""
        source, ids = self.stream.source, event_ids(self.fields)
        known = {*listed(source.user), *listed(source.column), *listed(source.time), *ids}
        named = [one.pointer for one in self.fields if one.kind != "time" and one.pointer not in known]
        return that_come_again(self.asked, source, named)

    @cached_property
    def never_there(self) -> Mapping[str, Sequence[str]]:
        """See ``filters.never_there``; nothing where there are few records."""
        if len(self.passing) < _MANY_RECORDS:
            return {}
        return never_there(self.passing, self.stream.source, self.sample)

    @property
    def never_the_first(self) -> bool:
        """Whether a field of a list is never there. One that a filter asks about may be rare."""
        source = self.stream.source
        first = {*listed(source.user), *listed(source.time)}
        return any(field in first for field in self.never_there)

    @property
    def hardly_told_apart(self) -> bool:
        """Whether nearly all events count in the column of those that are not listed."""
        if self.stream.counts.unknown_column is None:
            return False
        counting, unlisted = self.stamped.counting, sum(self.unlisted.values())
        # Of events that do not count for another reason nothing is said.
        return 0 < unlisted <= counting and counting - unlisted < HARDLY * counting

    @property
    def progress(self) -> tuple[int, int]:
        """How far the records get, judged with append times and as they are; more is better.

        What is wrong first hides what else is wrong, so those that count do not say it all.
        """
        return _progress(self.stamped), _progress(self.verdicts)

    @property
    def hardly_passes(self) -> bool:
        """Whether the filter leaves nearly all events out."""
        judged, filtered = self.stamped.judged, self.stamped.outcomes["filtered"]
        return filtered > 0 and judged - filtered < HARDLY * judged

    @property
    def hardly_listed(self) -> bool:
        """Whether ``unknown: ignore`` leaves nearly all events out that pass the filter."""
        verdicts = self.stamped
        ignored = verdicts.outcomes["ignored"]
        return ignored > 0 and verdicts.asked < HARDLY * (verdicts.asked + ignored)

    @property
    def is_well(self) -> bool:
        """See ``Diagnosis``."""
        return super().is_well and not (
            self.hardly_passes
            or self.hardly_listed
            or self.hardly_told_apart
            or self.user_is_an_event
            or self.never_the_first
        )


def _progress(verdicts: Verdicts) -> int:
    counted = _FURTHEST * (verdicts.judged - verdicts.lost)
    return counted + sum(
        number * _stage(reason, detail)
        for reason, details in verdicts.details.items()
        for detail, number in details.items()
    )


def _stage(reason: str, detail: str) -> int:
    for stage, field in enumerate(_POINTERS, 1):
        if f"{field} at" in detail:
            return stage
    return _STAGES.get(Reason(reason), _FURTHEST - 1)


def remedy_of(reason: str, detail: str, stream: Stream | None = None) -> str:
    """What to do about records that are refused for a reason with that detail, by ``stream`` if it counts."""
    if reason == Reason.WRONG_TYPE and "time at" in detail and detail.endswith(DECIMALS):
        return "give time_unit: s if these are epoch seconds; only seconds may have decimals"
    if _lacks_value(reason, detail):
        return "point to the number that is the value, or correct the producer"
    if is_no_value(reason, detail):
        return next(remedy for end, remedy in NO_VALUE.items() if detail.endswith(end))
    if stream is not None and (found := about_time(reason, detail, stream)) is not None:
        return found.text
    text = remedy(Reason(reason), stream).text
    if reason == Reason.WRONG_TYPE and detail.startswith("the user at "):
        text += "; user_type: either takes integers and texts, 7 and the text 7 as one user"
    if reason == Reason.MISSING_FIELD and detail.startswith("no column at "):
        text += ", or leave out by source.filter the kinds of events that have no column"
    return text


def _lacks_value(reason: str, detail: str) -> bool:
    """Whether an event of a stream of values has no number where its value should be."""
    return reason in (Reason.MISSING_FIELD, Reason.WRONG_TYPE) and detail.startswith("the value at ")


def is_absent(reason: str, detail: str) -> bool:
    """Whether a record has nothing at a field, or null."""
    null = reason == Reason.WRONG_TYPE and detail.endswith(NULL)
    return null or reason == Reason.MISSING_FIELD


def is_no_value(reason: str, detail: str) -> bool:
    """Whether a pointer leads to null, or to an object or array around values."""
    return reason == Reason.WRONG_TYPE and detail.endswith((*NO_VALUE,))


def setting_of(reason: str, detail: str, stream: Stream | None = None) -> str:
    """The setting, such as ``source.partitioner``, that a reason with that detail is likely due to.

    ``stream`` is the one that refuses, if it has a timeline.
    """
    if stream is not None and (found := about_time(reason, detail, stream)) is not None:
        return found.settings[0]
    if detail.startswith(NO_COLUMN):
        return FOUND_COLUMNS.settings[0]
    if _lacks_value(reason, detail):
        return "source.value"
    settings = REMEDIES[Reason(reason)].settings
    field = next((one for one in _POINTERS if f"{one} at" in detail), None)
    if field is None:
        return settings[0]
    if reason == Reason.WRONG_TYPE and field == "time":
        return "source.time_unit" if detail.endswith(DECIMALS) else "source.time"
    if is_no_value(reason, detail):
        return _POINTERS[field]
    if reason == Reason.WRONG_TYPE:
        return "source.user_type" if field == "user" else "counts.columns"
    return _POINTERS[field]
