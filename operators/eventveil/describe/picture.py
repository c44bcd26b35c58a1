"""Lines of one column as SVG: releases with a 95 % band and, where they are known, true counts.

Colours are classes, so that the page's style sheet can have a light and a dark set. All sizes are for a
picture that is shown about as wide as ``WIDTH``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
WIDTH, HEIGHT = 360, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 12, 48
#: Between lines of text, and half the width of a character of a tick.
_LINE, _HALF = 16, 3.3
#: Milliseconds.
_SECOND, _DAY = 1000, 86_400_000
#: Between ticks, where what is shown is shorter than two days: seconds.
_STRIDES = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200)
_TICKS = 5
#: So few points have marks of their own.
_FEW = 40


@dataclass(frozen=True, slots=True)
class Lines:
    """A column's counts, a timestamp each, from ``begin`` (epoch ms) on, ``interval`` ms long.

    ``released`` is NaN where nothing was; ``low`` and ``high`` are the ends of its interval, NaN where those
    are not known. ``fresh``: which releases have a mark of their own, None for all if they are few.
    ``events`` and ``counted`` are raw data, of those who have it.
    """

    label: str
    begin: int
    interval: int
    released: Floats
    low: Floats
    high: Floats
    fresh: NDArray[np.bool_] | None = None
    events: Floats | None = None
    counted: Floats | None = None

    @property
    def end(self) -> int:
        """Of the last timestamp, epoch ms."""
        return self.begin + self.interval * len(self.released)

    @property
    def marked(self) -> NDArray[np.bool_]:
        """Which releases have a mark."""
        few = np.full(len(self.released), len(self.released) <= _FEW)
        return (few if self.fresh is None else self.fresh) & np.isfinite(self.released)


def svg(lines: Lines, *what: str) -> str:
    """The picture; ``what`` is on the vertical axis, a line each."""
    canvas = _Canvas(lines, what)
    parts = [*canvas.axes(), *canvas.band(), *canvas.drawn()]
    kinds = "released counts" if lines.events is None else "true and released counts"
    title = escape(f"{lines.label}: {kinds}")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>'
        f"{''.join(parts)}</svg>"
    )


class _Canvas:
    def __init__(self, lines: Lines, what: Sequence[str]) -> None:
        self._lines, self._what = lines, what
        self._left = _LEFT + _LINE * (len(what) - 1)
        shown = [one for one in (lines.events, lines.released, lines.high) if one is not None]
        every = np.concatenate([one[np.isfinite(one)] for one in shown])
        self._step = nice_step(float(every.max(initial=1)))
        self._high = self._step * math.ceil(float(every.max(initial=1)) / self._step)
        # A band may reach below zero, where no count is; a release may be there itself.
        released = lines.released[np.isfinite(lines.released)]
        self._low = -self._step * math.ceil(-min(0.0, float(released.min(initial=0))) / self._step)
        self._band = np.clip(lines.low, self._low, self._high), np.clip(lines.high, self._low, self._high)

    def _x(self, index: float) -> float:
        number = len(self._lines.released)
        return self._left + (WIDTH - self._left - _RIGHT) * (index + 0.5) / number

    def _y(self, value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (self._high - value) / (self._high - self._low)

    def axes(self) -> Iterator[str]:
        """Ticks, their numbers, and what the axes are."""
        for tick in range(round(self._low / self._step), round(self._high / self._step) + 1):
            value = tick * self._step
            y = self._y(value)
            yield f'<line class="grid" x1="{self._left}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            place = f'x="{self._left - 5}" y="{y + 4:.1f}" text-anchor="end"'
            yield f'<text class="tick" {place}>{short(value)}</text>'
        # Whole days, unless that would be one or two.
        days = self._lines.interval >= _DAY or self._lines.end - self._lines.begin > 2 * _DAY
        for index, text in self._dates() if days else self._clock():
            x = self._x(index)
            bottom = HEIGHT - _BOTTOM
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            # The last one would be cut off.
            x = min(x, WIDTH - _HALF * len(text))
            yield f'<text class="tick" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{text}</text>'
        middle = (_TOP + HEIGHT - _BOTTOM) / 2
        for number, line in enumerate(self._what):
            at = 11 + _LINE * number
            yield (
                f'<text class="axis" x="{at}" y="{middle:.0f}" text-anchor="middle"'
                f' transform="rotate(-90 {at} {middle:.0f})">{escape(line)}</text>'
            )
        centre = (self._left + WIDTH - _RIGHT) / 2
        yield (
            f'<text class="axis" x="{centre:.0f}" y="{HEIGHT - 5}" text-anchor="middle">'
            f"{'day (UTC)' if days else self._first_day()}</text>"
        )

    def _dates(self) -> Iterator[tuple[float, str]]:
        """At most five days, at their beginnings; of timestamps of a day, in their middles."""
        lines = self._lines
        first, last = -(-lines.begin // _DAY), (lines.end - 1) // _DAY
        stride = max(1, -(-(last - first + 1) // _TICKS))
        for day in range(first, last + 1, stride):
            index = (day * _DAY - lines.begin) / lines.interval - (0.5 if lines.interval < _DAY else 0)
            yield index, _day(day * _DAY)

    def _clock(self) -> Iterator[tuple[float, str]]:
        """At most five times of the day, at the beginnings of timestamps."""
        lines = self._lines
        seconds = (lines.end - lines.begin) / _SECOND
        stride = next((one for one in _STRIDES if seconds / one <= _TICKS - 1), _STRIDES[-1]) * _SECOND
        form = "%H:%M" if stride >= 60 * _SECOND else "%H:%M:%S"
        for moment in range(-(-lines.begin // stride) * stride, lines.end, stride):
            index = (moment - lines.begin) / lines.interval - 0.5
            if index >= -0.5:
                yield index, datetime.fromtimestamp(moment / _SECOND, UTC).strftime(form)

    def _first_day(self) -> str:
        return f"time (UTC), from {_day(self._lines.begin)}"

    def band(self) -> Iterator[str]:
        """Where the truth is with 95 %, as far as that is known."""
        low, high = self._band
        known = np.flatnonzero(np.isfinite(high))
        for run in _runs(known):
            if len(run) == 1:
                index = int(run[0])
                x, top, bottom = self._x(index), self._y(high[index]), self._y(low[index])
                yield f'<line class="alone" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
                continue
            above = [f"{self._x(index):.1f},{self._y(high[index]):.1f}" for index in run.tolist()]
            below = [f"{self._x(index):.1f},{self._y(low[index]):.1f}" for index in run[::-1].tolist()]
            yield f'<polygon class="band" points="{" ".join(above + below)}"/>'

    def drawn(self) -> Iterator[str]:
        """The lines that there are; the released one is on top."""
        lines = self._lines
        if lines.events is not None:
            yield self._line(lines.events, "events")
            if lines.counted is not None and not np.array_equal(lines.events, lines.counted):
                yield self._line(lines.counted, "counted")
        for run in _runs(np.flatnonzero(np.isfinite(lines.released))):
            yield self._line(lines.released, "released", run)
        for index in np.flatnonzero(lines.marked).tolist():
            x, y = self._x(index), self._y(float(lines.released[index]))
            yield f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>'

    def _line(self, values: Floats, kind: str, run: NDArray[np.int64] | None = None) -> str:
        places = range(len(values)) if run is None else run.tolist()
        points = " ".join(f"{self._x(index):.1f},{self._y(float(values[index])):.1f}" for index in places)
        return f'<polyline class="{kind}" points="{points}"/>'


def _runs(places: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Neighbours together."""
    return np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if places.size else []


def _day(moment: int) -> str:
    found = datetime.fromtimestamp(moment // _SECOND, UTC)
    return f"{found.day} {found:%b}"


def nice_step(highest: float) -> float:
    """A step of 1, 2 or 5 times a power of ten, of which three to six reach ``highest``, at least 1."""
    size = max(1.0, 10.0 ** math.floor(math.log10(max(highest, 1))))
    return next(
        (size * part for part in (0.2, 0.5, 1, 2) if size * part >= 1 and highest / (size * part) <= 6), size
    )


def short(value: float) -> str:
    """A number for an axis: 1.5k for 1,500."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:g}"
