"""Whether releases show that events count: a function of what is public, and of nothing else.

So it costs no budget and tells no more than the releases do (docs/privacy.md, "Whether events count").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import hypot
from typing import Literal, NamedTuple, get_args

import msgspec

State = Literal["counting", "much-less", "nothing", "unknown"]
"""``nothing``: the counts are indistinguishable from noise. ``much-less``: less than half of those expected.
``unknown``: there are too few releases to say."""
STATES: tuple[State, ...] = get_args(State)

#: Fewer releases say nothing, and of more than the second number only the newest are looked at.
LEAST, MOST = 3, 1000
#: Of the standard deviation of a sum, and of that of the newest release alone.
_SURE, _SURE_ALONE = 2.0, 4.0


class Total(NamedTuple):
    """The sum of a release's counts, per timestamp, with its expected standard deviation.

    ``fresh``: its noise is its own. Otherwise it goes along with the last fresh one before.
    """

    counted: float
    error: float
    fresh: bool


class _Release(msgspec.Struct):
    """What is looked at of a release; see ``eventveil.read.records`` for all of it."""

    stream: str
    counts: dict[str, int] | list[int]
    fresh: bool
    error: dict[str, float] | list[float] | float | None = None
    span: int = 1
    minimum: int | None = None
    phase: str | None = None


_DECODER = msgspec.json.Decoder(_Release)


def total_of(record: bytes) -> tuple[str, Total] | None:
    """The stream and the total of a release; None where it has no errors, or is of local reports.

    Raises ValueError if it is not a release.
    """
    release = _DECODER.decode(record)
    if release.error is None or release.phase is not None:
        return None
    counts, errors = [*_numbers(release.counts)], [*_numbers(release.error)]
    if len(errors) == 1:
        errors *= len(counts)
    # Counts that were cut off at the minimum are biased upwards, and so are all sums of them.
    clipped = release.minimum is not None
    error = sum(errors) if clipped else hypot(*errors)
    fresh = release.fresh and release.span == 1 and not clipped
    return release.stream, Total(sum(counts) / release.span, error / release.span, fresh)


def _numbers(values: dict[str, float] | dict[str, int] | list[float] | list[int] | float) -> Iterable[float]:
    if isinstance(values, dict):
        return values.values()
    return values if isinstance(values, list) else [values]


def looked_at(window: int) -> int:
    """How many of the newest releases a state is about: those of a window, so that a day has its night."""
    return min(max(window, LEAST), MOST)


def state_of(totals: Sequence[Total], whole: int, expected: int | None = None) -> State:
    """What totals of consecutive timestamps say together; ``expected`` is that of one on average.

    ``whole`` is how many are looked at where there are as many (``looked_at``). Of fewer, those that all go
    along with a single draw say no more than it does, and the first draw of a stream may have had few events.
    Nor do its first releases, with their large errors, hide one that stands out by itself.
    """
    number = len(totals)
    if number < LEAST:
        return "unknown"
    counted, error = sum(one.counted for one in totals), _error(totals)
    if counted <= _SURE * error and totals[-1].counted <= _SURE_ALONE * totals[-1].error:
        single = sum(one.fresh for one in totals) == 1
        return "unknown" if single and number < whole else "nothing"
    if expected is not None and counted + _SURE * error < expected * number / 2:
        return "much-less"
    return "counting"


def _error(totals: Iterable[Total]) -> float:
    """The standard deviation of their sum: those that go along with one fresh release share its noise."""
    shared: list[float] = []
    for one in totals:
        if one.fresh or not shared:
            shared.append(one.error)
        else:
            shared[-1] += one.error
    return hypot(*shared)
