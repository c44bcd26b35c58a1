"""What ``replay --truth`` adds: the truth in the release's own terms, before bounding, and errors."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eventveil.mechanisms.base import Release
from eventveil.model.topology import Stream
from eventveil.replay.errors import StreamErrors
from eventveil.replay.outputs import truth_line
from eventveil.replay.releasing import Released
from eventveil.replay.run import replay
from tests.unit.replay.history import (
    COLUMNS,
    HOUR,
    ORIGIN,
    brute_force,
    random_events,
    replay_file,
    stream,
    topology,
    write_lines,
)

END = ORIGIN + 9 * HOUR


def spanning(span: int) -> Stream:
    plain = stream(kind="time-unit")
    return replace(plain, mechanism=replace(plain.mechanism, options={"span": span}))


def released(counts: list[int], truth: list[int], events: list[int] | None = None) -> Released:
    labels = tuple(f"c{index}" for index in range(len(counts)))
    release = Release(np.array(counts), True, 0, 0, 0)
    one = stream()
    named = replace(one, counts=replace(one.counts, labels=labels))
    array = None if events is None else np.array(events)
    return Released(named, 1, b"", np.array(truth), release, 1, np.array(truth), array)


def test_the_truth_of_a_sum_over_a_span_is_a_sum(tmp_path: Path) -> None:
    made = [*replay_file(tmp_path, random_events(200, 9, seed=1), spanning(3), end=END)]
    assert len(made) == 9
    for index, one in enumerate(made):
        last = [other.counts for other in made[max(0, index - 2) : index + 1]]
        assert one.truth.tolist() == np.sum(last, axis=0).tolist()
        # There is no noise, so the release is the truth.
        assert one.release.counts.tolist() == one.truth.tolist()
    line = json.loads(truth_line(made[4]))
    assert [*line] == ["stream", "timestamp", "counts", "sums"]
    assert line["sums"] == dict(zip(COLUMNS, made[4].truth.tolist(), strict=True))
    assert line["counts"] == dict(zip(COLUMNS, made[4].counts.tolist(), strict=True))


@pytest.mark.parametrize("per_column", [None, 1])
def test_the_truth_before_bounding_counts_every_event(tmp_path: Path, per_column: int | None) -> None:
    values = random_events(400, 9, seed=4)
    source = write_lines(tmp_path / "events.jsonl", values)
    bounded = topology(stream(contributions=2, per_column=per_column))
    running = replay(bounded, source, end=END, seed=1, unbounded=True)
    made = [*running]
    every = brute_force(values, bound=len(values))
    assert [one.events.tolist() for one in made if one.events is not None] == [
        [every[hour][to] for to in COLUMNS] for hour in range(1, 10)
    ]
    assert json.loads(truth_line(made[0]))["events"] == {to: every[1][to] for to in COLUMNS}
    outcomes = running.outcomes["destinations"]
    assert sum(int(one.counts.sum()) for one in made) == outcomes["counted"] < sum(outcomes.values()) == 400


def test_counting_without_the_bound_changes_no_release_and_no_outcome(tmp_path: Path) -> None:
    values = random_events(300, 9, seed=5)
    random.Random(1).shuffle(values)
    streams = stream(), stream("second", "seasonal", contributions=3)
    plain = replay_file(tmp_path, values, *streams, end=END, seed=1)
    expected = [one.record for one in plain]
    again = replay(
        topology(*streams), write_lines(tmp_path / "again.jsonl", values), end=END, seed=1, unbounded=True
    )
    assert [one.record for one in again] == expected
    assert again.outcomes == plain.outcomes


def test_errors_are_told_of_all_columns_of_the_largest_tenth_and_of_totals() -> None:
    errors = StreamErrors(20)
    truth = [100, 50, *[0] * 18]
    errors.add(released([104, 44, *[1] * 18], truth, [200, 50, *[0] * 18]))
    errors.add(released([100, 50, *[0] * 18], truth, [100, 50, *[0] * 18]))
    told = [*errors.told()]
    # 4 + 6 + 18 over 40 cells whose truth is 300; 4 + 6 over 4 cells; totals 166 and 150 instead of 150.
    assert told[0] == (
        "over 20 columns and 2 timestamps, a count is off by 0.7 (9.33 %) on average; the true mean is 7.5"
    )
    assert told[1] == (
        "over the largest tenth (2 columns) and 2 timestamps, a count is off by 2.5 (3.33 %) on average;"
        " the true mean is 75"
    )
    assert told[2] == (
        "the total of a timestamp is off by 8 on average (5.33 %); their sum by +16, its bias (+5.33 %)"
    )
    assert "bounding left out 100 of 400 events (25 %)" in told[3]


def test_nothing_is_divided_by_nothing() -> None:
    errors = StreamErrors(1)
    assert [*errors.told()] == []
    errors.add(released([0], [0]))
    assert next(iter(errors.told())) == (
        "over 1 column and 1 timestamp, a count is off by 0 on average; the true mean is 0"
    )
