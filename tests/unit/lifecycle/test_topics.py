"""The topics a topology needs: their partitions, their settings, and what is said of a wrong one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.formats.release import release_record
from eventveil.kafka.cluster import Topic
from eventveil.lifecycle.create import inspect_topics
from eventveil.lifecycle.topics import Setting, TopicPlan, absent, hints, plan_topics, short_of_replicas
from eventveil.mechanisms.base import RELEASE_LIMIT, Release
from eventveil.mechanisms.movement import Movement
from eventveil.mechanisms.sizes import largest_release, largest_state
from eventveil.model.records import BATCH_BYTES, MAX_MESSAGE_BYTES
from eventveil.model.topology import Stream, Topology
from eventveil.tasks.release import ReleaseState
from eventveil.topology.loading import load
from tests.unit.support import stream, topology
from tests.unit.values.streams import readings

DAY = 86_400_000
HUGE_NAMES = ("\u0001", '"', "\\", "a", "é", "€", "😀", "\u2028", "\x7f", "<")


def plans(one: Topology | None = None, **source_partitions: int) -> dict[str, TopicPlan]:
    return {plan.name: plan for plan in plan_topics(one or topology(), source_partitions)}


# What is planned


def test_all_topics_of_a_topology_are_planned_with_their_partitions() -> None:
    one = topology(stream(), stream("clicks", topic="clicks.raw"), stream("more"), partials=5, partitions=12)
    planned = plan_topics(one, {"raw": 7})
    assert [(plan.name, plan.role, plan.partitions, plan.exact_partitions) for plan in planned] == [
        ("raw", "source", 12, False),
        ("clicks.raw", "source", 12, False),
        ("app-counting-changelog", "counting changelog", 7 + 12, True),
        ("app-partials", "partials", 5, True),
        ("app-ledger-changelog", "ledger changelog", 5, True),
        ("app-ledger", "ledger", 5, True),
        ("visits.sanitized", "sink", 1, False),
        ("clicks.sanitized", "sink", 1, False),
        ("more.sanitized", "sink", 1, False),
        ("clicks.dead", "dead letters", 1, False),
        ("more.dead", "dead letters", 1, False),
        ("visits.dead", "dead letters", 1, False),
    ]
    assert [plan.name for plan in planned if plan.is_source] == ["raw", "clicks.raw"]


def test_value_streams_need_no_topics_of_counts_and_a_sink_with_the_partitions_of_the_source() -> None:
    both = (readings(), readings(name="hours"))
    planned = plan_topics(replace(topology(partials=5), streams=(), readings=both), {"values": 7})
    assert [(plan.name, plan.role, plan.partitions, plan.exact_partitions) for plan in planned] == [
        ("values", "source", 12, False),
        ("app-state-changelog", "state changelog", 7, True),
        ("minutes.sink", "sink", 7, True),
        ("hours.sink", "sink", 7, True),
        ("app-ledger", "ledger", 5, True),
    ]
    source, state, sink, *_ = planned
    for plan in (source, sink):
        assert plan.settings["cleanup.policy"] == "delete"
        (mistake,) = plan.mistakes(plan.partitions, {**plan.settings, "cleanup.policy": "compact,delete"})
        assert "cleanup.policy is compact,delete, it should be delete: compaction would" in mistake
    assert "message.timestamp.type" not in {setting.name for setting in source.required}
    assert {(one.name, one.value, one.rule) for one in state.required} == COMPACTED


DURABLE = {
    ("min.insync.replicas", "2", "at-least"),
    ("unclean.leader.election.enable", "false", "equal"),
    ("max.message.bytes", str(MAX_MESSAGE_BYTES), "at-least"),
}
COMPACTED = {
    ("cleanup.policy", "compact", "equal"),
    ("message.timestamp.type", "LogAppendTime", "equal"),
    *DURABLE,
}
REQUIRED: dict[str, set[tuple[str, str, str]]] = {
    "raw": {
        ("message.timestamp.type", "LogAppendTime", "equal"),
        ("cleanup.policy", "delete", "equal"),
        ("retention.ms", "3600000", "at-least"),
    },
    "app-counting-changelog": COMPACTED,
    "app-ledger-changelog": COMPACTED,
    "app-partials": {
        ("cleanup.policy", "delete", "equal"),
        ("retention.ms", str(7 * DAY), "at-least"),
        ("retention.bytes", "-1", "at-least"),
        *DURABLE,
    },
    "app-ledger": {
        ("cleanup.policy", "delete", "equal"),
        ("retention.ms", "-1", "at-least"),
        ("retention.bytes", "-1", "at-least"),
        *DURABLE,
    },
    "visits.sanitized": {("max.message.bytes", "1048588", "at-least")},
    "visits.dead": {
        ("cleanup.policy", "delete", "equal"),
        ("max.message.bytes", str(MAX_MESSAGE_BYTES), "at-least"),
    },
}


def test_the_guarantees_rest_on_these_settings() -> None:
    assert {
        name: {(each.name, each.value, each.rule) for each in plan.required} for name, plan in plans().items()
    } == REQUIRED


EVERY_SETTING = [(plan, setting) for plan in plans().values() for setting in plan.required]
NAMES = [f"{plan.name} {setting.name}" for plan, setting in EVERY_SETTING]


@pytest.mark.parametrize("plan", plans().values(), ids=list(plans()))
def test_a_topic_that_was_created_as_planned_has_no_mistakes(plan: TopicPlan) -> None:
    assert plan.mistakes(plan.partitions, plan.settings) == []


@pytest.mark.parametrize(("plan", "setting"), EVERY_SETTING, ids=NAMES)
@pytest.mark.parametrize("found", [None, "wrong"])
def test_a_setting_that_is_missing_or_wrong_is_named_with_its_topic_and_the_remedy(
    plan: TopicPlan, setting: Setting, found: str | None
) -> None:
    present = dict(plan.settings)
    del present[setting.name]
    if found is not None:
        present[setting.name] = found if setting.rule == "equal" else str(max(10, int(setting.value)) - 9)
        assert present[setting.name] != setting.value
    (mistake,) = plan.mistakes(plan.partitions, present)
    assert mistake.startswith(
        f"topic {plan.name} ({plan.role}): {setting.name} is {present.get(setting.name)}, "
    )
    assert setting.reason in mistake
    assert mistake.endswith(f"--alter --topic {plan.name} --add-config {setting.name}={setting.value}")


def test_all_mistakes_of_a_topic_are_told_at_once() -> None:
    plan = plans()["app-ledger"]
    mistakes = plan.mistakes(plan.partitions + 1, {})
    assert len(mistakes) == len(plan.required) + 1


@pytest.mark.parametrize("found", [3, 5])
def test_a_wrong_number_of_partitions_is_a_mistake_where_state_depends_on_it(found: int) -> None:
    plan = plans(topology(partials=4))["app-partials"]
    (mistake,) = plan.mistakes(found, plan.settings)
    assert f"topic app-partials (partials): it has {found} partitions, it should have 4" in mistake
    assert plans()["raw"].mistakes(99, plans()["raw"].settings) == []


@pytest.mark.parametrize(
    ("value", "rule", "found", "holds"),
    [
        ("delete", "equal", "delete", True),
        ("delete", "equal", "compact,delete", False),
        ("delete", "equal", None, False),
        ("100", "at-least", "99", False),
        ("100", "at-least", "100", True),
        ("100", "at-least", "1000", True),
        ("100", "at-least", "-1", True),
        ("-1", "at-least", "-1", True),
        ("-1", "at-least", "9223372036854775807", False),
        ("-1", "at-least", None, False),
    ],
)
def test_a_setting_holds(value: str, rule: str, found: str | None, holds: bool) -> None:
    assert Setting("name", value, "equal" if rule == "equal" else "at-least", "why").holds(found) is holds


# Sizes and times


def test_changelogs_are_compacted_in_small_segments() -> None:
    for name in ("app-counting-changelog", "app-ledger-changelog"):
        created = plans()[name].settings
        assert created["cleanup.policy"] == "compact"
        assert int(created["segment.ms"]) <= 3_600_000
        assert int(created["segment.bytes"]) <= 64 * 1024 * 1024


def test_sources_and_partials_are_kept_longer_than_the_slowest_stream_needs() -> None:
    slow = stream("slow", interval=30 * DAY, lateness=2 * DAY, max_ahead=3 * DAY, clock_skew=1000)
    planned = plans(topology(stream(), slow))
    required = {setting.name: setting.value for setting in planned["raw"].required}
    assert required["retention.ms"] == str(36 * DAY + 1000)
    assert planned["raw"].settings["retention.ms"] == str(2 * (35 * DAY + 1000))
    assert int(planned["app-partials"].settings["retention.ms"]) == 320 * DAY
    assert (
        int(plans(topology(stream(), stream("other", topic="x")))["raw"].settings["retention.ms"]) == 7 * DAY
    )


def test_another_source_does_not_lengthen_the_retention_of_this_one() -> None:
    one = plans(topology(stream(), stream("slow", topic="slow.raw", interval=30 * DAY)))
    required = {setting.name: setting.value for setting in one["raw"].required}
    assert required["retention.ms"] == "3600000"


def test_replication_follows_the_topology() -> None:
    for plan in plans(topology(min_insync=3)).values():
        if "min.insync.replicas" in plan.settings:
            assert plan.settings["min.insync.replicas"] == "3"
    assert sum("min.insync.replicas" in plan.settings for plan in plans().values()) == 7


def worst_release(one: Stream) -> bytes:
    counts = np.full(len(one.counts.labels), -RELEASE_LIMIT, np.int64)
    error = np.full(len(counts), 3e12)
    release = Release(counts, False, 2**62, 2**62, 2**62, error=error, noise_scale=Fraction(1, 3))
    return release_record(one, 2**40, release, 2**62)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(HUGE_NAMES) | st.characters(codec="utf-8"),
    st.integers(1, 990),
    st.integers(1, 400),
    st.sampled_from(["object", "array"]),
)
def test_no_release_is_larger_than_its_sink_allows(
    character: str, length: int, columns: int, form: str
) -> None:
    labels = tuple(f"{character * length}{number}" for number in range(columns))
    one = stream("s" * 100, form=form, labels=labels)
    # A batch with one record adds at most 61 + 25 bytes and the key; the stream is the key.
    assert len(worst_release(one)) + 100 + 86 <= largest_release(one)


def test_the_bound_on_a_release_is_tight_enough_to_be_a_bound_and_not_a_constant() -> None:
    one = stream(labels=tuple("\u0001" * 990 + str(number) for number in range(400)))
    assert 1_048_588 < len(worst_release(one)) <= largest_release(one) < len(worst_release(one)) + 20_000


def test_a_hundred_thousand_columns_fit() -> None:
    labels = tuple(f"column-{number:06}" for number in range(100_000))
    for form in ("object", "array"):
        one = stream(labels=labels, form=form)
        assert len(worst_release(one)) < largest_release(one) <= MAX_MESSAGE_BYTES
        sink = {
            setting.name: int(setting.value) for setting in plans(topology(one))["visits.sanitized"].required
        }
        assert sink["max.message.bytes"] == largest_release(one)


# How large a state can be


def worst_state(one: Stream) -> bytes:
    """Different spends at every timestamp, the widest release, and a batch that is almost full of others."""
    units = 2 * one.mechanism.window * 2**20
    state = {
        "settings": {"kind": "budget-distribution", "epsilon": "1/1000000", "window": one.mechanism.window},
        "timestamp": 2**62,
        "last": [-RELEASE_LIMIT] * len(one.counts.labels),
        "ledger": {"units": units, "runs": [[1, 2**20, units // 2]] * one.mechanism.window},
    }
    record = worst_release(one)
    pending = [record.decode()] * ((BATCH_BYTES - 1) // len(record) + 1)
    if one.mechanism.options:
        columns = len(one.counts.labels)
        state["groups"] = {"group": [999] * columns, "moved": [2**61] * columns}
    movement = Movement(
        len(one.counts.labels), moves=one.mechanism.kind != "uniform", apart=bool(one.mechanism.options)
    )
    for timestamp in (1, 2):
        movement.learn(*np.full((2, len(one.counts.labels)), -RELEASE_LIMIT), 2.0**80, timestamp)
        movement.drawn(np.full(len(one.counts.labels), 2.0**80), timestamp)
    if one.mechanism.options and len(one.counts.labels) > 1:
        some = np.arange(len(one.counts.labels)) % 2 == 0
        movement.learn(*np.zeros((2, len(some)), np.int64), 2.0**80, 3, some)
        movement.drawn(2.0**80, 3, some)
    state["error"] = movement.snapshot()
    snapshot = orjson.dumps(state, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    return ReleaseState("0" * 32, 2**62, 2**62, 2**62, snapshot, tuple(pending)).encode()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(HUGE_NAMES) | st.characters(codec="utf-8"),
    st.integers(1, 990),
    st.integers(1, 400),
    st.integers(1, 2000),
    st.sampled_from(["object", "array"]),
    st.sampled_from([{}, {"groups": 1000}]),
)
def test_no_state_is_larger_than_was_checked(
    character: str, length: int, columns: int, window: int, form: str, options: dict[str, int]
) -> None:
    labels = tuple(f"{character * length}{number}" for number in range(columns))
    one = stream("s" * 100, form=form, labels=labels, kind="budget-absorption", options=options)
    one = replace(one, mechanism=replace(one.mechanism, window=window))
    assert len(worst_state(one)) <= largest_state(one)


@pytest.mark.parametrize(("window", "columns"), [(1_000_000, 1), (1, 300_000)])
def test_the_bound_on_a_state_is_not_far_from_it(window: int, columns: int) -> None:
    one = stream(labels=tuple(map(str, range(columns))))
    one = replace(one, mechanism=replace(one.mechanism, window=window))
    assert len(worst_state(one)) <= largest_state(one) < len(worst_state(one)) + 3 * BATCH_BYTES


def test_a_source_that_is_judged_by_boundaries_needs_no_append_times() -> None:
    plans = plan_topics(topology(stream(append_time="boundary")), {})
    source = next(plan for plan in plans if plan.is_source)
    assert "message.timestamp.type" not in source.settings
    assert source.settings["cleanup.policy"] == "delete"


def test_of_a_re_keyed_source_with_the_times_of_producers_only_our_own_topic_needs_append_times() -> None:
    made = topology(stream(topic="app-repartition-raw", raw="raw", append_time="boundary"))
    plans = {plan.name: plan for plan in plan_topics(made, {})}
    assert "message.timestamp.type" not in plans["raw"].settings
    assert plans["app-repartition-raw"].settings["message.timestamp.type"] == "LogAppendTime"


def test_a_topic_with_the_defaults_of_kafka_and_of_the_file_will_do(tmp_path: Path) -> None:
    """Producers' times, keys of anything, seven days of retention, and a day as the interval."""
    text = "\n".join(
        (
            "version: 1",
            "name: app",
            "streams:",
            "  visits:",
            "    source:",
            "      {topic: raw, user: /u, column: /c, time: /t, append_time: boundary, repartition: true}",
            "    timeline: {interval: 1d, origin: 2026-01-01T00:00:00Z, lateness: 1d}",
            "    counts: {columns: [a]}",
            "    mechanism: {kind: uniform, epsilon: 1, window: 7}",
            "    sink: {topic: out}",
        )
    )
    path = tmp_path / "app.yaml"
    path.write_text(text)
    plans = plan_topics(load(str(path), {}), {})
    defaults = {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": str(7 * 86_400_000),
    }
    assert next(plan for plan in plans if plan.is_source).mistakes(12, defaults) == []


