"""What a time tells that is before the origin or too far ahead: that it is missing, or in another unit."""

from __future__ import annotations

from eventveil.counting.remedies import Remedy
from eventveil.decoding.rules import Reason
from eventveil.model.timeline import format_rfc3339, parse_rfc3339
from eventveil.model.topology import Stream

_DAY = 86_400_000
_YEAR = 365 * _DAY
#: What programs write for a time that was never set: 0 of most clocks, the zero times of Go and of .NET.
_NEVER_SET = (0, parse_rfc3339("0001-01-01T00:00:00Z"))
#: Milliseconds that are epoch seconds of 2001 to 2286.
_SECONDS = range(10**9, 10**10)
#: Numbers in too small a unit are this close to 1970.
_NEAR_1970 = 25 * _YEAR
#: No clock is this wrong, and no number in the right unit is that far off.
_NO_CLOCK, _NO_TIME = 10 * _YEAR, 100 * _YEAR


def about_time(reason: str, detail: str, stream: Stream) -> Remedy | None:
    """What to do about times that nobody can have meant, by the milliseconds that a detail begins with.

    None for other reasons, and where the remedy of the reason is all that can be said.
    """
    number, _, where = detail.partition(" ms ")
    if not number.isdigit():
        return None
    if reason == Reason.BEFORE_ORIGIN and where == "before the origin":
        return _before(stream.timeline.origin - int(number), stream)
    if reason == Reason.TOO_FAR_AHEAD:
        return _ahead(int(number))
    return None


def _before(time: int, stream: Stream) -> Remedy:
    if time in _NEVER_SET:
        return Remedy(
            ("source.time",),
            f"that is {format_rfc3339(time)}, which stands for a time that was never set: correct the"
            " producer",
        )
    unit = stream.source.time_unit
    if unit == "ms" and time in _SECONDS:
        return Remedy(("source.time_unit",), "give time_unit: s if these are epoch seconds")
    if unit != "ms" and abs(time) < _NEAR_1970:
        return Remedy(
            ("source.time_unit",),
            "that is close to 1970, so the number is probably not in the unit of time_unit:"
            " correct time_unit",
        )
    return Remedy(
        ("timeline.origin",),
        "do nothing if these are older than the stream is to be; choose an earlier origin for a new stream",
    )


def _ahead(off: int) -> Remedy | None:
    if off > _NO_TIME:
        return Remedy(
            ("source.time_unit",),
            "that is over 100 years ahead, so the number is probably not in the unit of time_unit:"
            " correct time_unit",
        )
    if off > _NO_CLOCK:
        return Remedy(
            ("source.time",),
            "that is over 10 years ahead, too far for a clock error: correct the producer, or name the field"
            " that has the time",
        )
    return None
