"""A cluster that was restored to an earlier point: nothing in Kafka tells, and the witness outside does."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from eventveil.audit.witness_file import WitnessFile
from eventveil.formats.witness import Line, Witness
from eventveil.local import Control
from eventveil.topology.loading import load
from tests.integration.test_ledger import MECHANISM, Publisher
from tests.integration.test_values import Values
from tests.kafka.broker import LocalBroker, local_broker
from tests.kafka.jars import missing_tools
from tests.kafka.topics import Isolation, create_topic, produce, read, transactional_producer, unique
from tests.unit.local.streams import SeededRandomness
from tests.worker.application import COLUMNS, ORIGIN, Application
from tests.worker.process import WorkerProcess
from tests.worker.taking_over import refusals
from tests.worker.waiting import wait_for_releases

#: The streams with timestamps, and what the local one goes by.
TIMED = ("places", "hidden", "stays")
NOWHERE = dict.fromkeys(TIMED, 0)
EPSILON, MAXIMUM, AFTER = Fraction(4), 200, 40
BACK = (
    ": the cluster, or its topics, were restored to an earlier point, and what was released after that would "
    "be drawn again. Restore a copy of the cluster that has what was released last: that costs nothing. If "
    "there is none, give the stream a new name and a new sink (whose epsilon adds up)"
)


class Mixed(Values):
    """An application with a stream of each kind: ``places`` counts, ``minutes`` are values, ``hidden`` is
    pan-private, ``stays`` are local reports."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        mechanism = {"kind": "tops", "epsilon": 1, "held": 60, "smoothed": 0}
        super().__init__(bootstrap, folder, counts=True, minutes=mechanism)

    def create(self) -> None:
        """Create all topics and the genesis records, for the streams of the other kinds too."""
        self.hidden, self.reports, self.control = (
            f"{self.name}{ending}" for ending in (".hidden", ".reports", "-control")
        )
        self.document["streams"] |= {"hidden": self._pan_private(), "stays": self._local()}
        self.write()
        create_topic(self.bootstrap, self.hidden, 1, {"message.timestamp.type": "LogAppendTime"})
        super().create()

    def _pan_private(self) -> dict[str, Any]:
        mechanism = {
            "kind": "budget-distribution", "epsilon": 1, "window": 2, "pan_private": "single",
            "adjacency": "substitute",
        }  # fmt: skip
        made = self.stream(self.hidden, self.sink_of("hidden"), mechanism)
        made["counts"]["contributions"] = "trusted"
        return made

    def _local(self) -> dict[str, Any]:
        mechanism = {"kind": "topl", "epsilon": str(EPSILON), "estimate_after": AFTER, "range": 5000}
        made = self.stream(self.reports, self.sink_of("stays"), mechanism)
        del made["counts"], made["source"]["column"]
        made["source"]["report"] = "/place"
        made["values"] = {"maximum": MAXIMUM}
        return made

    def sink_of(self, stream: str) -> str:
        """The sink of a stream with timestamps."""
        return self.sink if stream == "places" else f"{self.name}.{stream}.counts"

    def released(self, stream: str, isolation: Isolation = "read_committed") -> dict[int, list[bytes]]:
        """All values per timestamp in the sink of a stream."""
        return self.releases(isolation, self.sink_of(stream))

    def report_until_asked_for_sums(self, value: int, seconds: float = 180) -> None:
        """Send reports of this value, as producers do, until the stream has chosen its threshold."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random"})
        asked, randomness = Control("stays", EPSILON, MAXIMUM), SeededRandomness(value)
        deadline = time.monotonic() + seconds
        while self.threshold() is None:
            assert time.monotonic() < deadline
            now = time.time_ns() // 1_000_000
            for device in range(AFTER):
                event = {"user": f"{device}", "place": asked.report(value, randomness), "time": now}
                producer.produce(self.reports, value=json.dumps(event), key=f"{device}")
            assert producer.flush(30) == 0

    def crowd(self, seconds: float = 2) -> int:
        """Send enough events to ``hidden`` that no noise hides them; the timestamp of the last ones."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            now = time.time_ns() // 1_000_000
            for place in COLUMNS * 100:
                event = {"user": f"{now} {place}", "place": place, "time": now}
                producer.produce(self.hidden, value=json.dumps(event))
            assert producer.flush(30) == 0
        return (now - ORIGIN) // self.interval + 1

    def threshold(self) -> int | None:
        """What producers are asked to report by, None in the beginning."""
        asked = json.loads(read(self.bootstrap, self.control)[-1].value() or b"")
        threshold: int | None = asked.get("threshold")
        return threshold


