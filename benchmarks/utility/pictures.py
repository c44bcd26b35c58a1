"""The picture of each mechanism in docs/mechanisms: the truth in grey, what was released in green.

Departures from New York in 2013 to the 12 busiest destinations, an aircraft being a user; Atlanta is shown.
``python -m benchmarks.utility.pictures`` draws all of them; the same seed gives the same pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from benchmarks.utility.measuring import AheadNoise, window_sums
from benchmarks.utility.streams import Counts, air_time, departures
from benchmarks.utility.values import SeededRandomness, pak, tops
from benchmarks.utility.w_event import Contender
from eventveil.local import Hybrid
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings, Option

DIRECTORY = Path(__file__).resolve().parents[2] / "docs" / "mechanisms" / "pictures"
ATLANTA, BUSIEST = 4, 12  # Atlanta is the fifth of all destinations by name
DAYS, WEEK = 150, 7
HOURS, DAY = 24 * 14, 24
SEED = 1
LATEST = 4096
EVERY = 100  # of the values are looked at
LETTERS = 14
"""Points, in a picture of 800 pixels: legible when it is shown at half of that."""

Series = NDArray[np.int64] | NDArray[np.float64]


class Picture(NamedTuple):
    """Two lines over the same places, and what the axes are."""

    title: str
    counted: str
    along: str
    truth: Series
    released: Series


OF_DAYS, OF_HOURS = "day of 2013", "hour of January 2013"


def w_event(kind: str, **options: Option) -> Picture:
    """Days, any week of an aircraft protected."""
    counts, atlanta = _busiest(departures(DAY)[:DAYS])
    released = Contender(kind, kind, options).releases(counts, Fraction(1), WEEK, SEED)
    title = "Departures to Atlanta a day, epsilon 1 for any 7 days"
    return Picture(title, "departures a day", OF_DAYS, counts[:, atlanta], released[:, atlanta])


def event_level(kind: str) -> Picture:
    """Hours, each protected by itself, summed over a day."""
    counts, atlanta = _busiest(departures(1)[:HOURS])
    truth = window_sums(counts, DAY)
    released = _steps(kind, counts, Fraction(1, 2), 1, {"span": DAY})
    title = "Departures to Atlanta in the last 24 hours, epsilon 0.5 for each hour"
    return Picture(title, "departures in 24 hours", OF_HOURS, truth[:, atlanta], released[:, atlanta])


def sums_of_days(kind: str, **options: Option) -> Picture:
    """Hours, each protected by itself, whose noise cancels in the sum of a day."""
    counts, atlanta = _busiest(departures(1)[: DAY * DAYS])
    released = _steps(kind, counts, Fraction(1, 2), 1, options)
    truth, sums = (each[:, atlanta].reshape(-1, DAY).sum(axis=1) for each in (counts, released))
    title = "Departures to Atlanta a day, as sums of hours, epsilon 0.5 for each hour"
    return Picture(title, "departures a day", OF_DAYS, truth, sums)


def user_level(kind: str, **options: Option) -> Picture:
    """Days, protected together; the total of all destinations, for one column is all these take."""
    counts = departures(DAY).sum(axis=1, keepdims=True)[:DAYS]
    released = _steps(kind, counts, Fraction(1), DAYS, {"span": WEEK, **options})
    title = "Departures to anywhere a day, epsilon 1 for all 150 days"
    return Picture(title, "departures a day", OF_DAYS, counts[:, 0], released[:, 0])


def value_stream(kind: str) -> Picture:
    """Sums over the last readings, at every hundredth of them."""
    stream = air_time()
    make = {"tops": tops(), "pak": pak(True)}[kind]
    readings = make(stream, Fraction(1, 5), SEED).step(stream.values).values[stream.held :]
    return _sums(stream.released, readings, "Time in the air of the last 4,096 flights, epsilon 0.2 for each")


def local(kind: str) -> Picture:
    """The same of reports that are perturbed before they are sent, cut at a threshold above nearly all."""
    values, hybrid, randomness = air_time().values[:60_000], Hybrid(Fraction(1), 400), SeededRandomness(SEED)
    estimates = [float(hybrid.estimate(hybrid.report(int(value), randomness))) for value in values]
    title = "Time in the air of the last 4,096 flights, epsilon 1 for each"
    return _sums(values, np.array(estimates), title)


def pictures() -> Iterator[tuple[str, Picture]]:
    """Each with the name of its page."""
    yield "uniform", w_event("uniform")
    for kind in ("sample", "fast", "paced", "seasonal"):
        yield kind, w_event(kind, periods=str(WEEK))
    yield "gaussian", w_event("uniform", noise="gaussian", delta=Fraction(1, 10**9))
    yield "totals", sums_of_days("totals", blocks=str(DAY))
    for kind in ("budget-distribution", "budget-absorption"):
        yield kind, w_event(kind, factor=Fraction(2))
    yield "pan-private", w_event("budget-absorption", pan_private="single")
    yield "shp-adaptive", user_level("shp-adaptive", periods=str(WEEK))
    of_level: tuple[tuple[Callable[[str], Picture], tuple[str, ...]], ...] = (
        (event_level, ("time-unit", "retroactive-grouping")),
        (user_level, ("shp-window", "shp-point")),
        (value_stream, ("tops", "pak")),
        (local, ("topl",)),
    )
    for make, kinds in of_level:
        for kind in kinds:
            yield kind, make(kind)


def draw(picture: Picture, path: Path) -> None:
    """Write one picture."""
    figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
    axes.plot(picture.truth, color="#8a8a8a", linewidth=2.2, label="truth")
    released = axes.plot(picture.released, color="#1b7837", linewidth=1.5, drawstyle="steps-post")
    released[0].set_label("released")
    axes.set_xlabel(picture.along, fontsize=LETTERS)
    axes.set_ylabel(picture.counted, fontsize=LETTERS)
    axes.tick_params(labelsize=LETTERS)
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(picture.title, fontsize=LETTERS)
    figure.legend(loc="outside lower center", ncols=2, fontsize=LETTERS, frameon=False)
    figure.savefig(path, dpi=100, metadata={"Software": None}, pil_kwargs={"optimize": True})
    plt.close(figure)


def main() -> None:
    """Draw all of them."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures():
        draw(picture, DIRECTORY / f"{name}.png")


def _busiest(counts: Counts) -> tuple[Counts, int]:
    """The columns that are released, and which of them is shown."""
    busiest = np.sort(np.argsort(-departures(DAY).sum(axis=0))[:BUSIEST])
    return counts[:, busiest], int(np.flatnonzero(busiest == ATLANTA)[0])


def _steps(kind: str, counts: Counts, epsilon: Fraction, window: int, options: dict[str, Option]) -> Counts:
    settings = MechanismSettings(kind, epsilon, str(epsilon), window, options=options)
    mechanism = build(settings, counts.shape[1], 1, AheadNoise(SEED))
    return np.array([mechanism.step(row).counts for row in counts])


def _sums(values: Series, readings: Series, title: str) -> Picture:
    """Of the last ``LATEST`` values, in hours, at every hundredth one."""
    truth, released = (
        np.convolve(each, np.ones(LATEST), mode="valid")[::EVERY] / 60 for each in (values, readings)
    )
    return Picture(title, "hours", "hundreds of flights since the first 4,096", truth, released)


if __name__ == "__main__":
    main()
