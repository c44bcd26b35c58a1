"""What `make bench` knows of its own events, and what it makes of results."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks.throughput.events import Workload
from benchmarks.throughput.measuring import BASELINE, TWO_READERS
from benchmarks.throughput.profiling import self_time, whole_time
from benchmarks.throughput.report import FILE, RUST, renewed

EVENTS = 3_000
NOWHERE = {"machine": "machine", "commit": "abc", "taken": "now", "load_before": 0.1}


def test_the_truth_is_what_counting_one_by_one_gives() -> None:
    workload = Workload(EVENTS, users=200, columns=20)
    counts, seen = np.zeros((workload.timestamps, 20), np.int64), set()
    for _, value in workload.lines(0):
        event = json.loads(value)
        timestamp = event["time"] // 1000
        if (timestamp, event["user"]) not in seen:
            seen.add((timestamp, event["user"]))
            counts[timestamp, int(event["column"][1:])] += 1
    assert np.array_equal(workload.truth(), counts)
    assert 0 < counts.sum() < EVENTS


def test_a_profile_adds_up_looks_by_function() -> None:
    looks = [
        "run (eventveil/worker/app.py:1);parse (eventveil/decoding/rules.py:9) 3",
        "run (eventveil/worker/app.py:2) 1",
    ]
    assert self_time(looks) == {"parse (decoding/rules.py)": 3, "run (worker/app.py)": 1}
    assert whole_time(looks) == {"parse (decoding/rules.py)": 3, "run (worker/app.py)": 4}


def test_the_tables_of_the_page_come_from_the_results() -> None:
    entry = {
        "name": "A: somebody", "cpu_us_per_event": 1.5, "events_per_second": 765432.1, "ratio_to_a": 1.0,
        "correct": False, "runs": [{"cpu_us_per_event": 1.25}, {"cpu_us_per_event": 1.75, "memory_mib": 300}],
        "details": {**NOWHERE, "p50_ms": 12},
    }  # fmt: skip
    page = (
        "before\n<!-- bench: contenders -->\nold\n<!-- end -->\n<!-- bench: users -->\n<!-- end -->\nafter\n"
    )
    new = renewed(page, [entry, {**entry, "name": "users: 7, run", "correct": True, "ratio_to_a": None}])
    assert "| A: somebody | 1.50 | 1.25-1.75 | 765,000 | 1.00 | WRONG | p50 12 ms, 300 MiB |" in new
    assert "| users: 7, run | 1.50 | 1.25-1.75 | 765,000 |  | right | p50 12 ms, 300 MiB |" in new
    assert "old" not in new
    assert new.startswith("before\n")
    assert new.endswith("after\n")
    assert renewed(new, [entry]) != new


def test_aims_are_compared_with_what_was_measured_and_with_nothing_else() -> None:
    def entry(name: str, cost: float, **details: float) -> dict[str, Any]:
        return {"name": name, "cpu_us_per_event": cost, "events_per_second": 1e6 / cost, "details": details}

    entries = [entry(BASELINE, 1.5), entry(FILE, 1.25)]
    entries.append(entry("deadline: load 50 %, 600 timestamps", 2, worst_p99_ms=199))
    entries.append(entry("kinds: messy, kernel", 0.6, ratio_to_a=0.4))
    entries.append(entry(f"kinds: messy, {RUST}", 0.75))
    entries.append(entry("keeping: 1000 events/s, eventveil run", 2, core_percent=3.5, ratio_to_a=1.2))
    page = renewed("<!-- bench: aims -->\n<!-- end -->\n", entries)
    assert "messy events, over A | at most 0.35 | 0.4 | missed |" in page
    assert "messy events, over the Rust loop | at most 1 | 0.8 | met |" in page
    assert "file, over that of A | at least 1.5 | 1.2 | missed |" in page
    assert "the worst run, ms | at most 200 | 199 | met |" in page
    assert "per cent of a core | at most 3 | 3.5 | missed |" in page
    # One of the three rates is not enough.
    assert "over A, the worst | at most 1.5 | not yet |" in page
    assert page.count("not yet") == 12


def test_chunks_of_malformed_events_are_set_against_one_of_good_ones() -> None:
    entry = {
        "name": "judging: no JSON", "cpu_us_per_event": 3.0, "events_per_second": 1.0, "ratio_to_a": 2.5,
        "correct": True, "runs": [{"cpu_us_per_event": 3.0}], "details": NOWHERE,
    }  # fmt: skip
    page = renewed("<!-- bench: judging -->\n<!-- end -->\n<!-- bench: aims -->\n<!-- end -->\n", [entry])
    assert "ratio to a good chunk |" in page
    assert "over a good one, the worst kind | at most 3 | 2.5 | met |" in page


def test_the_world_cup_is_projected_from_the_largest_run() -> None:
    entries = [
        {
            "name": f"worldcup: {events}, run", "cpu_us_per_event": cost, "events_per_second": 500_000.0,
            "ratio_to_a": None, "correct": True, "runs": [{"cpu_us_per_event": cost, "memory_mib": memory}],
            "details": {**NOWHERE, "events": events, "timestamps": 50},
        }
        for events, cost, memory in ((10_000_000, 9.0, 300), (50_000_000, 2.0, 310))
    ]  # fmt: skip
    page = renewed("<!-- bench: worldcup -->\n<!-- end -->\n", entries)
    assert "1,352,804,107 events of 2.00 µs make 0.75 hours of one core" in page
    assert "at 500,000 a second 45 minutes with one worker" in page
    assert "the 50 here 1,000,000, so releases are in it" in page
    assert "300 MiB with 10,000,000 events and 310 MiB with 50,000,000 events." in page


def test_two_workers_are_set_against_two_readers_of_the_plainest_kind() -> None:
    costs = {BASELINE: 1.5, TWO_READERS: 1.8, "eventveil run": 1.0, "eventveil run, two workers": 1.5}
    entries = [
        {"name": name, "cpu_us_per_event": cost, "events_per_second": 1.0, "details": {}}
        for name, cost in costs.items()
    ]
    page = renewed("<!-- bench: aims -->\n<!-- end -->\n", entries)
    assert "an event cost 1.20 of what it costs in one process" in page
    assert "Two workers cost 1.50 of one, 1.25 of that." in page
