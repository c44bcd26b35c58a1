"""A topology that fits the sample better: single settings are changed, and only if more events count then.

Columns are never taken from the data: a list of columns is public, and data that chooses it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eventveil.advise.writing import scalar
from eventveil.counting.written import WORDS
from eventveil.decoding.rules import Reason
from eventveil.describe.guarantee import count
from eventveil.doctor.diagnosis import DECIMALS, MUCH, CountsDiagnosis, is_no_value
from eventveil.doctor.editing import Edits
from eventveil.doctor.judging import Verdicts
from eventveil.doctor.people import comes_again, is_of_many, key_may_be_user, separating, size_of_many
from eventveil.doctor.pointers import envelopes, event_ids, likely, misspelt
from eventveil.doctor.sample import SourceSample
from eventveil.model import fields
from eventveil.model.records import NO_OWN_TIME
from eventveil.model.topology import Stream, TimeUnit, Topology
from eventveil.topology.counts import LONGEST_OUTAGE
from eventveil.topology.loading import load_text
from eventveil.topology.problems import TopologyInvalid
from eventveil.topology.scalars import duration_text

_ROUNDS = 12
_MINUTE = 60_000
_LATENESS = tuple(_MINUTE * minutes for minutes in (1, 5, 15, 60, 6 * 60, 24 * 60))
_FEW = 0.01
#: With boundaries, workers may well be away for longer.
_SHORT_OUTAGE = 24 * 60 * _MINUTE
#: A value is never proposed: it would come from raw data, and a topology is public.
UNWATCHED = (
    "so nothing warns if most events stop counting. Set it to roughly how many events count in a"
    " timestamp, from public knowledge or from earlier releases, not from this report"
)
_USER_IS_PROTECTED = (
    "Epsilon protects the user: make sure that this field names a person, not a session, order or thing."
)
#: The one setting that is of no stream.
REGISTRY = "registry"
_CE_TYPE = f"{fields.HEADERS}ce_type"


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A setting of a stream, such as ``source.user``, its new value as YAML has it (None: left out), why."""

    stream: str
    setting: str
    value: str | None
    why: str

    @property
    def path(self) -> tuple[str, ...]:
        """Where it stands in the file."""
        within = () if self.setting == REGISTRY else ("streams", self.stream)
        return (*within, *self.setting.split("."))


Rule = Callable[[CountsDiagnosis], Iterator[tuple[str, str | None, str]]]


@dataclass
class Proposal:
    """``text`` of a valid topology, what was changed to get there, and what the file cannot change."""

    text: str
    topology: Topology
    changes: list[ProposedChange] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)


def propose(
    topology: Topology, text: str, samples: Mapping[str, SourceSample], environ: Mapping[str, str], now: int
) -> Proposal:
    """What ``text``, that of ``topology``, had better say; ``samples`` by source."""
    made = Proposal(text, topology)
    for _ in range(_ROUNDS * max(1, len(topology.all_streams))):
        improved = [_improve(made, one.name, samples, environ, now) for one in topology.streams]
        if not any(improved):
            break
    for stream in made.topology.streams:
        sample = samples[stream.source.topic_of_events]
        if _needs_stamps(stream, sample):
            made.beside.append(
                f"{sample.source} needs append times, which records get from then on with: kafka-configs.sh"
                f" --bootstrap-server ... --alter --topic {sample.source} "
                "--add-config message.timestamp.type=LogAppendTime"
            )
    made.beside = [*dict.fromkeys(made.beside)]
    return made


def commented(proposal: Proposal) -> str:
    """The text with comments at its head that say what was guessed.

    Why is told at the terminal alone: reasons have numbers of the data, and a topology is public. Without a
    guess it is the text as it is; comments that an earlier proposal left are not repeated.
    """
    if not proposal.changes and not proposal.beside:
        return proposal.text
    edits = Edits(proposal.text)
    edits.comment(
        [
            "Proposed by `eventveil doctor`, from the newest records of each source. Guessed:",
            *(f"  {'.'.join(one.path)}: {one.value or 'left out'}" for one in proposal.changes),
            *(f"Beside this file: {one}" for one in proposal.beside),
            *(
                f"streams.{one.name}.counts.expected is not set, {UNWATCHED}"
                for one in proposal.topology.streams
                if one.counts.expected is None
            ),
            *(_USER_IS_PROTECTED for one in proposal.changes if one.setting == "source.user"),
            "Columns are public: they must come from public knowledge, never from the data. None was added.",
        ]
    )
    return edits.text


