"""The page: one answer that needs nothing else and may load nothing else."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from eventveil.describe.drawn import how_drawn
from eventveil.describe.guarantee import count, duration_words
from eventveil.describe.page import filled, items, table
from eventveil.describe.picture import Lines, svg
from eventveil.live.recent import Row, Seen, SeenReadings, aligned
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import UNBOUNDED, AnyStream, ReadingStream, Stream, Topology
from eventveil.read.status import Status

_TEMPLATE = Path(__file__).with_name("page.html")
#: How often the page asks for itself, in milliseconds, unless it is hidden.
REFRESH = 5_000
#: Pictures on a page, and of a stream, which are those of its largest columns; columns in a table.
_PICTURES, _OF_A_STREAM, _COLUMNS = 24, 3, 24
#: Releases as numbers.
_NUMBERS = 24


def page(
    topology: Topology,
    seen: Mapping[str, Seen | SeenReadings],
    problem: str,
    obstacles: Sequence[str],
    following: Mapping[str, int],
    now: int,
    refresh: int = REFRESH,
) -> str:
    """The page at ``now`` (epoch ms).

    ``seen``: what is known of the sinks, by stream; ``problem``: why they cannot be read; ``obstacles``: why
    the worker is not ready; ``following``: what it releases next, by stream. All of it is public.
    """
    streams = topology.streams
    pictures = max(1, min(_OF_A_STREAM, _PICTURES // max(1, len(streams))))
    counted = (
        _section(one, seen.get(one.name), following.get(one.name), f"s{number}", pictures, now)
        for number, one in enumerate(streams, 1)
    )
    values = (
        _values(one, seen.get(one.name), f"s{number}")
        for number, one in enumerate(topology.readings, 1 + len(streams))
    )
    text = {"TITLE": f"{topology.name}: releases", "MILLISECONDS": str(refresh)}
    markup = {
        "WORKER": "".join(_worker(problem, obstacles)),
        "STREAMS": _links(topology.all_streams),
        "SECTIONS": "".join((*counted, *values)),
    }
    return filled(_TEMPLATE, text, markup)


def headers(text: str) -> dict[str, str]:
    """Those of the answer: the page may load nothing, run its own script, and be framed nowhere."""
    policy = {
        "default-src": "'none'",
        "style-src": f"'sha256-{_hash('style', text)}'",
        "script-src": f"'sha256-{_hash('script', text)}'",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _hash(element: str, text: str) -> str:
    """Of the only element of this name: whatever is put into the template has none, because it is escaped."""
    (content,) = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
    return b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _worker(problem: str, obstacles: Sequence[str]) -> Iterator[str]:
    if problem:
        yield f'<p class="state ill"><b>The sinks cannot be read.</b> {escape(problem)}</p>'
    if obstacles:
        yield f'<div class="state wait"><b>The worker is waiting.</b><ul>{items(obstacles)}</ul></div>'
    else:
        yield '<p class="state well"><b>The worker is ready.</b></p>'


def _links(streams: Sequence[AnyStream]) -> str:
    if len(streams) < 2:
        return ""
    linked = (f'<li><a href="#s{at}">{escape(one.name)}</a></li>' for at, one in enumerate(streams, 1))
    return f"<ul>{''.join(linked)}</ul>"


def _values(stream: ReadingStream, seen: Seen | SeenReadings | None, name: str) -> str:
    """A stream of values: its newest readings, the newest first."""
    epsilon = _tile(stream.mechanism.epsilon_text, f"epsilon of each value ({stream.mechanism.kind})")
    if not isinstance(seen, SeenReadings):
        state = _judgement("wait", "Not known yet", "the sink is being read")
    elif not seen.readings:
        state = _judgement("wait", "Waiting for its first reading", "one comes with each value")
    else:
        state = _judgement("well", "Has readings", "values have no timestamps, so that none can be late")
    parts = [state, f'<div class="tiles">{epsilon}</div>']
    if isinstance(seen, SeenReadings):
        lines = [
            (f"partition {one.partition}, position {one.position:,}", one.shown) for one in seen.readings
        ]
        parts += [table(("value", "reading"), lines[:_NUMBERS], numbers=(1,))] if lines else []
        parts += [_judgement("wait", "Not everything can be shown", seen.unread)] if seen.unread else []
    heading = f'<h2 id="{name}">{escape(stream.name)}</h2>'
    live = f'<div id="{name}-state" data-live>{"".join(parts)}</div>'
    return f'<section aria-labelledby="{name}">{heading}{live}</section>'


def _section(
    stream: Stream,
    seen: Seen | SeenReadings | None,
    following: int | None,
    name: str,
    pictures: int,
    now: int,
) -> str:
    """What changes is in parts with ids of their own; what can be focused is around them."""
    seen = seen if isinstance(seen, Seen) else None
    rows = aligned(seen.rows) if seen else ()
    order = _largest(rows)

    def part(kind: str, content: Iterable[str], classes: str = "") -> str:
        return f'<div id="{name}-{kind}"{classes} data-live>{"".join(content)}</div>'

    parts = [
        part("state", _state(stream, seen, following, now)),
        part("pictures", _pictures(stream, rows, sorted(order[:pictures])), ' class="pictures"'),
        part("last", _last(stream, rows, sorted(order[:_COLUMNS]))),
        "<details><summary>The newest releases as numbers</summary>",
        part("numbers", _numbers(stream, rows, sorted(order[:pictures]))),
        "</details>",
    ]
    heading = f'<h2 id="{name}">{escape(stream.name)}</h2>'
    return f'<section aria-labelledby="{name}">{heading}{"".join(parts)}</section>'


def _largest(rows: Sequence[Row]) -> list[int]:
    """The columns by the sums of what was released of them."""
    if not rows:
        return []
    sums = np.sum([row.counts for row in rows], axis=0)
    order: list[int] = np.argsort(-sums, kind="stable").tolist()
    return order


def _state(stream: Stream, seen: Seen | None, following: int | None, now: int) -> Iterator[str]:
    if seen is None:
        yield _judgement("wait", "Not known yet", "the sink is being read")
        return
    status = seen.status(stream, now, following)
    yield _health(status)
    yield f'<div class="tiles">{"".join(_tiles(status))}</div>'
    if seen.unread:
        yield _judgement("wait", "Not everything can be shown", seen.unread)


def _health(status: Status) -> str:
    if status.last is None:
        return _judgement(
            "ill" if status.is_late else "wait",
            "Waiting for its first release",
            "it comes when the first timestamp and its lateness are over and a worker is ready",
        )
    told = f"{status.health} (last {count(status.releases, 'release')})"
    if status.is_late:
        late = duration_words(status.overdue // 1000 * 1000)
        return _judgement("ill", "Late", f"the next release has been due for {late}; {told}")
    if status.state == "nothing":
        return _judgement("ill", "Nothing counts", told)
    if status.state == "much-less":
        return _judgement("ill", "Many events do not count", told)
    return _judgement("well" if status.state == "counting" else "wait", "On time", told)


def _judgement(kind: str, short: str, long: str) -> str:
    return f'<p class="state {kind}"><b>{escape(short)}.</b> {escape(long[:1].upper() + long[1:])}.</p>'


def _tiles(status: Status) -> Iterator[str]:
    if status.last is not None and status.until is not None:
        kind = how_drawn(status.mechanism, fresh=bool(status.fresh), exhausted=status.exhausted)
        yield _tile(format_rfc3339(status.until), f"released until; timestamp {status.last}, {kind}")
    if status.due is not None:
        overdue = f"; overdue for {status.overdue // 1000} s" if status.overdue >= 1000 else ""
        which = "" if status.following is None else f"timestamp {status.following} "
        yield _tile(format_rfc3339(status.due), f"{which}is due{overdue}")
    share = min(1.0, max(0.0, status.spent / status.epsilon))
    bar = (
        '<svg class="budget" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="all" width="100" height="8"/>'
        f'<rect class="spent" width="{100 * share:.1f}" height="8"/></svg>'
    )
    window = count(status.window, "timestamp")
    delta = "" if status.delta is None else f" at delta {status.delta:.3g}"
    spent = status.spent_in(f"the window of {window};")
    what = f"of epsilon{delta} spent {spent} ({status.mechanism})"
    yield _tile(f"{status.spent:.4g} of {status.epsilon:g}", what, bar)


def _tile(number: str, what: str, more: str = "") -> str:
    return f'<div class="tile"><b>{escape(number)}</b><span>{escape(what)}</span>{more}</div>'


def _pictures(stream: Stream, rows: Sequence[Row], columns: Iterable[int]) -> Iterator[str]:
    for column in columns:
        picture = svg(_lines(stream, rows, column), *_counted(stream))
        yield f"<figure><figcaption><b>{escape(_name(rows, column))}</b></figcaption>{picture}</figure>"


def _counted(stream: Stream) -> tuple[str, ...]:
    """What counts are of, in one line or two: a bound on the events of a user is easily overlooked."""
    told = f"events in {duration_words(stream.timeline.interval)}"
    if stream.bound == UNBOUNDED:
        return (told,)
    bound = min(stream.bound, stream.counts.per_column or stream.bound)
    return f"{told},", f"at most {bound:,} per user"


def _lines(stream: Stream, rows: Sequence[Row], column: int) -> Lines:
    """A column of all rows, with gaps where no release is, up to the newest; not longer than without gaps."""
    first = max(rows[0].timestamp, rows[-1].timestamp - len(rows) + 1)
    size = rows[-1].timestamp - first + 1
    released, low, high = np.full((3, size), np.nan)
    fresh = np.zeros(size, bool)
    for row in rows:
        if (at := row.timestamp - first) >= 0 and row.has(column):
            released[at], low[at], high[at] = row.counts[column], row.low[column], row.high[column]
            fresh[at] = row.fresh
    begin = rows[-1].start - (size - 1) * stream.timeline.interval
    return Lines(_name(rows, column), begin, stream.timeline.interval, released, low, high, fresh)


def _last(stream: Stream, rows: Sequence[Row], columns: Sequence[int]) -> Iterator[str]:
    if not rows:
        return
    row = rows[-1]
    yield f"<h3>Timestamp {row.timestamp}, from {format_rfc3339(row.start)}, {row.how}</h3>"
    columns = [at for at in columns if row.has(at)]
    lines = ((row.columns[at], f"{row.counts[at]:,}", _interval(row, at)) for at in columns)
    yield table(("column", "released", "95 % interval"), lines, numbers=(1, 2))
    released = len(row.counts) if row.released is None else int(row.released.sum())
    if hidden := released - len(columns):
        yield f'<p class="soft">And {hidden} smaller column{"s" * (hidden > 1)}, which the sink has.</p>'


def _numbers(stream: Stream, rows: Sequence[Row], columns: Sequence[int]) -> Iterator[str]:
    heads = ("from", "kind", *(_name(rows, at) for at in columns))
    lines = (_line(row, columns) for row in rows[: -_NUMBERS - 1 : -1])
    yield table(heads, lines, numbers=range(2, len(heads)))


def _line(row: Row, columns: Sequence[int]) -> tuple[str, ...]:
    counts = (_count(row, at) for at in columns)
    return (format_rfc3339(row.start), row.how, *counts)


def _count(row: Row, column: int) -> str:
    if not row.has(column):
        return "not released"
    return f"{row.counts[column]:,} ({_interval(row, column)})"


def _name(rows: Sequence[Row], column: int) -> str:
    return rows[0].columns[column]


def _interval(row: Row, column: int) -> str:
    low, high = row.low[column], row.high[column]
    return "not known" if np.isnan(low) else f"{low:,.0f} to {high:,.0f}"
