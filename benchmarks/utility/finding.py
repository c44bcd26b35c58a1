"""Columns that are found in the data, against listed ones: ``python -m benchmarks.utility.finding``.

Of each stream: how much of its mass (events of the second window, and from then on) lies in columns that the
first window has found, by window, share of epsilon and delta; and what ``seasonal`` errs by in these columns,
over what it errs by with all columns listed and all of epsilon, both from the second window on. Epsilon is 1,
a user counts once at a timestamp. ``--flood`` measures the memory of a million columns of one event each,
through counting, merging and the test, in a process of its own. Writes docs/utility/finding.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.utility import real
from benchmarks.utility.streams import Counts
from eventveil.mechanisms.registry import build
from eventveil.model.topology import Counts as Columns
from eventveil.model.topology import Discover, MechanismSettings, Sink, Source, Stream, Timeline
from eventveil.privacy.noise import SeededNoise
from eventveil.tasks.discovery import Search

PAGE = Path(__file__).resolve().parents[2] / "docs" / "utility" / "finding.md"
DELTA = Fraction(1, 10**9)
SHARES = (Fraction(1, 10), Fraction(1, 4), Fraction(1, 2))
WINDOWS = (7, 28)
_FLOOD = """
import numpy as np
from benchmarks.utility.finding import stream_of
from eventveil.counting.counter import CounterState, Partial
from eventveil.model.records import Chunk
from eventveil.privacy.noise import SystemNoise
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.tasks.combiner import Combiner
from eventveil.tasks.discovery import Search
of, many, each = stream_of(1, SHARES[0]), 1_000_000, 50_000
def used():  # ru_maxrss begins with that of the parent
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024
begun = used()
one = PartitionAggregator(1, {of.name: (of, CounterState("0" * 16, 0, 1, 1, 0, 0))})
for start in range(0, many, each):
    values = [b'{"u":"u%d","c":"once %d","t":0}' % (at, at) for at in range(start, start + each)]
    offsets = range(start, start + each)
    one.process(Chunk("raw", 0, 1, start, offsets, [0] * each, [None] * each, values, start + each))
counted = used()
closed = one.counters[of.name].close()
assert len(closed.names) == many
combiner = Combiner(of.name, 1, 1, "0" * 16, 1, named=True)
for at, piece in enumerate(closed.pieces()):
    combiner.add(Partial.decode(piece.encode(), "here"), piece.encode(), at)
search = Search(of, SystemNoise())
assert search.take(combiner.take().named, 0).tolist() == [many]
assert search.end(1) == []
print(counted - begun, used() - counted)
""".replace("SHARES[0]", "__import__('fractions').Fraction(1, 10)")


@dataclass(frozen=True)
class Outcome:
    """What one stream, window and share have come to; ``error`` is over that of listed columns.

    ``soon`` and ``mass``: parts of 1, of the events of the second window and of all from then on.
    """

    name: str
    columns: int
    events: float
    window: int
    share: Fraction
    least: float
    found: int
    soon: float
    mass: float
    error: float


def stream_of(window: int, share: Fraction) -> Stream:
    """A stream whose columns are found."""
    how = Discover(share, DELTA, share, 100_000, 64)
    settings = MechanismSettings("seasonal", 1 - share, "", window)
    return Stream(
        "found", Source("raw", "/u", "/c", "/t"), Timeline(1000, 0, max_ahead=1000),
        Columns(("other",), discover=how), settings, Sink("sink", "object"), "dead",
    )  # fmt: skip


def outcome(name: str, counts: Counts, window: int, share: Fraction, periods: tuple[int, ...]) -> Outcome:
    """Run both, with the same seed."""
    of = stream_of(window, share)
    search = Search(of, SeededNoise(1))
    options = {"periods": ",".join(map(str, periods))} if periods else {}
    own = MechanismSettings("seasonal", 1 - share, "", window, options=options)
    mechanism = build(own, 1, 1, SeededNoise(2))
    first: list[int] = []
    errors = []
    for timestamp, row in enumerate(counts, 1):
        some = np.flatnonzero(row)
        named = {f"{at:06}": int(row[at]) for at in some.tolist()}
        release = mechanism.step(search.take(named, 0)).counts
        if timestamp > window:
            errors.append(np.abs(release[1 : 1 + len(first)] - row[first]).sum())
        found = search.end(timestamp)
        if found:
            mechanism.grow([search.level(one) for one in found], search.variance)
        if timestamp == window:
            first = [int(one.column) for one in found]
    rest = counts[window:]
    mass = rest[:, first].sum() / rest.sum()
    soon = rest[:window, first].sum() / rest[:window].sum()
    error = np.sum(errors) / max(1, rest[:, first].sum()) if first else np.nan
    listed = _listed(counts, window, options, first) if first else np.nan
    least = search._test.threshold / window
    return Outcome(
        name, counts.shape[1], float(counts.sum(1).mean()), window, share, least, len(first), float(soon),
        float(mass), float(error / listed),
    )  # fmt: skip


def _listed(counts: Counts, window: int, options: dict[str, str], some: list[int]) -> float:
    """The mean absolute error over the mean of these columns, if all are listed."""
    settings = MechanismSettings("seasonal", Fraction(1), "1", window, options=options)
    mechanism = build(settings, counts.shape[1], 1, SeededNoise(2))
    released = np.array([mechanism.step(row).counts for row in counts])[window:]
    truth = counts[window:]
    return float(np.abs(released - truth)[:, some].sum() / truth[:, some].sum())


def drawn() -> Counts:
    """200 timestamps of 3,000 columns, with sizes as Zipf's law has them and a week of seven timestamps."""
    random = np.random.default_rng(1)
    sizes = 1e6 / np.arange(1, 3001) / np.sum(1 / np.arange(1, 3001))
    week = 1 + 0.2 * np.sin(2 * np.pi * np.arange(200) / 7)
    return random.poisson(week[:, np.newaxis] * sizes)


