"""Gaussian streams: what the audit wants of their entries, and what is made of their spends."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.cli.ledger import describe
from eventveil.formats.release import ledger_entry, release_record
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings
from eventveil.privacy.noise import SeededNoise
from eventveil.read.records import decode
from tests.unit.audit.story import FIRST, INSTANCE, LAST, PARTITION, SETTINGS, Item, Story, stream_of

DELTA = Fraction(1, 10**9)
GAUSSIAN = {"noise": "gaussian", "delta": DELTA}
UNIFORM = replace(SETTINGS, kind="uniform", options=GAUSSIAN)
KINDS = ("uniform", "sample", "seasonal")


def story_of(settings: MechanismSettings) -> Story:
    stream, mechanism = stream_of(settings), build(settings, 2, 1, SeededNoise(1))
    records = []
    for timestamp in range(FIRST, LAST + 1):
        release = mechanism.step(timestamp * np.arange(1, 3))
        records.append(release_record(stream, timestamp, release, mechanism.units))
    entries = [Item(ledger_entry(record, INSTANCE), partition=PARTITION) for record in records]
    return Story(entries, [Item(record) for record in records])


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_no_findings_and_its_spends_are_told_in_mu_squared(kind: str) -> None:
    settings = replace(UNIFORM, kind=kind)
    report = story_of(settings).audit(settings)
    assert report.findings == ()
    assert report.largest == report.units
    assert next(describe(report, "sink")).endswith(
        "largest 0.0331 of mu squared 0.0331 (epsilon 1, delta 1e-09)"
    )


@pytest.mark.parametrize("kind", ["time-unit", "totals"])
def test_at_event_level_every_timestamp_is_charged_with_all_of_mu_squared(kind: str) -> None:
    own = {"blocks": "2,4"} if kind == "totals" else {}
    settings = replace(SETTINGS, kind=kind, window=1, options={**GAUSSIAN, **own})
    story = story_of(settings)
    report = story.audit(settings)
    assert report.findings == ()
    assert report.largest == report.units
    # A look at earlier counts again is no second charge, and a timestamp without a charge is none.
    assert [item.fields["spent"]["publish"] for item in story.ledger] == [report.units] * len(story.ledger)
    story.charge(3, spent={"test": 0, "publish": report.units - 1}, window_spent=report.units - 1)
    assert story.audit(settings).findings


def test_records_say_that_noise_is_gaussian_and_readers_know_it() -> None:
    story = story_of(UNIFORM)
    for item in (*story.ledger, *story.sink):
        assert (item.fields["noise"], item.fields["delta"]) == ("gaussian", "1/1000000000")
    record = decode(story.sink[0].value, "here")
    assert (record.noise, record.delta, record.noise_scale) == ("gaussian", "1/1000000000", None)
    assert record.error == pytest.approx((4 / 0.0331148) ** 0.5, rel=1e-2)


def test_records_of_pure_streams_say_nothing_of_it() -> None:
    for item in (story := Story.clean()).ledger + story.sink:
        assert not {"noise", "delta"} & item.fields.keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"delta": "1/1000000"},
        {"delta": None},
        {"noise": "laplace"},
        {"noise": None, "delta": None},
        {"delta": "1e-9 or so"},
        {"noise": None},
    ],
)
def test_an_entry_of_other_noise_is_a_violation(changes: dict[str, Any]) -> None:
    story = story_of(UNIFORM)
    story.charge(3, **changes)
    found = [finding.what for finding in story.audit(UNIFORM).findings]
    assert [what.split(":")[0] for what in found] == ["its noise is not that of the topology"]


@pytest.mark.parametrize(
    "changes", [{"noise": "gaussian"}, {"delta": "1/1000000"}, {"noise": "gaussian", "delta": "1/9"}]
)
def test_an_entry_of_a_pure_stream_that_says_it_is_gaussian_is_a_violation(changes: dict[str, Any]) -> None:
    story = Story.clean()
    story.charge(3, **changes)
    found = [finding.what for finding in story.audit().findings]
    assert [what.split(":")[0] for what in found] == ["its noise is not that of the topology"]


def test_pure_and_gaussian_entries_are_not_taken_for_each_other() -> None:
    pure = replace(UNIFORM, options={})
    noise = "uniform with epsilon 1, window 4, delta 1/1000000000, noise gaussian"
    for settings, other, told in (
        (pure, UNIFORM, "uniform with epsilon 1, window 4 in the ledger, " + noise),
        (UNIFORM, pure, noise + " in the ledger, uniform with epsilon 1, window 4"),
    ):
        assert (
            story_of(settings)
            .audit(other)
            .findings[0]
            .what.startswith(
                f"it ends with other terms than this file has: {told} in this file. Is it the file"
            )
        )


def test_another_way_to_write_delta_is_the_same() -> None:
    story = story_of(UNIFORM)
    story.charge(3, delta="1e-9")
    assert story.audit(UNIFORM).findings == ()


def test_a_window_above_mu_squared_is_a_violation() -> None:
    settings = replace(UNIFORM, kind="sample")
    story = story_of(settings)
    first = orjson.loads(story.sink[0].value or b"")
    story.charge(1, fresh=True, spent=first["spent"], window_spent=first["window_spent"])
    found = story.audit(settings)
    assert found.largest == 2 * found.units
    assert any("more than epsilon" in finding.what for finding in found.findings)


def test_a_seasonal_stream_publishes_every_timestamp_and_nothing_else_is_possible() -> None:
    settings = replace(UNIFORM, kind="seasonal")
    story = story_of(settings)
    assert all(item.fields["fresh"] for item in story.sink)
    units = story.sink[0].fields["units"]
    story.charge(2, spent={"test": 0, "publish": units // 2})
    found = [one.what.split(":")[0] for one in story.audit(settings).findings]
    assert "seasonal cannot have spent this" in found
