"""Lines of one column as SVG: true counts, what counts of them, and releases with a 95 % band.

Colours are classes, so that the page's style sheet can have a light and a dark set. All sizes are for a
picture that is shown about as wide as ``WIDTH``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import numpy as np
from numpy.typing import NDArray

from eventveil.topology.periods import DAY

Floats = NDArray[np.float64]
WIDTH, HEIGHT = 360, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 12, 48
#: 95 % of normal errors are within this many standard deviations.
TWO_SIDED = 1.96
#: So few points have marks of their own.
_FEW = 40


@dataclass(frozen=True, slots=True)
class Lines:
    """A column's counts, a timestamp each, from ``begin`` (epoch ms) on, ``interval`` ms long.

    ``errors`` are standard deviations of ``released``, NaN where nothing is known.
    """

    label: str
    begin: int
    interval: int
    events: Floats
    counted: Floats
    released: Floats
    errors: Floats


def svg(lines: Lines, what: str) -> str:
    """The picture; ``what`` is on the vertical axis."""
    canvas = _Canvas(lines)
    parts = [*canvas.axes(what), *canvas.band(), *canvas.drawn()]
    title = escape(f"{lines.label}: true and released counts")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>'
        f"{''.join(parts)}</svg>"
    )


class _Canvas:
    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        low, high = lines.released - self._reach(), lines.released + self._reach()
        every = np.concatenate([lines.events, lines.released, high[np.isfinite(high)]])
        self._step = nice_step(float(every.max(initial=1)))
        self._high = self._step * math.ceil(float(every.max(initial=1)) / self._step)
        # A band may reach below zero, where no count is; a release may be there itself.
        lowest = min(0.0, float(lines.released.min(initial=0)))
        self._low = -self._step * math.ceil(-lowest / self._step)
        self._band = np.clip(low, self._low, None), high

    def _reach(self) -> Floats:
        reach: Floats = TWO_SIDED * self._lines.errors
        return reach

    def _x(self, index: float) -> float:
        number = len(self._lines.released)
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (index + 0.5) / number

    def _y(self, value: float) -> float:
        return _TOP + (HEIGHT - _TOP - _BOTTOM) * (self._high - value) / (self._high - self._low)

    def axes(self, what: str) -> Iterator[str]:
        """Ticks, their numbers, and what the axes are."""
        for tick in range(round(self._low / self._step), round(self._high / self._step) + 1):
            value = tick * self._step
            y = self._y(value)
            yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            place = f'x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end"'
            yield f'<text class="tick" {place}>{short(value)}</text>'
        for index, text in self._dates():
            x = self._x(index)
            bottom = HEIGHT - _BOTTOM
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            yield f'<text class="tick" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{text}</text>'
        middle = (_TOP + HEIGHT - _BOTTOM) / 2
        yield (
            f'<text class="axis" x="11" y="{middle:.0f}" text-anchor="middle"'
            f' transform="rotate(-90 11 {middle:.0f})">{escape(what)}</text>'
        )
        centre = (_LEFT + WIDTH - _RIGHT) / 2
        yield f'<text class="axis" x="{centre:.0f}" y="{HEIGHT - 5}" text-anchor="middle">day (UTC)</text>'

    def _dates(self) -> Iterator[tuple[float, str]]:
        """At most five days, at their beginnings; of timestamps of a day, in their middles."""
        lines = self._lines
        end = lines.begin + lines.interval * len(lines.released)
        first, last = -(-lines.begin // DAY), (end - 1) // DAY
        stride = max(1, -(-(last - first + 1) // 5))
        for day in range(first, last + 1, stride):
            moment = datetime.fromtimestamp(day * 86_400, UTC)
            index = (day * DAY - lines.begin) / lines.interval - (0.5 if lines.interval < DAY else 0)
            yield index, f"{moment.day} {moment:%b}"

    def band(self) -> Iterator[str]:
        """Where the truth is with 95 %, as far as that is known."""
        low, high = self._band
        known = np.flatnonzero(np.isfinite(high))
        for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if known.size else ():
            if len(run) == 1:
                index = int(run[0])
                x, top, bottom = self._x(index), self._y(high[index]), self._y(low[index])
                yield f'<line class="alone" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
                continue
            above = [f"{self._x(index):.1f},{self._y(high[index]):.1f}" for index in run.tolist()]
            below = [f"{self._x(index):.1f},{self._y(low[index]):.1f}" for index in run[::-1].tolist()]
            yield f'<polygon class="band" points="{" ".join(above + below)}"/>'

    def drawn(self) -> Iterator[str]:
        """The three lines; the released one is on top."""
        lines = self._lines
        yield self._line(lines.events, "events")
        if not np.array_equal(lines.events, lines.counted):
            yield self._line(lines.counted, "counted")
        yield self._line(lines.released, "released")
        if len(lines.released) <= _FEW:
            for index, value in enumerate(lines.released.tolist()):
                yield f'<circle class="mark" cx="{self._x(index):.1f}" cy="{self._y(value):.1f}" r="2.6"/>'

    def _line(self, values: Floats, kind: str) -> str:
        points = " ".join(
            f"{self._x(index):.1f},{self._y(value):.1f}" for index, value in enumerate(values.tolist())
        )
        return f'<polyline class="{kind}" points="{points}"/>'


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
