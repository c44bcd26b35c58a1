"""A plot for each part: a panel for each stream, a row for each contender, a mark for each case."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from benchmarks.utility.measuring import Case, Results
from benchmarks.utility.tables import REFERENCES, reference

COLOURS = ("#1b7837", "#762a83", "#7fbf7b", "#af8dc3")
INCHES = 2.6
NEAREST, FURTHEST = 0.05, 50.0
"""Ratios beyond these are drawn at the edge, as triangles: the tables have them."""


def draw(results: Results, directory: Path) -> None:
    """Write ``PART.png`` for each part that was measured."""
    for part in REFERENCES:
        cases = results.of(part)
        if cases:
            _figure(part, cases, directory / f"{part}.png")


def _figure(part: str, cases: list[Case], path: Path) -> None:
    streams = list(dict.fromkeys(case.stream for case in cases))
    labels = list(dict.fromkeys(label for case in cases for label in case.errors))
    titles = max(sum(case.stream == stream for case in cases) for stream in streams)
    size = (2.4 + INCHES * len(streams), 1.1 + 0.22 * len(labels) + 0.13 * titles)
    figure, panels = plt.subplots(
        1, len(streams), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for panel, stream in zip(panels[0], streams, strict=True):
        own = [case for case in cases if case.stream == stream]
        for place, case in enumerate(own):
            _marks(panel, case, labels, COLOURS[place % len(COLOURS)], (place - (len(own) - 1) / 2) / 6)
        panel.set_title(stream, fontsize=9)
        panel.axvline(1, color="black", linewidth=0.8)
        panel.set_xscale("log")
        panel.grid(axis="x", linewidth=0.3)
        panel.tick_params(labelsize=7)
        below = -0.22 / (0.22 * len(labels))  # of the panel's height: clear of the ticks, whatever that is
        panel.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, below), frameon=False)
    panels[0][0].set_yticks(range(len(labels)), labels)
    panels[0][0].invert_yaxis()
    name = " or ".join(REFERENCES[part]) if len(REFERENCES[part]) == 1 else "the best baseline"
    figure.supxlabel(
        f"error over that of {name}: median, least and largest over the seeds\n"
        f"a triangle at the edge: below {NEAREST:g} or above {FURTHEST:g}, see the table",
        fontsize=8,
    )
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _marks(panel: Axes, case: Case, labels: list[str], colour: str, offset: float) -> None:
    rows = [row for row, label in enumerate(labels) if label in case.errors]
    ratios = [case.ratios(labels[row], reference(case)) for row in rows]
    limits = [np.clip([min(each), np.median(each), max(each)], NEAREST, FURTHEST) for each in ratios]
    low, middle, high = np.array(limits).T
    panel.errorbar(
        middle,
        np.array(rows) + offset,
        xerr=[middle - low, high - middle],
        fmt="o",
        markersize=2.5,
        linewidth=0.8,
        color=colour,
        label=case.title.removeprefix(f"{case.stream}, "),
    )
    for edge, marker, beyond in ((NEAREST, "<", middle <= NEAREST), (FURTHEST, ">", middle >= FURTHEST)):
        if beyond.any():
            places = (np.array(rows) + offset)[beyond]
            panel.plot(np.full(len(places), edge), places, marker, markersize=5, color=colour, clip_on=False)
