"""``eventveil ledger`` on real Kafka: releases written in transactions as a worker does, and faults."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from eventveil.cli.main import main
from eventveil.formats.release import ledger_entry, release_record
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.reader import LogReader
from eventveil.kinds.placement import StreamPlan
from eventveil.kinds.registry import plan_streams
from eventveil.mechanisms.registry import build
from eventveil.privacy.noise import SystemNoise
from eventveil.topology.loading import load
from tests.kafka.topics import end_offset, read, transactional_producer, unique
from tests.worker.application import COLUMNS, Application

FIRST, WINDOW = 41, 4
INSTANCE = "0" * 32
MECHANISM = {"kind": "uniform", "epsilon": 1, "window": WINDOW}
BOTH = frozenset({"ledger", "sink"})


@dataclass
class Publisher:
    """What a worker publishes of one stream: its entries and records, with a mechanism's real noise."""

    application: Application
    plan: StreamPlan
    producer: Producer
    records: Iterator[bytes]
    #: Of Eventveil, as its entries name it; empty for entries that are older than this field.
    version: str = "0.1.0"

    @classmethod
    def of(cls, application: Application, stream: str = "places") -> Publisher:
        plans = {plan.name: plan for plan in plan_streams(load(str(application.path), {}))}
        producer = transactional_producer(application.bootstrap, unique("publisher"))
        return cls(application, plans[stream], producer, cls._records(plans[stream]))

    @staticmethod
    def _records(plan: StreamPlan, first: int = FIRST) -> Iterator[bytes]:
        stream = plan.stream
        mechanism = build(stream.mechanism, len(COLUMNS), stream.sensitivity, SystemNoise())
        while True:
            release = mechanism.step(np.arange(len(COLUMNS)))
            yield release_record(stream, first, release, mechanism.units)
            first += 1

    def take(self, count: int) -> list[bytes]:
        """The next releases."""
        return [next(self.records) for _ in range(count)]

    def begin(self, records: Iterable[bytes], into: frozenset[str] = BOTH) -> None:
        """Bring releases to the brokers in a transaction that stays open."""
        plan, key = self.plan, self.plan.name.encode()
        self.producer.begin_transaction()
        for record in records:
            if "ledger" in into:
                entry = ledger_entry(record, INSTANCE, version=self.version)
                topic = f"{self.application.name}-ledger"
                self.producer.produce(topic, entry, key, partition=plan.partials_partition)
            if "sink" in into:
                self.producer.produce(plan.stream.sink.topic, record, key)
        assert self.producer.flush(30) == 0

    def publish(self, records: Iterable[bytes], into: frozenset[str] = BOTH) -> None:
        """The same, and commit."""
        self.begin(records, into)
        self.producer.commit_transaction(30)

    def abort(self, records: Iterable[bytes], into: frozenset[str] = BOTH) -> None:
        """The same, and abort."""
        self.begin(records, into)
        self.producer.abort_transaction(30)


@pytest.fixture
def application(kafka: str, tmp_path: Path) -> Application:
    made = Application(kafka, tmp_path, mechanism=MECHANISM)
    made.create()
    return made


