"""Two levels of columns, such as carriers and the airports of each: one stream of the finer one, or two.

*One stream* has the finer columns and all of epsilon; the coarser level is what they add up to. *Two
streams* have half of epsilon each, *consistent* ones are these after ``eventveil.read.consistent``. All are
`seasonal`.
``Case.errors`` is the MAE over the mean count of a level; ``medians`` has how many 95 % intervals of the
consistent levels hold the count, without the first ``START_WINDOWS`` windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from benchmarks import nycflights
from benchmarks.utility import real
from benchmarks.utility.intervals import START_WINDOWS
from benchmarks.utility.measuring import AheadNoise, Case, Results, Scope
from benchmarks.utility.streams import Counts
from eventveil import read
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings

PART = "levels"
LEVELS = ("coarse", "fine")
WAYS = ("one stream", "two streams", "consistent")
TERMS = (("0.1", 24), ("1", 24), ("1", 120))
TIMESTAMPS, QUICK_TIMESTAMPS = 1000, 120
_HOUR = 3_600_000


@dataclass(frozen=True)
class TwoLevels:
    """True counts of both levels, int64 of shape (timestamps, columns), with names as `parent|column`."""

    fine: real.RealStream
    coarse: Counts
    names: tuple[tuple[str, ...], tuple[str, ...]]

    def last(self, timestamps: int) -> TwoLevels:
        """Its end."""
        fine = replace(self.fine, counts=self.fine.counts[-timestamps:])
        return replace(self, fine=fine, coarse=self.coarse[-timestamps:])


def flights(above: str, below: str, hours: int) -> TwoLevels:
    """Departures from New York by two fields."""
    rows = nycflights.rows()
    title = f"NYC, {above} and {below}, {hours} h"
    return _of(
        title,
        [hour // hours for hour in real.hours_of(rows)],
        [(row[above], row[below]) for row in rows],
        hours,
    )


def stops() -> TwoLevels:
    """Police stops by precinct and neighbourhood: less than one event a cell."""
    frame = real._frame("carData", "MplsStops")
    at = [instant // (6 * 3600) for instant in real._instants(frame["date"])]
    pairs = [
        (str(one), str(two)) for one, two in zip(frame["policePrecinct"], frame["neighborhood"], strict=True)
    ]
    return _of("police stops, precinct and place, 6 h", at, pairs, 6)


def _of(title: str, at: Sequence[int], pairs: Sequence[tuple[str, str]], hours: int) -> TwoLevels:
    fine, coarse = [f"{one}|{two}" for one, two in pairs], [one for one, _ in pairs]
    names = tuple(sorted({*coarse})), tuple(sorted({*fine}))
    return TwoLevels(real.RealStream(title, real.table(at, fine), hours), real.table(at, coarse), names)


def nyc_origins() -> TwoLevels:
    """Three airports, and the carriers of each."""
    return flights("origin", "carrier", 1)


def nyc_carriers() -> TwoLevels:
    """Sixteen carriers, and the airports of each."""
    return flights("carrier", "origin", 1)


def nyc_destinations() -> TwoLevels:
    """Three airports, and some seventy destinations of each."""
    return flights("origin", "dest", 3)


def nyc_destinations_daily() -> TwoLevels:
    """The same by the day."""
    return flights("origin", "dest", 24)


STREAMS: tuple[Callable[[], TwoLevels], ...] = (
    nyc_origins,
    nyc_carriers,
    nyc_destinations,
    nyc_destinations_daily,
    stops,
)


def measure(scope: Scope) -> Iterator[Case]:
    """All streams that no package is needed for in a quick run, else all."""
    for make in STREAMS[:1] if scope.quick else STREAMS:
        stream = make().last(QUICK_TIMESTAMPS if scope.quick else TIMESTAMPS)
        for epsilon, window in TERMS[1:2] if scope.quick else TERMS:
            if 3 * START_WINDOWS * window <= 2 * len(stream.coarse) or scope.quick:
                yield _case(stream, epsilon, window, scope.seeds)


def _case(stream: TwoLevels, epsilon: str, window: int, seeds: int) -> Case:
    truth = {"coarse": stream.coarse, "fine": stream.fine.counts}
    errors: dict[str, list[float]] = {f"{level}, {way}": [] for level in LEVELS for way in WAYS}
    held: dict[str, list[float]] = {level: [] for level in LEVELS}
    for seed in range(seeds):
        ways = _ways(stream, Fraction(epsilon), window, seed)
        for way, levels in ways.items():
            for level, released in zip(LEVELS, levels, strict=True):
                off = np.abs(released.counts - truth[level])
                errors[f"{level}, {way}"].append(float(off.mean() / truth[level].mean()))
        for level, released in zip(LEVELS, ways["consistent"], strict=True):
            low, high = released.bounds()
            within = (low <= truth[level]) & (truth[level] <= high)
            held[level].append(float(within[START_WINDOWS * window :].mean()))
    medians = {level: {"covered": float(f"{np.median(found):.4g}")} for level, found in held.items()}
    sizes = {level: float(f"{truth[level].mean():.3g}") for level in LEVELS}
    return Case(PART, stream.fine.name, epsilon, {"window": window}, errors, medians, sizes)


def _ways(
    stream: TwoLevels, epsilon: Fraction, window: int, seed: int
) -> dict[str, tuple[read.Releases, ...]]:
    fine = stream.fine
    one = _released(fine, stream.names[1], epsilon, window, 2 * seed)
    top = replace(fine, counts=stream.coarse)
    two = (
        _released(top, stream.names[0], epsilon / 2, window, 2 * seed + 1),
        _released(fine, stream.names[1], epsilon / 2, window, 2 * seed),
    )
    groups = {
        name: [each for each in one.columns if each.rpartition("|")[0] == name] for name in two[0].columns
    }
    sums = one.totals(groups=groups)
    added = replace(two[0], counts=sums.values, errors=sums.errors)
    return {"one stream": (added, one), "two streams": two, "consistent": read.consistent(*two)}


def _released(
    stream: real.RealStream, names: tuple[str, ...], epsilon: Fraction, window: int, seed: int
) -> read.Releases:
    """Of the recommended kind."""
    options = {"periods": stream.periods} if stream.periods else {}
    settings = MechanismSettings("seasonal", epsilon, str(epsilon), window, options=options)
    mechanism = build(settings, len(names), 1, AheadNoise(seed))
    made = [mechanism.step(row) for row in stream.counts]
    unknown = np.full(len(names), np.nan)
    size, interval = len(made), stream.hours * _HOUR
    return read.Releases(
        stream=stream.name,
        columns=names,
        interval=interval,
        timestamps=np.arange(1, size + 1),
        starts=(np.arange(size) * interval).astype("datetime64[ms]"),
        counts=np.stack([one.counts for one in made]),
        errors=np.stack(
            [unknown if one.error is None else np.broadcast_to(one.error, len(names)) for one in made]
        ),
        scales=np.full(size, np.nan),
        fresh=np.array([one.fresh for one in made]),
        missing=((),) * size,
        parts=(read.Part("seasonal", str(epsilon), window, 1),),
        part_of=np.zeros(size, np.int64),
    )


def table(results: Results) -> str:
    """Errors of both levels in percent of their mean count, and what intervals cover."""
    head = ["stream", "events a cell", *(f"{level}: {way}" for level in LEVELS for way in WAYS), "covered"]
    lines = [head, ["---"] * len(head)]
    for case in results.of(PART):
        errors = [
            f"{100 * float(np.mean(case.errors[f'{level}, {way}'])):.0f} %"
            for level in LEVELS
            for way in WAYS
        ]
        covered = ", ".join(f"{100 * case.medians[level]['covered']:.0f} %" for level in LEVELS)
        sizes = ", ".join(f"{case.sizes[level]:.3g}" for level in LEVELS)
        lines.append([case.title, sizes, *errors, covered])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
