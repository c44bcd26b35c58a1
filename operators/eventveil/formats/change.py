"""The public record of a change in the life of a stream: what the ledger says between two of its entries.

A *migration* changes the terms under which a stream continues. A *reset* runs it again from an earlier
timestamp: a new generation, whose epsilon adds to that of the one before. The record names the fields that
changed, so that the ledger alone shows under which terms each release was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from math import inf
from typing import Any, Literal, NamedTuple

import msgspec

from eventveil.model.durable import Positive
from eventveil.privacy import gaussian
from eventveil.topology.scalars import exact_number

Kind = Literal["migration", "reset"]
Options = Mapping[str, object]
#: How the fields begin that say where counts come from and go to. They can change at every level.
SAME_INSTANCE = ("sink.", "lost.", "partials.", "source.partitions", "source.topic_id")
_TERMS = {"mechanism.kind": "mechanism", "mechanism.epsilon": "epsilon", "mechanism.window": "window"}


class Terms(NamedTuple):
    """What a release is charged by: ``units`` amount to ``epsilon``, over any ``window`` timestamps.

    With Gaussian noise they amount to the mu squared of epsilon and ``delta``. No record of a change has
    delta among its terms: it is an option of the mechanism (``Change.under``).
    """

    mechanism: str
    epsilon: Fraction
    window: int
    units: int
    delta: Fraction | None = None

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
        """Whether counts or budget follow other rules from then on; new sinks or inputs change neither."""
        return self.kind == "reset" or not all(name.startswith(SAME_INSTANCE) for name in self.fields)

    @property
    def disputed(self) -> list[str]:
        """The fields of terms that say anything else than ``before`` and ``after`` do."""
        return [
            name
            for name, term in _TERMS.items()
            if self._told(name, term) != (getattr(self.before, term), getattr(self.after, term))
        ]

    def _told(self, name: str, term: str) -> tuple[object, object]:
        """What a field of terms says of both sides: of none, that the terms stay."""
        if name not in self.fields:
            return getattr(self.before, term), getattr(self.before, term)
        old, new = self.fields[name]
        return (exact_number(str(old)), exact_number(str(new))) if term == "epsilon" else (old, new)

    def under(self, others: Options) -> Change:
        """The same with the deltas of its terms, where ``others`` are the options of the mechanism before.

        Raises ValueError if epsilon and delta cannot be those of Gaussian noise.
        """
        before = with_delta(self.before, self.options(others, "old"))
        return replace(self, before=before, after=with_delta(self.after, self.options(others, "new")))

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
        fields = {name: _WrittenField(*one) for name, one in sorted(self.fields.items())}
        before, after = _WrittenTerms.of(self.before), _WrittenTerms.of(self.after)
        return msgspec.json.encode(
            _WrittenChange(
                self.kind, self.start, self.stream, fields, before, after, self.instance, self.previous
            )
        )

    @classmethod
    def read(cls, record: Mapping[str, Any] | None) -> Change | None:
        """The change that a record of the ledger tells; None if it tells none."""
        try:
            told = msgspec.convert(record or {}, _WrittenChange)
            before, after = told.before.terms(), told.after.terms()
        except (msgspec.ValidationError, ValueError):
            return None
        fields = {name: Difference(one.old, one.new) for name, one in told.fields.items()}
        return cls(told.stream, told.change, told.start, fields, before, after, told.instance, told.previous)


class _WrittenTerms(msgspec.Struct, frozen=True):
    """Terms as they are in the ledger."""

    mechanism: str
    epsilon: str
    window: Positive
    units: Positive

    @classmethod
    def of(cls, terms: Terms) -> _WrittenTerms:
        return cls(terms.mechanism, str(terms.epsilon), terms.window, terms.units)

    def terms(self) -> Terms:
        """Raises ValueError for an epsilon that is none."""
        epsilon = exact_number(self.epsilon)
        if epsilon is None or epsilon <= 0:
            raise ValueError("epsilon should be above 0")
        return Terms(self.mechanism, epsilon, self.window, self.units)


class _WrittenField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A difference as it is in the ledger. Options of plug-ins may be of any type."""

    old: Any
    new: Any


