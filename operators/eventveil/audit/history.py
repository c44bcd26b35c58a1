"""What the ledger says of a stream so far: the terms of its generations, its changes, what was spent."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from math import ceil, floor
from typing import Any

import orjson

from eventveil.formats.change import Change, ChangeLimit, Options, Terms, change_limits, stated_terms
from eventveil.model.errors import StateRefused
from eventveil.privacy.ledger import Bridge

#: What a state can hold; more is never spent in one window.
_MOST_UNITS = 2**62


@dataclass(slots=True)
class History:
    """What the ledger says of a stream, record by record: spends and changes of the newest generation.

    ``generations`` are the terms that each generation has had, the newest last; ``ended`` is the timestamp
    after the last one of each but the newest.
    """

    stream: str
    generations: list[list[Terms]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    first: int = 0
    _spends: array[int] = field(default_factory=lambda: array("q"))
    #: The terms from which index on.
    _terms: list[tuple[int, Terms]] = field(default_factory=list)
    #: What decides about the noise now.
    _noise: Options = field(default_factory=dict)

    @property
    def lives(self) -> list[list[Terms]]:
        """The terms that each generation has released under, the newest last: others have cost nothing."""
        if self.generations and not self._spends:
            return [*self.generations[:-1], []]
        return self.generations

    @property
    def regimes(self) -> list[tuple[Terms, int]]:
        """The terms that the newest generation has released under, each with the timestamp after its last."""
        ends = [*(index for index, _ in self._terms[1:]), len(self._spends)]
        return [(terms, self.first + end) for (_, terms), end in zip(self._terms, ends, strict=False)]

    @property
    def next(self) -> int:
        """The timestamp after the last one; 0 if there is none."""
        return self.first + len(self._spends)

    def add(self, value: bytes | None, place: str) -> None:
        """Take in the next committed record. Raises StateRefused if it does not follow from those before."""
        try:
            fields = orjson.loads(value or b"null")
            change = Change.read(fields)
            if change is not None:
                self._change(change.under(self._noise))
            else:
                self._entry(fields)
        except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise StateRefused(
                place,
                f"the ledger of stream {self.stream} cannot be continued: {error!r}",
                "`eventveil ledger` shows more; restore the topic from a backup",
            ) from None

    def _change(self, change: Change) -> None:
        if change.kind == "reset":
            self.ended += [self.next] if self.generations else []
            self.generations = self.lives
            self.generations.append([change.after])
            self.changes.clear()
            self._terms.clear()
            del self._spends[:]
            self.first = change.start
        elif not self.generations:
            self.generations.append([change.before])
            self.first = change.start
        if change.start != self.next:
            raise ValueError(f"a change at {change.start}, where {self.next} was due")
        self._noise = change.options(self._noise, "new")
        if change.kind == "migration":
            self.changes.append(change)
            self.generations[-1].append(change.after)

    def _entry(self, fields: Mapping[str, Any]) -> None:
        terms = stated_terms(fields)
        self._noise = {name: fields[name] for name in ("noise", "delta") if name in fields}
        if not self.generations:
            self.generations.append([terms])
            self.first = fields["timestamp"]
        if not self._spends:
            # Under terms that came before nothing was released, and only releases tell what their noise is.
            self.generations[-1] = [terms]
        if fields["timestamp"] != self.next:
            raise ValueError(f"timestamp {fields['timestamp']}, where {self.next} was due")
        if not self._terms or self._terms[-1][1] != terms:
            self._terms.append((len(self._spends), terms))
        self._spends.append(fields["spent"]["test"] + fields["spent"]["publish"])

    def limit(self, change: Change) -> ChangeLimit | None:
        """The limit of windows across ``change``, which comes next, and all others since the last release.

        None if it does not change terms, or if nothing was released before it.
        """
        limits = change_limits([*self.changes, change], self.first)
        return limits[-1] if change.restarts and self.next and limits else None

    def bridges(self, change: Change) -> list[Bridge]:
        """The limits that a ledger begins under after ``change``, which comes next.

        One for the change itself, and one for each earlier change whose windows still reach beyond it.
        """
        at, after = change.start, change.after
        limits = change_limits([*self.changes, change], self.first)
        return [self._bridge(one, after, one.until - at) for one in limits if one.until > at]

    def _bridge(self, limit: ChangeLimit, after: Terms, left: int) -> Bridge:
        """A limit in units of the terms that follow: the past is rounded up, the limit down."""
        if limit.delta is not None and after.delta is None:
            raise ValueError("units of pure epsilon have no fixed price in terms of mu squared")
        unit = limit.cost(1, after)
        units = min(floor(limit.most / unit), _MOST_UNITS)
        # More than the limit is as good as just above it: nothing can be spent beside either.
        past = [min(ceil(cost / unit), units + 1) for cost in self._last(limit)]
        return Bridge(window=limit.window, units=units, past=past, left=left)

    def _last(self, limit: ChangeLimit) -> Iterable[Fraction]:
        """What the last timestamps cost that a window across the change may hold, the oldest first."""
        begin = max(0, len(self._spends) - limit.window + 1)
        for terms, end in self.regimes:
            for spend in islice(self._spends, begin, end - self.first):
                yield limit.cost(spend, terms)
            begin = max(begin, end - self.first)
