"""How many of the intervals that releases carry hold the true count: release +- 1.96 error, nominally 95 %.

A cell is a count of a column at a timestamp, or the sum that is released there. Left out are the first
``START_WINDOWS`` windows, in which movement is learned, and timestamps before the first publication, which
have no error. Columns are in thirds by their true mean. Discrete Laplace noise alone is covered in 93.7 %. Of
columns that are 0 nearly always, a release of 0 is right with any error: those cannot be covered less.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility.measuring import AheadNoise, Case, Results, Scope, window_sums
from benchmarks.utility.real import (
    REAL,
    WITHOUT_PACKAGES,
    RealStream,
    commits,
    nyc_carriers,
    nyc_destinations,
    nyc_total,
    pets,
    stops,
    us_origins,
)
from benchmarks.utility.streams import Counts
from eventveil.formats.release import clipped
from eventveil.mechanisms.registry import KINDS as KINDS_OF_MECHANISMS
from eventveil.mechanisms.registry import build
from eventveil.model.topology import Level, MechanismSettings, Option

PART = "intervals"
HALF_WIDTH = 1.96
START_WINDOWS = 4
WINDOW = 24
THIRDS = ("sparse", "middle", "dense")
TERMS = (("0.1", 24), ("1", 24), ("0.5", 120))
"""Epsilon and window of the cases that are stored."""
TIMESTAMPS, QUICK_TIMESTAMPS = 1000, 200
RECOMMENDED = "seasonal"
LOWEST, HIGHEST = 0.90, 0.99
"""What 95 % intervals are to cover."""
ALONE = (
    (stops, 5),
    (commits, 3),
    (pets, 7),
    (pets, 3),
    (nyc_carriers, 6),
    (nyc_carriers, 2),
    (nyc_destinations, 4),
    (us_origins, 20),
    (nyc_total, 38),
)
"""Streams, and how large the column is that is taken of each; the last timestamps of it."""
ALONE_TERMS = (("0.1", 24), ("0.1", 120), ("0.5", 120), ("1", 120))
ALONE_TIMESTAMPS, ALONE_SEEDS = 1000, 3


@dataclass(frozen=True)
class Kind:
    """A mechanism with options; ``periods``: it takes those of the stream."""

    label: str
    kind: str
    options: dict[str, Option] = field(default_factory=dict)
    level: Level = "w-event"
    minimum: int | None = None
    periods: bool = False


GROUPED: dict[str, Option] = {"groups": 5}
KINDS = (
    Kind("uniform", "uniform"),
    Kind("uniform, minimum 0", "uniform", minimum=0),
    Kind("sample", "sample", periods=True),
    Kind("sample, minimum 0", "sample", minimum=0, periods=True),
    Kind("budget-distribution", "budget-distribution"),
    Kind("budget-distribution, 5 groups", "budget-distribution", GROUPED),
    Kind("budget-absorption", "budget-absorption"),
    Kind("budget-absorption, 5 groups", "budget-absorption", GROUPED),
    Kind("budget-absorption, pan-private", "budget-absorption", {"pan_private": "single"}),
    Kind("fast", "fast", periods=True),
    Kind("paced", "paced", periods=True),
    Kind("seasonal", "seasonal", periods=True),
    Kind("time-unit", "time-unit", level="event"),
    Kind("retroactive-grouping", "retroactive-grouping", level="event"),
    Kind("totals", "totals", level="event"),
    Kind("shp-point", "shp-point", level="user"),
    Kind("shp-window", "shp-window", level="user"),
    Kind("shp-adaptive", "shp-adaptive", level="user"),
)


def covered(
    kind: Kind, stream: RealStream, epsilon: Fraction, seed: int, window: int = WINDOW
) -> dict[str, float]:
    """The part of the cells that are held: of all columns, and of each third if there are three columns."""
    counts = stream.counts.sum(axis=1, keepdims=True) if kind.level == "user" else stream.counts
    options, truth, start = dict(kind.options), counts, START_WINDOWS * window
    if kind.level == "event":
        window = 1
        if "span" in KINDS_OF_MECHANISMS[kind.kind].options:
            options["span"], truth = stream.day, window_sums(counts, stream.day)
    elif kind.level == "user":
        window = len(counts)
    if kind.periods and stream.periods:
        options["periods"] = stream.periods
    settings = MechanismSettings(kind.kind, epsilon, str(epsilon), window, options=options)
    held = within(kind, settings, counts, truth, seed)[start:]
    if np.isnan(held).all():
        return {}
    return {name: float(np.nanmean(held[:, some])) for name, some in thirds(counts).items()}


def thirds(counts: Counts) -> dict[str, NDArray[np.int64]]:
    """Which columns are in which third, the sparse ones first; and all of them."""
    parts = np.array_split(np.argsort(counts.mean(axis=0), kind="stable"), len(THIRDS))
    some = dict(zip(THIRDS, parts, strict=True)) if counts.shape[1] >= len(THIRDS) else {}
    return {"all": np.arange(counts.shape[1]), **some}


def within(
    kind: Kind, settings: MechanismSettings, counts: Counts, truth: Counts, seed: int
) -> NDArray[np.float64]:
    """For every cell whether its interval holds it; nan where it has none."""
    mechanism = build(settings, counts.shape[1], 1, AheadNoise(seed))
    step = mechanism.on_truth
    held = np.full(counts.shape, np.nan)
    for timestamp, (row, true) in enumerate(zip(counts, truth, strict=True)):
        release = clipped(step(row), kind.minimum)
        if release.error is not None:
            held[timestamp] = np.abs(release.counts - true) <= HALF_WIDTH * release.error
    return held


def alone() -> Iterator[str]:
    """What intervals of `seasonal` cover of columns that are alone: a line for each and its terms."""
    kind = next(kind for kind in KINDS if kind.label == "seasonal")
    for make, mean in ALONE:
        stream = make()
        place = int(np.argmin(np.abs(stream.counts.mean(axis=0) - mean)))
        counts = np.ascontiguousarray(stream.counts[-ALONE_TIMESTAMPS:, place : place + 1])
        one = RealStream(stream.name, counts, stream.hours)
        for epsilon, window in ALONE_TERMS:
            found = [
                covered(kind, one, Fraction(epsilon), seed, window)["all"] for seed in range(ALONE_SEEDS)
            ]
            shares = f"{np.mean(found):.3f}, from {min(found):.3f} to {max(found):.3f}"
            yield f"{stream.name}, mean {counts.mean():.1f}, epsilon {epsilon}, window {window}: {shares}"


def main() -> None:
    """Print what is covered, a line for each kind, stream and epsilon: all columns, then each third.

    With the argument ``alone`` that of columns that are alone.
    """
    if sys.argv[1:] == ["alone"]:
        for line in alone():
            print(line, flush=True)
        return
    for case in measure(Scope(1, only=tuple(kind.label for kind in KINDS))):
        for label, found in case.errors.items():
            print(f"{case.title}, {label}: {found[0]:.3f}", flush=True)


def measure(scope: Scope) -> Iterator[Case]:
    """A case for each real stream and its terms, at most the last timestamps: what is covered, by third.

    Of ``seasonal``, or of the kinds asked for. Left out are terms whose start takes two thirds.
    """
    labels = scope.only or (RECOMMENDED,)
    for make in WITHOUT_PACKAGES if scope.quick else REAL:
        stream = make()
        if scope.streams and stream.name not in scope.streams:
            continue
        stream = replace(stream, counts=stream.counts[-(QUICK_TIMESTAMPS if scope.quick else TIMESTAMPS) :])
        for text, window in TERMS[:1] if scope.quick else TERMS:
            if 3 * START_WINDOWS * window <= 2 * len(stream.counts):
                yield _case(stream, text, window, labels, scope.seeds)


def _case(stream: RealStream, epsilon: str, window: int, labels: Sequence[str], seeds: int) -> Case:
    found: dict[str, list[float]] = {}
    for kind in KINDS:
        if kind.label in labels and int(kind.options.get("groups", 1)) <= stream.counts.shape[1]:
            for seed in range(seeds):
                for part, share in covered(kind, stream, Fraction(epsilon), seed, window).items():
                    found.setdefault(f"{kind.label}: {part}", []).append(share)
    sizes = {
        name: float(f"{stream.counts[:, some].mean():.3g}") for name, some in thirds(stream.counts).items()
    }
    return Case(PART, stream.name, epsilon, {"window": window}, found, sizes=sizes)


def table(choice: str, results: Results) -> str:
    """What is covered of the columns of a kind: all cases ``outside`` of 90 to 99 %, or how ``many`` are.

    Of streams of three columns and more each third is a case, of others all columns.
    """
    kind, _, which = choice.partition(", ")
    if which == "many":
        return _many(kind, results)
    rows = [
        (share, case.title, f"{name}, mean {case.sizes[name]:g}", f"{100 * share:.1f} %")
        for name, case, share in _parts(kind, results)
        if not LOWEST <= share <= HIGHEST
    ]
    lines = [" | ".join(row[1:]) for row in sorted(rows)]
    return "\n".join(
        ["| case | columns | covered |", "| --- | --- | --- |", *(f"| {one} |" for one in lines)]
    )


def _many(kind: str, results: Results) -> str:
    heads = ["columns", "cases", "least", "median", "most", "below 90 %", "above 99 %"]
    lines = [heads, ["---"] * len(heads)]
    for name in (*THIRDS, "all"):
        shares = [share for part, _, share in _parts(kind, results) if part == name]
        if not shares:
            continue
        least, middle, most = (f"{100 * one:.1f} %" for one in np.quantile(shares, (0, 0.5, 1)))
        label = "of one or two columns" if name == "all" else f"{name} third"
        outside = str(sum(one < LOWEST for one in shares)), str(sum(one > HIGHEST for one in shares))
        lines.append([label, str(len(shares)), least, middle, most, *outside])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _parts(kind: str, results: Results) -> Iterator[tuple[str, Case, float]]:
    for case in results.of(PART):
        for name in THIRDS if len(case.sizes) > 1 else ("all",):
            if f"{kind}: {name}" in case.errors:
                yield name, case, float(np.mean(case.errors[f"{kind}: {name}"]))


if __name__ == "__main__":
    main()