class Restored:
    """An application with a stream of each kind on a broker of its own, which can be put back."""

    def __init__(self, broker: LocalBroker, folder: Path) -> None:
        self.broker, self._folder = broker, folder
        self._saved = folder / "saved"
        self.application = Mixed(broker.bootstrap, folder)
        self.witness = folder / "witness"

    def run(
        self,
        values: Sequence[int],
        report: int | None = None,
        past: Mapping[str, int] = NOWHERE,
        crowd: bool = False,
    ) -> None:
        """Release some timestamps more of each stream, ``past`` of them at least, and read these values.

        The noise is the product's own. With a value to ``report`` the local stream chooses its threshold.
        With a ``crowd`` the pan-private stream, which repeats what it said if nothing moves, publishes.
        """
        application = self.application
        count = {stream: max(len(application.released(stream)) + 8, past[stream]) for stream in TIMED}
        read = len(application.readings("minutes", 0))
        events = [json.dumps({"value": value}) for value in values]
        produce(application.bootstrap, application.values_topic, events)
        log = self._folder / "log"
        with WorkerProcess("tests.worker.quick", application.path, log, "3") as worker:
            if report is not None:
                application.report_until_asked_for_sums(report)
            last = application.crowd() if crowd else 0
            for stream in TIMED:
                sink = application.sink_of(stream)
                while wait_for_releases(application, count[stream], sink=sink) < last:
                    count[stream] += 1
            application.wait_for_readings("minutes", 0, read + len(values))
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0

    def save(self) -> None:
        """Copy the disk of the broker, as a snapshot of all volumes does."""
        self.broker.stop()
        shutil.copytree(self.broker.directory / "data", self._saved)
        self.broker.start()

    def put_back(self) -> None:
        """Put the copy in its place."""
        self.broker.stop()
        shutil.rmtree(self.broker.directory / "data")
        shutil.copytree(self._saved, self.broker.directory / "data")
        self.broker.start()

    def keep_witness(self) -> str:
        """The last line of an audit that keeps the witness."""
        application = self.application
        output = application.command("ledger", str(application.path), "--witness", str(self.witness))
        return output.splitlines()[-1]

    def refusals(self) -> list[str]:
        """What stops a worker that has the witness, partition by partition."""
        return refusals(self.application.path, WitnessFile(self.witness, self.application.name))

    def seen(self) -> Witness:
        """What the witness has seen."""
        return Witness.decode(self.witness.read_bytes(), "here")


def test_a_cluster_put_back_in_place_draws_again_unless_a_witness_is_asked(tmp_path: Path) -> None:
    if missing := missing_tools():
        pytest.skip("; ".join(missing))
    with local_broker(directory=tmp_path / "broker") as broker:
        restored = Restored(broker, tmp_path)
        application, file = restored.application, restored.witness
        restored.run([400] * 80)
        restored.save()
        saved = {stream: max(application.released(stream)) for stream in TIMED}
        assert restored.keep_witness().startswith(f"witness {file}: created")
        restored.run([400] * 20, report=30, crowd=True)
        assert restored.keep_witness().startswith(f"witness {file}: nothing noted on 20")
        assert restored.refusals() == []
        seen = {stream: restored.seen().seen[Line(stream)] for stream in TIMED}
        published = {stream: application.released(stream) for stream in TIMED}
        readings, threshold = application.readings("minutes", 0), application.threshold()
        assert threshold is not None

        restored.put_back()
        assert {stream: max(application.released(stream)) for stream in TIMED} == saved
        assert application.threshold() is None
        when = restored.seen().when
        expected = {
            stream: f"{file}, stream {stream}: on {when} the ledger had timestamp {seen[stream].last} (of "
            f"{seen[stream].instance}), and now it ends with timestamp {saved[stream]}{BACK}"
            for stream in TIMED
        }
        expected["minutes"] = (
            f"{file}, stream minutes, source partition 0: on {when} the sink had 100 values, "
            f"and now it ends with 80 values{BACK}"
        )
        found = restored.refusals()
        # Streams of one partition of the ledger are refused together, by the first of them.
        assert all(any(message.startswith(one) for one in expected.values()) for message in found), found
        for stream in ("hidden", "minutes"):
            assert any(message.startswith(expected[stream]) for message in found), found
        check_that_a_worker_stops(restored, found)
        kept = file.read_bytes()
        output = application.failing_command("ledger", str(application.path), "--witness", str(file))
        for one in expected.values():
            assert one in output
        assert file.read_bytes() == kept

        # Without a witness nobody knows: this is the limit that docs/reliability.md tells.
        assert refusals(application.path) == []
        restored.run([0] * 20, report=170, past={stream: len(published[stream]) for stream in TIMED})
        for stream in TIMED:
            again, before = application.released(stream), published[stream]
            drawn = [timestamp for timestamp in before if timestamp > saved[stream]]
            assert any(again[timestamp] != before[timestamp] for timestamp in drawn), stream
        assert application.threshold() not in (None, threshold)
        read_again = application.readings("minutes", 0)
        assert readings[:80] == read_again[:80]
        # The noise of a tree is drawn once, so the same lies under other values now.
        assert all(one != other for one, other in zip(readings[80:], read_again[80:], strict=True))
        assert "violation" not in application.command("ledger", str(application.path))
        # It does not forget: the ledger has grown past it, and is another one.
        for stream in ("hidden", "minutes"):
            assert any(
                f"stream {stream}" in one and "now it has another history" in one
                for one in restored.refusals()
            )


