"""Brokers take any bytes as the name of a header; Kafka's own client replaces those that are not UTF-8."""

from __future__ import annotations

import json
import os
import struct
import time
from collections import Counter
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.model.errors import StateRefused
from eventveil.model.timeline import start_of
from eventveil.process import kernel
from eventveil.replay.inputs import TopicInput
from eventveil.replay.run import replay
from eventveil.topology.loading import load
from tests.chaos.verifier import java_partition
from tests.kafka.topics import append_batch
from tests.worker.application import Application
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence
from tests.worker.waiting import settle, wait_for_letters, wait_for_releases

_NAME, _NOT_UTF8 = b"strange", b"\xff\xfe\xe2\x82nam"


def batch(values: list[bytes], key: bytes) -> bytes:
    """Records with two headers, one of them of a name that no client for Python writes."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 2**20)
    headers = [(_NAME.decode(), b"1"), ("type", b"seen")]
    for offset, value in enumerate(values):
        builder.append(offset, int(time.time() * 1000), key, value, headers)
    made = bytearray(bytes(builder.build()).replace(_NAME, _NOT_UTF8))
    struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
    return bytes(made)


def event(user: str, place: str) -> bytes:
    return json.dumps({"user": user, "place": place, "time": int(time.time() * 1000)}).encode()


@pytest.mark.parametrize("rekeyed", [False, True], ids=["plain", "re-keyed"])
@pytest.mark.parametrize("switch", ["on", "off"])
def test_records_with_such_names_count_like_others(
    kafka: str, tmp_path: Path, rekeyed: bool, switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header beside it is read too, in every way."""
    monkeypatch.setenv(kernel.SWITCH, switch)
    application = Application(kafka, tmp_path, lateness=5000, max_ahead=1000)
    source = application.document["streams"]["places"]["source"]
    source |= {"repartition": rekeyed, "filter": {"$headers/type": "seen"}}
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        first = wait_for_releases(application, 1)
        for number in range(12):
            user = f"user {number}"
            values = [event(user, "north" if number % 3 else "south"), b"no event"]
            partition = number % 3 if rekeyed else java_partition(user, 3)
            append_batch(kafka, application.source, batch(values, user.encode()), partition)
        wait_for_letters(application, not_json=12)
        settle(application)
        assert worker.running, (tmp_path / "worker.log").read_text()
    found = Counter[str]()
    for timestamp, (record, *more) in application.releases().items():
        assert not more
        if timestamp > first:
            found.update(json.loads(record)["counts"])
    assert +found == {"north": 8, "south": 4}

    told = CliRunner().invoke(main, ["doctor", str(application.path)], catch_exceptions=False)
    assert "24 of the 24 records have a header whose name is not UTF-8" in told.output
    topology = load(str(application.path), os.environ)
    rules = topology.streams[0].timeline
    span = {"start": start_of(rules, first + 1), "end": start_of(rules, max(application.releases()) + 1)}
    inputs = TopicInput(topology.kafka, topology.streams[0].source.topic, rekeyed=rekeyed, envelope=True)
    if rekeyed:  # which replaces the bytes
        replayed = Counter[str]()
        for one in replay(topology, inputs, **span, noise=lambda _: Silence()):
            replayed.update(json.loads(one.record)["counts"])
        assert +replayed == +found
    else:
        with pytest.raises(StateRefused, match="offset 0 has a header whose name is not UTF-8"):
            [*replay(topology, inputs, **span, noise=lambda _: Silence())]