def test_a_source_that_is_keyed_otherwise_has_a_topic_of_re_keyed_events_as_wide_as_itself() -> None:
    made = topology(stream(topic="app-repartition-raw", raw="raw"), stream("other", topic="plain"))
    plans = {plan.name: plan for plan in plan_topics(made, {"raw": 5, "plain": 2})}
    assert plans["raw"].is_source
    rekeyed = plans["app-repartition-raw"]
    assert (rekeyed.partitions, rekeyed.exact_partitions, rekeyed.is_source) == (5, True, False)
    assert rekeyed.settings["unclean.leader.election.enable"] == "false"
    assert rekeyed.settings["retention.bytes"] == "-1"
    (mistake,) = rekeyed.mistakes(5, rekeyed.settings | {"retention.bytes": "1000000000"})
    assert "retention.bytes is 1000000000, it should be at least -1: with a limit on bytes" in mistake
    assert plans["app-repartition-changelog"].partitions == 5
    assert plans["app-counting-changelog"].partitions == 7
    assert "app-repartition-changelog" not in {one.name for one in plan_topics(topology(), {})}


def rekeying_changelog(partitions: int) -> TopicPlan:
    made = topology(stream(topic="app-repartition-raw", raw="raw"))
    planned = {plan.name: plan for plan in plan_topics(made, {"raw": partitions})}
    return planned["app-repartition-changelog"]


