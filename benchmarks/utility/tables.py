"""The tables of docs/utility.md and docs/utility, each between two markers, made from the results alone.

``<!-- table: NAME -->`` begins a table, ``<!-- end of table -->`` ends it. Names are ``w-event, slow drift``
(a part on a stream), ``user-level, epsilon 1`` (a part with one epsilon), ``values`` (a part),
``claims``, and ``paced, unseen`` (our own mechanism in a part). Those of all mechanisms side by side are
``kinds``, ``verdict``, ``by stream, real`` (a part) and ``measures``: see ``benchmarks.utility.summary``.
Those of Gaussian noise are ``gaussian, over pure`` and ``gaussian, seasonal`` (a kind); of what intervals
cover, ``intervals, seasonal, outside`` and ``intervals, seasonal, many`` (a kind); of two levels ``levels``,
of bounds of each column ``per-column``.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from benchmarks.utility import gaussian, intervals, levels, per_column, summary
from benchmarks.utility.claims import CLAIMS, Claim
from benchmarks.utility.measuring import Case, Results
from benchmarks.utility.w_event import BASELINES, OURS

REFERENCES: dict[str, tuple[str, ...]] = {
    "w-event": BASELINES,
    "unseen": (*BASELINES, "BD", "BD, factor 2", "BA", "BA, factor 2", "FAST"),
    "event-level": ("Baseline",),
    "totals": ("time-unit",),
    "totals-gaussian": ("time-unit",),
    "user-level": ("SHP2 (point)",),
    "values": ("ToPS",),
    "hierarchy": ("ToPS",),
    "local": ("Square Wave with the prune",),
}
"""What a part's errors are divided by: the best one of these, in each case."""

_TABLE = re.compile(r"(<!-- table: (?P<name>[^>]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def documents(docs: Path) -> list[Path]:
    """Those that have tables from the results, in the folder of the documentation."""
    pages = [docs / "utility.md", *sorted((docs / "utility").glob("*.md"))]
    return [page for page in pages if "<!-- table: " in page.read_text()]


def write(results: Results, docs: Path) -> None:
    """Make the tables of the documents anew."""
    for document in documents(docs):
        document.write_text(filled(document.read_text(), results))


def filled(text: str, results: Results) -> str:
    """The text with its tables. Raises ValueError for a table of what is not measured."""
    return _TABLE.sub(lambda found: f"{found[1]}{table(found['name'], results)}\n{found[3]}", text)


def table(name: str, results: Results) -> str:
    """A table in Markdown."""
    if name == "claims":
        rows = [_claim(claim, results) for claim in CLAIMS]
        return _markdown(["claim", "source", "holds", "error over the other's"], rows)
    part, _, choice = name.partition(", ")
    if part in summary.TABLES:
        return summary.table(part, choice, results)
    if part == gaussian.PART:
        return gaussian.table(choice, results)
    if part == intervals.PART:
        return intervals.table(choice, results)
    if part == levels.PART:
        return levels.table(results)
    if part == per_column.PART:
        return per_column.table(results)
    if part == "paced":
        return _own(results.of(choice))
    cases = [case for case in results.of(part) if choice in ("", case.stream, f"epsilon {case.epsilon}")]
    if not cases:
        raise ValueError(f"nothing was measured for the table {name!r}")
    return _comparison(cases)


def reference(case: Case) -> str:
    """The contender that the case's errors are divided by."""
    return case.best(REFERENCES[case.part])


def number(value: float) -> str:
    """Two to three digits."""
    if value >= 1e5 or 0 < value < 1e-3:
        mantissa, power = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(power)}"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def spread(values: list[float]) -> str:
    """Median, and least and largest in brackets if they differ from it."""
    low, middle, high = (number(float(each)) for each in (min(values), np.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _comparison(cases: list[Case]) -> str:
    labels = list(dict.fromkeys(label for case in cases for label in case.errors))
    own = [f"{reference(case)}: {spread(case.errors[reference(case)])}" for case in cases]
    rows = [[label, *(_cell(case, label) for case in cases)] for label in labels]
    return _markdown(["", *_heads(cases)], [["error of", *own], *rows])


def _heads(cases: list[Case]) -> list[str]:
    """The terms in which the cases differ."""
    terms = [case.title.split(", ") for case in cases]
    differ = [len(set(column)) > 1 for column in zip(*terms, strict=True)]
    if not any(differ):
        differ[0] = True
    return [", ".join(term for term, shown in zip(own, differ, strict=True) if shown) for own in terms]


def _cell(case: Case, label: str) -> str:
    if label not in case.errors:
        return ""
    best = reference(case)
    ratio = "1" if label == best else spread(case.ratios(label, best))
    others = [f"{name} {own[label]:,.0f}" for name, own in case.medians.items() if label in own]
    return "; ".join([ratio, *others])


def _own(cases: list[Case]) -> str:
    """Mean errors of our own mechanism over those of the best of all others, and how many are how small."""
    rows: dict[str, list[str]] = {}
    ratios = []
    for case in cases:
        best = case.best(REFERENCES["unseen"])
        ratios.append(float(np.mean(case.errors[OURS]) / np.mean(case.errors[best])))
        rows.setdefault(case.stream, [case.stream]).append(f"{ratios[-1]:.2f} ({best})")
    heads = [case.title.removeprefix(f"{case.stream}, ") for case in cases if case.stream == cases[0].stream]
    small = [f"at most {limit}: {sum(ratio <= limit for ratio in ratios)}" for limit in (0.7, 1.0, 1.2)]
    total = [f"of {len(ratios)}", *small, f"largest: {max(ratios):.2f}"]
    return _markdown(["", *heads], [*rows.values(), total])


def _claim(claim: Claim, results: Results) -> list[str]:
    ratios = claim.ratios(results)
    where = f" ({claim.part})" if claim.part == "hierarchy" else ""
    return [claim.text + where, claim.source, claim.verdict(ratios), spread(ratios) if ratios else ""]


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
