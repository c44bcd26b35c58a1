"""``python -m benchmarks.reading``: measure all of it, and write the table of docs/reading.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from benchmarks.reading.coverage import Coverage, coverages
from benchmarks.reading.runs import KINDS, TERMS, run, streams

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "reading.json"
PAGE = ROOT / "docs" / "reading.md"
BEGIN, END = "<!-- coverage: python -m benchmarks.reading -->\n", "<!-- end of coverage -->\n"
GOOD = (0.9, 0.99)


def table(found: Iterable[Coverage]) -> str:
    """Kind by kind and on real and drawn streams: how often the intervals of a case cover."""
    rows: dict[tuple[str, bool, str], list[Coverage]] = {}
    for one in found:
        rows.setdefault((one.kind, one.real, one.what), []).append(one)
    lines = [
        "| kind | streams | of | cases | least | median | most | below 90 % | above 99 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    order = sorted(rows.items(), key=lambda row: (KINDS.index(row[0][0]), not row[0][1], row[0][2]))
    return "\n".join([*lines, *(_line(*key, ones) for key, ones in order)]) + "\n"


def _line(kind: str, real: bool, what: str, ones: list[Coverage]) -> str:
    shares = [one.share for one in ones]
    least, median, most = min(shares), float(np.median(shares)), max(shares)
    below, above = sum(share < GOOD[0] for share in shares), sum(share > GOOD[1] for share in shares)
    numbers = " | ".join(f"{100 * share:.1f} %" for share in (least, median, most))
    streams = "real" if real else "drawn"
    return f"| {kind} | {streams} | {what} | {len(ones)} | {numbers} | {below} | {above} |"


def put_into(page: str, text: str) -> str:
    """The page with another table."""
    before, after = page.index(BEGIN) + len(BEGIN), page.index(END)
    return page[:before] + text + page[after:]


def _renewed(found: Iterable[Coverage]) -> list[Coverage]:
    """What is in the file of results, with what was found now instead."""
    now = {_key(one): one for one in found}
    before = (Coverage(**one) for one in json.loads(RESULTS.read_text())["coverages"])
    return [now.get(_key(one), one) for one in before]


def _key(one: Coverage) -> tuple[object, ...]:
    return one.stream, one.kind, one.epsilon, one.window, one.what


def _measure(kinds: tuple[str, ...], seed: int) -> Iterator[Coverage]:
    for stream, is_real in streams():
        for kind in kinds:
            for epsilon, window in TERMS:
                yield from coverages(run(stream, is_real, kind, epsilon, window, seed))
                click.echo(f"{stream.name}, {kind}, epsilon {epsilon}, window {window}", err=True)


@click.command()
@click.option("--seed", default=11, show_default=True)
@click.option("--only", type=click.Choice(KINDS), multiple=True, help="These kinds; keep the others.")
def main(seed: int, only: tuple[str, ...]) -> None:
    """Measure how often intervals cover."""
    found = [*_measure(only or KINDS, seed)]
    if only:
        found = _renewed(found)
    lines = (json.dumps(asdict(one)) for one in found)
    RESULTS.write_text('{"coverages": [\n' + ",\n".join(lines) + "\n]}\n")
    PAGE.write_text(put_into(PAGE.read_text(), table(found)))


if __name__ == "__main__":
    main()