def test_a_changelog_that_was_created_with_the_wrong_number_can_be_created_again_while_it_is_empty() -> None:
    plan = rekeying_changelog(6)
    (mistake,) = plan.mistakes(12, plan.settings, is_empty=True)
    assert "it has 12 partitions, it should have 6" in mistake
    assert "is empty: if it was created with a wrong number, delete and recreate it" in mistake
    assert "`eventveil migrate TOPOLOGY" in mistake.partition("delete it")[0]


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (12, "The sources have fewer partitions than when this topic was made: one was recreated"),
        (4, "If a source was given partitions, stop the workers and run `eventveil migrate TOPOLOGY"),
    ],
)
def test_of_a_changelog_with_records_the_sources_are_wrong_and_it_is_not_to_be_deleted(
    found: int, wrong: str
) -> None:
    plan = rekeying_changelog(6)
    (mistake,) = plan.mistakes(found, plan.settings)
    assert wrong in mistake
    assert "Do not delete app-repartition-changelog: it may hold records" in mistake
    assert "delete and" not in mistake


def test_of_a_ledger_with_records_the_file_is_wrong_and_it_is_not_to_be_deleted() -> None:
    plan = plans(topology(partials=4))["app-ledger"]
    (mistake,) = plan.mistakes(2, plan.settings)
    assert "Restore topics.partials" in mistake
    assert "Do not delete app-ledger: it may hold records" in mistake
    assert "delete and" not in mistake
    (mistake,) = plan.mistakes(2, plan.settings, is_empty=True)
    assert "Restore topics.partials" in mistake
    assert "app-ledger is empty: if it was created with a wrong number, delete and recreate it" in mistake