class _WrittenChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"start": "from"}):
    """A change as it is in the ledger."""

    change: Kind
    start: Positive
    stream: str
    fields: dict[str, _WrittenField]
    before: _WrittenTerms
    after: _WrittenTerms
    instance: str
    previous: str


class ChangeLimit(NamedTuple):
    """The limit across a change at timestamp ``start``: windows of ``window`` timestamps, epsilon at most.

    With ``delta``, where one of these timestamps can have Gaussian noise: then all of them count in terms of
    mu squared, those with Laplace noise by ``PURE``.
    """

    start: int
    window: int
    epsilon: Fraction
    delta: Fraction | None = None

    @classmethod
    def between(cls, start: int, before: Terms, after: Terms) -> ChangeLimit:
        """The larger width, within the larger epsilon, at the larger delta."""
        deltas = [one.delta for one in (before, after) if one.delta is not None]
        window, epsilon = max(before.window, after.window), max(before.epsilon, after.epsilon)
        return cls(start, window, epsilon, max(deltas, default=None))

    @property
    def until(self) -> int:
        """The first timestamp whose window does not reach back beyond the change any more."""
        return self.start + self.window - 1

    @property
    def most(self) -> Fraction:
        """What a window may cost. Of an epsilon beyond all that Gaussian noise has, the largest counts."""
        if self.delta is None:
            return self.epsilon
        return gaussian.mu_squared(min(self.epsilon, Fraction(gaussian.LARGEST_EPSILON)), self.delta)

    def cost(self, spend: int, terms: Terms) -> Fraction:
        """What a timestamp cost that has spent ``spend`` units under ``terms``, which the limit knows of."""
        if terms.delta is not None:
            return spend * gaussian.mu_squared(terms.epsilon, terms.delta) / terms.units
        pure = spend * terms.unit
        return pure if self.delta is None else gaussian.PURE * pure**2


def change_limits(changes: Iterable[Change], first: int) -> list[ChangeLimit]:
    """The limits across changes of terms, which are given in order, of a life that begins at ``first``.

    Changes without a release between them are one: terms that were in force for no timestamp allow nothing.
    Those before the first release are none: no window straddles them.
    """
    restarts = (change for change in changes if change.restarts and change.start > first)
    at = [list(together) for _, together in groupby(restarts, key=lambda change: change.start)]
    if not at:
        return []
    begins = [first, *(one[0].start for one in at)]
    terms = [at[0][0].before, *(one[-1].after for one in at)]
    regimes = list(zip(begins, [*begins[1:], inf], terms, strict=True))
    return [_limit(one[0].start, one[0].before, one[-1].after, regimes) for one in at]


def _limit(
    start: int, before: Terms, after: Terms, regimes: Iterable[tuple[int, float, Terms]]
) -> ChangeLimit:
    """The limit of a change; ``regimes`` are all terms of the life, with begin and end.

    If both terms are of Laplace noise, and Gaussian noise came within a window of them, the delta is that of
    the latter.
    """
    limit = ChangeLimit.between(start, before, after)
    if limit.delta is not None:
        return limit
    reaches_from = start - limit.window + 1
    met = [terms for begin, end, terms in regimes if begin < limit.until and end > reaches_from]
    return limit._replace(delta=max((one.delta for one in met if one.delta is not None), default=None))


def stated_terms(record: Mapping[str, Any]) -> Terms:
    """The terms that a release or its ledger entry states. Raises ValueError if it states none."""
    return with_delta(msgspec.convert(record, _WrittenTerms).terms(), record)


def with_delta(terms: Terms, options: Options) -> Terms:
    """Terms with the delta of Gaussian noise, where options have it; other kinds mean another delta.

    ``options`` may be a release's or an entry's. Raises ValueError if no Gaussian noise has both.
    """
    if options.get("noise") != "gaussian":
        return terms._replace(delta=None)
    delta = exact_number(str(options.get("delta")))
    if delta is None:
        raise ValueError(f"no delta can be {options.get('delta')!r:.40}")
    gaussian.mu_squared(terms.epsilon, delta)
    return terms._replace(delta=delta)
