"""The tables of docs/performance.md, between their markers, and its plot, from ``latest.json``."""

from __future__ import annotations

import re
from math import isnan
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.throughput.measuring import BASELINE, ROOT, TWO_READERS

PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "performance.png"
TOPIC, FILE = "eventveil replay, topic", "eventveil replay, file"
FAUST = "stock Faust agent, bytes and orjson"
#: Requests to the servers of the World Cup of 1998, and the timestamps that Kellaris et al. make of them
#: (PVLDB 2014, Section 7).
WORLD_CUP, WORLD_CUP_TIMESTAMPS = 1_352_804_107, 1_320
_GROWTH = ("events", "columns", "users", "streams")
_OURS, _THEIRS = "#2a7f62", "#8a8a8a"

Entry = dict[str, Any]


def write_report(entries: list[Entry]) -> None:
    """Renew the tables and the plot."""
    PAGE.write_text(renewed(PAGE.read_text(), entries))
    _plot(entries)


def renewed(page: str, entries: list[Entry]) -> str:
    """The page with the tables that ``<!-- bench: NAME -->`` announces and ``<!-- end -->`` ends."""

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n{_table(match[2], entries)}\n<!-- end -->"

    return re.sub(r"(<!-- bench: ([a-z]+) -->)\n.*?<!-- end -->", table, page, flags=re.DOTALL)


def of_series(series: str, entries: list[Entry]) -> list[Entry]:
    """The entries of a series; contenders are those of none."""
    if series == "contenders":
        return [entry for entry in entries if not re.match(r"[a-z]+: ", entry["name"])]
    return [entry for entry in entries if entry["name"].startswith(f"{series}: ")]


def _aims(entries: list[Entry]) -> str:
    """What was aimed at, and the figures that have been measured."""
    by_name = {entry["name"]: entry for entry in entries}

    def of(name: str, key: str = "cpu_us_per_event") -> float:
        entry = by_name.get(name)
        return float("nan") if entry is None else float(entry.get(key, entry["details"].get(key, "nan")))

    speed, run = "events_per_second", of("eventveil run")
    held = [of(name, "held_s") for name in by_name if name.startswith("takeover: 9")]
    ratios = [entry["ratio_to_a"] for entry in of_series("malformed", entries)]
    worst = max(ratios, default=float("nan"))
    aims = [
        ("CPU of `eventveil run` over that of A", "at most", 0.6, run / of(BASELINE)),
        ("CPU of stock Faust, bytes, over that of `eventveil run`", "at least", 60, of(FAUST) / run),
        ("CPU of two workers over that of one", "at most", 1.1, of("eventveil run, two workers") / run),
        ("speed of `replay`, topic, over that of A", "at least", 1, of(TOPIC, speed) / of(BASELINE, speed)),
        ("speed of `replay`, file, over that of A", "at least", 1.5, of(FILE, speed) / of(BASELINE, speed)),
        ("p99 from deadline to release at 50 % load, ms", "at most", 250, of("latency: load 50 %", "p99_ms")),
        ("CPU of a chunk of malformed events over that of good ones, the worst kind", "at most", 3, worst),
        ("seconds to hold a million contributions again", "at most", 10, max(held, default=float("nan"))),
    ]
    lines = ["| aim | | measured | |", "| --- | --- | --: | --- |"]
    for text, bound, limit, found in aims:
        met = found <= limit if bound == "at most" else found >= limit
        told = f"{found:,.3g} | {'met' if met else 'missed'}" if not isnan(found) else "not yet | "
        lines.append(f"| {text} | {bound} {limit} | {told} |")
    if not isnan(readers := of(TWO_READERS) / of(BASELINE)):
        workers = of("eventveil run, two workers") / run
        lines += [
            "",
            f"Two processes of A, each with half of the partitions, cost {readers:.2f} of one process: so "
            f"much is the machine. Two workers cost {workers:.2f} of one, {workers / readers:.2f} of that.",
        ]
    return "\n".join(lines)


