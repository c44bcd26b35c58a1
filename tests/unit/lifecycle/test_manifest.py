"""The genesis record: no state without one, and none for another topology, topic or partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson
import pytest

from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.manifest import ManifestRecord, check_cluster, check_known, check_neighbours
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.topology import Stream
from eventveil.tasks.release import ReleaseState
from eventveil.topology import changes
from eventveil.topology.changes import SOUND
from tests.unit.support import INSTANCE, counter_state, stream

PLACE = "app-counting-changelog, partition 2"


def fields(one: Stream | None = None, partitions: int = 12, partials: int = 4) -> dict[str, Any]:
    return StreamPlan(one or stream(options={"factor": Fraction(1)}), partials).fields(partitions)


MANIFEST = ManifestRecord(
    "visits", INSTANCE, fields(), "raw", "topic-id", 2, 7, 100, 30, "cluster", "ledger-id"
)
#: As a version wrote it that did not know the cluster.
UNNAMED = MANIFEST.replace(cluster=None, ledger_id=None)


def table(*pairs: tuple[bytes, bytes]) -> dict[bytes, bytes]:
    return {b"genesis/visits": MANIFEST.encode(), **dict(pairs)}


def check(
    current: dict[str, Any], topic: str = "raw", topic_id: str = "topic-id", partition: int = 2
) -> None:
    ManifestRecord.find(table(), "visits", PLACE).check(current, topic, topic_id, partition, PLACE)


def test_a_genesis_survives_its_bytes() -> None:
    assert ManifestRecord.key("visits") == b"genesis/visits"
    assert ManifestRecord.find(table(), "visits", PLACE) == MANIFEST


def test_an_unchanged_topology_passes() -> None:
    check(fields())


OTHER_STREAMS: dict[str, dict[str, Any]] = {
    "source.topic": {"topic": "raw2"},
    "source.user": {"user": "/who"},
    "source.user_type": {"user_type": "integer"},
    "source.column": {"column": "/what"},
    "source.time": {"time": "/when"},
    "source.partitioner": {"partitioner": "crc32"},
    "source.max_bytes": {"max_bytes": 1000},
    "timeline.interval": {"interval": 11},
    "timeline.origin": {"origin": 1001},
    "timeline.lateness": {"lateness": 6},
    "timeline.max_ahead": {"max_ahead": 8},
    "counts.columns": {"labels": ("a", "b", "c")},
    "counts.columns.digest": {"labels": ("b", "a")},
    "counts.columns.type": {"column_type": "integer"},
    "counts.contributions": {"contributions": 2},
    "counts.unknown": {"unknown": "column", "unknown_column": 1},
    "mechanism.kind": {"kind": "sample"},
    "mechanism.epsilon": {"epsilon": Fraction(11, 10)},
    "mechanism.window": {"window": 3},
    "mechanism.adjacency": {"adjacency": "substitute"},
    "mechanism.factor": {"options": {"factor": Fraction(2)}},
}
CHANGED = {
    name: fields(stream(**{"options": {"factor": Fraction(1)}, **one})) for name, one in OTHER_STREAMS.items()
}
#: Facts that the brokers tell, of which one may not have heard yet: doubts before they are refused.
DOUBTFUL = {"source.partitions"}
CHANGED["source.partitions"] = fields(partitions=13)
CHANGED["topics.partials"] = fields(partials=5)
#: Facts that have one value only so far.
CHANGED["fingerprint.version"] = {**fields(), "fingerprint.version": 2}
CHANGED["source.format"] = {**fields(), "source.format": "avro"}


def test_every_fact_of_the_fingerprint_is_tried_here() -> None:
    assert set(CHANGED) == set(fields())


@pytest.mark.parametrize(("before", "now"), [(None, 1), (1, 2), (2, None)])
def test_another_bound_of_a_column_is_refused_until_it_is_migrated(
    before: int | None, now: int | None
) -> None:
    former, present = (fields(stream(contributions=3, per_column=one)) for one in (before, now))
    remembered = MANIFEST.replace(fields=former)
    remembered.check(former, "raw", "topic-id", 2, PLACE)
    with pytest.raises(StateRefused) as raised:
        remembered.check(present, "raw", "topic-id", 2, PLACE)
    assert raised.value.what == f"counts.per_column was {before or 'not set'} and is {now or 'not set'} now"
    assert "eventveil migrate" in raised.value.remedy


def test_a_topic_that_follows_from_a_setting_is_not_named_beside_it() -> None:
    former = fields(stream()) | {"sink.topic_id": "one"}
    present = former | {"sink.topic": "other", "sink.topic_id": "two"}
    with pytest.raises(StateRefused) as raised:
        MANIFEST.replace(fields=former).check(present, "raw", "topic-id", 2, PLACE)
    assert raised.value.what.endswith("and is 'other' now")


def test_all_changed_settings_are_named_at_once() -> None:
    present = fields(stream(user="/id", column="/place", epsilon=Fraction(2), epsilon_text="2"))
    with pytest.raises(StateRefused) as raised:
        MANIFEST.replace(fields=fields(stream())).check(present, "raw", "topic-id", 2, PLACE)
    assert raised.value.what == (
        "source.user was '/user' and is '/id' now (mechanism.epsilon, source.column changed too)"
    )


@pytest.mark.parametrize("name", CHANGED)
def test_a_changed_fact_names_itself_with_both_values_and_the_remedy(name: str) -> None:
    before, now = fields()[name], CHANGED[name][name]
    with pytest.raises(Unsettled if name in DOUBTFUL else StateRefused) as raised:
        check(CHANGED[name])
    changed = changes.changed(name, before, now)
    refusal = raised.value
    if isinstance(refusal, Unsettled):
        assert refusal.what == changed
        assert "new name" not in str(refusal)
        refusal, changed = refusal.refusal, f"{changed}. Repeated checks gave the same result"
    assert isinstance(refusal, StateRefused)
    assert refusal.what == changed
    assert "stream visits" in refusal.place
    # Partitions cannot be taken away again.
    assert refusal.remedy.startswith("Put it back, or ") != (name == "source.partitions")
    assert ("eventveil migrate" in refusal.remedy) == (name in SOUND)
    assert ("epsilons of both add up" in refusal.remedy) == (name not in SOUND)


@pytest.mark.parametrize("labels", [("other", "a", "b"), ("b", "other")], ids=["more", "reordered"])
def test_the_place_of_the_column_of_unknown_events_is_no_change_of_its_own(labels: tuple[str, ...]) -> None:
    """It is known by its place, and `unknown: other` had not changed."""
    former, present = (
        fields(stream(labels=one, unknown="column", unknown_column=one.index("other")))
        for one in (("a", "other"), labels)
    )
    with pytest.raises(StateRefused) as raised:
        MANIFEST.replace(fields=former).check(present, "raw", "topic-id", 2, PLACE)
    assert "changed too" not in raised.value.what
    if len(labels) == 3:
        assert raised.value.what == "counts.columns had 2 names and has 3 now"
    else:
        assert raised.value.what.startswith("the names of the columns or their order differ (counts.columns")


def test_of_settings_that_follow_from_another_the_one_that_was_changed_is_named() -> None:
    """Periods follow from the interval; a migration could change them alone."""
    sound = next(name for name in CHANGED if name in SOUND and name < "timeline.interval")
    both = {**CHANGED["timeline.interval"], sound: CHANGED[sound][sound]}
    with pytest.raises(StateRefused, match=r"timeline\.interval was") as raised:
        check(both)
    assert "eventveil migrate" not in raised.value.remedy


def test_what_the_file_says_is_refused_though_the_brokers_tell_something_doubtful_too() -> None:
    both = {**CHANGED["topics.partials"], "source.partitions": 13}
    with pytest.raises(StateRefused, match=r"topics\.partials was"):
        check(both)


def test_a_fact_that_appears_or_disappears_names_itself() -> None:
    more, less = {**fields(), "mechanism.shift": "1"}, fields()
    del less["mechanism.factor"]
    with pytest.raises(StateRefused, match=r"mechanism\.shift was not set and is 1 now"):
        check(more)
    with pytest.raises(StateRefused, match=r"mechanism\.factor was 1 and is not set now"):
        check(less)


def test_what_only_moves_records_about_may_change() -> None:
    one = stream(options={"factor": Fraction(1)}, form="array", clock_skew=99, epsilon_text="1.00")
    check(fields(replace(one, dead_letter="elsewhere")))


def test_a_topic_that_was_deleted_and_created_again_is_a_doubt_and_refused_if_it_stays() -> None:
    with pytest.raises(Unsettled, match="raw was deleted and created again") as raised:
        check(fields(), topic_id="another-id")
    assert "new name" not in str(raised.value)
    refusal = raised.value.refusal
    assert isinstance(refusal, StateRefused)
    assert refusal.what.endswith("since the stream began. Repeated checks gave the same result")
    assert "eventveil migrate" in refusal.remedy
    assert "new name" not in refusal.remedy


def test_the_state_of_another_partition_is_refused() -> None:
    with pytest.raises(StateRefused, match="state of raw, partition 2, not of raw, 1"):
        check(fields(), partition=1)


def test_the_state_of_another_topic_is_refused() -> None:
    with pytest.raises(StateRefused, match="state of raw, partition 2, not of clicks, 2"):
        check(fields(), topic="clicks")


@pytest.mark.parametrize(
    "found", [{}, {b"visits": b"{}"}, {b"genesis/visit": b"{}"}, {b"genesis/visits/": b"{}"}]
)
def test_without_a_genesis_nothing_starts(found: dict[bytes, bytes]) -> None:
    with pytest.raises(StateRefused, match="no genesis record of stream visits") as refusal:
        ManifestRecord.find(found, "visits", PLACE)
    assert refusal.value.place == PLACE
    assert "eventveil topics TOPOLOGY --create" in refusal.value.remedy


BROKEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "an array": lambda found: list(found),
    "a field short": lambda found: {key: found[key] for key in found if key != "resume"},
    "a field too many": lambda found: {**found, "extra": 1},
    "a later version": lambda found: {**found, "version": 2},
    "no version": lambda found: {key: found[key] for key in found if key != "version"},
    "facts that are no object": lambda found: {**found, "fields": None},
    "text for an offset": lambda found: {**found, "resume": "100"},
    "nothing for a timestamp": lambda found: {**found, "first": None},
    "the name of another stream": lambda found: {**found, "stream": "other"},
    "timestamp zero": lambda found: {**found, "first": 0},
    "an offset below zero": lambda found: {**found, "resume": -1},
}


@pytest.mark.parametrize("break_it", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_genesis_is_refused(break_it: Callable[[dict[str, Any]], Any]) -> None:
    value = orjson.dumps(break_it(orjson.loads(MANIFEST.encode())))
    with pytest.raises(StateRefused):
        ManifestRecord.find({b"genesis/visits": value}, "visits", PLACE)


def test_a_genesis_that_is_cut_short_anywhere_is_refused() -> None:
    value = MANIFEST.encode()
    for length in range(len(value)):
        with pytest.raises(StateRefused):
            ManifestRecord.find({b"genesis/visits": value[:length]}, "visits", PLACE)


def test_without_any_state_counting_and_releasing_begin_at_the_genesis() -> None:
    state = counter_state(partition=2, first=7, next=7, resume=100, judged=100)
    assert MANIFEST.counter_state(table(), PLACE) == state
    assert MANIFEST.release_state(table(), PLACE) == ReleaseState(INSTANCE, 7, 7, 100)


def test_state_is_read_back_where_there_is_some() -> None:
    counted = counter_state(partition=2, first=7, next=9, resume=120, judged=150)
    assert MANIFEST.counter_state(table((b"visits", counted.encode())), PLACE) == counted
    released = ReleaseState(INSTANCE, 7, 9, 120, "{}", ("{}",))
    assert MANIFEST.release_state(table((b"visits", released.encode())), PLACE) == released


@pytest.mark.parametrize("change", [{"instance": "other"}, {"instance": ""}, {"first": 6}, {"first": 8}])
def test_the_state_of_another_life_of_the_stream_is_refused(change: dict[str, Any]) -> None:
    counted = counter_state(partition=2, first=7, next=9, resume=120, judged=150).replace(**change)
    released = ReleaseState(INSTANCE, 7, 9, 120, "{}").replace(**change)
    with pytest.raises(StateRefused, match="does not belong to its genesis"):
        MANIFEST.counter_state(table((b"visits", counted.encode())), PLACE)
    with pytest.raises(StateRefused, match="does not belong to its genesis"):
        MANIFEST.release_state(table((b"visits", released.encode())), PLACE)


def test_the_counting_state_of_another_partition_is_refused() -> None:
    counted = counter_state(partition=1, first=7, next=9, resume=120, judged=150)
    with pytest.raises(StateRefused):
        MANIFEST.counter_state(table((b"visits", counted.encode())), PLACE)


@pytest.mark.parametrize("value", [b"", b"{}", b"\xff", MANIFEST.encode()])
def test_unreadable_state_is_refused_and_never_taken_for_a_fresh_start(value: bytes) -> None:
    with pytest.raises(StateRefused):
        MANIFEST.counter_state(table((b"visits", value)), PLACE)
    with pytest.raises(StateRefused):
        MANIFEST.release_state(table((b"visits", value)), PLACE)


def test_state_of_another_topic_or_partition_beside_a_stream_is_refused() -> None:
    found = table((b"visits", b"state"), (b"other", b"state"))
    check_neighbours(found, "raw", 2, PLACE)
    for topic, partition in (("clicks", 2), ("raw", 1)):
        with pytest.raises(
            StateRefused, match=r"it contains the state of raw, partition 2 \(stream visits\), not"
        ) as refusal:
            check_neighbours(found, topic, partition, PLACE)
        assert "If another application has this name" in refusal.value.remedy


def test_a_genesis_of_before_clusters_were_named_has_the_bytes_of_then_and_is_read() -> None:
    then = {
        "version": 1, "stream": "visits", "instance": INSTANCE, "fields": fields(), "topic": "raw",
        "topic_id": "topic-id", "partition": 2, "first": 7, "resume": 100, "ledger": 30,
    }  # fmt: skip
    assert UNNAMED.encode() == orjson.dumps(then)
    assert ManifestRecord.find({b"genesis/visits": orjson.dumps(then)}, "visits", PLACE) == UNNAMED


def test_a_copy_of_the_state_on_another_cluster_is_refused_and_the_way_back_is_free() -> None:
    found = {**table((b"visits", b"state")), b"genesis/other": UNNAMED.replace(stream="other").encode()}
    with pytest.raises(StateRefused) as refusal:
        check_cluster(found, "elsewhere", PLACE)
    assert str(refusal.value) == (
        f"{PLACE}, stream visits: its state was made on the Kafka cluster cluster, and this is the cluster "
        "elsewhere. Point kafka.bootstrap to the cluster where the stream has run: that costs nothing. If "
        "that cluster is lost, start again here with another name and other sinks (the epsilons of both add "
        "up)"
    )


def test_on_its_own_cluster_state_is_accepted_and_what_names_none_is_told() -> None:
    other = UNNAMED.replace(stream="other")
    found = table((b"visits", b"state"), (b"genesis/other", other.encode()))
    assert check_cluster(found, "cluster", PLACE) == [other]
    assert check_cluster(table(), "cluster", PLACE) == []
    # What names no cluster is known by the ids of its topics (``ManifestRecord.check``).
    assert check_cluster({b"genesis/visits": UNNAMED.encode()}, "anywhere", PLACE) == [UNNAMED]


def test_what_names_no_cluster_is_known_by_a_single_topic_and_refused_without_any() -> None:
    budget = UNNAMED.replace(topic="partials", topic_id="p", fields={"sink.topic": "s", "sink.topic_id": "i"})
    both, gone = [UNNAMED, budget], {"raw": "new", "partials": "new", "s": "new"}
    for known in ({"raw": "topic-id"}, {"partials": "p"}, {"s": "i"}):
        check_known(both, {**gone, **known})
    check_known([], gone)
    for live in (gone, {}, {"elsewhere": "topic-id"}):
        with pytest.raises(
            StateRefused, match="none of partials, raw, s has the topic id that it records"
        ) as refusal:
            check_known(both, live)
        assert "Point kafka.bootstrap to the cluster where the stream has run" in refusal.value.remedy


def test_where_the_ledger_begins_is_forgotten_with_the_topic_that_it_was_of() -> None:
    assert (MANIFEST.ledger_start("ledger-id"), MANIFEST.ledger_start("another-id")) == (30, 0)
    assert UNNAMED.ledger_start("any-id") == 30


@pytest.mark.parametrize("name", ["cluster", "ledger_id"])
def test_a_cluster_or_ledger_that_is_no_text_is_refused(name: str) -> None:
    value = orjson.dumps({**orjson.loads(MANIFEST.encode()), name: 7})
    with pytest.raises(StateRefused, match=f"cannot be read: .*{name}"):
        ManifestRecord.find({b"genesis/visits": value}, "visits", PLACE)