def test_a_source_that_is_limited_in_bytes_is_a_hint_and_not_a_mistake() -> None:
    plan = plans()["raw"]
    limited = plan.settings | {"retention.bytes": "1000000000"}
    assert plan.mistakes(plan.partitions, limited) == []
    (hint,) = hints(plan, limited)
    assert hint.startswith(
        "hint: topic raw (source): retention.bytes is 1000000000, so records may be removed"
    )
    assert hint.endswith("--alter --topic raw --add-config retention.bytes=-1")
    assert hints(plan, plan.settings | {"retention.bytes": "-1"}) == []
    assert hints(plan, plan.settings) == []
    assert hints(plans()["app-partials"], limited) == []


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_dead_letters_may_not_be_compacted(policy: str) -> None:
    """A broker refuses one without a key there, again and again."""
    plan = plans()["visits.dead"]
    assert plan.settings["cleanup.policy"] == "delete"
    (mistake,) = plan.mistakes(1, plan.settings | {"cleanup.policy": policy})
    assert f"topic visits.dead (dead letters): cleanup.policy is {policy}, it should be delete" in mistake
    assert mistake.endswith("--alter --topic visits.dead --add-config cleanup.policy=delete")


def test_a_compacted_sink_of_counts_is_a_hint() -> None:
    plan = plans()["visits.sanitized"]
    compacted = plan.settings | {"cleanup.policy": "compact"}
    assert plan.mistakes(1, compacted) == []
    (hint,) = hints(plan, compacted)
    assert hint.startswith("hint: topic visits.sanitized (sink): cleanup.policy is compact. ")
    assert "a slow consumer misses releases" in hint
    assert hint.endswith("--alter --topic visits.sanitized --add-config cleanup.policy=delete")
    assert hints(plan, plan.settings | {"cleanup.policy": "delete"}) == []