def _projection(entries: list[Entry]) -> str:
    """From the events of the largest run to those of the whole World Cup."""
    entry, details = entries[-1], entries[-1]["details"]
    cpu, speed, timestamps = entry["cpu_us_per_event"], entry["events_per_second"], details["timestamps"]
    hours, minutes = WORLD_CUP * cpu / 3.6e9, WORLD_CUP / speed / 60
    theirs, ours = WORLD_CUP / WORLD_CUP_TIMESTAMPS, details["events"] / timestamps
    memory = " and ".join(
        f"{one['runs'][0]['memory_mib']:,} MiB with {one['details']['events']:,} events" for one in entries
    )
    return (
        f"{WORLD_CUP:,} events of {cpu:.2f} µs make {hours:.2f} hours of one core, and at "
        f"{_thousands(speed)} a second {minutes:.0f} minutes with one worker. Each of the "
        f"{WORLD_CUP_TIMESTAMPS:,} timestamps of Kellaris et al. has {_thousands(theirs)} events, each of "
        f"the {timestamps} here {_thousands(ours)}, so releases are in it. What is closed takes no memory: "
        f"the most was {memory}."
    )


def _table(series: str, entries: list[Entry]) -> str:
    if series == "aims":
        return _aims(entries)
    chosen = of_series(series, entries)
    if not chosen:
        return "Not measured yet."
    of = "release" if series == "releases" else "event"
    base = "a good chunk" if series == "malformed" else "A"
    lines = [
        f"| contender | CPU µs/{of} | of single runs | {of}s/s | ratio to {base} | counts | |",
        "| --- | --: | --- | --: | --: | --- | --- |",
    ]
    for entry in chosen:
        ratio = "" if entry["ratio_to_a"] is None else f"{entry['ratio_to_a']:.2f}"
        lines.append(
            f"| {entry['name']} | {_cost(entry)} | {_thousands(entry['events_per_second'])} | {ratio} "
            f"| {'right' if entry['correct'] else 'WRONG'} | {_particulars(entry)} |"
        )
    details = chosen[0]["details"]
    commits = ", ".join(sorted({entry["details"]["commit"] for entry in chosen}))
    loads = [entry["details"]["load_before"] for entry in chosen]
    lines += [
        "",
        f"{details['machine']}; medians of {len(chosen[0]['runs'])}; {details['taken']} UTC at {commits}; "
        f"load average before each {min(loads)} to {max(loads)}.",
    ]
    if series == "worldcup":
        lines += ["", _projection(chosen)]
    return "\n".join(lines)


def _cost(entry: Entry) -> str:
    """The median and the single runs; nothing where none was measured, or where there were no events."""
    runs = [run["cpu_us_per_event"] for run in entry["runs"]]
    if not max(runs) or entry["details"].get("events") == 1:
        return " | "
    return f"{entry['cpu_us_per_event']:,.2f} | {min(runs):,.2f}-{max(runs):,.2f}"


def _particulars(entry: Entry) -> str:
    """What only some runs have: times by name, and the most memory."""
    units = {"_ms": "ms", "_s": "s"}
    told = [
        f"{name.removesuffix(end)} {value} {unit}"
        for name, value in entry["details"].items()
        for end, unit in units.items()
        if name.endswith(end)
    ]
    memory = max((run.get("memory_mib", 0) for run in entry["runs"]), default=0)
    return ", ".join(told + ([f"{memory:,} MiB"] if memory else []))


def _thousands(number: float) -> str:
    """Three digits are enough."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}"


def _plot(entries: list[Entry]) -> None:
    grown = {name: points for name in _GROWTH if (points := _points(name, entries))}
    figure, axes = plt.subplots(1, 2 if grown else 1, figsize=(12 if grown else 8, 4.5), squeeze=False)
    left, right = axes[0][0], axes[0][-1]
    chosen = of_series("contenders", entries)[::-1]
    costs = [entry["cpu_us_per_event"] for entry in chosen]
    colours = [_OURS if entry["name"].startswith("eventveil") else _THEIRS for entry in chosen]
    left.barh([entry["name"] for entry in chosen], costs, color=colours)
    left.set_xscale("log")
    left.set_xlabel("CPU microseconds per event")
    for place, cost in enumerate(costs):
        left.text(cost, place, f" {cost:.2f}", va="center", fontsize=8)
    left.margins(x=0.2)
    for name, points in grown.items():
        right.plot(*zip(*points, strict=True), marker="o", label=name)
        right.set_xscale("log")
        right.set_ylim(bottom=0)
        right.set_xlabel("how many")
        right.set_ylabel("eventveil run, CPU µs per event")
        right.legend()
    figure.tight_layout()
    figure.savefig(PLOT, dpi=110)
    plt.close(figure)


def _points(series: str, entries: list[Entry]) -> list[tuple[int, float]]:
    """Size and cost of a worker, in order."""
    return sorted(
        (int(entry["name"].split(": ")[1].split(",")[0]), entry["cpu_us_per_event"])
        for entry in of_series(series, entries)
        if entry["name"].endswith(", run")
    )
