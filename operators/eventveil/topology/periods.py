"""The periods that counts may be expected to have: a list in a file, or what follows from the timeline.

A mechanism takes them as one text, such as "24,168": so they stand in the fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from eventveil.mechanisms.forecasting.harmonics import LONGEST_PERIOD, MOST_PERIODS
from eventveil.mechanisms.totals import DEFAULT_BLOCKS
from eventveil.topology.document import Items, Node, Scalar
from eventveil.topology.fields import INVALID, Invalid, One, ReadingPass, refused
from eventveil.topology.scalars import Kind, Schema, UnfitError, Whole

HOUR = 3_600_000
DAY = 24 * HOUR
WEEK = 7 * DAY
# Of these many parts or more, a block's noise is worth a level; of more than that, sums within err too much.
_LEAST_PARTS, _MOST_PARTS = 6, 300
_MANY_PARTS = 16
_PERIOD = Whole(2, LONGEST_PERIOD)
MOST_BLOCKS = 4
"""Of nested blocks, the timestamp itself left out: each further level costs noise at all others."""


def derived(interval: int) -> tuple[int, ...]:
    """A day and a week in timestamps of ``interval`` ms, where they are whole numbers from 2 on."""
    return tuple(
        span // interval
        for span in (DAY, WEEK)
        if span % interval == 0 and 2 <= span // interval <= LONGEST_PERIOD
    )


def blocks_of(interval: int, *, normal: bool = False) -> tuple[int, ...]:
    """At most two lengths of nested blocks: of an hour, a day and a week, those that are whole numbers of
    timestamps and not much longer or hardly longer than what they are made of; else those of the kind.

    ``normal``: for Gaussian noise, with which a further level is cheap: one more where the first block has
    many parts, its largest divisor whose square is no larger.
    """
    found = [1]
    for span in (HOUR, DAY, WEEK):
        length = span // interval
        if span % interval == 0 and _LEAST_PARTS * found[-1] <= length <= _MOST_PARTS * found[-1]:
            found.append(length)
    blocks = tuple(found[1 : MOST_PERIODS + 1]) or DEFAULT_BLOCKS
    first = blocks[0]
    inner = next(one for one in range(isqrt(first), 0, -1) if first % one == 0)
    return (inner, *blocks) if normal and first >= _MANY_PARTS and inner > 1 else blocks


def as_text(periods: Sequence[int]) -> str:
    """As a mechanism takes them."""
    return ",".join(map(str, periods))


def in_words(periods: Sequence[int]) -> str:
    """As a file has them."""
    return f"[{', '.join(map(str, periods))}]"


@dataclass(frozen=True)
class _Periods(Kind[tuple[int, ...]]):
    """Periods in one text, for the command line: ``24,168``, or nothing."""

    most: int = MOST_PERIODS
    least: int = 0

    def parse(self, scalar: Scalar) -> tuple[int, ...]:
        """The periods, the shorter first."""
        words = scalar.text.split(",") if scalar.text else []
        return self.ordered([_PERIOD.parse(Scalar(scalar.position, word.strip())) for word in words])

    @property
    def expected(self) -> str:
        """What is wanted, in words."""
        number = f"{self.least} to {self.most}" if self.least else f"at most {self.most}"
        none = "" if self.least else " or []"
        return f"a list of {number} different periods in timestamps, such as [24, 168]{none}"

    def ordered(self, periods: list[int]) -> tuple[int, ...]:
        """The shorter first. Raises UnfitError for too many or too few, and for one twice."""
        if len(set(periods)) < len(periods) or not self.least <= len(periods) <= self.most:
            raise UnfitError(self.expected, in_words(periods))
        return tuple(sorted(periods))

    def strict_schema(self) -> Schema:
        """What a file may have, and what ``parse`` makes of its own text."""
        return {
            "type": "array",
            "items": _PERIOD.schema(),
            **({"minItems": self.least} if self.least else {}),
            "maxItems": self.most,
            "uniqueItems": True,
        }


@dataclass(frozen=True)
class Periods(One):
    """A list of whole numbers: a tuple, the shorter first."""

    kind: _Periods = _Periods()

    def read(self, node: Node, name: str, reading: ReadingPass) -> tuple[int, ...] | Invalid:
        """The periods; every item that is none is a mistake of its own."""
        if not isinstance(node, Items):
            return refused(node, name, self.kind.expected, reading)
        periods = [One(_PERIOD).read(item, name, reading) for item in node.items]
        if any(period is INVALID for period in periods):
            return INVALID
        try:
            return self.kind.ordered(periods)
        except UnfitError as unfit:
            reading.problems.add(node.position, f"{name}: found {unfit.found}, expected {unfit.expected}")
        return INVALID

    def schema(self) -> Schema:
        """An array of whole numbers."""
        return self.kind.strict_schema()


BLOCKS = Periods(_Periods(MOST_BLOCKS, least=1))
"""The lengths of nested blocks."""
