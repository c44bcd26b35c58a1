"""The tables and the picture of all mechanisms side by side, from the results and nothing else.

*Others* are all mechanisms but ``seasonal``, ours and those of others, also clipped at 0: the best of them in
hindsight is another one in each case. Zero, which releases zeros, is none; it is told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.utility.bounds import LABELS as BOUNDS
from benchmarks.utility.measures import MEASURES
from benchmarks.utility.measuring import Case, Results
from benchmarks.utility.side_by_side import CLIPPED, DRAWN_PART, KINDS, OURS, PEERS, REAL_PART, ZERO

RATIOS = ("MAE", "RMSE", "largest", "total", "day", "week")
LIMITS = (1.0, 1.15)
INK, OTHERS, GREEN = "#1f2933", "#9a6b1f", "#0f766e"


def table(name: str, choice: str, results: Results) -> str:
    """A table of ``TABLES`` in Markdown. Raises ValueError for what was not measured."""
    if not results.of(choice or REAL_PART):
        raise ValueError(f"nothing was measured for the table {name!r}")
    return TABLES[name](results, choice)


def kinds(results: Results, _: str = "") -> str:
    """Every mechanism's errors over those of ``seasonal``: geometric means over all cases on real streams."""
    cases = results.of(REAL_PART)
    head = ["", *RATIOS, "bias of sums, half within", "columns always zero"]
    return _markdown(head, [_kind(label, cases) for label in (*KINDS, *PEERS, ZERO)])


def verdict(results: Results, _: str = "") -> str:
    """What was aimed at, and what came out."""
    rows = []
    for part, name in ((REAL_PART, "real"), (DRAWN_PART, "drawn")):
        for what, pick in _RIVALS.items():
            ratios = [_ratio(case, pick(case)) for case in results.of(part)]
            shares = [f"{np.mean([ratio <= limit for ratio in ratios]):.0%}" for limit in LIMITS]
            worst = max(range(len(ratios)), key=ratios.__getitem__)
            where = results.of(part)[worst].title
            rows.append(
                [
                    name,
                    what,
                    str(len(ratios)),
                    f"{_mean(ratios):.2f}",
                    *shares,
                    f"{ratios[worst]:.2f} ({where})",
                ]
            )
    return _markdown(
        ["streams", "over", "cases", "geometric mean", *(f"at most {each}" for each in LIMITS), "worst"], rows
    )


def variants(results: Results, part: str) -> str:
    """What else ``seasonal`` could do: errors over its own, geometric means, the least and the largest."""
    cases = results.of(part)
    rows = []
    for label in list(cases[0].errors)[1:]:
        ratios = [case.errors[label][0] / case.errors[OURS][0] for case in cases]
        ends = (
            min(range(len(ratios)), key=ratios.__getitem__),
            max(range(len(ratios)), key=ratios.__getitem__),
        )
        others = [
            f"{_mean([case.medians[label][name] / case.medians[OURS][name] for case in cases]):.2f}"
            for name in ("RMSE", "total", "week")
        ]
        biases = [np.median([abs(case.medians[one]["bias"]) for case in cases]) for one in (label, OURS)]
        extremes = [f"{ratios[i]:.2f} ({cases[i].title})" for i in ends]
        rows.append([label, f"{_mean(ratios):.2f}", *others, f"{biases[0]:.0%} ({biases[1]:.0%})", *extremes])
    head = ["instead", "MAE", "RMSE", "total", "week", "bias of sums, half within", "MAE, best", "MAE, worst"]
    return _markdown(head, rows)


def bounds(results: Results, part: str) -> str:
    """By stream what could be had without noise, and the least and the largest error of ``seasonal``."""
    own: dict[str, list[float]] = {}
    for case in results.of(REAL_PART):
        own.setdefault(case.stream, []).append(_value(case, OURS))
    rows = []
    for case in results.of(part):
        found = [_percent(_value(case, label)) if label in case.errors else "" for label in BOUNDS]
        ends = min(own[case.stream]), max(own[case.stream])
        rows.append([case.stream, *found, *map(_percent, ends)])
    return _markdown(["", *BOUNDS, "seasonal, least", "seasonal, most"], rows)