def audit(application: Application, *options: str) -> Result:
    result = CliRunner().invoke(main, ["ledger", str(application.path), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def assert_clean(result: Result, releases: int, *notes: str) -> None:
    windows = releases - WINDOW + 1
    line = f"places: {releases} releases, {windows} windows checked, largest 1 of epsilon 1"
    assert (result.exit_code, result.stderr) == (0, "")
    *told, version, seen = result.stdout.splitlines()
    assert told == [line, *(f"  {note}" for note in notes)]
    assert version.startswith(f"  eventveil 0.1.0: timestamps {FIRST} to {FIRST + releases - 1}, ")
    assert seen.startswith(f"  up to timestamp {FIRST + releases - 1}, due at ")


def another_draw(record: bytes) -> bytes:
    fields = orjson.loads(record)
    counts = {name: count + 1 for name, count in fields["counts"].items()}
    return orjson.dumps({**fields, "counts": counts})


def test_a_clean_run_is_told_in_one_line(application: Application) -> None:
    publisher = Publisher.of(application)
    for count in (1, 6, 5):
        publisher.publish(publisher.take(count))
    assert_clean(audit(application), 12)


def test_the_report_has_the_audit_and_digests_and_says_first_what_is_violated(
    application: Application, tmp_path: Path
) -> None:
    publisher, page = Publisher.of(application), tmp_path / "page.html"
    records = publisher.take(6)
    publisher.publish(records)
    result = CliRunner().invoke(main, ["report", str(application.path), "--json"])
    assert (result.exit_code, result.stderr) == (0, "")
    told = orjson.loads(result.stdout)
    values = [ledger_entry(record, INSTANCE, version="0.1.0") for record in records]
    entries = [hashlib.sha256(value).digest() for value in values]
    rows = told["audit"]["life"]
    assert told["state"] == "clean"
    assert sum(row["entries"] for row in rows) == rows[-1]["records"] == 6
    assert rows[-1]["digest"] == hashlib.sha256(b"".join(entries)).hexdigest()
    assert told["audit"]["cluster"] == Cluster(load(str(application.path), {}).kafka).id()

    publisher.publish([another_draw(records[-1])], frozenset({"sink"}))
    result = CliRunner().invoke(main, ["report", str(application.path), "--output", str(page)])
    assert result.exit_code == 1
    assert result.stderr.startswith("eventveil report: Violated: the audit found 2 violations.")
    assert "I2 places" in page.read_text(encoding="utf-8").partition("<h2>")[0]


def test_the_versions_of_the_whole_life_are_told_and_a_step_back_is_remarked(
    application: Application, tmp_path: Path
) -> None:
    publisher, page = Publisher.of(application), tmp_path / "page.html"
    for version in ("", "0.2.0", "", "0.3.0"):
        publisher.version = version
        publisher.publish(publisher.take(2))
    result = audit(application)
    assert (result.exit_code, result.stderr) == (0, "")
    _, *told, remark, _ = result.stdout.splitlines()
    spans = ((FIRST, FIRST + 5), (FIRST + 2, FIRST + 3), (FIRST + 6, FIRST + 7))
    for line, name, (first, last) in zip(
        told, ("version not recorded", "eventveil 0.2.0", "eventveil 0.3.0"), spans, strict=True
    ):
        assert line.startswith(f"  {name}: timestamps {first} to {last}, ")
    assert remark.startswith("  2 entries name no version, between others that do: ")

    result = CliRunner().invoke(main, ["report", str(application.path), "--json"])
    (found,) = orjson.loads(result.stdout)["audit"]["versions"]
    assert (found["stream"], found["unnamed"]) == ("places", 2)
    assert [(one["version"], one["entries"], (one["first"], one["last"])) for one in found["versions"]] == [
        (version, entries, span)
        for version, entries, span in zip((None, "0.2.0", "0.3.0"), (4, 2, 2), spans, strict=True)
    ]
    result = CliRunner().invoke(main, ["report", str(application.path), "--output", str(page)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"0.3.0 (timestamps {FIRST + 6} to {FIRST + 7}, " in page.read_text(encoding="utf-8")


def test_behind_the_barrier_an_audit_believes_no_broker_that_shows_an_early_end(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(6))
    ledger, place = f"{application.name}-ledger", publisher.plan.partials_partition
    early = end_offset(application.bootstrap, ledger, partition=place)
    publisher.publish(publisher.take(5))
    stale, offset_of = [early] * 10, LogReader._offset

    def cut_off(reading: LogReader, which: int) -> int:
        """As a broker answers that has seen nothing of the ledger since ``early``; at first."""
        found = offset_of(reading, which)
        return stale.pop() if stale and reading._place.topic == ledger and found > early else found

    monkeypatch.setattr(LogReader, "_offset", cut_off)
    assert_clean(audit(application, "--barrier"), 11)
    assert not stale
    assert_clean(audit(application, "--barrier"), 11)
    monkeypatch.undo()
    # Nobody who reads commits meets the nonces, and the next audit passes over them.
    assert len(read(application.bootstrap, application.sink)) == 11
    assert_clean(audit(application), 11)


def test_without_the_barrier_an_audit_tells_up_to_where_it_has_read(application: Application) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(6))
    shown, certain = audit(application), audit(application, "--barrier")
    # The first timestamp of the publisher is long ago.
    late = ": nothing that fell due since has been released"
    assert f"  up to timestamp {FIRST + 5}, due at " in shown.stdout
    assert shown.stdout.endswith(f"{late}, or an isolated broker has answered (--barrier tells which)\n")
    assert certain.stdout.endswith(f"{late}\n")


def test_a_stream_that_has_released_nothing_is_told_so(application: Application) -> None:
    result = audit(application)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "places: nothing released yet\n", "")


def test_an_aborted_publication_repeated_with_the_same_bytes_is_no_violation(
    application: Application,
) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(5))
    records = publisher.take(3)
    publisher.abort(records)
    undecided = "6 records newer than the ledger that was read: not judged yet"
    assert_clean(audit(application), 5, undecided)
    publisher.publish(records)
    assert_clean(audit(application), 8, "6 records of aborted transactions, the same as the committed ones")


def test_a_second_draw_that_only_read_uncommitted_readers_saw_is_found(application: Application) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(5))
    (record,) = publisher.take(1)
    publisher.abort([another_draw(record)])
    publisher.publish([record])
    result = audit(application)
    assert result.exit_code == 1
    told, *_ = result.stdout.splitlines()
    assert told == "places: 6 releases, 3 windows checked, largest 1 of epsilon 1; 3 violations"
    entry, aborted, committed = sorted(result.stderr.splitlines())
    assert entry.startswith(f"I1 places, timestamp {FIRST + 5}, {application.name}-ledger, partition ")
    assert entry.endswith(" (aborted): it charged a different release than the committed entry")
    # Offset 0 is a nonce of `topics --create`, 2 to 6 are the first five, 8 is the aborted record, 10 the
    # committed one, and markers lie between them.
    assert aborted == (
        f"I1 places, timestamp {FIRST + 5}, {application.sink}, partition 0, offset 10: "
        "different records were visible for this timestamp"
    )
    assert committed == (
        f"I2 places, timestamp {FIRST + 5}, {application.sink}, partition 0, offset 8 (aborted): "
        "no ledger entry has the digest of this record: it was published without a charge"
    )


