"""The tables of docs/performance.md and performance-details.md, between their markers, and the plot."""

from __future__ import annotations

import re
from math import isnan
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.throughput.measuring import BASELINE, ROOT, TWO_READERS

#: The page, and what it rests on.
PAGES = [ROOT / "docs" / name for name in ("performance.md", "performance-details.md")]
PLOT = ROOT / "docs" / "performance.png"
TOPIC, FILE = "eventveil replay, topic", "eventveil replay, file"
RUST = "Rust loop: librdkafka, sonic-rs"
#: Requests to the servers of the World Cup of 1998, and the timestamps that Kellaris et al. make of them
#: (PVLDB 2014, Section 7).
WORLD_CUP, WORLD_CUP_TIMESTAMPS = 1_352_804_107, 1_320
#: Microseconds; stock Faust takes more, beside which nobody could tell the others apart.
_SCALE = 20
_OURS, _THEIRS = "#2a7f62", "#8a8a8a"

Entry = dict[str, Any]


def write_report(entries: list[Entry]) -> None:
    """Renew the tables and the plot."""
    for page in PAGES:
        page.write_text(renewed(page.read_text(), entries))
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
    """What was aimed at, and the figures that have been measured; the worst where there are several."""
    by_name = {entry["name"]: entry for entry in entries}

    def of(name: str, key: str = "cpu_us_per_event") -> float:
        entry = by_name.get(name)
        found = None if entry is None else entry.get(key, entry["details"].get(key))
        return float("nan") if found is None else float(found)

    def ratio(*names: str) -> float:
        """The largest to A; nothing if one was not measured."""
        found = [of(name, "ratio_to_a") for name in names]
        return float("nan") if any(map(isnan, found)) else max(found)

    speed, run = "events_per_second", of("eventveil run")
    friendly, messy = "kinds: friendly", "kinds: messy"
    held = [of(name, "held_s") for name in by_name if name.startswith("takeover: 9")]
    malformed, judging = (
        max((entry["ratio_to_a"] for entry in of_series(one, entries)), default=float("nan"))
        for one in ("malformed", "judging")
    )
    nested = [f"kinds: nested, {codec}, kernel" for codec in ("gzip", "lz4", "zstd")]
    keeping = [f"keeping: {rate} events/s, eventveil run" for rate in (1000, 20000, 80000)]
    rust = {one: of(f"{one}, kernel") / of(f"{one}, {RUST}") for one in (friendly, messy)}
    long_run = of("worldcup: 100000000, run") * WORLD_CUP / 3.6e9
    plain = [f"{one}, plain Python" for one in (friendly, messy)]
    streams = of("streams: 200, run") / of("streams: 1, run")
    worst_p99 = of("deadline: load 50 %, 600 timestamps", "worst_p99_ms")
    aims = [
        ("friendly events, over A", "at most", 0.25, ratio(f"{friendly}, kernel")),
        ("friendly events, over the Rust loop", "at most", 0.8, rust[friendly]),
        ("messy events, over A", "at most", 0.35, ratio(f"{messy}, kernel")),
        ("messy events, over the Rust loop", "at most", 1, rust[messy]),
        ("nested events under gzip, lz4, zstd, over A, the worst", "at most", 0.5, ratio(*nested)),
        ("all events malformed, over friendly ones, the worst kind", "at most", 3, malformed),
        ("a chunk of malformed events over a good one, the worst kind", "at most", 3, judging),
        ("live at 1,000, 20,000 and 80,000 events/s, over A, the worst", "at most", 1.5, ratio(*keeping)),
        ("live at 1,000 events/s, per cent of a core", "at most", 3, of(keeping[0], "core_percent")),
        ("without the kernel, friendly and messy, over A, the worst", "at most", 1.2, ratio(*plain)),
        ("p99 from deadline to release, 600 timestamps, the worst run, ms", "at most", 200, worst_p99),
        ("the World Cup, from 100 million events, hours of a core", "at most", 0.2, long_run),
        ("200 streams, CPU of an event over one stream", "at most", 2, streams),
        ("CPU of two workers over that of one", "at most", 1.1, of("eventveil run, two workers") / run),
        ("speed of `replay`, topic, over that of A", "at least", 1, of(TOPIC, speed) / of(BASELINE, speed)),
        ("speed of `replay`, file, over that of A", "at least", 1.5, of(FILE, speed) / of(BASELINE, speed)),
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
            "Two processes of A, each with half of the partitions, show how much is due to the machine: "
            f"an event cost {readers:.2f} of what it costs in one process. Two workers cost {workers:.2f} of "
            f"one, {workers / readers:.2f} of that.",
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
        f"the {timestamps} here {_thousands(ours)}, so releases are in it. Timestamps that are closed are"
        f" not kept: the most was {memory}."
    )


def _table(series: str, entries: list[Entry]) -> str:
    if series == "aims":
        return _aims(entries)
    chosen = of_series(series, entries)
    if not chosen:
        return "Not measured yet."
    of = "release" if series == "releases" else "event"
    bases = {
        "malformed": "friendly events", "judging": "a good chunk", "formats": "JSON", "streams": "one stream",
    }  # fmt: skip
    base = bases.get(series, "A")
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
    units = {"_ms": "ms", "_s": "s", "_percent": "% of a core"}
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
    """A bar for each contender, from zero; who is far off the scale is named below it."""
    chosen = of_series("contenders", entries)
    shown = [one for one in chosen if one["cpu_us_per_event"] <= _SCALE][::-1]
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(shown) + 1.6))
    costs = [entry["cpu_us_per_event"] for entry in shown]
    colours = [_OURS if entry["name"].startswith("eventveil") else _THEIRS for entry in shown]
    axes.barh([entry["name"] for entry in shown], costs, color=colours)
    axes.set_xlim(0, 1.12 * max(costs, default=1))
    beyond = [
        f"{one['name']}: {one['cpu_us_per_event']:.0f}" for one in chosen if one["cpu_us_per_event"] > _SCALE
    ]
    axes.set_xlabel("\n".join(["microseconds of processor time per event", *beyond]))
    for place, cost in enumerate(costs):
        axes.text(cost, place, f" {cost:.2f}", va="center", fontsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(PLOT, dpi=110)
    plt.close(figure)
