"""What more is said of a stream that counts: its filter, users, keys and columns, and what is hidden."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eventveil.advise.writing import scalar
from eventveil.counting.written import WORDS, Written, explained
from eventveil.decoding.rules import Reason
from eventveil.describe.guarantee import count
from eventveil.doctor.diagnosis import CountsDiagnosis, is_absent, remedy_of
from eventveil.doctor.filters import blocking
from eventveil.doctor.judging import Example, Verdicts
from eventveil.doctor.keys import Keys
from eventveil.doctor.pointers import event_ids
from eventveil.doctor.proposal import UNWATCHED, doubtful_user
from eventveil.doctor.stream_report import StreamReport
from eventveil.doctor.wording import plain, printable, share, shown_value
from eventveil.model import fields
from eventveil.model.topology import Stream

_SHOWN = 10
_COLUMNS_ARE_PUBLIC = "raw data: list a column only if it is known publicly"
#: How details begin where a second field can be listed.
_WITH_SECOND = ("no user at ", "no time at ", "the user at ", "the time at ")
#: The same where a record has no column.
_NO_COLUMN = ("no column at ", "the column at ")
#: This share of the values, by events, has to be paths before it is worth a word.
_MANY = 0.1


@dataclass(frozen=True)
class CountsReport(StreamReport):
    """See ``StreamReport``."""

    seen: CountsDiagnosis
    after: CountsDiagnosis

    def lines(self) -> Iterator[str]:
        """For people."""
        seen = self.seen
        yield self._total()
        yield from self._settings()
        yield from self._reasons(seen.verdicts.reasons, seen.verdicts)
        for known, reasons, verdicts in self._hidden():
            yield f"  other problems, if {known}:"
            yield from self._reasons(reasons, verdicts)
        if seen.keys is not None:
            yield from self._keys(seen.keys)
        yield from self._doubts()
        yield from self._unlisted()

    def fields(self) -> dict[str, Any]:
        """For programs; see ``StreamReport``."""
        seen = self.seen
        return super().fields() | {
            "expected": seen.stream.counts.expected,
            "left_out_nearly_all": self._left_out(),
            "hidden": [
                one
                for _, reasons, verdicts in self._hidden()
                for one in self._reasons_fields(reasons, verdicts)
            ],
            "keys": None if seen.keys is None else self._key_fields(seen.keys),
            "doubts": [one.strip() for one in self._doubts()],
            "unlisted": [[value, number] for value, number in seen.unlisted.most_common(_SHOWN)],
        }

    def _settings(self) -> Iterator[str]:
        """What the file leaves out, and what it does not say."""
        verdicts = self.seen.verdicts
        if bounded := verdicts.outcomes["bounded"]:
            beyond = "are beyond the contributions of their user, which the bound leaves out"
            yield f"  of the {verdicts.counting}, {bounded} {beyond}"
        if self.seen.stream.counts.expected is None:
            yield f"  {self._place('counts', 'expected')}: counts.expected is not set, {UNWATCHED}"
        for problem in self._left_out():
            yield f"  {problem['what']}"
            yield f"    {problem['place']}: {printable(problem['setting'])}: {printable(problem['remedy'])}"

    def _left_out(self) -> list[dict[str, str]]:
        """Which settings leave out nearly all events, or mix them up: what, setting, place and remedy."""
        seen, source, found = self.seen, self.seen.stream.source, []
        holds = f"list what {fields.in_words(source.column, 'and')} holds, as far as it is known publicly, or"
        if seen.hardly_passes:
            what = "hardly any event passes the filter, so there is nothing to count"
            for one in blocking(seen.sample, source):
                found.append(self._problem(what, ("source", "filter", one.condition.field), one.told()))
        if seen.hardly_listed:
            what = "hardly any event has a listed column, and `unknown: ignore` leaves out the others"
            found.append(self._problem(what, ("counts", "columns"), f"{holds} correct source.column"))
        if seen.hardly_told_apart:
            counts = seen.stream.counts
            other = plain(str(counts.labels[counts.unknown_column or 0]))
            what = f"nearly every event counts as {other}, because its column is not listed"
            found.append(self._problem(what, ("counts", "columns"), f"{holds} map it (source.maps)"))
        return found

    def _problem(self, what: str, path: Sequence[str], remedy: str) -> dict[str, str]:
        return {"what": what, "setting": ".".join(path), "place": self._place(*path), "remedy": remedy}

    def _hidden(self) -> Iterator[tuple[str, dict[str, int], Verdicts]]:
        """What else is wrong with records that are reported as having no append time, or no user."""
        seen, said = self.seen, self.seen.verdicts.reasons
        if Reason.NO_APPEND_TIME.value in said:
            behind = {reason: number for reason, number in seen.stamped.reasons.items() if reason not in said}
            if behind:
                yield "the broker had stamped the records", behind, seen.stamped
        if seen.hardly_has_users and self.after.hardly_has_users:
            # A field that is missing may be the user, which is said, or another one behind it.
            told, found = seen.stamped.details, seen.behind_users
            behind = {
                reason: number
                for reason, number in found.reasons.items()
                if found.examples(reason)[0].detail not in told.get(reason, {})
            }
            if behind:
                yield "the user of each record could be read", behind, found

    def _reason(self, reason: str, number: int, example: Example) -> Iterator[str]:
        yield from super()._reason(reason, number, example)
        if not example.detail.startswith("no user at "):
            return
        doubtful = doubtful_user(self.seen)
        if doubtful and doubtful not in fields.listed(self.seen.stream.source.user):
            yield (
                f"    {plain(doubtful)} may be meant, but here most of its values occur once, as event"
                f" ids do, so it is not proposed; {self._more_records}if it names people, set it"
            )

    def _meant(self, reason: str, detail: str) -> Iterator[tuple[str, int, int]]:
        """See ``StreamReport``: of a user neither the id of an event nor what is told as doubtful."""
        doubted = {*event_ids(self.seen.fields), doubtful_user(self.seen)} if "user at " in detail else set()
        yield from (one for one in super()._meant(reason, detail) if one[0] not in doubted)

    def _example(self, example: Example) -> str:
        key = f"key {shown_value(example.key)}, " if self._reads_keys else ""
        return key + super()._example(example)

    def _example_fields(self, example: Example) -> dict[str, Any]:
        key = {"key": shown_value(example.key)} if self._reads_keys else {}
        return super()._example_fields(example) | key

    @property
    def _reads_keys(self) -> bool:
        """Whether a key says who the user is, or else what an event is about."""
        return fields.KEY in self.seen.stream.source.looked_at

    @property
    def _timed(self) -> Stream:
        return self.seen.stream

    @property
    def _more_records(self) -> str:
        """How to look at more, if there are more."""
        read, held = len(self.seen.sample.records), self.seen.sample.held
        return f"--records {10 * read} looks at more; " if held > read else ""

    def _remedy(self, reason: str, detail: str) -> str:
        stream, keys = self.seen.stream, self.seen.keys
        if reason == Reason.WRONG_PARTITION and keys is not None:
            return explained(keys.users, stream.source.partitioner)
        if reason == Reason.NO_APPEND_TIME and self.seen.sample.stamps:
            return (
                "the topic stamps records by now, and these are from before: send others, and run this again"
            )
        text = self._of_format(reason) or remedy_of(reason, detail, stream)
        if is_absent(reason, detail) and detail.startswith(_WITH_SECOND):
            name = detail.split()[1]
            several = ", ".join(fields.listed(getattr(stream.source, name)))
            text += f"; if these records have it in another field, list both: {name}: [{several}, ...]"
        return text + self._left_out_by(reason, detail)

    def _left_out_by(self, reason: str, detail: str) -> str:
        """The filter that leaves out events without a column, where others have one."""
        column = next((detail.removeprefix(one) for one in _NO_COLUMN if detail.startswith(one)), None)
        if column is None or not is_absent(reason, detail):
            return ""
        pointer = next(
            (one for one in self._columns() if column == one or column.startswith(f"{one} ")), None
        )
        if pointer is None:
            return ""
        filters = f"`filter: {{{scalar(pointer, is_key=True)}: {{present: true}}}}`"
        return f": {filters}" if reason == Reason.MISSING_FIELD else f"; or leave these events out: {filters}"

    def _columns(self) -> list[str]:
        """The fields of the column that some record has."""
        lacking = {one.field for one in self.seen.absent("source.column")}
        return [one for one in fields.listed(self.seen.stream.source.column) if one not in lacking]

    def _keys(self, keys: Keys) -> Iterator[str]:
        users, what = keys.users, self.seen.stream.source.keyed_by
        if not keys.readable:
            yield f"  keys: no record has a {what} that can be read"
            return
        yield (
            f"  keys: the {what} in {keys.equal} of {count(keys.readable, 'record')};"
            f" written with {self._name(keys.keys)} ({_fits(keys.keys)})"
        )
        if keys.differing is not None:
            user, key = keys.differing
            yield f"    for example, {what} {shown_value(user)} has the key {shown_value(key)}"
        if keys.equal < keys.readable:
            yield f"    partitioner by which {what}s are placed: {self._name(users)} ({_fits(users)})"
        several = f"{users.scattered} of them{share(users.scattered, users.keys)} in several partitions"
        yield f"  {what}s: {users.keys}, {several}"

    def _name(self, found: Written) -> str:
        name = found.name(self.seen.stream.source.partitioner)
        return f"{name}: {WORDS[name]}"

    def _key_fields(self, keys: Keys) -> dict[str, Any]:
        return {
            "readable": keys.readable,
            "equal": keys.equal,
            "keys": self._written_fields(keys.keys),
            "users": self._written_fields(keys.users),
            "users_in_several_partitions": keys.users.scattered,
        }

    def _written_fields(self, found: Written) -> dict[str, Any]:
        return {
            "partitioner": found.name(self.seen.stream.source.partitioner),
            "distinct": found.keys,
            "places": found.places,
            "fits": dict(found.fits),
        }

    def _doubts(self) -> Iterator[str]:
        """Whether what is called a user may be none: then epsilon would protect single events."""
        seen, at = self.seen, self._place("source", "user")
        if seen.user_is_an_event:
            what = "it is the id of a CloudEvent: epsilon would protect events, not persons"
            yield f"  {at}: source.user: {what}"
        elif seen.users_hardly_come_again:
            yield (
                f"  {at}: source.user: most users occur once here, as event ids do. With such an id"
                f" epsilon would protect events, not persons: {self._more_records}make sure that the"
                f" field names people{self._other_users()}"
            )
        for field, similar in seen.never_there.items():
            yield self._never_there(field, similar)

    def _other_users(self) -> str:
        others = self.seen.other_users
        return f". Fields whose values come again: {', '.join(map(plain, others))}" if others else ""

    def _never_there(self, field: str, similar: Sequence[str]) -> str:
        source = self.seen.stream.source
        lists = [one for one in ("user", "time") if field in fields.listed(getattr(source, one))]
        what, then = "so another field always stands in for it", " or leave it out"
        if not lists:
            what, then = "so no event is left out by it here", ", unless it is rare"
        path = ("source", *(lists[:1] or ("filter", field)))
        like = f"; similar ones that are there: {', '.join(map(plain, similar))}" if similar else ""
        none = f"{plain(field)} is in none of {count(len(self.seen.passing), 'record')}"
        return f"  {self._place(*path)}: {plain('.'.join(path))}: {none}, {what}{like}. Correct it{then}"

    def _unlisted(self) -> Iterator[str]:
        if not (unlisted := self.seen.unlisted):
            return
        shown = ", ".join(f"{plain(one)} ({number})" for one, number in unlisted.most_common(_SHOWN))
        yield f"  not listed: {count(len(unlisted), 'value')} of the column field ({_COLUMNS_ARE_PUBLIC})"
        yield f"    {shown}"
        if maps := _suggested_maps(self.seen.stream, unlisted):
            yield f"    some are paths to listed columns; to count them there: source.maps: {maps}"


def _fits(found: Written) -> str:
    told = ", ".join(f"{name} {fit}" for name, fit in found.fits.items())
    return f"of {count(found.keys, 'key')} in {count(found.places, 'place')} it explains: {told}"


def _suggested_maps(stream: Stream, unlisted: Counter[str]) -> str:
    """``maps`` as YAML has it, by which paths such as ``/shoes/17`` count in the column ``shoes``; or empty.

    ``unlisted`` are texts in quotes with their numbers. What is written holds names of columns, of all but
    the one for what is not listed, and nothing of the data.
    """
    column = fields.listed(stream.source.column)
    if stream.source.maps or len(column) != 1:
        return ""
    counts = stream.counts
    other = counts.unknown_column
    named = [one for at, one in enumerate(counts.labels) if "/" not in one and at != other]
    starts = tuple(f"'/{label}{end}" for label in named for end in ("/", "'"))
    found = sum(number for value, number in unlisted.items() if value.startswith(starts))
    if not found or found < _MANY * unlisted.total():
        return ""
    values = ", ".join(f"{scalar('/' + label)}: {scalar(label)}" for label in named)
    prefixes = ", ".join(f"{scalar(f'/{label}/')}: {scalar(label)}" for label in named)
    return f"{{{scalar(column[0], is_key=True)}: {{values: {{{values}}}, prefixes: {{{prefixes}}}}}}}"
