"""Which events a stream is about: a filter looks at each record alone, before anything else is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from eventveil.decoding.places import Envelope, compile_field, is_there
from eventveil.model import fields
from eventveil.model.topology import Condition

#: Whether a record passes, by its document and what is around it.
Passes = Callable[[Any, Envelope], bool]


class Filter:
    """The conditions of a stream, all of which must hold.

    Those on the record around the value are asked first, before the value is parsed: a topic may hold values
    in several formats, told apart by a header.
    """

    def __init__(self, conditions: Iterable[Condition]) -> None:
        conditions = [*conditions]
        around = [one for one in conditions if fields.in_envelope(one.field)]
        self._around = [*map(_compile, around)]
        self._inside = [_compile(one) for one in conditions if not fields.in_envelope(one.field)]

    @property
    def asks_around(self) -> bool:
        """Whether there is a condition on the record around the value."""
        return bool(self._around)

    def passes_around(self, envelope: Envelope) -> bool:
        """Whether the conditions hold that need no value."""
        return all(passes(None, envelope) for passes in self._around)

    def passes_inside(self, document: Any, envelope: Envelope) -> bool:
        """Whether the others hold."""
        return all(passes(document, envelope) for passes in self._inside)


def _compile(condition: Condition) -> Passes:
    find = compile_field(condition.field)
    if condition.test in ("present", "absent"):
        wanted = condition.test == "present"
        return lambda document, envelope: is_there(find(document, envelope)) == wanted
    among = frozenset((type(one), one) for one in condition.values)
    wanted = condition.test == "in"

    def passes(document: Any, envelope: Envelope) -> bool:
        found = find(document, envelope)
        # By type too: true is no 1, and 7 is no "7". Floats, lists and objects equal nothing.
        known = type(found) in (str, int, bool) and (type(found), found) in among
        return known == wanted

    return passes