def test_what_has_spends_or_releases_has_as_many_replicas_as_the_file_says() -> None:
    one = replace(topology(), topics=replace(topology().topics, replication=3))
    assert {name: plan.replicas for name, plan in plans(one).items()} == {
        "raw": 1,
        "app-counting-changelog": 3,
        "app-partials": 3,
        "app-ledger-changelog": 3,
        "app-ledger": 3,
        "visits.sanitized": 3,
        "visits.dead": 1,
    }
    managed = replace(one, topics=replace(one.topics, managed="true"))
    assert plans(managed)["app-ledger"].replicas == 3


def test_too_few_replicas_are_told_together_with_both_remedies() -> None:
    planned = plan_topics(topology(), {})
    few = [(plan, 1 if plan.name.endswith("changelog") else 3) for plan in planned]
    (told,) = short_of_replicas(few)
    assert told.startswith(
        "topics app-counting-changelog (counting changelog), app-ledger-changelog (ledger changelog) have"
        " 1 replica, and topics.replication is 3: a spend can be lost with 1 disk"
    )
    assert "kafka-reassign-partitions.sh" in told
    assert told.endswith(
        "If you accept that risk, set topics.replication to 1 in the topology, and topics.min_insync to no"
        " more"
    )
    assert len(short_of_replicas([*few[:-2], (planned[-2], 2)])) == 2
    (told,) = short_of_replicas([(planned[-2], 2)])
    assert told.startswith("topic visits.sanitized (sink) has 2 replicas, and")
    assert short_of_replicas([(plan, 3) for plan in planned]) == []
    # Nothing is concluded where brokers do not say how many there are.
    assert short_of_replicas([(plan, None) for plan in planned]) == []


