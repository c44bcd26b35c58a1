"""The public record of a change in the life of a stream: what the ledger says between two of its entries.

A *migration* changes the terms under which a stream goes on. A *reset* lets it run again from an earlier
timestamp: a new generation, whose epsilon adds to that of the one before. The record names the fields that
changed, so that the ledger alone tells under which terms each release was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

import orjson

from eventveil.topology.scalars import exact_number

Kind = Literal["migration", "reset"]
Options = Mapping[str, object]
#: How the fields begin that say where counts come from and go to. They can change at every level.
SAME_INSTANCE = ("sink.", "lost.", "partials.", "source.partitions", "source.topic_id")
_TERMS = {"mechanism.kind", "mechanism.epsilon", "mechanism.window"}


class Terms(NamedTuple):
    """What a release is charged by: ``units`` amount to ``epsilon``, over any ``window`` timestamps."""

    mechanism: str
    epsilon: Fraction
    window: int
    units: int

    @property
    def unit(self) -> Fraction:
        """What a unit is worth in terms of epsilon."""
        return self.epsilon / self.units


class Difference(NamedTuple):
    """A field before and after; None where there is no such field."""

    old: str | int | None
    new: str | int | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of ``stream`` between two timestamps; ``start`` is the first one after it.

    ``fields`` are those of the fingerprint and of the sink that changed. ``instance`` is the identity of the
    stream from then on, ``previous`` the one before.
    """

    stream: str
    kind: Kind
    start: int
    fields: Mapping[str, Difference]
    before: Terms
    after: Terms
    instance: str
    previous: str

    @property
    def moves_sink(self) -> bool:
        """Whether the releases before the change are in another sink than those after it."""
        return any(name.startswith("sink.") for name in self.fields)

    @property
    def restarts(self) -> bool:
        """Whether counts or budget go on under other rules: neither the sink nor other inputs change them."""
        return self.kind == "reset" or not all(name.startswith(SAME_INSTANCE) for name in self.fields)

    def options(self, others: Options, side: Literal["old", "new"]) -> Options:
        """The mechanism's options before or after it; what it does not tell is as in ``others``."""
        told = {
            name.removeprefix("mechanism."): getattr(one, side)
            for name, one in self.fields.items()
            if name.startswith("mechanism.") and name not in _TERMS
        }
        return {name: value for name, value in {**others, **told}.items() if value is not None}

    def encode(self) -> bytes:
        """The ledger record (schemas/ledger-change.schema.json)."""
        fields = {name: one._asdict() for name, one in sorted(self.fields.items())}
        terms = {"before": _terms_as_json(self.before), "after": _terms_as_json(self.after)}
        values = {name: value for name, value in asdict(self).items() if name not in ("kind", "start")}
        return orjson.dumps({"change": self.kind, "from": self.start, **values, "fields": fields, **terms})

    @classmethod
    def read(cls, record: Mapping[str, Any] | None) -> Change | None:
        """The change that a record of the ledger tells; None if it tells none."""
        try:
            values = dict(record or {})
            change = cls(
                kind=values.pop("change"),
                start=values.pop("from"),
                fields={name: Difference(**one) for name, one in values.pop("fields").items()},
                before=_terms(values.pop("before")),
                after=_terms(values.pop("after")),
                **values,
            )
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            return None
        names = (change.stream, change.instance, change.previous)
        sound = all(type(name) is str for name in names) and change.kind in get_args(Kind)
        return change if sound and type(change.start) is int and change.start >= 1 else None


class ChangeLimit(NamedTuple):
    """The limit across a change at timestamp ``start``: windows of ``window`` timestamps, epsilon at most."""

    start: int
    window: int
    epsilon: Fraction

    @classmethod
    def between(cls, start: int, before: Terms, after: Terms) -> ChangeLimit:
        """The larger width, within the larger epsilon."""
        return cls(start, max(before.window, after.window), max(before.epsilon, after.epsilon))

    @property
    def until(self) -> int:
        """The first timestamp whose window does not reach back beyond the change any more."""
        return self.start + self.window - 1


def change_limits(changes: Iterable[Change], first: int) -> list[ChangeLimit]:
    """The limits across changes of terms, which are given in order, of a life that begins at ``first``.

    Changes without a release between them are one: terms that were in force for no timestamp allow nothing.
    Those before the first release are none: no window straddles them.
    """
    restarts = (change for change in changes if change.restarts and change.start > first)
    at = [list(together) for _, together in groupby(restarts, key=lambda change: change.start)]
    return [ChangeLimit.between(one[0].start, one[0].before, one[-1].after) for one in at]


def _terms_as_json(terms: Terms) -> dict[str, Any]:
    return {**terms._asdict(), "epsilon": str(terms.epsilon)}


def _terms(values: Mapping[str, Any]) -> Terms:
    mechanism, epsilon, window, units = (values[name] for name in Terms._fields)
    if type(mechanism) is not str or type(epsilon) is not str:
        raise ValueError("terms should name the mechanism and epsilon")
    if any(type(number) is not int or number < 1 for number in (window, units)):
        raise ValueError("window and units should be whole numbers")
    exact = exact_number(epsilon)
    if exact is None or exact <= 0:
        raise ValueError("epsilon should be above 0")
    return Terms(mechanism, exact, window, units)