def by_stream(results: Results, part: str) -> str:
    """By stream and case the MAE of ``seasonal`` in percent, and its ratio to the best of all others."""
    rows: dict[str, list[str]] = {}
    for case in results.of(part):
        other = best_other(case)
        cell = f"{_value(case, OURS):.0%}; {_ratio(case, other):.2f} ({other})"
        rows.setdefault(case.stream, [case.stream]).append(cell)
    heads = [
        case.title.removeprefix(f"{case.stream}, ")
        for case in results.of(part)[: len(next(iter(rows.values()))) - 1]
    ]
    return _markdown(["", *heads], list(rows.values()))


def measures(results: Results, part: str) -> str:
    """Every measure of every mechanism in the first case of each stream, one table below the other."""
    firsts = {case.stream: case for case in reversed(results.of(part))}
    return "\n\n".join(_measures(case) for case in reversed(firsts.values()))


def _measures(case: Case) -> str:
    rows = [[label, *(_percent(own[name]) for name in MEASURES)] for label, own in case.medians.items()]
    return _markdown([case.title, *MEASURES], rows)


def draw(results: Results, path: Path) -> None:
    """By case on real streams the error of ``seasonal`` and of the best other, over how large counts are."""
    cases = results.of(REAL_PART)
    sizes = np.array([case.sizes["mean"] * float(case.epsilon) for case in cases])
    figure, axes = plt.subplots(figsize=(9, 5.2), layout="constrained")
    others = np.array([_value(case, best_other(case)) for case in cases])
    ours = np.array([_value(case, OURS) for case in cases])
    axes.vlines(sizes, ours, others, color=INK, alpha=0.25, linewidth=1)
    axes.plot(
        sizes, others, "o", mfc="white", mec=OTHERS, mew=1.6, ms=7, label="best of all others, in hindsight"
    )
    axes.plot(sizes, ours, "o", color=GREEN, ms=7, label="seasonal")
    axes.axhline(1, color=INK, linewidth=1, linestyle="--")
    axes.annotate(
        "what releasing zeros would err",
        (sizes.max(), 1),
        (0, 6),
        textcoords="offset points",
        ha="right",
        fontsize=12,
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel("events of a column in a timestamp, on average, times epsilon", fontsize=13)
    axes.set_ylabel("mean error of a count,\nin percent of the mean count", fontsize=13)
    axes.tick_params(labelsize=12)
    axes.grid(linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, fontsize=13, frameon=False)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def best_other(case: Case) -> str:
    """The mechanism with the least MAE of all but ``seasonal`` and Zero."""
    return case.best(label for label in case.errors if label not in (OURS, ZERO))


TABLES: dict[str, Callable[[Results, str], str]] = {
    "kinds": kinds,
    "verdict": verdict,
    "by stream": by_stream,
    "bounds": bounds,
    "variants of": variants,
    "measures": measures,
}
_RIVALS: dict[str, Callable[[Case], str]] = {
    "the best of all others, in hindsight": best_other,
    "the same, or Zero": lambda case: case.best(label for label in case.errors if label != OURS),
    "paced": lambda case: "paced",
}


def _kind(label: str, cases: Iterable[Case]) -> list[str]:
    own = [(_clipped(case, label), case.medians[OURS]) for case in cases]
    ratios = [f"{_mean([one[name] / other[name] for one, other in own]):.2f}" for name in RATIOS]
    biases = np.median([abs(one["bias"]) for one, _ in own])
    return [label, *ratios, f"{biases:.0%}", f"{np.mean([one['zero'] for one, _ in own]):.0%}"]


def _clipped(case: Case, label: str) -> dict[str, float]:
    """A contender's measures, with the clipping if its MAE is better with it: it nearly always is."""
    return case.medians.get(label + CLIPPED, case.medians[label])


def _ratio(case: Case, other: str) -> float:
    return _value(case, OURS) / _value(case, other)


def _value(case: Case, label: str) -> float:
    return float(np.mean(case.errors[label]))


def _mean(ratios: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log([ratio for ratio in ratios if np.isfinite(ratio)]))))


def _percent(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.0%}" if abs(value) >= 0.1 else f"{value:.1%}"


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