def test_topics_that_do_not_exist_are_told_together() -> None:
    plans = plan_topics(topology(stream(topic="raw")), {"raw": 6})
    sources, others = absent(plans, {})
    assert sources == (
        "topic raw (source) does not exist: create it, or let `eventveil topics TOPOLOGY --create --sources`"
        " do it"
    )
    assert others.startswith("topics app-counting-changelog (counting changelog), app-partials (partials), ")
    assert others.endswith(" do not exist: `eventveil topics TOPOLOGY --create` creates them")
    assert all(plan.name in others for plan in plans[1:])
    near, _ = absent(plans, {"raw": "row"})
    assert near.startswith("topic raw (source; row has a similar name) does not exist: create it, or ")
    assert absent([], {}) == []


@pytest.mark.parametrize(("number", "told"), [("AAAAAAAAAAAAAAAAAAAAAA", 1), ("AAAAAAAAAAAAAAAAAAAAAQ", 0)])
def test_topics_without_ids_are_wrong_because_a_new_one_would_pass_for_them(number: str, told: int) -> None:
    """As of brokers that still speak the protocol of a version before 2.8."""
    only = Topic("raw", number, 6, 1)
    cluster = SimpleNamespace(
        topics=lambda names: {"raw": only} if "raw" in names else {},
        settings=lambda names: {name: {} for name in names},
        names=lambda: frozenset({"raw"}),
    )
    mistakes = inspect_topics(topology(stream(topic="raw")), cast(Any, cluster)).mistakes
    found = [one for one in mistakes if one.startswith("topics without an id: raw. If one was deleted")]
    assert len(found) == told