#: Of births by name, first and last. A child is born once, so a window of one year protects it as any does.
YEARS = ((1948, 1977), (1988, 2017))


def outcomes() -> Iterator[Outcome]:
    """All of them."""
    for years in YEARS:
        one = real.births_by_name(*years)
        for window in (1, 7):
            for share in SHARES:
                yield outcome(one.name, one.counts, window, share, ())
    streams = [(one.name, one.counts) for one in (real.us_origins(), real.us_routes())]
    for name, counts in [*streams, ("drawn, a million events", drawn())]:
        for window in WINDOWS:
            for share in SHARES:
                yield outcome(name, counts[:181], window, share, (7,))


def flood() -> tuple[int, int]:
    """MiB of a million columns of one event: of counting, and of what comes after it."""
    done = subprocess.run([sys.executable, "-c", _FLOOD], capture_output=True, text=True, check=True)
    counting, rest = map(int, done.stdout.split())
    return counting, rest


def page(rows: Sequence[Outcome], memory: tuple[int, int] | None) -> str:
    """docs/utility/finding.md."""
    lines = [
        "# Columns that are found",
        "",
        "`python -m benchmarks.utility.finding --flood` generates this page: epsilon 1, delta 1e-9, one"
        " event of a user per timestamp. *Enough* is how many events per timestamp, on average over the"
        " first window, find a column. *Soon* is the share of the events of the second window in columns"
        " that were found in the first, *mass* is the same share of all events from the second window on."
        " *Error* is that of `seasonal` in these columns, from the second window on, relative to that of"
        " `seasonal` with all columns listed and all of epsilon; a dash where nothing is found.",
        "",
        "| stream | columns | events a timestamp | window | share | enough | found | soon | mass | error |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        error = "-" if np.isnan(row.error) else f"{row.error:.2f}"
        lines.append(
            f"| {row.name} | {row.columns:,} | {row.events:,.0f} | {row.window} | {float(row.share):g} |"
            f" {row.least:,.0f} | {row.found:,} | {100 * row.soon:.0f} % | {100 * row.mass:.0f} % | {error} |"
        )
    lines += [
        "",
        "A column is found if its events reach about ln(window / (2 delta)) / (share epsilon) per"
        " timestamp: a user who is always present must not be able to do that alone. So a column that is"
        " small against the noise of a release stays in the column for others. The aim was 95 % of the mass"
        " within a window, on a real stream of thousands of columns. Births by name of 1948 to 1977 meet it"
        " from a share of 0.25 on; with a tenth it is 92 to 94 %. Those of 1988 to 2017, in which more"
        " births have rare names, reach 90 to 94 % with a half, and the US routes are too small for any"
        " share. Columns that become large later are found later: *mass* covers thirty years with only the"
        " columns that the first window has found. The data set itself omits names of fewer than five births"
        " in a year, which no share would find. Where public knowledge has a list, list the columns.",
    ]
    if memory is not None:
        lines += [
            "",
            f"A flood of a million columns with one event each takes {memory[0]:,} MiB while a partition"
            f" counts it, users included, and {memory[1]:,} MiB more to write, merge and test the columns.",
        ]
    return "\n".join([*lines, ""])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flood", action="store_true", help="measure the memory of a million columns too")
    options = parser.parse_args()
    PAGE.write_text(page([*outcomes()], flood() if options.flood else None), encoding="utf-8")


if __name__ == "__main__":
    main()
