"""``make utility``: measure, then write the results, the plots and the tables of docs/utility.md.

Each case is written to ``utility.json`` as soon as it is measured and replaces an older one of the same name,
so that parts can be measured apart (``--parts w-event``); by default only all mechanisms side by side are.
Plots and tables are always made from the whole file; ``--parts`` without a name makes them again and measures
nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.utility import (
    bounds,
    event_level,
    gaussian,
    intervals,
    levels,
    per_column,
    plots,
    side_by_side,
    summary,
    tables,
    totals,
    user_level,
    values,
    variants,
    w_event,
)
from benchmarks.utility.measuring import Case, Results, Scope
from benchmarks.utility.side_by_side import DRAWN_PART, KINDS, PEERS, REAL_PART

HOME = Path(__file__).resolve().parents[2]
PARTS: dict[str, Callable[[Scope], Iterator[Case]]] = {
    "real": side_by_side.measure_real,
    "drawn": side_by_side.measure_drawn,
    bounds.PART: bounds.measure,
    variants.PART: variants.measure,
    gaussian.PART: gaussian.measure,
    intervals.PART: intervals.measure,
    levels.PART: levels.measure,
    per_column.PART: per_column.measure,
    "w-event": w_event.measure,
    "unseen": w_event.measure_unseen,
    "event-level": event_level.measure,
    totals.PART: totals.measure,
    totals.GAUSSIAN_PART: totals.measure_gaussian,
    "user-level": user_level.measure,
    "values": values.measure,
    "local": values.measure_local,
}
SEEDS = dict.fromkeys(
    (
        REAL_PART,
        DRAWN_PART,
        bounds.PART,
        variants.PART,
        totals.PART,
        totals.GAUSSIAN_PART,
        gaussian.PART,
        intervals.PART,
        levels.PART,
        per_column.PART,
    ),
    1,
)
"""Many streams with one seed say more than one stream with many."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    options = _options().parse_args(arguments)
    results = Results(options.results / "utility.json")
    began = time.monotonic()
    for part in options.parts:
        seeds = options.seeds or SEEDS.get(part, 20)
        scope = Scope(seeds, options.quick, tuple(options.only), tuple(options.streams))
        for case in PARTS[part](scope):
            (results.renew if options.only else results.put)(case)
            print(f"{time.monotonic() - began:6.0f} s  {case.part}, {case.title}", flush=True)
    plots.draw(results, options.results)
    summary.draw(results, options.results / "kinds.png")
    tables.write(results, options.docs)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make utility", description="Errors of all mechanisms.")
    parser.add_argument("--seeds", type=int, help="default: 1 of real and drawn, 20 of the others")
    parser.add_argument("--quick", action="store_true", help="beginnings of streams, one epsilon: a trial")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=[REAL_PART, DRAWN_PART])
    parser.add_argument(
        "--only",
        nargs="*",
        choices=[*KINDS, *PEERS, *variants.LABELS[1:]],
        default=[],
        help="of real and drawn, keep the others",
    )
    parser.add_argument("--streams", nargs="*", default=[], help="names, of real and drawn: keep the others")
    parser.add_argument("--results", type=Path, default=HOME / "benchmarks" / "results", help="directory")
    parser.add_argument("--docs", type=Path, default=HOME / "docs", help="folder of utility.md and utility/")
    return parser


if __name__ == "__main__":
    main()
