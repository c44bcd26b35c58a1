"""What one user is, and which events count, in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from eventveil.model import fields
from eventveil.model.topology import Condition, Source

#: The most values of a set that are named.
_NAMED = 5
_TYPES = {"string": "string", "integer": "integer", "either": "string or integer"}
_TESTS = {"present": "there", "absent": "not there"}


def one_user(source: Source) -> str:
    """What makes events those of one user, and what of that no promise covers."""
    listed = fields.listed(source.user)
    place = ", or if that is not there ".join(listed)
    several = "several values for one person are several users."
    if len(listed) > 1:
        several = (
            "a person with several values is several users, and so is one whose events have sometimes"
            f" {listed[0]} and sometimes {' or '.join(listed[1:])}. A value that is found in two of these"
            " fields is one user."
        )
    kind = _TYPES[source.user_type] + (")," if len(listed) > 1 else ")")
    told = f"All events with one value of {place} ({kind} are one user; {several}"
    if source.user_type == "either":
        told += (
            " The number 7 and the text 7 are one value. If they are two persons, epsilon is twice as large"
            " for each of them."
        )
    return told


def which_events(source: Source) -> Iterator[str]:
    """Which events count, and how times are read, where the topology says more than where fields are."""
    if source.filter:
        conditions = "; ".join(in_words(one, _NAMED) for one in source.filter)
        yield (
            f"Only events that pass the filter count ({conditions}); the others do not become dead letters."
            " Each event is judged alone."
        )
    if source.time_zone is not None:
        yield (
            f"Times without a zone are local times in {source.time_zone}: one that occurs twice is taken as"
            " the first, and one that does not occur cannot be read."
        )


def in_words(condition: Condition, most: int | None = None) -> str:
    """A condition of a filter; of its values at most ``most`` are named."""
    if condition.test in _TESTS:
        return f"{condition.field} is {_TESTS[condition.test]}"
    values = [repr(one) if isinstance(one, str) else str(one).lower() for one in condition.values]
    if most is not None and len(values) > most:
        values = [*values[:most], f"{len(values) - most} more"]
    words = " or ".join(values)
    return f"{condition.field} is {'not ' if condition.test == 'not-in' else ''}{words}"