def _improve(
    made: Proposal, name: str, samples: Mapping[str, SourceSample], environ: Mapping[str, str], now: int
) -> bool:
    """Make the first change that a rule asks for and that helps; whether there was one."""
    stream = next(one for one in made.topology.streams if one.name == name)
    sample = samples[stream.source.topic_of_events]
    diagnosis = CountsDiagnosis(stream, sample, now)
    for rule in RULES:
        changes = [ProposedChange(name, *one) for one in rule(diagnosis)]
        better = _applied(made, [*_shared(made.topology, stream, changes)], environ) if changes else None
        if better is None:
            continue
        changed = next(one for one in better.topology.streams if one.name == name)
        after = replace(diagnosis, stream=changed)
        if after.progress > diagnosis.progress:
            made.text, made.topology = better.text, better.topology
            news = {(one.stream, one.setting): one for one in (*made.changes, *better.changes)}
            made.changes = [*news.values()]
            return True
    return False


def _shared(
    topology: Topology, stream: Stream, changes: Sequence[ProposedChange]
) -> Iterator[ProposedChange]:
    """The changes, for all streams over the topic where they have to agree."""
    for change in changes:
        section = change.setting.partition(".")[0]
        for other in topology.streams:
            same = other.source.topic_of_events == stream.source.topic_of_events
            if other.name == stream.name or (same and section == "source" and change.setting in _SHARED):
                yield replace(change, stream=other.name)


#: Streams over one topic have to agree on them.
_SHARED = frozenset(
    f"source.{one}" for one in ("format", "user", "user_type", "partitioner", "repartition", "append_time")
)


def _applied(
    made: Proposal, changes: Sequence[ProposedChange], environ: Mapping[str, str]
) -> Proposal | None:
    """With these changes, or None; a registry goes with the last source that needed it."""
    better = _changed(made, changes, environ)
    if better is None and any(one.setting == "source.format" for one in changes):
        registry = ProposedChange(changes[0].stream, REGISTRY, None, "without effect if no format needs it")
        better = _changed(made, [*changes, registry], environ)
    return better


def _changed(
    made: Proposal, changes: Sequence[ProposedChange], environ: Mapping[str, str]
) -> Proposal | None:
    """With these changes; None if the file would not be valid."""
    edits = Edits(made.text)
    changes = [one for one in changes if one.value is not None or edits.written(one.path) is not None]
    for change in changes:
        if change.value is None:
            edits.remove(change.path)
        else:
            edits.set(change.path, change.value)
    try:
        topology = load_text(made.topology.path, edits.text, environ)
    except TopologyInvalid:
        return None
    return Proposal(edits.text, topology, list(changes))


def _needs_stamps(stream: Stream, sample: SourceSample) -> bool:
    unstamped = any(not one.appended for one in sample.records)
    return stream.source.append_time == "broker" and unstamped and not (sample.is_file or sample.stamps)


