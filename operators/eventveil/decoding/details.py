"""What dead letters say of an event, for people: the record keeps its words, which the kernel writes too."""

from __future__ import annotations

import re
from collections.abc import Mapping

from eventveil.decoding.rules import Reason

#: Reasons whose details have durations, and nothing of an event that could look like one.
_TIMED = (Reason.BEFORE_ORIGIN, Reason.TOO_FAR_AHEAD, Reason.LATE, Reason.MISALIGNED)
_MILLISECONDS = re.compile(r"\b([0-9]+) ms\b")
_BEHIND = re.compile(r"appended behind the boundary of ([0-9]+)")
#: What JSON calls what a detail names by a type of Python.
_IN_JSON: Mapping[str, str] = {
    "NoneType": "null",
    "float": "a number with decimals",
    "int": "an integer",
    "bool": "true or false",
    "str": "text",
    "list": "an array",
    "dict": "an object",
    "bytes": "bytes that are not text",
}


def shown_detail(reason: str, detail: str) -> str:
    """A detail with types in the words of JSON and durations in units that one can read."""
    if reason == Reason.LATE and (behind := _BEHIND.fullmatch(detail)):
        return f"appended after the boundary that ended timestamp {behind[1]} in its partition"
    if reason in _TIMED:
        return _MILLISECONDS.sub(lambda found: long_duration(int(found[1])), detail)
    start, comma, name = detail.rpartition(", not ")
    known = _IN_JSON.get(name) if reason == Reason.WRONG_TYPE else None
    return detail if known is None else start + comma + known


def long_duration(milliseconds: int) -> str:
    """A duration of any length, such as 1d 8h 20m 17s: to the nearest second from a minute on."""
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    seconds, rest = divmod(milliseconds, 1000)
    if seconds >= 60:
        seconds, rest = round(milliseconds / 1000), 0
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        whole, seconds = divmod(seconds, size)
        parts += [f"{whole}{unit}"] if whole else []
    if seconds or rest:
        parts.append(f"{seconds}.{rest:03}s" if rest else f"{seconds}s")
    return " ".join(parts)
