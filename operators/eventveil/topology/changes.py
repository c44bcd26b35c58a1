"""Which settings of a stream that has begun may change, and why the others may not.

The names are those of ``fingerprint_fields`` and of a stream's sink. docs/migrations.md shows this table.
"""

from __future__ import annotations

_ONCE = "each event still counts once, in the same timestamp"
_PLUGIN = "what was spent carries over; whether the new code keeps its promise is for its author to prove"
_SINK = "the releases stay the same; the audit matches those from the change on with the new topic"

#: A migration can change these: why that is sound.
SOUND = {
    "mechanism.kind": "every kind counts in the same way what it spends: the budget carries over",
    "mechanism.epsilon": "what was spent carries over, in absolute terms",
    "mechanism.window": "what was spent carries over, for windows of the larger width",
    "plugin.class": _PLUGIN,
    "plugin.distribution": _PLUGIN,
    "plugin.source": _PLUGIN,
    "mechanism.factor": "a public constant, which says when a release is worth its price",
    "mechanism.shift": "it moves budget between spends that the ledger counts alike",
    "mechanism.groups": "who is published apart is a function of releases; one ledger counts for all groups",
    "mechanism.regroup": "who is published apart is a function of releases; one ledger counts for all groups",
    "mechanism.max_samples": "every sample is charged for what it costs",
    "mechanism.drift": "a public constant of what is done with releases",
    "mechanism.periods": "public constants of what is done with releases",
    "counts.contributions": "the bound and the noise that goes with it change between two timestamps",
    "counts.unknown": f"it says which events count from the change on; {_ONCE}",
    "source.column": f"it says where an event names its column; {_ONCE}",
    "source.max_bytes": f"it says which events count from the change on; {_ONCE}",
    "timeline.lateness": f"it says which events are late from the change on; {_ONCE}",
    "timeline.max_ahead": f"it says which events are early from the change on; {_ONCE}",
    "sink.topic": _SINK,
    "sink.topic_id": _SINK,
    "source.partitions": "each timestamp is counted under one number of partitions, in which a user has one",
}

_OTHER_STREAM = "it makes another stream, charged in full beside the old one"
_OTHER_USER = "somebody else would be protected, and windows across the change would protect neither"
_TWICE = "an event that was counted could count again, in another timestamp"
_PLACES = "a user's events would be bounded in another partition, where they could count twice"
#: How the fields begin that say where counts come from and go to. They can change at every level.
SAME_LIFE = ("sink.", "lost.", "partials.", "source.partitions", "source.topic_id")
#: Why nothing but the sink of a stream at another level can be migrated.
LEVELS = "at event level and for a horizon, what is held back or left of the budget does not carry over"
_COLUMNS = "the last release, which may have to be repeated, does not fit other columns"

#: No migration can change these: why not.
REFUSED = {
    "timeline.interval": f"releases of timestamps of another length cannot be followed; {_OTHER_STREAM}",
    "timeline.origin": f"releases of timestamps that begin elsewhere cannot be followed; {_OTHER_STREAM}",
    "mechanism.adjacency": "what was spent under one adjacency says nothing under the other",
    "plugin.level": LEVELS,
    "source.user": _OTHER_USER,
    "source.user_type": _OTHER_USER,
    "source.time": _TWICE,
    "source.format": _TWICE,
    "counts.columns": _COLUMNS,
    "counts.columns.digest": _COLUMNS,
    "counts.columns.type": _COLUMNS,
    "source.topic": f"offsets of one topic mean nothing in another; {_OTHER_STREAM}",
    "source.partitioner": _PLACES,
    "source.repartition": f"it moves users to other partitions; {_OTHER_STREAM}",
    "source.append_time": "what is late would be told in another way, which the state knows nothing of",
    "topics.partials": "it says where the state is kept, and the state does not move",
    "fingerprint.version": "another version of Eventveil wrote the state",
}

_BOUNDARIES = "boundaries that were captured under the old rule would be read under the new one"
#: With ``append_time: boundary`` these cannot change either.
REFUSED_BY_BOUNDARY = {"timeline.lateness": _BOUNDARIES, "timeline.max_ahead": _BOUNDARIES}

MIGRATE = "Put it back, or stop the workers and run `eventveil migrate`"
MIGRATE_SINK = "Create it if it is gone (`eventveil topics --create`), stop the workers, `eventveil migrate`"
MIGRATE_GROUND = "Stop the workers and run `eventveil migrate`, which says what becomes of the events"
MIGRATE_LOST = (
    "Stop the workers and run `eventveil migrate --lost`, which goes on without what is gone: it names the "
    "timestamps that may lack events, and nothing is charged twice. Lengthen the retention"
)
_GROUND = ("source.partitions", "topic_id")
RENAME = "Put it back, or give the stream a new name (whose epsilon adds up)"


_ADDS_UP = "a window that begins in the old stream and ends in the new one costs the epsilon of both"
_FROM_NOW = (
    "It begins with the values that are appended from then on; those that have no reading yet are lost. No "
    "value has readings in both streams, so none costs more than it did"
)
#: What to do where the topic of re-keyed events is not what it was.
REKEY_ANEW = (
    "The state says how far each partition was passed on, and fits no other. Move its streams to a file "
    "with another `name`, and give them new sinks. They begin with their next timestamp; what was not "
    f"released is lost, and {_ADDS_UP}"
)
#: By role: what to do when a source was created again or got partitions.
_NEW_GROUND = {
    "rekey": MIGRATE_GROUND,
    "accumulate": (
        "Nothing is kept that could be counted again. Give the stream a new name, a new sink and a source "
        "with one partition. It begins with its next timestamp; what was not released is lost, and "
        f"{_ADDS_UP}"
    ),
    "perturb": f"Give the stream a new name and a new sink. {_FROM_NOW}",
}
_MIGRATE_VALUES = (
    "Stop the workers and run `eventveil migrate`, which goes on in all partitions: no value is lost"
)


def new_ground(role: str, field: str) -> str:
    """What to do where a source is not what it was, for a role whose streams cannot be migrated freely.

    ``field`` is that of the genesis record which changed.
    """
    if field in _GROUND:
        return _MIGRATE_VALUES if (role, field) == ("perturb", "source.partitions") else _NEW_GROUND[role]
    return f"Put it back. If that is not possible: {_NEW_GROUND[role]}" if role == "perturb" else RENAME


def lost(role: str) -> str:
    """What to do where a source lacks records that a role needs, whose streams cannot go on without them."""
    return f"Records are lost. Lengthen the retention. {_NEW_GROUND[role]}"


def remedy(field: str) -> str:
    """What to do about a field that changed."""
    if field == "sink.topic_id":
        return f"The topic was deleted and created again. {MIGRATE_SINK}"
    if field in _GROUND:
        return MIGRATE_GROUND
    return MIGRATE if field in SOUND else RENAME


def remedy_for_values(field: str) -> str:
    """The same for a value stream, which goes on in more partitions only: other changes begin a new one."""
    if field == "sink.topic_id":
        return f"The topic was deleted and created again. {_NEW_GROUND['perturb']}"
    return new_ground("perturb", field)


def reason(field: str) -> str:
    """Why a field cannot be migrated. A setting that this table does not know cannot."""
    return REFUSED.get(field, "it is not known what it would change")
