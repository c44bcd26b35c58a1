"""Which settings of a stream that has begun may change, and why the others may not.

The names are those of ``fingerprint_fields`` and of a stream's sink. What is a setting is said in its table
(``Field.kept``, ``MechanismOption.sound``), the rest here. docs/migrations.md shows all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import orjson

from eventveil.describe.events import in_words
from eventveil.describe.guarantee import number
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import Condition
from eventveil.topology.counts import KEPT, SINK_MOVED
from eventveil.topology.fields import One
from eventveil.topology.options import OPTIONS
from eventveil.topology.scalars import Duration, Time, duration_text
from eventveil.topology.spec import SOURCES

_PLUGIN = "what was spent carries over; whether the new code keeps its promise is for its author to prove"
#: Why nothing but the sink of a stream at another level can be migrated.
LEVELS = "at event level and for a horizon, what is held back or left of the budget does not carry over"
_SETTINGS = {
    f"{section}.{name}": field.kept
    for section, table in (*(("source", one) for one in SOURCES.values()), *KEPT.items())
    for field in table.fields
    if field.kept is not None
    for name in (field.name, *(f"{field.name}.{part}" for part in field.kept.parts))
}

#: The kinds of settings that are single values.
_SCALARS = {
    f"{section}.{field.name}": field.shape.kind
    for section, table in KEPT.items()
    for field in table.fields
    if isinstance(field.shape, One)
}
_RATIONAL = re.compile(r"\d+(/\d+)?")
#: Of a digest in a message.
_DIGITS = 12
#: The number of columns, and what is known of their names.
COLUMNS, COLUMN_NAMES = "counts.columns", "counts.columns.digest"
_UNKNOWN, _FILTER = "counts.unknown", "source.filter"

#: What the state records of a stream whose columns are found in the data, and of no other.
DISCOVERS = "counts.columns.delta"
#: Why next to nothing of such a stream can be migrated.
REFUSED_BY_DISCOVERY = (
    "columns are found in the data, and what a window across the change may have cost for that is not proved"
)
_FOUND = "columns that were listed and columns that are found are counted in different ways"

#: A migration can change these: why that is sound.
SOUND = {
    **{name: kept.why for name, kept in _SETTINGS.items() if kept.sound},
    **{f"mechanism.{name}": option.sound for name, option in OPTIONS.items() if option.sound},
    "plugin.class": _PLUGIN,
    "plugin.distribution": _PLUGIN,
    "plugin.source": _PLUGIN,
    "sink.topic_id": SINK_MOVED,
    "source.partitions": "each timestamp is counted under one number of partitions; each user is in one",
}
#: No migration can change these: why not.
REFUSED = {
    **{name: kept.why for name, kept in _SETTINGS.items() if not kept.sound},
    "plugin.level": LEVELS,
    **{f"counts.columns.{name}": _FOUND for name in ("delta", "share", "most", "longest")},
    "topics.partials": "it says where the state is kept, and the state does not move",
    "fingerprint.version": "another version of Eventveil wrote the state",
}

_BOUNDARIES = "boundaries that were captured under the old rule would be read under the new one"
#: With ``append_time: boundary`` these cannot change either.
REFUSED_BY_BOUNDARY = {
    "timeline.lateness": _BOUNDARIES,
    "timeline.max_ahead": f"{_BOUNDARIES} (its default was once 7d, and is 3d)",
}
_NOISE = "mechanism.noise"
#: From Gaussian noise to Laplace noise this cannot change either.
REFUSED_TO_PURE = {
    _NOISE: "windows across the change would have the delta of the Gaussian noise, and the file would promise"
    " pure epsilon"
}

MIGRATE = "Put it back, or stop the workers and run `eventveil migrate TOPOLOGY --apply`"
MIGRATE_SINK = (
    "Create it if it is gone (`eventveil topics TOPOLOGY --create`), stop the workers and run"
    " `eventveil migrate TOPOLOGY --apply`"
)
MIGRATE_TOPICS = (
    "Stop the workers and run `eventveil migrate TOPOLOGY`, which says what becomes of the events, and then"
    " again with `--apply`"
)
MIGRATE_LOST = (
    "Stop the workers and run `eventveil migrate TOPOLOGY --lost --apply`, which continues without what is "
    "gone. It names the timestamps that may lack events; nothing is charged twice. Lengthen the retention"
)
MIGRATE_LOST_VALUES = (
    "Stop the workers and run `eventveil migrate TOPOLOGY --lost --apply`, which continues with the first "
    "value that is left. Those that are gone get no reading; nothing is charged twice. Lengthen the retention"
)
_TOPICS = ("source.partitions", "topic_id")
_IF_RELEASED = (
    "the epsilons of both add up. If nothing has been released yet, `eventveil topics TOPOLOGY --delete` lets"
    " all streams of the file begin anew at no cost"
)
_NEW_NAME = f"a new name and a new sink; {_IF_RELEASED}"
NEW_STREAM = f"Give the stream {_NEW_NAME}"
RENAME = f"Put it back, or give the stream {_NEW_NAME}"
#: For a setting that decides what a partition of a changelog is about: a new stream would not change that.
ELSEWHERE = f"Put it back, or move the stream to a file with another `name` and a new sink; {_IF_RELEASED}"
#: What to do where a partition of a changelog belongs to something other than the file says.
PLACES = (
    "If another application has this name, give it one of its own. If not, restore the sources "
    "and their `repartition` in their former order, new ones last; or move the stream to a file with "
    f"another `name` and a new sink: {_IF_RELEASED}"
)
#: What says where the state of a stream is kept; and for re-keyed events, where each user is sent.
_PLACED = {"source.topic", "source.repartition", "topics.partials"}
_SENT = {"source.user", "source.user_type"}


_ADDS_UP = "a window that begins in the old stream and ends in the new one costs the epsilon of both"
_FROM_NOW = (
    "It begins with the values that are appended from then on; those that have no reading yet are lost. No "
    "value has readings in both streams, so none costs more than it did, unless it is sent again"
)
#: What to do where the topic of re-keyed events is not what it was.
REKEY_ANEW = (
    "The state says how far each partition was passed on, and no other topic fits it. Move its streams to a "
    "file with another `name`, and give them new sinks. They begin with their next timestamp; what was not "
    f"released is lost, and {_ADDS_UP}"
)
#: By role: what to do when a source was created again or got partitions.
_CHANGED_TOPICS = {
    "rekey": MIGRATE_TOPICS,
    "accumulate": (
        "Nothing is kept that could be counted again. Give the stream a new name, a new sink and a source "
        "with one partition. It begins with its next timestamp; what was not released is lost, and "
        f"{_ADDS_UP}"
    ),
    "perturb": f"Give the stream a new name and a new sink. {_FROM_NOW}",
}
_MIGRATE_VALUES = (
    "Stop the workers and run `eventveil migrate TOPOLOGY --apply`, which continues in all partitions: no"
    " value is lost"
)


def remedy_for_topics(role: str, field: str) -> str:
    """What to do where a source is not what it was, for a role whose streams cannot be migrated freely.

    ``field`` is that of the genesis record that changed.
    """
    if field in _TOPICS:
        return _MIGRATE_VALUES if (role, field) == ("perturb", "source.partitions") else _CHANGED_TOPICS[role]
    if role == "perturb":
        return f"Put it back. If that is not possible: {_CHANGED_TOPICS[role]}"
    return ELSEWHERE if role == "rekey" else RENAME


def lost(role: str) -> str:
    """What to do where a source lacks records that a role needs and its streams cannot continue without."""
    return f"Records are lost. Lengthen the retention. {_CHANGED_TOPICS[role]}"


def remedy(field: str, *, rekeyed: bool = False, by_boundary: bool = False) -> str:
    """What to do about a field that changed, of a stream whose events may be ``rekeyed``.

    ``by_boundary``: boundaries tell what is late in it.
    """
    if field == "sink.topic_id":
        return f"The topic was deleted and created again. {MIGRATE_SINK}"
    if field in _TOPICS:
        return MIGRATE_TOPICS
    if by_boundary and field in REFUSED_BY_BOUNDARY:
        return f"With append_time: boundary it cannot change once the stream has begun. {RENAME}"
    return MIGRATE if field in SOUND else anew([field], rekeyed=rekeyed)


def remedy_for_values(field: str) -> str:
    """The same for a value stream, which continues in more partitions only: other changes need a new one."""
    if field == "sink.topic_id":
        return f"The topic was deleted and created again. {_CHANGED_TOPICS['perturb']}"
    return remedy_for_topics("perturb", field)


def anew(fields: Iterable[str], *, rekeyed: bool = False) -> str:
    """What to do where fields changed that no migration can change."""
    return ELSEWHERE if (_PLACED | _SENT if rekeyed else _PLACED) & {*fields} else RENAME


def as_written(field: str, value: str | int | None, *, quoted: bool = True) -> str:
    """What the state records of a setting, as the file would have it: durations, times and decimals.

    Of a digest its beginning, of a filter its conditions in words. ``quoted``: texts are in quotes, as within
    a sentence.
    """
    kind = _SCALARS.get(field)
    if value is None:
        return "not set"
    if isinstance(value, int):
        if isinstance(kind, Time):
            return format_rfc3339(value)
        return duration_text(value) if isinstance(kind, Duration) else str(value)
    if field.endswith(".digest"):
        return f"{value[:_DIGITS]}..."
    if (conditions := _conditions(field, value)) is not None:
        return f'"{"; ".join(map(in_words, conditions))}"'
    if field.startswith("mechanism.") and _RATIONAL.fullmatch(value):
        exact = Fraction(value)
        short = f"{float(exact):g}"
        return short if Fraction(short) == exact else number(exact)
    return repr(value) if quoted else value


def changed(field: str, old: str | int | None, new: str | int | None, beside: str = "") -> str:
    """That state was made for another value of a setting; ``beside`` says more of the setting.

    Of the names of columns only a digest is known, and of filters what differs is told.
    """
    if field == COLUMNS:
        return f"{field} had {old} names and has {new} now"
    before, after = _conditions(field, old), _conditions(field, new)
    if before is not None and after is not None:
        return f"{field}: {_changed_conditions(before, after)}"
    told = f"{field}{beside} was {as_written(field, old)} and is {as_written(field, new)} now"
    return f"the names of the columns or their order differ ({told})" if field == COLUMN_NAMES else told


def without_followers(names: Iterable[str], fields: Mapping[str, Any]) -> set[str]:
    """Of settings that changed those that somebody may have changed; ``fields`` are those of now.

    A number of columns changes their names with it. The column of unknown events is known by its place, which
    other columns move.
    """
    changed = {*names}
    if COLUMNS in changed:
        changed.discard(COLUMN_NAMES)
    if changed & {COLUMNS, COLUMN_NAMES} and str(fields.get(_UNKNOWN)).startswith("column "):
        changed.discard(_UNKNOWN)
    return changed


def _conditions(field: str, value: object) -> list[Condition] | None:
    """Those of a filter; None for any other setting, and of a filter of which only a digest is known."""
    if field != _FILTER or not isinstance(value, str) or not value.startswith("["):
        return None
    return [Condition(**{**one, "values": tuple(one["values"])}) for one in orjson.loads(value)]


def _changed_conditions(old: Sequence[Condition], new: Sequence[Condition]) -> str:
    """The conditions that differ: what a field had to be and has to be now, where both have the field."""
    gone = {one.field: in_words(one) for one in old if one not in new}
    come = {one.field: in_words(one) for one in new if one not in old}
    told = [
        f"{field} was {words.removeprefix(f'{field} is ')} and is"
        f" {come[field].removeprefix(f'{field} is ')} now"
        for field, words in gone.items()
        if field in come
    ]
    told += [f'the condition "{words}" was removed' for field, words in gone.items() if field not in come]
    told += [f'the condition "{words}" was added' for field, words in come.items() if field not in gone]
    return "; ".join(told) or "the order of its conditions differs"


def is_refused(field: str, new: object) -> bool:
    """Whether it is known that no migration can change a field to this value."""
    return field in REFUSED or (field in REFUSED_TO_PURE and new != "gaussian")


def reason(field: str) -> str:
    """Why a field cannot be migrated. A setting that these tables do not know cannot."""
    return {**REFUSED, **REFUSED_TO_PURE}.get(field, "it is not known what it would change")