def test_a_second_draw_for_everybody_is_found(application: Application) -> None:
    publisher = Publisher.of(application)
    records = publisher.take(5)
    publisher.publish(records)
    publisher.publish([another_draw(records[2])], into=frozenset({"sink"}))
    result = audit(application)
    assert result.exit_code == 1
    assert {line[:2] for line in result.stderr.splitlines()} == {"I1", "I2"}
    assert all(f"timestamp {FIRST + 2}, " in line for line in result.stderr.splitlines())


@pytest.mark.parametrize(("only", "invariant"), [("ledger", "I7"), ("sink", "I2")])
def test_a_publication_in_only_one_of_the_topics_is_found(
    application: Application, only: str, invariant: str
) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(5))
    publisher.publish(publisher.take(1), into=frozenset({only}))
    result = audit(application)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{invariant} places, timestamp {FIRST + 5}, ")


def test_a_transaction_that_is_open_is_waited_for(application: Application) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(5))
    publisher.begin(publisher.take(2))
    commit = threading.Timer(1.0, publisher.producer.commit_transaction, [30])
    commit.start()
    try:
        result = audit(application)
    finally:
        commit.join()
    # Its entries lie before the end of the ledger that was captured, so they belong to this audit.
    assert_clean(result, 7)


def test_a_transaction_that_stays_open_is_a_failure(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventveil.kafka.ends._UNDECIDED_SECONDS", 0.5)
    publisher = Publisher.of(application)
    publisher.begin(publisher.take(2))
    result = audit(application)
    publisher.producer.abort_transaction(30)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "a transaction before offset 4 stays open" in result.stderr


def test_a_worker_that_publishes_meanwhile_never_looks_like_a_violation(application: Application) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(WINDOW))
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            records = publisher.take(3)
            publisher.abort(records)
            publisher.publish(records)

    thread = threading.Thread(target=publish)
    thread.start()
    audited: list[int] = []
    try:
        give_up = time.monotonic() + 120
        while (len(audited) < 5 or audited[-1] <= audited[0] + 100) and time.monotonic() < give_up:
            result = audit(application)
            assert (result.exit_code, result.stderr) == (0, "")
            audited.append(int(result.stdout.split()[1]))
    finally:
        stop.set()
        thread.join()
    assert len(audited) >= 5
    assert audited == sorted(audited)
    assert audited[-1] > audited[0] + 100