def _format(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    """The format that most values have. A registry is never proposed: its URL is not known."""
    source = seen.stream.source
    found, why = seen.framing.found, seen.framing.remedy(source.format, True)
    if found is not None and why is not None:
        yield "source.format", found, why.partition(": format")[0]


def _pointers(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    """A field that half of the events lack, where one other place alone can be meant."""
    there = {one.pointer for one in seen.fields}
    for name in ("user", "column", "time"):
        missing = _lacking(seen, name)
        several = _several(name, getattr(seen.stream.source, name))
        if 2 * missing < max(1, seen.stamped.asked):
            continue
        # Of several columns the first that is not there hides the others.
        lacking = [one for one in several if one not in there or len(several) == 1]
        changes = {one: change for one in lacking if (change := _instead(seen, name, one, missing))}
        if changes:
            found = [scalar(changes[one][0] if one in changes else one) for one in several]
            value = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
            yield f"source.{name}", value, next(iter(changes.values()))[1]
            return


def _epoch(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    """A number that is a time in another unit, where half of the events lack the field of the time."""
    source, missing = seen.stream.source, _lacking(seen, "time")
    if 2 * missing < max(1, seen.stamped.asked) or likely(seen.fields, source.time, time=True):
        return
    if len(fields.listed(source.time)) == len(seen.epochs) == 1:
        ((pointer, unit),) = seen.epochs
        if not is_of_many(seen.sample, source, pointer):
            return
        yield "source.time", scalar(pointer), f"{missing} records have nothing at {source.time}"
        if unit != source.time_unit:
            yield "source.time_unit", unit, f"the numbers at {pointer} are times in it"


def _lacking(seen: CountsDiagnosis, name: str) -> int:
    """How many records lack the field of the user, the column or the time."""
    details = seen.stamped.details.get(Reason.MISSING_FIELD.value, Counter())
    return sum(number for detail, number in details.items() if detail.startswith(f"no {name} at "))


def _several(name: str, pointer: object) -> tuple[str, ...]:
    """The pointers of a field; those of columns must all be there, of others the first that is counts."""
    several = fields.listed(pointer) if isinstance(pointer, str) else ()
    return several if len(several) == 1 or name == "column" else ()


def _instead(seen: CountsDiagnosis, name: str, pointer: str, missing: int) -> tuple[str, str] | None:
    """The one field that a pointer may have meant, and why; None if there is none, or several."""
    single = pointer.startswith(("/", fields.HEADERS))
    found = _found(seen, name, pointer) if single else []
    # Names of fields are data too, such as those of an object with an entry for each user.
    user = found[0] if name == "user" and found else None
    if name == "time" and single and not found and _own_times(seen) >= missing and not seen.epochs:
        return fields.TIME, f"{missing} records have nothing at {pointer}, nor a time elsewhere"
    if len(found) != 1 or found == [pointer]:
        return None
    if not is_of_many(seen.sample, seen.stream.source, found[0], user):
        return None
    return found[0], f"{missing} records have nothing at {pointer}"


def _found(seen: CountsDiagnosis, name: str, pointer: str) -> list[str]:
    """Which fields the ``pointer`` of ``name`` may have meant."""
    if name == "user":
        return _users(seen, pointer)
    found = likely(seen.fields, pointer, time=name == "time")
    return found or (misspelt(seen.fields, pointer) if name == "column" else [])


def _users(seen: CountsDiagnosis, pointer: str) -> list[str]:
    """The one field that may name users, or none: a wrong user would not protect the person.

    Among several nobody can say which is meant, so what comes once is not left out before they are counted.
    """
    source, found = seen.stream.source, _like_users(seen, pointer)
    if found:
        return found if len(found) == 1 and comes_again(seen.asked, source, found[0]) else []
    named = [one.pointer for one in seen.fields]
    return [fields.KEY] if key_may_be_user(seen.asked, source, named) else []


def _like_users(seen: CountsDiagnosis, pointer: str) -> list[str]:
    ids = event_ids(seen.fields)
    return likely([one for one in seen.fields if one.pointer not in ids], pointer)


def doubtful_user(seen: CountsDiagnosis) -> str | None:
    """The field that the pointer of the user may have meant, if too few of its values come again."""
    source = seen.stream.source
    if len(fields.listed(source.user)) > 1:
        return None
    found = _like_users(seen, source.user)
    return found[0] if len(found) == 1 and not comes_again(seen.asked, source, found[0]) else None


def _own_times(seen: CountsDiagnosis) -> int:
    """How many records carry a time; those of a file do not."""
    return sum(one.own_time != NO_OWN_TIME for one in seen.sample.records)


def _filter(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    """The kinds of events that have a column, where one field tells them from those that have none."""
    source = seen.stream.source
    if source.filter:
        return
    missing = _lacking(seen, "column")
    if missing < MUCH * max(1, seen.stamped.asked):
        return
    texts = [
        one.pointer
        for one in seen.fields
        if one.texts and not one.in_array and one.pointer not in (*source.looked_at, fields.KEY)
    ]
    found = [*separating(seen.sample, source, texts)]
    # The attribute by which CloudEvents tell their kinds, whatever else tells them too.
    kinds = {_CE_TYPE, *(f"{place}/type" for place in envelopes(seen.fields))}
    found = [one for one in found if one[0] in kinds] or found
    if len(found) == 1:
        ((pointer, values),) = found
        asked = f"[{', '.join(map(scalar, values))}]"
        why = f"{missing} records are of other kinds, which have no column"
        yield "source.filter", f"{{{scalar(pointer, is_key=True)}: {asked}}}", why


def _wrong_users(details: Mapping[str, int]) -> int:
    """How many have a user of another type; null, objects and arrays are of none that a user may have."""
    return sum(
        number
        for detail, number in details.items()
        if detail.startswith("the user at ") and not is_no_value(Reason.WRONG_TYPE, detail)
    )


def _user_type(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    details = seen.stamped.details.get(Reason.WRONG_TYPE.value, Counter())
    wrong, known = _wrong_users(details), seen.stream.source.user_type
    if 2 * wrong >= max(1, seen.stamped.asked):
        other = "integer" if known == "string" else "string"
        yield "source.user_type", other, f"{count(wrong, 'user')} not of type {known}"


def _either(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    """Some producers write users as numbers, and some the same as text."""
    details = seen.stamped.details.get(Reason.WRONG_TYPE.value, Counter())
    wrong, known = _wrong_users(details), seen.stream.source.user_type
    if wrong >= MUCH * max(1, seen.stamped.asked):
        why = f"{count(wrong, 'user')} not of type {known}; 7 and the text 7 are then one user"
        yield "source.user_type", "either", why


def _partitioner(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    source, keys = seen.stream.source, seen.keys
    if keys is None or source.raw is not None or not keys.readable:
        return
    stated = source.partitioner
    name = keys.users.name(stated)
    if name in {stated, "any"}:
        return
    if name in {"murmur2", "crc32"}:
        yield "source.partitioner", name, f"users are where {name} puts them, {WORDS[name]}"
        return
    yield "source.repartition", "true", f"users are in partitions by {why_not_served(seen)}"
    yield "source.partitioner", None, "it has no effect with repartition: true"


def why_not_served(seen: CountsDiagnosis) -> str:
    """Why no partitioner of a topology fits, in words."""
    keys = seen.keys
    assert keys is not None, "only topics have keys"
    if 2 * keys.equal < keys.readable:
        return f"a key that is not the user ({keys.keys.name()}: {WORDS[keys.keys.name()]})"
    name = keys.users.name()
    return f"{name}: {WORDS[name]}"


def _append_time(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    number = seen.verdicts.reasons.get(Reason.NO_APPEND_TIME.value, 0)
    if number and not seen.sample.stamps:
        yield "source.append_time", "boundary", f"{number} records have no append time of the broker"
        if seen.stream.timeline.max_ahead < _SHORT_OUTAGE:
            why = f"then {duration_text(LONGEST_OUTAGE)}: with boundary, a longer outage loses events"
            yield "timeline.max_ahead", None, why


def _time_unit(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    """Numbers that are times long ago or far ahead in milliseconds, or have decimals; not in another unit."""
    source, wrong = seen.stream.source, _wrong_times(seen.stamped)
    if 2 * wrong < max(1, seen.stamped.asked):
        return
    for unit in _UNITS:
        if unit != source.time_unit:
            after = replace(seen, stream=replace(seen.stream, source=replace(source, time_unit=unit)))
            if _wrong_times(after.stamped) <= wrong // 2:
                yield "source.time_unit", unit, f"{wrong} values are not times in {source.time_unit}"
                return


def _wrong_times(verdicts: Verdicts) -> int:
    """How many are refused for a time that is there; of those with a wrong type, the numbers."""
    types = verdicts.details.get(Reason.WRONG_TYPE.value, Counter())
    decimals = sum(
        number for one, number in types.items() if one.startswith("the time at ") and one.endswith(DECIMALS)
    )
    return decimals + sum(verdicts.reasons.get(one.value, 0) for one in _WRONG_TIMES)


_UNITS: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
_WRONG_TIMES = (Reason.BEFORE_ORIGIN, Reason.TOO_FAR_AHEAD, Reason.TIME_UNREADABLE)


def _max_bytes(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    number = seen.stamped.reasons.get(Reason.TOO_LARGE.value, 0)
    if number and (largest := size_of_many(seen.sample, seen.stream.source)) is not None:
        yield "source.max_bytes", str(1 << largest.bit_length()), f"{number} records are larger"


def _unknown(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    number, counts = seen.stamped.reasons.get(Reason.UNKNOWN_COLUMN.value, 0), seen.stream.counts
    if number and counts.discover is None and "other" in counts.labels:
        yield "counts.unknown", "other", f"{number} records have a column that is not listed"


def _lateness(seen: CountsDiagnosis) -> Iterator[tuple[str, str | None, str]]:
    """The shortest lateness of a few that all but a few keep; releases wait for it."""
    stream, late = seen.stream, seen.stamped.reasons.get(Reason.LATE.value, 0)
    if late < MUCH * max(1, seen.stamped.asked):
        return
    for lateness in _LATENESS:
        if lateness > stream.timeline.lateness:
            rules = replace(stream.timeline, lateness=lateness)
            after = replace(seen, stream=replace(stream, timeline=rules)).stamped
            if after.reasons.get(Reason.LATE.value, 0) <= _FEW * after.asked:
                yield "timeline.lateness", duration_text(lateness), f"{late} records are late"
                return


#: In the order in which they are tried: a user that cannot be read hides what is wrong with partitions, and a
#: format that is not the stated one hides everything.
RULES: tuple[Rule, ...] = (
    _format,
    _epoch,
    _pointers,
    _filter,
    _user_type,
    _either,
    _max_bytes,
    _partitioner,
    _append_time,
    _time_unit,
    _unknown,
    _lateness,
)