def check_that_a_worker_stops(restored: Restored, messages: Sequence[str]) -> None:
    """`eventveil run --witness` ends with one of the messages, and nothing was released meanwhile."""
    application, log = restored.application, restored.witness.with_name("refused")
    before = [application.released(stream, "read_uncommitted") for stream in TIMED]
    arguments = ("--witness", str(restored.witness), "--metrics", "off")
    with WorkerProcess("eventveil", application.path, log, *arguments) as worker:
        assert worker.wait() == 1
    assert f"witness {restored.witness}: written {restored.seen().when}" in log.read_text()
    assert "the cluster, or its topics, were restored to an earlier point" in log.read_text()
    assert [application.released(stream, "read_uncommitted") for stream in TIMED] == before
    assert any(message.partition(": on ")[0] in log.read_text() for message in messages)


@pytest.fixture
def published(kafka: str, tmp_path: Path) -> Publisher:
    """An application whose releases a test publishes."""
    made = Application(kafka, tmp_path, mechanism=MECHANISM)
    made.create()
    return Publisher.of(made)


def test_a_witness_follows_the_ledger_and_refuses_files_that_are_not_its_own(
    published: Publisher, tmp_path: Path
) -> None:
    application, file = published.application, tmp_path / "witness"
    command = ("ledger", str(application.path), "--witness", str(file))
    begun = f"witness {file}: created; it cannot show whether anything released earlier was lost"
    assert application.command(*command).splitlines() == ["places: nothing released yet", begun]
    published.publish(published.take(5))
    first = Witness.decode(file.read_bytes(), "here")
    assert first.seen == {}
    line = f"witness {file}: nothing noted on {first.when} is gone; updated"
    assert application.command(*command).splitlines()[-1] == line
    older = file.read_bytes()
    published.publish(published.take(5))
    application.command(*command)
    assert Witness.decode(file.read_bytes(), "here").seen != Witness.decode(older, "here").seen
    # An older file is brought up to date: all that it has seen is there.
    newest = Witness.decode(file.read_bytes(), "here")
    file.write_bytes(older)
    application.command(*command)
    assert Witness.decode(file.read_bytes(), "here").seen == newest.seen

    for change, text in (
        ({"topology": "other"}, f"it is the witness of the topology other, not of {application.name}. "),
        ({"cluster": "other"}, "it is the witness of the Kafka cluster other, and this is the cluster "),
        ({"version": 2}, "it cannot be read as a witness: it has version 2, this program reads 1. "),
    ):
        foreign = json.dumps({**json.loads(older), **change})
        file.write_text(foreign)
        output = application.failing_command(*command)
        assert output.startswith(f"eventveil ledger: {file}: {text}")
        assert file.read_text() == foreign
    nowhere = tmp_path / "nowhere" / "witness"
    output = application.failing_command("ledger", str(application.path), "--witness", str(nowhere))
    assert f"eventveil ledger: the witness {nowhere} cannot be written: No such file or directory\n" in output


def test_a_ledger_that_was_replaced_by_a_backup_with_all_of_it_passes_and_one_with_less_does_not(
    published: Publisher, tmp_path: Path
) -> None:
    application, file = published.application, tmp_path / "witness"
    command = ("ledger", str(application.path), "--witness", str(file))
    records = published.take(5)
    published.publish(records)
    application.command(*command)
    ledger = f"{application.name}-ledger"
    application.recreate(ledger)
    published.producer = transactional_producer(application.bootstrap, unique("publisher"))
    published.publish(records[:4], into=frozenset({"ledger"}))
    output = application.failing_command(*command)
    assert f"{file}, stream places: on " in output
    published.publish(records[4:], into=frozenset({"ledger"}))
    assert "is gone; updated" in application.command(*command)


def test_a_worker_does_not_begin_without_the_witness_that_it_was_given(
    application: Application, tmp_path: Path
) -> None:
    file, log = tmp_path / "witness", tmp_path / "log"
    arguments = ("--witness", str(file), "--metrics", "off")
    with WorkerProcess("eventveil", application.path, log, *arguments) as worker:
        assert worker.wait() == 1
    assert f"stopped: {file}: there is no such file. `eventveil ledger --witness` creates" in log.read_text()
    application.command("ledger", str(application.path), "--witness", str(file))
    file_of_worker = WitnessFile(file, load(str(application.path), {}).name)
    assert refusals(application.path, file_of_worker) == []
    assert not application.releases()
