"""A cluster that was put back to an earlier point: nothing in Kafka tells, and the witness outside does."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from eventveil.privacy.witness import Line, Witness
from eventveil.topology import load
from eventveil.witness import WitnessFile
from tests.integration.test_ledger import MECHANISM, Publisher
from tests.integration.test_values import Values
from tests.kafka.broker import LocalBroker, local_broker
from tests.kafka.jars import missing_tools
from tests.kafka.topics import produce, transactional_producer, unique
from tests.worker.application import Application
from tests.worker.process import WorkerProcess
from tests.worker.taking_over import refusals
from tests.worker.waiting import wait_for_releases

BACK = (
    ": the cluster, or its topics, were put back to an earlier point, and what was released after that would "
    "be drawn again. Restore a copy of the cluster that has what was released last: that costs nothing. If "
    "there is none, give the stream a new name and a new sink (whose epsilon adds up)"
)


class Restored:
    """An application with streams of counts and of values on a broker of its own, which can be put back."""

    def __init__(self, broker: LocalBroker, folder: Path) -> None:
        self.broker, self._folder = broker, folder
        self._saved = folder / "saved"
        mechanism = {"kind": "tops", "epsilon": 1, "held": 60, "smoothed": 0}
        self.application = Values(broker.bootstrap, folder, counts=True, minutes=mechanism)
        self.witness = folder / "witness"

    def run(self, values: Sequence[int]) -> None:
        """Release some timestamps more, and readings of these values, with the product's own noise."""
        application, before = self.application, len(self.application.releases())
        read = len(application.readings("minutes", 0))
        events = [json.dumps({"value": value}) for value in values]
        produce(application.bootstrap, application.values_topic, events)
        log = self._folder / "log"
        with WorkerProcess("tests.worker.quick", application.path, log, "3") as worker:
            wait_for_releases(application, before + 8)
            application.wait_for_readings("minutes", 0, read + len(values))
            worker.signal(signal.SIGTERM)
            assert worker.wait(15) == 0

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
        saved = max(application.releases())
        assert restored.keep_witness().startswith(f"witness {file}: begun")
        restored.run([400] * 20)
        assert restored.keep_witness().startswith(f"witness {file}: nothing of 20")
        assert restored.refusals() == []
        seen = restored.seen().seen[Line("places")]
        published, readings = application.releases(), application.readings("minutes", 0)

        restored.put_back()
        assert max(application.releases()) == saved
        expected = [
            f"{file}, stream places: on {restored.seen().when} the ledger had timestamp {seen.last} (of "
            f"{seen.instance}), and now it ends with timestamp {saved}{BACK}",
            f"{file}, stream minutes, source partition 0: on {restored.seen().when} the sink had 100 values, "
            f"and now it ends with 80 values{BACK}",
        ]
        found = restored.refusals()
        assert len(found) == 2
        assert all(any(message.startswith(one) for message in found) for one in expected), found
        check_that_a_worker_stops(restored, expected[0])
        kept = file.read_bytes()
        output = application.failing_command("ledger", str(application.path), "--witness", str(file))
        assert f"eventveil ledger: {expected[1]}" in output
        assert expected[0] in output
        assert file.read_bytes() == kept

        # Without a witness nobody knows: this is the limit that docs/reliability.md tells.
        assert refusals(application.path) == []
        restored.run([0] * 20)
        wait_for_releases(application, len(published))
        again, read_again = application.releases(), application.readings("minutes", 0)
        assert any(again[timestamp] != published[timestamp] for timestamp in published if timestamp > saved)
        assert readings[:80] == read_again[:80]
        # The noise of a tree is drawn once, so the same lies under other values now.
        assert all(one != other for one, other in zip(readings[80:], read_again[80:], strict=True))
        assert "violation" not in application.command("ledger", str(application.path))
        # It does not forget: the ledger has grown past it, and is another one.
        assert any(
            f"the ledger had timestamp {seen.last} " in one and "now it has another history" in one
            for one in restored.refusals()
        )


def check_that_a_worker_stops(restored: Restored, message: str) -> None:
    """`eventveil run --witness` ends with the message, and nothing was released meanwhile."""
    application, log = restored.application, restored.witness.with_name("refused")
    before = application.releases("read_uncommitted")
    arguments = ("--witness", str(restored.witness), "--metrics", "off")
    with WorkerProcess("eventveil", application.path, log, *arguments) as worker:
        assert worker.wait(60) == 1
    assert f"witness {restored.witness}: written {restored.seen().when}" in log.read_text()
    assert "the cluster, or its topics, were put back to an earlier point" in log.read_text()
    assert application.releases("read_uncommitted") == before
    assert message.split(":")[0].split(",")[0] in log.read_text()


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
    begun = f"witness {file}: begun; what was released before, and is gone, it cannot tell"
    assert application.command(*command).splitlines() == ["places: nothing released yet", begun]
    published.publish(published.take(5))
    first = Witness.decode(file.read_bytes(), "here")
    assert first.seen == {}
    line = f"witness {file}: nothing of {first.when} is gone; brought up to date"
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
    assert "brought up to date" in application.command(*command)


def test_a_worker_does_not_begin_without_the_witness_that_it_was_given(
    application: Application, tmp_path: Path
) -> None:
    file, log = tmp_path / "witness", tmp_path / "log"
    arguments = ("--witness", str(file), "--metrics", "off")
    with WorkerProcess("eventveil", application.path, log, *arguments) as worker:
        assert worker.wait(60) == 1
    assert f"stopped: {file}: there is no such file. `eventveil ledger --witness` begins" in log.read_text()
    application.command("ledger", str(application.path), "--witness", str(file))
    file_of_worker = WitnessFile(file, load(str(application.path), {}).name)
    assert refusals(application.path, file_of_worker) == []
    assert not application.releases()
