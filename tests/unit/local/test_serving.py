"""Local reports through the pure path of the worker: counted, decided, asked for, audited, never migrated."""

# A table with one forgery per line is read by columns, so its lines may be long.
# ruff: noqa: E501

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial as bind
from typing import Any

import orjson
import pytest

from eventveil.audit.findings import Report
from eventveil.audit.generations import GenerationsAudit
from eventveil.audit.records import FoundRecord
from eventveil.decoding.rules import Reason
from eventveil.formats.change import Difference
from eventveil.formats.release import control_record, ledger_entry
from eventveil.kinds.placement import LocalPlan
from eventveil.lifecycle.migration import check_reset, check_sound
from eventveil.local import Control
from eventveil.local.control import purpose
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import StateRefused
from eventveil.model.records import Outgoing
from eventveil.model.topology import Stream
from eventveil.privacy.noise import SystemNoise
from eventveil.tasks.release import PartitionSanitizer, ReleaseState, StreamSanitizer, Topics
from tests.unit.local.streams import EPSILON, LABELS, MAXIMUM, asked, local_stream, send, sparse_counts
from tests.unit.migrating import Lifetime
from tests.unit.support import INSTANCE, USER_OF_PARTITION, aggregator, chunk, event, partial, stream

LEDGER, CHANGELOG, CONTROL = "app-ledger", "app-ledger-changelog", "app-control"
TOPICS = Topics(LEDGER, CHANGELOG, 3, CONTROL)
BEGINNING = ReleaseState(INSTANCE, 1, 1, 0)
STREAM = local_stream(after=100)


def sanitizer(state: ReleaseState = BEGINNING, one: Stream = STREAM) -> PartitionSanitizer:
    mechanism = of_stream(one, SystemNoise())
    asks = LocalPlan(one, 4).asks if one.kind == "local" else None
    return PartitionSanitizer(TOPICS, {one.name: StreamSanitizer(one, 1, mechanism, state, asks)})


def feed(worker: PartitionSanitizer, timestamps: Sequence[list[str]], first: int = 1) -> None:
    partials = [
        partial(timestamp, sparse_counts(sent)).encode() for timestamp, sent in enumerate(timestamps, first)
    ]
    worker.process(chunk([(0, one) for one in partials], start=worker.position, topic="app-partials"))


def state_of(records: Sequence[Outgoing]) -> ReleaseState:
    """The state that a transaction leaves in the changelog."""
    (value,) = [one.value for one in records if one.topic == CHANGELOG]
    return ReleaseState.decode(value or b"", "here")


def values(records: Sequence[Outgoing], topic: str) -> list[bytes]:
    return [one.value or b"" for one in records if one.topic == topic]


EARLY = [send([value % 9 for value in range(60)], seed=seed) for seed in (1, 2)]


def test_the_threshold_is_durable_before_anybody_sees_it_and_asked_for_with_its_release() -> None:
    worker = sanitizer()
    feed(worker, EARLY)
    decided = worker.decide()
    assert {one.topic for one in decided} == {CHANGELOG}
    state = state_of(decided)
    threshold = json.loads(state.mechanism or "")["threshold"]
    assert 1 <= threshold <= MAXIMUM
    published = worker.publish()
    assert values(published, CONTROL) == [control_record(STREAM, threshold)]
    (record,) = [one for one in published if one.topic == CONTROL]
    assert (record.key, record.partition) == (b"visits", 0)
    assert Control.read(record.value or b"", EPSILON).threshold == threshold
    releases = [json.loads(value) for value in values(published, STREAM.sink.topic)]
    assert [(one["phase"], one.get("threshold")) for one in releases] == [
        ("distribution", None),
        ("distribution", threshold),
    ]
    assert [json.loads(value).get("threshold") for value in values(published, LEDGER)] == [None, threshold]

    worker.published()
    feed(worker, [send([5], threshold), []], first=3)
    assert values(worker.decide(), CONTROL) == []
    assert values(worker.publish(), CONTROL) == []


