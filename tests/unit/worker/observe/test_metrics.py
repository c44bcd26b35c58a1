"""The one list of metrics: names, documentation, values, and what is raw."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families

from eventveil.cli.main import main
from eventveil.counting.counter import OUTCOMES
from eventveil.decoding.rules import Reason
from eventveil.model.records import TopicPartition
from eventveil.process.memory import Held
from eventveil.tasks.task import StreamView
from eventveil.worker.observe import metrics
from eventveil.worker.observe.metrics import METRICS, RAW, Metric, WorkerCollector
from eventveil.worker.observe.observation import Observation, PartitionView
from tests.unit.support import stream, topology
from tests.unit.tasks.test_discovery import finding, world
from tests.unit.values.streams import readings

NOW = 1_800_000_000.0
#: Of the naming rules of `promtool check metrics`.
NOT_BASE_UNITS = "milliseconds|minutes|hours|days|bytes_total|kilobytes|megabytes|percent|ms"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def observation(events: int = 0) -> Observation:
    """Three streams of which the first one is owned; ``events`` changes nothing but counts of events."""
    pan_private = stream("seen", topic="seen", options={"pan_private": "single"})
    streams = topology(stream(window=4), stream("other"), pan_private)
    made = Observation(replace(streams, readings=(readings(),)))
    made.started, made.beat = NOW - 60, time.monotonic()
    source, partials = TopicPartition("raw", 7), TopicPartition("app-partials", 0)
    made.assigned = frozenset({source, partials, TopicPartition("raw", 8)})
    made.partitions = {
        source: PartitionView(
            5 + events, 9 + 2 * events, False, {"visits": StreamView(3, Held(events, events, events))}
        ),
        partials: PartitionView(5, 5, False, {"visits": StreamView(2, spent=0.75)}),
    }
    made.events.update({("visits", "counted"): events, ("visits", "late"): 2 * events})
    made.events["minutes", "not-json"] = events
    made.readings["minutes"] = 12
    made.fetched["raw"] = events
    made.memory_limit, made.resident = 3 * 2**30, events
    made.throttled = events / 1024
    made.released("visits", True)
    made.released("visits", False)
    made.released_at["visits"] = NOW - 1
    made.taken_over(source)
    made.gave_up(partials, RuntimeError("fenced"), True)
    return made


def registry(seen: Observation, raw: bool = False) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(WorkerCollector(seen, raw))
    return made


def samples(seen: Observation, raw: bool = False) -> Samples:
    text = generate_latest(registry(seen, raw)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics.time, "time_ns", lambda: int(NOW * 1e9))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch(r"eventveil(_[a-z]+)+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not re.search(rf"_({NOT_BASE_UNITS})(_|$)", metric.name)
    assert not metric.name.endswith(("_count", "_sum", "_bucket"))
    assert ("seconds" in metric.unit) == metric.name.endswith("_seconds")
    assert all(
        re.fullmatch("[a-z]+", label) and label not in ("le", "quantile", "job") for label in metric.labels
    )
    assert metric.help.endswith(".")
    assert metric.unit
    assert (RAW in metric.description) == metric.raw


def test_names_are_unique() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_the_page_of_the_documentation_is_up_to_date() -> None:
    printed = CliRunner().invoke(main, ["metrics"])
    page = Path(__file__).parents[4] / "docs" / "metrics.md"
    assert page.read_text(encoding="utf-8") == printed.output, "eventveil metrics > docs/metrics.md"
    assert all(f"`{metric.name}`" in printed.output for metric in METRICS)


@pytest.mark.parametrize("raw", [False, True])
def test_both_formats_hold_the_list_and_nothing_else(raw: bool) -> None:
    listed = {metric.name: metric for metric in METRICS if raw or not metric.raw}
    found = registry(observation(3), raw)
    families = {
        family.name + "_total" * (family.type == "counter"): family
        for family in text_string_to_metric_families(generate_latest(found).decode())
    }
    assert {name: (one.type, one.documentation) for name, one in families.items()} == {
        name: (one.kind, one.description) for name, one in listed.items()
    }
    for name, family in families.items():
        assert family.samples, name
        assert all(set(sample.labels) == set(listed[name].labels) for sample in family.samples)
    strict = parser.text_string_to_metric_families(exposition.generate_latest(found).decode())
    assert {sample.name for family in strict for sample in family.samples} == set(listed)


def test_whatever_is_on_by_default_is_the_same_for_any_number_of_events() -> None:
    assert samples(observation(0)) == samples(observation(1_000))
    revealing = {
        name
        for (name, labels), value in samples(observation(0), raw=True).items()
        if samples(observation(1_000), raw=True)[name, labels] != value
    }
    assert revealing == {metric.name for metric in METRICS if metric.raw}


def test_values() -> None:
    found = samples(observation(3), raw=True)

    def value(name: str, **labels: str) -> float | None:
        return found.get((f"eventveil_{name}", tuple(sorted(labels.items()))))

    assert value("assigned_partitions", role="aggregate") == 2
    assert value("owned_partitions", role="aggregate") == 1
    assert value("owned_partitions", role="sanitize") == 1
    assert value("ready") == 0
    assert value("take_overs_total", role="aggregate") == 1
    assert value("owner_failures_total", role="sanitize") == value("fenced_total", role="sanitize") == 1
    assert value("releases_total", stream="visits", kind="fresh") == 1
    assert value("releases_total", stream="visits", kind="repeated") == 1
    assert value("releases_total", stream="other", kind="fresh") == 0
    assert value("last_release_time_seconds", stream="visits") == NOW - 1
    assert value("last_release_time_seconds", stream="other") is None
    assert value("released_until_seconds", stream="visits") == 1.010  # timestamp 1 is [1000 ms, 1010 ms)
    assert value("budget_spent_epsilon", stream="visits") == 0.75
    assert value("budget_remaining_epsilon", stream="visits") == 0.25
    assert value("events_total", stream="visits", outcome="counted") == 3
    assert value("events_total", stream="visits", outcome="late") == 6
    assert value("events_total", stream="other", outcome="late") == 0
    assert value("events_total", stream="minutes", outcome="not-json") == 3
    assert value("events_total", stream="minutes", outcome="read") == 0
    assert value("readings_total", stream="minutes") == 12
    assert value("lag_records", topic="raw", partition="7") == 7
    assert value("open_contributions", stream="visits") == 3
    assert value("open_timestamps", stream="visits") == value("remembered_users", stream="visits") == 3
    assert value("resident_memory_bytes") == 3
    assert value("memory_limit_bytes") == 3 * 2**30


def test_a_worker_without_a_memory_limit_tells_none() -> None:
    seen = observation()
    seen.memory_limit = None
    assert ("eventveil_memory_limit_bytes", ()) not in samples(seen)


def test_delays_are_the_longest_and_in_whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = observation()
    due = 1_018 + 10 * 1  # of timestamp 2
    monkeypatch.setattr(metrics.time, "time_ns", lambda: (due + 2_999) * 1_000_000)
    seen.partitions = {
        TopicPartition("raw", 0): PartitionView(0, 0, False, {"visits": StreamView(2)}),
        TopicPartition("raw", 1): PartitionView(0, 0, False, {"visits": StreamView(500)}),
    }
    assert samples(seen)["eventveil_close_delay_seconds", (("stream", "visits"),)] == 2
    assert ("eventveil_release_delay_seconds", (("stream", "visits"),)) not in samples(seen)


def test_a_column_that_is_not_found_is_in_no_metric() -> None:
    """Not by its name, raw or not; and without raw metrics not by the number of such columns either."""

    def exposed(*secrets: str, raw: bool) -> bytes:
        seen, of = world(*secrets), finding()
        made = Observation(topology(of))
        made.started, made.beat = NOW - 60, time.monotonic()
        places = (TopicPartition("raw", 0), TopicPartition("app-partials", 0))
        made.assigned = frozenset(places)
        made.partitions = {
            place: PartitionView(9, 9, False, views) for place, views in zip(places, seen.views, strict=True)
        }
        made.events.update({("visits", outcome): n for outcome, n in seen.outcomes.items()})
        return generate_latest(registry(made, raw))

    assert b"secret" not in exposed("secret", raw=True)
    plain = exposed("crowd", raw=False)
    for secrets in (("secret",), ("s",), ("secret 1", "secret 2", "secret 3")):
        assert exposed(*secrets, raw=False) == plain


def test_there_is_an_outcome_for_every_reason_and_for_what_is_no_dead_letter() -> None:
    assert Counter(OUTCOMES) == Counter(["counted", "bounded", "ignored", "filtered", "discarded", *Reason])


def test_a_gaussian_stream_shows_the_epsilon_of_the_mu_squared_that_is_spent() -> None:
    """After 1 of 24 timestamps, of which a share of epsilon would be 0.042."""
    made = observation()
    options = {"noise": "gaussian", "delta": Fraction(1, 10**9)}
    one = stream(kind="uniform", window=24, epsilon=Fraction(1), options=options)
    made.streams = {**made.streams, "visits": one}
    made.partitions[TopicPartition("app-partials", 0)] = PartitionView(
        5, 5, False, {"visits": StreamView(2, spent=1 / 24)}
    )
    found = samples(made)
    label = (("stream", "visits"),)
    assert found["eventveil_budget_spent_epsilon", label] == pytest.approx(0.191, abs=1e-3)
    assert found["eventveil_budget_remaining_epsilon", label] == pytest.approx(0.809, abs=1e-3)


def test_what_every_window_pays_for_finding_columns_is_spent_and_part_of_epsilon() -> None:
    """A mechanism of epsilon 0.5, of which 0.75 is spent, and finding columns for another 0.5."""
    made = observation()
    made.streams = {**made.streams, "visits": finding(epsilon=Fraction(1, 2))}
    found = samples(made)
    label = (("stream", "visits"),)
    assert found["eventveil_budget_spent_epsilon", label] == 0.875
    assert found["eventveil_budget_remaining_epsilon", label] == 0.125
