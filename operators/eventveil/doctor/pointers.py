"""Where in a sample a field may be that its pointer does not find: in values, keys and headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from eventveil.decoding.places import TIME_UNITS, Instant, compile_field, is_there, pointer_tokens
from eventveil.decoding.rules import Rejection, parse
from eventveil.doctor.sample import SampledRecord
from eventveil.model.fields import HEADERS, KEY, TIME, in_envelope
from eventveil.model.records import NO_OWN_TIME, NO_SCHEMAS, Schemas
from eventveil.model.timeline import parse_rfc3339
from eventveil.model.topology import Source, TimeUnit, ValueSource

AnySource = Source | ValueSource

#: A field counts as one that events have if this share of them has it.
_MANY = 0.5
#: A field holds times if this share of what is in it can be read as one.
_MOST = 0.8
_DEEPEST, _WIDEST = 6, 200
#: What names of headers begin with by custom: those of CloudEvents in binary mode, and of HTTP.
_HEADS = ("ce_", "ce-", "x-")
#: What CloudEvents in binary mode call the header with the id of an event.
_EVENT_IDS = frozenset(f"{HEADERS}{one}" for one in ("ce_id", "ce-id"))
#: Names are close if they have this share of their letters in common, in the same order.
_CLOSE = 0.75
_SHOWN = 5
#: Of names that are compared: each takes microseconds, and a map by people has one for each of them.
_COMPARED = 1000
#: Names in a smaller share of records are mostly of such maps.
_LEAST_SHARE = 0.01
#: All but milliseconds; and how far times may be from those of records.
_OTHER_UNITS: tuple[TimeUnit, ...] = ("s", "us", "ns")
_ABOUT = 7 * 86_400_000
#: Times in epoch milliseconds: from 2001 to 2286.
_LIKE_TIMES = range(10**12, 10**13)


@dataclass(frozen=True, slots=True)
class FoundField:
    """A field of most records: how many have a text there, a whole number, or a time that can be read.

    ``decimals`` are other numbers. Keys and headers are texts.
    """

    pointer: str
    texts: int
    integers: int
    times: int
    decimals: int = 0

    @property
    def all(self) -> int:
        """How many documents have it."""
        return self.texts + self.integers + self.decimals

    @property
    def in_array(self) -> bool:
        """Whether it is in the first element of an array."""
        return not in_envelope(self.pointer) and "0" in pointer_tokens(self.pointer)

    @property
    def kind(self) -> str:
        """What it mostly holds, in a word."""
        if self.times >= _MOST * self.all:
            return "time"
        return "text" if 2 * self.texts >= self.all else "number"


def fields_of(
    records: Sequence[SampledRecord], source: AnySource, schemas: Schemas = NO_SCHEMAS
) -> list[FoundField]:
    """The fields where most records have a text or a number, in the order of the first one.

    Of an array of objects the first is looked at. Key and headers come behind what is in values; records
    whose values cannot be read are left out.
    """
    inside: dict[str, Counter[str]] = {}
    around: dict[str, Counter[str]] = {}
    documents = 0
    for record, document in readable(records, source, schemas):
        documents += 1
        for seen, found in ((inside, leaves(document)), (around, surroundings(record))):
            for pointer, value in found:
                if pointer in seen or len(seen) < _WIDEST:
                    seen.setdefault(pointer, Counter()).update(_kinds(value, seen is around))
    fields = [
        FoundField(one, kinds["text"], kinds["integer"], kinds["time"], kinds["decimal"])
        for one, kinds in (*inside.items(), *around.items())
    ]
    return [one for one in fields if 0 < one.all >= _MANY * documents]


def readable(
    records: Iterable[SampledRecord], source: AnySource, schemas: Schemas
) -> Iterator[tuple[SampledRecord, Any]]:
    """The records whose values can be read, each with its document."""
    for record in records:
        document = parse(record.value, source.max_bytes, source.format, schemas)
        if not isinstance(document, Rejection):
            yield record, document


def leaves(document: Any, pointer: str = "", depth: int = _DEEPEST) -> Iterator[tuple[str, Any]]:
    """The texts, numbers and truth values of a document below ``pointer``, each with its place."""
    if isinstance(document, dict) and depth:
        for name, value in document.items():
            yield from leaves(value, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}", depth - 1)
    elif isinstance(document, list) and depth and document and isinstance(document[0], dict):
        yield from leaves(document[0], f"{pointer}/0", depth - 1)
    elif type(document) in (str, int, float, bool, Instant):
        yield pointer, document


def surroundings(record: SampledRecord) -> Iterator[tuple[str, str]]:
    """The key and the headers of a record that are text, each with its field."""
    for field in dict.fromkeys((KEY, *(HEADERS + name for name, _ in record.headers))):
        found = compile_field(field)(None, record.around)
        if isinstance(found, str):
            yield field, found


@dataclass(frozen=True, slots=True)
class AbsentField:
    """A field that none of ``readable`` records has, and ``similar`` ones with how many records have them."""

    field: str
    readable: int
    similar: Sequence[tuple[str, int]]


def absent(
    asked: Iterable[str], records: Sequence[SampledRecord], source: AnySource, schemas: Schemas = NO_SCHEMAS
) -> list[AbsentField]:
    """Those of the fields that no record has, but for the time of records; none if no record is readable."""
    finds = {field: compile_field(field) for field in asked if field != TIME}
    names = {field: Counter[str]() for field in finds}
    documents = 0
    for record, document in readable(records if finds else (), source, schemas):
        documents += 1
        for field in [*names]:
            if is_there(finds[field](document, record.around)):
                del names[field]
            else:
                names[field].update({*beside(field, document, record)})
    if not documents:
        return []
    return [
        AbsentField(field, documents, [(one, found[one]) for one in similar(field, _usual(found, documents))])
        for field, found in names.items()
    ]


def _usual(found: Counter[str], readable: int) -> list[str]:
    """The names that are compared, those of most records first."""
    return [one for one, number in found.most_common(_COMPARED) if number >= _LEAST_SHARE * readable]


def beside(field: str, document: Any, record: SampledRecord) -> Iterator[str]:
    """Fields of the same sort as ``field`` that a record has."""
    if in_envelope(field):
        yield from (HEADERS + name for name, _ in record.headers)
    else:
        yield from (pointer for pointer, _ in leaves(document))


def similar(field: str, names: Sequence[str]) -> list[str]:
    """Names like ``field`` but for case and punctuation; else for few letters; else for where they are."""
    same = [one for one in names if plain(one) == plain(field)]
    few = [one for one in names if _are_close(one, field)]
    return (same or few or [one for one in names if _close(_split(one)[1], _split(field)[1])])[:_SHOWN]


def _are_close(pointer: str, other: str) -> bool:
    one, two = pointer.split("/"), other.split("/")
    return len(one) == len(two) and all(map(_close, one, two))


def _close(name: str, other: str) -> bool:
    one, two = plain(name), plain(other)
    return one == two or SequenceMatcher(None, one, two).ratio() >= _CLOSE


def _kinds(value: str | int | float, as_text: bool) -> Iterator[str]:
    """``as_text``: the field can only hold text, so that digits may be a time."""
    if type(value) is bool:
        return
    if isinstance(value, float):
        yield "decimal"
        return
    if isinstance(value, int):
        yield "integer"
        if type(value) is Instant or value in _LIKE_TIMES:
            yield "time"
        return
    yield "text"
    if as_text and value.isascii() and value.isdigit() and int(value[:19]) in _LIKE_TIMES:
        yield "time"
        return
    try:
        parse_rfc3339(value)
    except ValueError:
        return
    yield "time"


def likely(fields: Sequence[FoundField], pointer: str, *, time: bool = False) -> list[str]:
    """Which fields ``pointer`` may have meant: those with most of its end; for a ``time``, else all times.

    Never the key, which has no name.
    """
    named = [one for one in fields if one.pointer != KEY]
    fitting = [one for one in named if one.times >= _MOST * one.all or (not time and _names(one))]
    # An array may be empty, and its order may mean nothing: its first element only where nothing else fits.
    outside = [one for one in fitting if not one.in_array]
    return _ending(outside, pointer, time=time) or _ending(fitting, pointer, time=time)


def misspelt(fields: Sequence[FoundField], pointer: str) -> list[str]:
    """Which fields ``pointer`` may have meant of those that may name a column, if letters are wrong in it."""
    return similar(pointer, [one.pointer for one in fields if one.pointer != KEY and _names(one)])


def epochs(
    records: Sequence[SampledRecord], source: AnySource, schemas: Schemas = NO_SCHEMAS
) -> list[tuple[str, TimeUnit]]:
    """The fields whose numbers are times in another unit than milliseconds, each with the unit.

    In most records they are about the time that the record itself carries, which no identifier is.
    """
    found: Counter[tuple[str, TimeUnit]] = Counter()
    for record, document in readable(records, source, schemas):
        if record.own_time == NO_OWN_TIME:
            continue
        found.update(
            (pointer, unit)
            for pointer, value in leaves(document)
            for unit in _OTHER_UNITS
            if type(value) in (int, float)
            and abs(value / TIME_UNITS[unit][0] * 1000 - record.own_time) < _ABOUT
        )
    return [one for one, number in found.items() if number >= _MOST * len(records)]


def event_ids(fields: Sequence[FoundField]) -> frozenset[str]:
    """The pointers of ``fields`` that hold the id of a CloudEvent, which is never a user.

    In binary mode it is a header; in structured mode it stands beside ``specversion``, in Protobuf
    beside ``spec_version``.
    """
    events = envelopes(fields)
    return frozenset(
        one
        for one in (one.pointer for one in fields)
        if one.casefold() in _EVENT_IDS
        or (not in_envelope(one) and _split(one)[1] == "id" and _split(one)[0] in events)
    )


def envelopes(fields: Sequence[FoundField]) -> frozenset[str]:
    """Where CloudEvents in structured mode have their attributes: beside ``specversion``."""
    places = (_split(one.pointer) for one in fields)
    return frozenset(place for place, name in places if plain(name) == "specversion")


def _split(pointer: str) -> tuple[str, str]:
    """The place that a pointer looks into, and the last name."""
    place, _, name = pointer.rpartition("/")
    return place, name


def _names(field: FoundField) -> bool:
    """Whether it may name a user or a column, which no number with decimals does."""
    return field.texts + field.integers > field.decimals


def _ending(fitting: Sequence[FoundField], pointer: str, *, time: bool) -> list[str]:
    common = {one.pointer: _common(one.pointer, pointer) for one in fitting}
    most = max(common.values(), default=0)
    if most:
        return [one for one, number in common.items() if number == most]
    return [*common] if time else []


def _common(pointer: str, other: str) -> int:
    """With how many names both end, whatever their case and punctuation.

    The name of a header stands for several: ``x-user-id`` ends like ``/user/id``.
    """
    if in_envelope(pointer) or in_envelope(other):
        return _common_of_header(pointer, other) or _common_of_header(other, pointer)
    number = 0
    for one, two in zip(reversed(pointer_tokens(pointer)), reversed(pointer_tokens(other)), strict=False):
        if plain(one) != plain(two):
            break
        number += 1
    return number


def _common_of_header(header: str, other: str) -> int:
    if not header.startswith(HEADERS):
        return 0
    bare, names = _bare(header), [*map(plain, pointer_tokens(other))]
    if other.startswith(HEADERS):
        return int(bare == _bare(other))
    return next((at for at in range(len(names), 0, -1) if "".join(names[-at:]) == bare), 0)


def _bare(header: str) -> str:
    name = header.removeprefix(HEADERS).casefold()
    head = next((one for one in _HEADS if name.startswith(one)), "")
    return plain(name.removeprefix(head))


def plain(name: str) -> str:
    """A name without what is often written in another way: its case and punctuation."""
    return "".join(filter(str.isalnum, name)).casefold()
