"""Extreme streams: what is accepted can be run, and what cannot be run is refused at its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eventveil.cli.check import report
from eventveil.formats.release import release_record
from eventveil.mechanisms.registry import build
from eventveil.model.timeline import first_whole_timestamp
from eventveil.privacy.noise import SystemNoise
from tests.unit.topology.examples import changed, load_text, problems_of

NO_BUDGET = ("budget: {epsilon: 5, span: 5d}\n", "")
ORIGIN = "2013-01-01T00:00:00Z"
LONGEST_NAME = "n" * 249
NOW = 1_800_000_000_000

ACCEPTED = {
    "the least epsilon": [("epsilon: 1.0", "epsilon: 1/1000000")],
    "the largest epsilon": [("epsilon: 1.0", "epsilon: 1000"), NO_BUDGET],
    "the largest factor": [("window: 120", "window: 120\n      factor: 1000000")],
    "a window of 400,000": [("window: 120", "window: 400000"), ("interval: 1h", "interval: 1ms"), NO_BUDGET],
    "100,000 columns": [("[ATL, BOS]", "{range: [1, 100000]}")],
    "100,000 columns in 1,000 groups": [
        ("[ATL, BOS]", "{range: [1, 100000]}"),
        ("window: 120", "window: 120\n      groups: 1000\n      shift: true"),
    ],
    "100,000 columns in FAST": [
        ("[ATL, BOS]", "{range: [1, 100000]}"),
        ("kind: budget-absorption", "kind: fast"),
    ],
    "the largest contributions": [
        ("[ATL, BOS]", "[ATL, BOS]\n      contributions: 1000000"),
        ("window: 120", "window: 120\n      adjacency: substitute"),
        ("epsilon: 1.0", "epsilon: 1/1000000"),
    ],
    "the longest waits": [
        (
            "interval: 1h",
            "interval: 1h\n      lateness: 36500d\n      max_ahead: 36500d\n      clock_skew: 36500d",
        )
    ],
    "the shortest interval": [("interval: 1h", "interval: 1ms"), NO_BUDGET],
    "the longest interval": [("interval: 1h", "interval: 36500d"), ("window: 120", "window: 2"), NO_BUDGET],
    "an origin far ahead": [(ORIGIN, "9999-01-01T00:00:00Z")],
    "the first origin": [(ORIGIN, "0001-01-01T00:00:00Z"), ("interval: 1h", "interval: 1ms"), NO_BUDGET],
    "the longest names": [
        ("name: flights", f"name: {'n' * 100}"),
        ("destinations:", f"{'d' * 100}:"),
        ("flights.events", LONGEST_NAME),
        ("flights.sanitized", LONGEST_NAME.replace("n", "s")),
    ],
    "odd labels": [
        ("[ATL, BOS]", '["a\\nb", "\\U0001F600", "nul\\0", "\\e[31m", "' + "x" * 1000 + '", "\\"\\\\"]')
    ],
    "an odd pointer": [("/tailnum", '"/a\\nb/~0~1"')],
}
REFUSED = {
    "more columns than state can hold": (
        [("[ATL, BOS]", "{range: [1, 1000000]}")],
        "17:16: streams.destinations.counts.columns: the state of 1000000 columns and a window of 120"
        " timestamps can grow to ",
        "expected fewer columns, shorter names, or counts: array in the sink",
    ),
    "a longer window than state can hold": (
        [("window: 120", "window: 1000000"), ("interval: 1h", "interval: 1s"), NO_BUDGET],
        "21:15: streams.destinations.mechanism.window: the state of 2 columns and a window of 1000000"
        " timestamps can grow to ",
        "and must stay a Kafka message of 16777216; expected a smaller window",
    ),
    "noise that drowns everything": (
        [
            ("epsilon: 1.0", "epsilon: 1/1000000\n      factor: 1000000"),
            ("[ATL, BOS]", "[ATL, BOS]\n      contributions: 1000000"),
        ],
        "21:16: streams.destinations.mechanism.epsilon: epsilon 1/1000000 is too small: this mechanism would"
        " never publish",
        "; raise it, or lower contributions, window, factor or the number of columns",
    ),
}


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_an_extreme_that_is_accepted_is_described_and_released(
    tmp_path: Path, changes: list[tuple[str, str]]
) -> None:
    topology = load_text(tmp_path, changed(*changes))
    (stream,) = topology.streams
    assert next(iter(report(topology, ()))).endswith(": valid")
    columns = len(stream.counts.labels)
    mechanism = build(stream.mechanism, columns, stream.sensitivity, SystemNoise())
    release = mechanism.step(np.ones(columns, np.int64))
    first = first_whole_timestamp(stream.timeline, NOW)
    assert release_record(stream, first, release, mechanism.units)
    mechanism.restore(mechanism.snapshot())


@pytest.mark.parametrize(("changes", "place", "remedy"), REFUSED.values(), ids=REFUSED)
def test_an_extreme_that_could_not_run_is_refused(
    tmp_path: Path, changes: list[tuple[str, str]], place: str, remedy: str
) -> None:
    (problem,) = problems_of(tmp_path, changed(*changes))
    assert str(problem).startswith(f"{tmp_path}/topology.yaml:{place}")
    assert problem.message.endswith(remedy)
