"""What the terminal shows while the demo runs: a picture that moves, or a line a day where it cannot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from benchmarks.demo.flights import BEGIN
from benchmarks.demo.releases import Series

AIRPORTS = ("ATL", "ORD", "LAX", "BOS", "CLT", "SFO")
_RELEASED = "bold cyan"


class Screen(Protocol):
    """Shows the state of a run whenever it is told to."""

    def show(self, hour: float) -> None:
        """Show it; ``hour`` is where the feed is, negative before it begins."""


@contextmanager
def screen(hourly: Series, daily: Series) -> Iterator[Screen]:
    """The screen that suits standard output."""
    if not sys.stdout.isatty():
        yield _Lines(daily)
        return
    with Live(console=Console(), auto_refresh=False, transient=False) as live:
        yield _Picture(live, hourly, daily)


class _Lines:
    def __init__(self, daily: Series) -> None:
        self._daily, self._shown = daily, 0

    def show(self, hour: float) -> None:
        """Print the days that have been released since the last call."""
        while self._shown < self._daily.released:
            row = self._shown
            counts = "   ".join(
                f"{airport} {self._daily.truth[row, column]:>2} -> {self._daily.sanitized[row, column]:>3}"
                for airport, column in _columns(self._daily)
            )
            print(f"{_moment(24 * row):%a %d %b}  true -> released   {counts}", flush=True)
            self._shown += 1


class _Picture:
    def __init__(self, live: Live, hourly: Series, daily: Series) -> None:
        self._live, self._hourly, self._daily = live, hourly, daily

    def show(self, hour: float) -> None:
        """Draw anew."""
        group = Group(self._progress(hour), Text(), self._counts(), Text(), _EXPLANATION)
        self._live.update(Padding(group, (1, 2)), refresh=True)

    def _progress(self, hour: float) -> Table:
        hours = len(self._hourly.truth)
        line = Table.grid(padding=(0, 2))
        now = f"{_moment(hour):%a %d %b, %H}:00" if hour >= 0 else "The worker starts"
        done = f"{self._hourly.released} of {hours} hours released"
        line.add_row(Text(now, "bold"), ProgressBar(hours, self._hourly.released, width=40), done)
        return line

    def _counts(self) -> Table:
        table = Table(box=None, padding=(0, 2), show_footer=True)
        table.add_column("to", footer="epsilon spent")
        for label, series, unit in (
            (_of_hour(self._hourly), self._hourly, "hours"),
            (_of_day(self._daily), self._daily, "days"),
        ):
            table.add_column(f"{label}\ntrue", justify="right", style="dim")
            mechanism = series.mechanism
            spent = series.spent[series.released - 1] if series.released else 0.0
            footer = f"{spent:.2f} of {mechanism.epsilon_text} in {mechanism.window} {unit}"
            table.add_column("\nreleased", footer=footer, justify="right", style=_RELEASED)
        for airport, column in _columns(self._hourly):
            table.add_row(airport, *_last(self._hourly, column), *_last(self._daily, column))
        return table


_EXPLANATION = Text(
    "true: aircraft that left New York for there; only this demo adds them up.\n"
    "released: what Eventveil publishes.",
    "dim",
)


def _columns(series: Series) -> list[tuple[str, int]]:
    return [(airport, series.columns.index(airport)) for airport in AIRPORTS]


def _last(series: Series, column: int) -> tuple[str, str]:
    row = series.released - 1
    return ("", "") if row < 0 else (str(series.truth[row, column]), str(series.sanitized[row, column]))


def _of_hour(series: Series) -> str:
    return f"{_moment(series.released - 1):%a %d %b, %H}:00" if series.released else "hour"


def _of_day(series: Series) -> str:
    return f"{_moment(24 * (series.released - 1)):%a %d %b}" if series.released else "day"


def _moment(hour: float) -> datetime:
    return BEGIN + timedelta(hours=int(hour))
