"""``eventveil.read.topic`` and ``eventveil export`` against a real broker."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from eventveil import read
from eventveil.cli.main import main
from tests.integration.conftest import NewTopic
from tests.kafka.topics import abandon, produce, settled, transact, transactional_producer, unique
from tests.unit.read.making import record
from tests.worker.application import COLUMNS, Application


def test_a_sink_is_read_to_its_end_and_exported(application: Application, kafka: str, tmp_path: Path) -> None:
    """What a worker would write, in transactions, with one that was aborted and a nonce between."""
    fields = {"stream": "places", "counts": dict.fromkeys(COLUMNS, 7), "epsilon": "1", "window": 10}
    lines = [record(at, interval=250, **fields) for at in range(1, 13)]
    writer = transactional_producer(kafka, unique("writer"))
    transact(writer, application.sink, lines[:5])
    aborted = transactional_producer(kafka, unique("aborted"))
    abandon(aborted, application.sink, [record(6, interval=250, **{**fields, "epsilon": "9"})])
    aborted.abort_transaction(30)
    produce(kafka, application.sink, [None], key=b"barrier/nonce")
    transact(writer, application.sink, [lines[4], *lines[5:]])
    settled(kafka, application.sink)

    found = read.topic(application.path)
    assert found.timestamps.tolist() == list(range(1, 13))
    assert found.columns == tuple(COLUMNS)
    assert found.epsilon == "1"
    assert np.all(found.counts == 7)
    same = read.topic(bootstrap=kafka, topic=application.sink, start="2026-03-01T00:00:02Z")
    assert same.timestamps.tolist() == [9, 10, 11, 12]

    output = tmp_path / "seconds.csv"
    arguments = ["export", str(application.path), "--output", str(output), "--every", "1s"]
    exported = CliRunner().invoke(main, arguments)
    assert exported.exit_code == 0, exported.output
    with open(output, newline="") as file:
        assert [one["total"] for one in csv.DictReader(file)] == ["28.0"] * 12

    transact(writer, application.sink, [record(3, interval=250, **{**fields, "epsilon": "2"})])
    settled(kafka, application.sink)
    with pytest.raises(read.ReadingError, match=r"offset \d+: timestamp 3 .*`eventveil ledger`"):
        read.topic(application.path)


def test_a_topic_with_an_open_transaction_is_read_up_to_there_and_that_is_told(
    kafka: str, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    sink = new_topic("sink")
    produce(kafka, sink, [record(1), record(2)])
    assert read.topic(bootstrap=kafka, topic=sink).timestamps.tolist() == [1, 2]
    assert caplog.text == ""
    abandon(transactional_producer(kafka, unique("open")), sink, [record(3)])
    assert read.topic(bootstrap=kafka, topic=sink).timestamps.tolist() == [1, 2]
    assert f"{sink}, partition 0: a transaction stays open, so later records cannot be read" in caplog.text


def test_a_stream_of_values_and_a_topic_that_is_not_there_are_told(
    application: Application, kafka: str, new_topic: NewTopic
) -> None:
    with pytest.raises(read.ReadingError, match="no stream of counts with the name other"):
        read.topic(application.path, stream="other")
    exported = CliRunner().invoke(
        main, ["export", str(application.path), "--stream", "other", "--output", "-", "--format", "csv"]
    )
    assert exported.exit_code == 1
    application.document["streams"]["places"]["sink"]["topic"] = unique("nowhere")
    application.path.write_text(json.dumps(application.document))
    exported = CliRunner().invoke(main, ["export", str(application.path), "--output", "-", "--format", "csv"])
    assert exported.exit_code == 1
    assert "does not exist" in exported.stderr
    sink = new_topic("clicks")
    with pytest.raises(read.ReadingError, match=f"it does not exist. Did you mean {sink}"):
        read.topic(bootstrap=kafka, topic=sink.replace("clicks", "clikcs"))
