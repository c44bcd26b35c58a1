"""A broker starts without the archive of classes where none could be made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.kafka import archive
from tests.kafka.jars import BrokerError


@pytest.mark.parametrize(
    "error",
    [
        BrokerError("it did not serve"),
        KafkaException(KafkaError(KafkaError._TIMED_OUT)),
        TimeoutError("no leaders"),
        OSError("the disk is full"),
        AssertionError("1 record did not reach the topic"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_training_that_fails_leaves_no_file_and_is_logged(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def train(_: Path, java: Sequence[str]) -> None:
        Path(java[-1].partition("=")[2]).write_bytes(b"begun")
        raise error

    monkeypatch.setattr(archive, "jars", lambda: tmp_path / "jars")
    with caplog.at_level(logging.WARNING):
        assert archive.options(train) == []
    assert "brokers start without an archive of classes" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["archive.lock"]