def test_what_is_published_after_the_ends_were_captured_is_left_to_the_next_audit(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(5))
    first_offsets = Cluster.first_offsets

    def publish_first(cluster: Cluster, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Reading begins with this question, when the ends are known."""
        publisher.publish(publisher.take(3))
        return first_offsets(cluster, places)

    monkeypatch.setattr(Cluster, "first_offsets", publish_first)
    assert_clean(audit(application), 5)
    monkeypatch.undo()
    assert_clean(audit(application), 11)


def test_what_retention_has_removed_from_the_sink_is_told_and_no_violation(application: Application) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(6))
    application.delete_records(application.sink, 6)
    removed = "retention or compaction has removed older records there"
    note = f"matched with {application.sink} from timestamp {FIRST + 4} on: {removed}"
    assert_clean(audit(application), 6, note)
    publisher.publish(publisher.take(1), into=frozenset({"ledger"}))
    publisher.publish(publisher.take(1))
    result = audit(application)
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"I7 places, timestamp {FIRST + 6}, the sink: ")
    assert result.exit_code == 1


def test_a_sink_that_lost_everything_is_told_so(application: Application) -> None:
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(6))
    application.delete_records(application.sink, -1)
    note = f"none of them could be matched: nothing of this stream is left in {application.sink}"
    assert_clean(audit(application), 6, note)


def test_a_compacted_sink_is_matched_with_what_it_has(application: Application) -> None:
    application.alter(application.sink, {"cleanup.policy": "compact"})
    publisher = Publisher.of(application)
    publisher.publish(publisher.take(6))
    removed = "retention or compaction has removed older records there"
    note = f"matched with {application.sink} from timestamp {FIRST + 5} on: {removed}"
    assert_clean(audit(application), 6, note)


def test_a_ledger_that_lost_its_beginning_is_a_violation(application: Application) -> None:
    # Records are removed in partition 0, so a stream is needed that has its ledger there.
    streams = {}
    for name in ("one", "two", "three", "four"):
        streams[name] = application.stream(application.source, f"{application.name}.{name}", MECHANISM)
    application.document["streams"] |= streams
    application.write()
    application.create()
    plans = plan_streams(load(str(application.path), {}))
    stream = next(plan.name for plan in plans if plan.partials_partition == 0)
    publisher = Publisher.of(application, stream)
    publisher.publish(publisher.take(6))
    # Before them are the nonces of two `topics --create`, and their markers.
    application.delete_records(f"{application.name}-ledger", 6)
    result = audit(application)
    assert result.exit_code == 1
    assert (
        f"I7 {stream}, {application.name}-ledger, partition 0, offset 6: the ledger begins here"
        in result.stderr
    )
    assert f"I2 {stream}, timestamp {FIRST}, " in result.stderr


def test_streams_that_left_the_file_are_named_and_not_checked(application: Application) -> None:
    application.document["streams"]["other"] = application.stream(
        application.source, f"{application.name}.other", MECHANISM
    )
    application.write()
    application.create()
    for stream in ("places", "other"):
        publisher = Publisher.of(application, stream)
        publisher.publish(publisher.take(5))
    result = audit(application)
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 6)
    del application.document["streams"]["other"]
    application.write()
    result = audit(application)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[3:] == ["not in this file, so not checked: other"]


def test_a_missing_topic_is_a_failure(application: Application) -> None:
    application.delete(application.sink)
    result = audit(application)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"eventveil ledger: topic {application.sink}: it does not exist")


def test_garbage_in_the_ledger_is_a_violation_of_nobody(application: Application) -> None:
    producer = transactional_producer(application.bootstrap, unique("stranger"))
    producer.begin_transaction()
    producer.produce(f"{application.name}-ledger", "?", "stranger", partition=0)
    producer.commit_transaction(30)
    result = audit(application)
    assert result.exit_code == 1
    assert result.stderr == (
        f"I7 'stranger', {application.name}-ledger, partition 0, offset 2: "
        "this is not a ledger entry, nor of a stream of the topology\n"
    )