@pytest.mark.parametrize("crash", range(6))
def test_wherever_a_worker_dies_one_threshold_is_asked_for_and_each_report_is_counted_once(
    crash: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction of three rounds may be the last; a state that is durable is never estimated again."""
    estimated = iter([8, 14, 20])
    monkeypatch.setattr("eventveil.mechanisms.local_estimator.threshold", lambda *_: next(estimated))
    timestamps = [*EARLY, send([5, 6], 8), send([7], 14)]
    durable, public = BEGINNING, list[Outgoing]()
    worker, step = sanitizer(), 0
    for timestamp, sent in enumerate(timestamps, 1):
        if worker.position < timestamp:
            feed(worker, [sent], first=timestamp)
        for transaction in (worker.decide, worker.publish):
            records = transaction()
            if step == crash:
                # Nothing of it is committed; a successor begins with what is.
                worker = sanitizer(durable)
                public += (again := worker.publish())
                durable = state_of(again) if again else durable
                worker.published()
                feed(worker, timestamps[durable.next - 1 : timestamp], first=durable.next)
                worker.decide()
                records = worker.publish()
                public += records
                durable = state_of(records) if records else durable
                worker.published()
                step += 1
                break
            durable = state_of(records)
            public += records if transaction == worker.publish else []
            step += 1
        else:
            worker.published()
    asked_for = values(public, CONTROL)
    assert len(asked_for) == 1
    threshold = json.loads(asked_for[0])["threshold"]
    assert threshold == (14 if crash == 2 else 8)
    releases = [json.loads(value) for value in values(public, STREAM.sink.topic)]
    assert [one["timestamp"] for one in releases] == [1, 2, 3, 4]
    assert {one["threshold"] for one in releases[1:]} == {threshold}
    assert sum(one["counts"]["reports"] + one["counts"]["unused"] for one in releases) == 60 + 60 + 2 + 1


def test_what_is_asked_for_is_a_function_of_the_durable_state() -> None:
    worker = sanitizer()
    assert worker.sanitizers["visits"].asked == control_record(STREAM, None)
    feed(worker, EARLY)
    state = state_of(worker.decide())
    threshold = json.loads(state.mechanism or "")["threshold"]
    assert sanitizer(state).sanitizers["visits"].asked == control_record(STREAM, threshold)
    other = stream()
    assert sanitizer(one=other).sanitizers["visits"].asked is None


@pytest.mark.parametrize(
    "report",
    [
        "",
        "7",
        "distribution/9999",
        "sums/16/1",
        f"{purpose(EPSILON, MAXIMUM, 17)}/0",
        purpose(EPSILON, MAXIMUM, 16),
        f"{purpose(EPSILON, MAXIMUM, 16)}/9999",
        f"{purpose(EPSILON, MAXIMUM, 16)}/-1",
        f"{purpose(EPSILON, MAXIMUM, 16)}/01",
        f"{purpose(EPSILON, MAXIMUM, None)}/9999",
        f"{purpose(EPSILON, MAXIMUM + 1, None)}/1",
        f"{purpose(EPSILON / 2, MAXIMUM, None)}/1",
    ],
)
def test_a_report_outside_of_the_public_grid_is_a_dead_letter(report: str) -> None:
    user = USER_OF_PARTITION[0]
    counting = aggregator(STREAM)
    good = [event(user, column=sent) for sent in send([3, 4])]
    counting.process(chunk([(1000, one) for one in (event("v", column=report), good[0])]))
    batch = counting.dead_letter_batch()
    assert batch is not None
    (letter,) = batch.dead_letters
    assert dict(letter.headers)["eventveil.reason"] == Reason.UNKNOWN_COLUMN.value.encode()
    assert letter.value == event("v", column=report)


def test_a_report_that_is_sent_again_counts_once() -> None:
    counting = aggregator(STREAM)
    sent = event("v", column=send([3])[0])
    counting.process(chunk([(1000, sent), (1000, sent)]))
    batch = counting.close(1100)
    assert batch is None or batch.partials[0].counts.sum() <= 1
    counting.capture_end(1100, 2)
    batch = batch or counting.close(1100)
    assert batch is not None
    assert batch.partials[0].counts.sum() == 1


def lifetime() -> Lifetime:
    mechanism = STREAM.mechanism
    one = Lifetime(
        labels=LABELS,
        released=STREAM.counts.released,
        kind="topl",
        epsilon=mechanism.epsilon,
        epsilon_text="2",
        window=1,
        options=mechanism.options,
    )
    one.release(3)
    return one


@pytest.mark.parametrize("name", ["mechanism.kind", "mechanism.epsilon", "timeline.lateness"])
def test_a_stream_of_local_reports_is_not_migrated(name: str) -> None:
    life = lifetime().checkpoint
    old = life.manifest.fields[name]
    with pytest.raises(StateRefused, match="does not carry over"):
        check_sound(life, {name: Difference(old, "uniform" if name == "mechanism.kind" else 9)})


def test_only_the_sink_of_a_stream_of_local_reports_moves_and_the_threshold_stays() -> None:
    one = lifetime()
    before = json.loads(one.sink[-1])
    check_sound(one.checkpoint, {"sink.topic_id": Difference("sink-0", "another")})
    one.change(sink_id="another")
    one.release(2)
    after = json.loads(one.sink[-1])
    assert (after["phase"], after["threshold"]) == ("sums", before["threshold"])
    assert after["timestamp"] == before["timestamp"] + 2


def test_nothing_may_be_asked_for_in_the_name_of_another_stream() -> None:
    one = stream()
    audit = GenerationsAudit(
        one.name, one.timeline, of_stream(one, SystemNoise()), 2, one.mechanism, 3
    )  # fmt: skip
    audit.asked(FoundRecord.read((CONTROL, 0), 0, b"visits", SECOND))
    (report,) = audit.reports("everything")
    assert [finding.invariant for finding in report.findings] == ["I7"]


def test_a_stream_of_local_reports_is_not_reset_for_its_producers_would_not_know() -> None:
    with pytest.raises(StateRefused, match="its threshold is public"):
        check_reset(lifetime().checkpoint, {"sink.topic_id": Difference("a", "b")}, 5)


@dataclass
class Log:
    """What a run left behind; ``control`` items are (value, committed, newer)."""

    ledger: list[dict[str, Any]] = field(default_factory=list)
    sink: list[dict[str, Any]] = field(default_factory=list)
    control: list[tuple[bytes, bool, bool]] = field(default_factory=list)

    @classmethod
    def honest(cls) -> Log:
        """Four timestamps, the second of which chooses the threshold, 8."""
        log, worker = cls(control=[(control_record(STREAM, None), True, False)]), sanitizer()
        for timestamp, sent in enumerate([*EARLY, send([5, 6], 8), []], 1):
            feed(worker, [sent], first=timestamp)
            worker.decide()
            records = worker.publish()
            worker.published()
            log.ledger += map(orjson.loads, values(records, LEDGER))
            log.sink += map(orjson.loads, values(records, STREAM.sink.topic))
            log.control += [(value, True, False) for value in values(records, CONTROL)]
        return log

    def restate(self, index: int, **changes: Any) -> None:
        """Let entry and record of a timestamp say something else, as a faulty worker would."""
        self.sink[index] = {
            name: value for name, value in {**self.sink[index], **changes}.items() if value is not None
        }
        self.ledger[index] = orjson.loads(ledger_entry(orjson.dumps(self.sink[index]), INSTANCE))

    def audit(self) -> Report:
        mechanism = of_stream(STREAM, SystemNoise())
        audit = GenerationsAudit(
            "visits", STREAM.timeline, mechanism, len(LABELS), STREAM.mechanism, 3, (),
            bind(control_record, STREAM),
        )  # fmt: skip
        for found in _found((LEDGER, 3), [orjson.dumps(one) for one in self.ledger]):
            audit.entry(found)
        for offset, (value, committed, newer) in enumerate(self.control):
            audit.asked(FoundRecord.read((CONTROL, 0), offset, b"visits", value, committed), newer=newer)
        for found in _found((STREAM.sink.topic, 0), [orjson.dumps(one) for one in self.sink]):
            audit.record(found)
        (report,) = audit.reports("everything")
        return report


def _found(place: tuple[str, int], records: Sequence[bytes]) -> Iterator[FoundRecord]:
    for offset, value in enumerate(records):
        yield FoundRecord.read(place, offset, b"visits", value)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr("eventveil.mechanisms.local_estimator.threshold", lambda *_: 8)
    return Log.honest()


FIRST, SECOND, OTHER = (control_record(STREAM, threshold) for threshold in (None, 8, 14))


def test_an_honest_log_is_accepted(log: Log) -> None:
    assert [value for value, *_ in log.control] == [FIRST, SECOND]
    report = log.audit()
    assert report.findings == ()
    assert (report.level, report.threshold, report.releases) == ("local", 8, 4)
    # Take-overs ask again where the last word was lost, and aborted transactions are seen.
    log.control += [(SECOND, True, False), (SECOND, False, False)]
    assert log.audit().findings == ()
    # Compaction leaves the last word alone.
    log.control = [(SECOND, True, False)]
    assert log.audit().findings == ()


Tampering = Callable[[Log], object]
TAMPERINGS: list[tuple[str, Tampering, str, str]] = [
    ("control asks for another", lambda log: log.control.__setitem__(1, (OTHER, True, False)), "I1", "second threshold"),
    ("control asks for another afterwards", lambda log: log.control.append((OTHER, True, False)), "I1", "second threshold"),
    ("an aborted record shows another", lambda log: log.control.append((OTHER, False, False)), "I1", "second threshold"),
    ("entry and record name another", lambda log: log.restate(2, threshold=14), "I1", "second threshold"),
    ("entry and record name none any more", lambda log: log.restate(3, threshold=None), "I1", "second threshold"),
    ("the entry alone names another", lambda log: log.ledger[2].update(threshold=14), "I7", "states a different charge"),
    ("the record alone names another", lambda log: log.sink[2].update(threshold=14), "I2", "no ledger entry has the digest"),
    ("the phase begins early", lambda log: log.restate(1, phase="sums"), "I7", "expected distribution"),
    ("the phase begins late", lambda log: log.restate(2, phase="distribution"), "I7", "expected sums"),
    ("the threshold is no number", lambda log: log.restate(2, threshold="8"), "I7", "not a whole number"),
    ("nobody was asked", lambda log: log.control.clear(), "I7", "its last record is not"),
    ("the threshold was never asked for", lambda log: log.control.pop(), "I7", "its last record is not"),
    ("the distribution is asked for again", lambda log: log.control.append((FIRST, True, False)), "I7", "asks for the distribution again"),
    ("something else is asked for", lambda log: log.control.append((b"{}", True, False)), "I7", "something other"),
    ("another epsilon is asked for", lambda log: log.control.append((SECOND.replace(b'"2"', b'"3"'), True, False)), "I7", "something other"),
    ("less was charged", lambda log: log.restate(2, spent={"test": 0, "publish": 1}, window_spent=1), "I7", "topl cannot have spent this"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tamper", "invariant", "what"), [one[1:] for one in TAMPERINGS], ids=[one[0] for one in TAMPERINGS]
)
def test_what_was_tampered_with_is_found(log: Log, tamper: Tampering, invariant: str, what: str) -> None:
    tamper(log)
    findings = log.audit().findings
    assert any(one.invariant == invariant and what in one.what for one in findings), findings


def test_a_threshold_that_is_newer_than_the_ledger_that_was_read_is_not_judged(log: Log) -> None:
    del log.ledger[1:], log.sink[1:]
    log.control = [(FIRST, True, False), (SECOND, True, True)]
    assert log.audit().findings == ()
    log.control.append((SECOND, False, False))
    assert log.audit().findings == ()
    log.control.append((OTHER, False, False))
    assert {one.invariant for one in log.audit().findings} == {"I1"}
    # What the ledger had to have by then is a violation.
    log.control = [(FIRST, True, False), (SECOND, True, False)]
    assert {one.invariant for one in log.audit().findings} == {"I1", "I7"}


def test_a_control_record_is_what_producers_read() -> None:
    for threshold in (None, 8):
        assert Control.read(control_record(STREAM, threshold), EPSILON) == asked(threshold)
