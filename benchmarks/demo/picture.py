"""The picture of a run: released against true counts, large where enough fly, small where they do not."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.demo.flights import BEGIN
from benchmarks.demo.releases import Series
from tests.kafka.jars import CACHE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEFT = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
SMALL = {"ATL": "to Atlanta", "BOS": "to Boston", "SEA": "to Seattle"}
TRUE, RELEASED, INK = "#8b949e", "#0f766e", "#1f2933"
DAYS_SHOWN = (7, 2)
"""The last days of a longer run, on the left and on the right, so that days and nights can be seen."""
INTERVAL = 1.96  # standard deviations on either side: 95 %


def draw(path: Path, airports: Series, destinations: Series) -> None:
    """Write the picture as PNG, 1650 by 1050 pixels."""
    # Fonts are looked up once; the list stays with the other things that `make clean` removes.
    os.environ.setdefault("MPLCONFIGDIR", str(CACHE / "matplotlib"))
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(LEFT), 2, sharex="col", sharey="col", width_ratios=(3, 1))
    for side, (series, names) in enumerate(((airports, LEFT), (destinations, SMALL))):
        for row, name in enumerate(names):
            _panel(axes[row, side], series, DAYS_SHOWN[side], name, names[name])
        axes[-1, side].xaxis.set_major_locator(MaxNLocator(DAYS_SHOWN[side], integer=True))
        axes[-1, side].xaxis.set_major_formatter(_day_of_january)
    mechanism = airports.mechanism
    figure.suptitle(
        "Aircraft that leave New York in an hour, January 2013\n"
        f"({mechanism.kind}, epsilon {mechanism.epsilon_text} in any {mechanism.window} hours)",
        fontsize=16,
        color=INK,
    )
    figure.supylabel("aircraft in an hour", fontsize=14, color=INK)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=14)
    figure.savefig(path, dpi=150)


def _panel(axes: Axes, series: Series, days: int, name: str, title: str) -> None:
    column, first = series.columns.index(name), max(0, len(series.truth) - 24 * days)
    edges = np.arange(first, len(series.truth) + 1) / 24 + 1
    released, error = series.sanitized[first:, column], series.errors[first:, column]
    low, high = np.maximum(released - INTERVAL * error, 0), released + INTERVAL * error
    axes.stairs(high, edges, baseline=low, fill=True, color=RELEASED, alpha=0.22, lw=0, label="95 % band")
    axes.stairs(series.truth[first:, column], edges, baseline=None, color=TRUE, lw=1.6, label="true count")
    axes.stairs(released, edges, baseline=None, color=RELEASED, lw=1.8, label="released")
    axes.axhline(0, color=INK, lw=0.6, zorder=1)
    share = float(
        np.abs(released - series.truth[first:, column]).mean() / series.truth[first:, column].mean()
    )
    axes.set_title(f"{title}: error {share:.0%}", loc="left", fontsize=13, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=12, colors=INK)
    axes.grid(axis="y", lw=0.4, alpha=0.5)


def _day_of_january(position: float, _: int) -> str:
    return f"{BEGIN + timedelta(days=position - 1):%-d %b}"
