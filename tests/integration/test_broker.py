"""The development broker of ``make broker`` and of the fixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from eventveil.kafka.admin import Admin
from tests.kafka.archive import works
from tests.kafka.broker import LocalBroker, local_broker
from tests.kafka.jars import BrokerError, missing_tools
from tests.kafka.ports import reserve
from tests.kafka.topics import create_topic, produce, read, unique, values

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))


@contextmanager
def foreground(port: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The command behind ``make broker``, once it has said that it is ready."""
    command = [sys.executable, "-m", "tests.kafka.broker", "--port", str(port), "--directory", str(directory)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready 127.0.0.1:{port}\n"
        yield process
    finally:
        process.terminate()
        process.wait(180)


@pytest.fixture
def port() -> int:
    """A port that is free now."""
    reservation = reserve()
    reservation.release()
    return reservation.port


def serves(bootstrap: str) -> bool:
    return bool(Admin({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=60).brokers)


def processes_naming(directory: Path) -> list[str]:
    listing = subprocess.run(["ps", "-ww", "-eo", "pid,args"], stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if str(directory) in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_once_it_says_so_and_a_signal_stops_it_cleanly(
    number: signal.Signals, port: int, tmp_path: Path
) -> None:
    with foreground(port, tmp_path) as process:
        assert serves(f"127.0.0.1:{port}")
        process.send_signal(number)
        assert process.wait(180) == 0
    assert processes_naming(tmp_path) == []


def test_it_goes_on_with_its_data_after_a_stop_and_after_a_crash(tmp_path: Path) -> None:
    broker = LocalBroker(tmp_path)
    try:
        broker.start()
        topic = create_topic(broker.bootstrap, "kept")
        produce(broker.bootstrap, topic, ["before"])
        broker.stop()
        broker.start()
        produce(broker.bootstrap, topic, ["after the stop"])
        broker.kill()
        broker.start()
        assert values(read(broker.bootstrap, topic)) == [b"before", b"after the stop"]
    finally:
        broker.release()


def test_it_does_not_outlive_a_program_that_is_killed(port: int, tmp_path: Path) -> None:
    with foreground(port, tmp_path) as process:
        process.kill()
        deadline = time.monotonic() + 120
        while processes_naming(tmp_path) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert processes_naming(tmp_path) == []


def test_two_brokers_at_once_take_different_ports_and_leave_no_files() -> None:
    with local_broker() as one, local_broker() as other:
        assert one.bootstrap != other.bootstrap
        assert serves(one.bootstrap)
        assert serves(other.bootstrap)
        # Java's performance data would stay behind after a kill, and its folder always.
        processes = {line.split()[0] for line in processes_naming(one.directory)}
        assert processes
        assert not [file for file in Path("/tmp").glob("hsperfdata_*/*") if file.name in processes]
    assert not one.directory.exists()
    assert not other.directory.exists()


def test_it_starts_from_an_archive_of_classes_and_one_that_was_cut_short_is_not_used(tmp_path: Path) -> None:
    with local_broker(directory=tmp_path / "broker") as broker:
        assert broker.sharing
        archive = Path(broker.sharing[-1].partition("=")[2])
        (java,) = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()[:1]
        assert str(archive) in Path(f"/proc/{java}/maps").read_text()
    assert works(archive)
    part = tmp_path / "part.jsa"
    part.write_bytes(archive.read_bytes()[:1_000_000])
    assert not works(part)


def test_a_port_in_use_is_refused_by_name() -> None:
    taken = reserve()
    try:
        with (
            pytest.raises(BrokerError, match=f"port {taken.port} on 127.0.0.1 is taken"),
            local_broker(taken.port),
        ):
            pass
    finally:
        taken.release()


def test_a_directory_in_use_is_refused_and_its_broker_goes_on(tmp_path: Path) -> None:
    with local_broker(directory=tmp_path) as broker:
        with pytest.raises(BrokerError, match="another broker uses"), local_broker(directory=tmp_path):
            pass
        assert broker.running()


def test_a_topic_is_not_made_by_mistake(kafka: str) -> None:
    if os.environ.get("KAFKA", "local") not in ("local", "docker"):
        pytest.skip("another broker has settings of its own")
    producer = Producer({"bootstrap.servers": kafka})
    misspelt = unique("misspelt")
    for _ in range(2):  # A producer's question makes the topic where the broker allows it.
        assert producer.list_topics(misspelt, timeout=60).topics[misspelt].error is not None
        time.sleep(0.5)
