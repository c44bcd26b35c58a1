"""Whether a release is of the stream that a topology file describes, and in words how they differ.

Told are the columns and the timeline, which no migration changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from eventveil.describe.guarantee import count
from eventveil.model.timeline import format_rfc3339, parse_rfc3339
from eventveil.model.topology import Timeline
from eventveil.topology.columns import columns_digest
from eventveil.topology.scalars import duration_text

#: Of each side as many names are told.
_TOLD = 3


def other_columns(counts: Any, digest: str | None, listed: tuple[str, ...]) -> str:
    """How the columns of a release differ from those ``listed`` in a file, in words; "" if they do not.

    ``counts`` are those of the release, by column or as an array, ``digest`` its digest of their names, which
    comes with arrays.
    """
    if isinstance(counts, Mapping):
        # Equal dicts may have another order, which matters here.
        return "" if tuple(counts) == listed else _by_name([*counts], listed)
    if len(counts) != len(listed):
        return f"the releases have {count(len(counts), 'column')}, this file has {len(listed)}"
    if digest is not None and digest != _digest(listed):
        return "the names of the columns, or their order, differ between the releases and this file"
    return ""


def shown_timeline(timestamp: int, start: Any, end: Any, rules: Timeline) -> Timeline | None:
    """The timeline that the times of a release show, with all else as in ``rules``; None if there is none."""
    try:
        begin, stop = parse_rfc3339(start), parse_rfc3339(end)
    except (TypeError, ValueError):
        return None
    interval = stop - begin
    if interval <= 0:
        return None
    return replace(rules, interval=interval, origin=begin - (timestamp - 1) * interval)


def other_timeline(shown: Timeline, rules: Timeline) -> str:
    """How the timeline that releases show differs from that of the file, in words; "" if it does not."""
    if (shown.interval, shown.origin) == (rules.interval, rules.origin):
        return ""
    return f"the releases have {_timeline(shown)}, this file has {_timeline(rules)}"


def _timeline(rules: Timeline) -> str:
    try:
        origin = format_rfc3339(rules.origin)
    except OverflowError:  # before the year 1
        origin = "before the year 1"
    return f"the interval {duration_text(rules.interval)} and the origin {origin}"


def _by_name(released: Sequence[str], listed: Sequence[str]) -> str:
    known, wanted = {*listed}, {*released}
    only_released = [one for one in released if one not in known]
    only_listed = [one for one in listed if one not in wanted]
    if only_released and only_listed:
        return f"only the releases have {_names(only_released)}, and only this file has {_some(only_listed)}"
    if only_released:
        return f"the releases have {_names(only_released)}, which this file does not have"
    if only_listed:
        return f"this file has {_names(only_listed)}, which the releases do not have"
    return "the releases have the columns of this file in another order"


def _names(names: Collection[str]) -> str:
    return f"the column{'s' * (len(names) != 1)} {_some(names)}"


def _some(names: Collection[str]) -> str:
    more = len(names) - _TOLD
    return ", ".join([*names][:_TOLD]) + (f" and {more} more" if more > 0 else "")


@lru_cache(maxsize=64)
def _digest(columns: tuple[str, ...]) -> str:
    return columns_digest(columns)
