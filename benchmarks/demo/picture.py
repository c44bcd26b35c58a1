"""The picture of a run: sanitized against true counts, hours on the left, days on the right."""

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

AIRPORTS = {"ATL": "Atlanta", "ORD": "Chicago", "LAX": "Los Angeles", "BOS": "Boston"}
TRUE, SANITIZED, INK = "#9aa3ad", "#0f766e", "#1f2933"


def draw(path: Path, hourly: Series, daily: Series) -> None:
    """Write the picture as PNG, 1650 by 1200 pixels."""
    # Fonts are looked up once; the list stays with the other things that `make clean` removes.
    os.environ.setdefault("MPLCONFIGDIR", str(CACHE / "matplotlib"))
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(AIRPORTS), 2, sharex="col", sharey="col", width_ratios=(3, 2))
    for row, airport in enumerate(AIRPORTS):
        for side, (series, hours) in enumerate(((hourly, 1), (daily, 24))):
            _panel(axes[row, side], series, hours, airport)
    for side, (series, unit) in enumerate(((hourly, "hour"), (daily, "day"))):
        axes[0, side].annotate(
            _heading(series, unit), (0, 1), (0, 24), "axes fraction", "offset points",
            color=INK, fontsize=10, weight="bold",
        )  # fmt: skip
        axes[-1, side].xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        axes[-1, side].xaxis.set_major_formatter(_day_of_january)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        f"Aircraft that left New York, 1 to {-(-len(hourly.truth) // 24)} January 2013",
        fontsize=14,
        color=INK,
        weight="bold",
    )
    figure.savefig(path, dpi=150)


def _heading(series: Series, unit: str) -> str:
    mechanism = series.mechanism
    return (
        f"Every {unit}: {mechanism.kind.replace('-', ' ')}, epsilon {mechanism.epsilon_text} "
        f"in any {mechanism.window} {unit}s"
    )


def _panel(axes: Axes, series: Series, hours: int, airport: str) -> None:
    column = series.columns.index(airport)
    edges = np.arange(len(series.truth) + 1) * hours / 24 + 1
    axes.stairs(series.truth[:, column], edges, fill=True, color=TRUE, alpha=0.55, lw=0, label="true count")
    axes.stairs(series.sanitized[:, column], edges, baseline=None, color=SANITIZED, lw=1.5, label="released")
    middle = (edges[:-1] + edges[1:]) / 2
    axes.plot(
        middle[series.fresh], series.sanitized[series.fresh, column],
        "o", color=SANITIZED, ms=4, label="fresh release; the others repeat it",
    )  # fmt: skip
    axes.axhline(0, color=INK, lw=0.6, zorder=1)
    axes.set_title(
        f"{AIRPORTS[airport]} ({airport}), mean absolute error {series.error(column):.1f}",
        loc="left", fontsize=9, color=INK,
    )  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, colors=INK)
    axes.grid(axis="y", lw=0.4, alpha=0.5)


def _day_of_january(position: float, _: int) -> str:
    return f"{BEGIN + timedelta(days=position - 1):%-d %b}"
