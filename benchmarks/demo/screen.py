"""What the terminal shows while the demo runs: a picture that moves, or a line a day where it cannot."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmarks.demo.flights import BEGIN
from benchmarks.demo.releases import Series

SHOWN = (("EWR", "JFK", "LGA"), ("ATL", "BOS", "SEA"))
DAY = 24
_RELEASED = "bold cyan"


class Screen(Protocol):
    """Shows the state of a run whenever it is told to."""

    def show(self, hour: float) -> None:
        """Show it; ``hour`` is where the feed is, negative before it begins."""


@contextmanager
def screen(airports: Series, destinations: Series) -> Iterator[Screen]:
    """The screen that suits standard output."""
    if not sys.stdout.isatty():
        yield _Lines(airports)
        return
    with Live(console=Console(), auto_refresh=False, transient=False) as live:
        yield _Picture(live, airports, destinations)


class _Lines:
    def __init__(self, airports: Series) -> None:
        self._airports, self._shown = airports, 0

    def show(self, hour: float) -> None:
        """Print the days that have been released since the last call: sums of their hours."""
        series = self._airports
        while self._shown + DAY <= series.released:
            day = slice(self._shown, self._shown + DAY)
            sums = "   ".join(
                f"{name} {series.truth[day, column].sum():>3} -> {series.sanitized[day, column].sum():>3}"
                for name, column in _columns(series, SHOWN[0])
            )
            print(f"{_moment(self._shown):%a %d %b}  24 hours, true -> released   {sums}", flush=True)
            self._shown += DAY


class _Picture:
    def __init__(self, live: Live, airports: Series, destinations: Series) -> None:
        self._live, self._airports, self._destinations = live, airports, destinations

    def show(self, hour: float) -> None:
        """Draw anew."""
        group = Group(self._progress(hour), Text(), self._counts(), Text(), _EXPLANATION)
        self._live.update(Padding(group, (1, 2)), refresh=True)

    def _progress(self, hour: float) -> Table:
        hours = len(self._airports.truth)
        line = Table.grid(padding=(0, 2))
        now = f"{_moment(hour):%a %d %b, %H}:00" if hour >= 0 else "The worker starts"
        done = f"{self._airports.released} of {hours} hours released"
        line.add_row(Text(now, "bold"), ProgressBar(hours, self._airports.released, width=40), done)
        return line

    def _counts(self) -> Table:
        table = Table(box=None, padding=(0, 2), show_footer=True)
        for side, (series, way) in enumerate(((self._airports, "from"), (self._destinations, "to"))):
            table.add_column(f"{_of_hour(series)}\n{way}", footer="" if side else "epsilon spent")
            table.add_column("\ntrue", justify="right", style="dim")
            mechanism = series.mechanism
            spent = series.spent[series.released - 1] if series.released else 0.0
            footer = f"{spent:.2f} of {mechanism.epsilon_text} in {mechanism.window} hours"
            table.add_column("\nreleased", footer=footer, justify="right", style=_RELEASED)
        for left, right in zip(*SHOWN, strict=True):
            table.add_row(*_last(self._airports, left), *_last(self._destinations, right))
        return table


_EXPLANATION = Text(
    "true: aircraft that left New York in that hour; only this demo adds them up.\n"
    "released: what Eventveil publishes, and how far off it says that it may be.",
    "dim",
)


def _columns(series: Series, names: Iterable[str]) -> list[tuple[str, int]]:
    return [(name, series.columns.index(name)) for name in names]


def _last(series: Series, name: str) -> tuple[str, str, str]:
    row, column = series.released - 1, series.columns.index(name)
    if row < 0:
        return name, "", ""
    error = series.errors[row, column]
    told = "" if np.isnan(error) else f" ±{1.96 * error:.0f}"
    return name, str(series.truth[row, column]), f"{series.sanitized[row, column]}{told}"


def _of_hour(series: Series) -> str:
    return f"{_moment(series.released - 1):%a %d %b, %H}:00" if series.released else "hour"


def _moment(hour: float) -> datetime:
    return BEGIN + timedelta(hours=int(hour))
