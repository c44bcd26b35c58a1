"""What comes out: the releases of both streams and the dead letters, read as any consumer would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from confluent_kafka import Consumer, KafkaException, TopicPartition
from numpy.typing import NDArray

from eventveil.model.topology import MechanismSettings


class Series:
    """The releases and the true counts of one stream.

    ``truth``, ``sanitized`` and ``errors`` have shape (timestamps, columns), ``fresh`` and ``spent`` shape
    (timestamps,); timestamp t is in row t - 1. ``errors`` are the standard deviations that the records state,
    nan where one has none. ``spent`` is the epsilon of the window that ends there.
    """

    def __init__(
        self, columns: Sequence[str], truth: NDArray[np.int64], mechanism: MechanismSettings
    ) -> None:
        self.columns, self.truth, self.mechanism = columns, truth, mechanism
        self.sanitized = np.zeros_like(truth)
        self.errors = np.full(truth.shape, np.nan)
        self.fresh = np.zeros(len(truth), bool)
        self.spent = np.zeros(len(truth))
        #: How many releases are there; they come in order.
        self.released = 0

    @property
    def complete(self) -> bool:
        """Whether every timestamp has its release."""
        return self.released == len(self.truth)

    def add(self, record: Mapping[str, Any]) -> bool:
        """Take in the next release; False for one after the last. Raises RuntimeError if one is missing."""
        row = record["timestamp"] - 1
        if row >= len(self.truth):
            return False
        if row != self.released:
            raise RuntimeError(f"expected timestamp {self.released + 1} and received {row + 1}")
        self.sanitized[row] = [record["counts"][column] for column in self.columns]
        error = record.get("error", np.nan)
        self.errors[row] = [error[column] for column in self.columns] if isinstance(error, dict) else error
        self.fresh[row] = record["fresh"]
        self.spent[row] = record["window_spent"] / record["units"] * float(self.mechanism.epsilon)
        self.released += 1
        return True

    def error(self, column: int | None = None) -> float:
        """Mean absolute error over what is released, of one column or of all."""
        difference = np.abs(self.sanitized - self.truth)[: self.released]
        return float((difference if column is None else difference[:, column]).mean())

    def share(self, column: int | None = None) -> float:
        """The mean absolute error over the mean true count."""
        true = self.truth[: self.released]
        return self.error(column) / float((true if column is None else true[:, column]).mean())


class Outlet:
    """Reads sinks and dead letters and keeps the releases, byte for byte, in ``file``."""

    def __init__(self, bootstrap: str, sinks: Mapping[str, Series], dead_letter: str, file: Path) -> None:
        self._sinks = sinks
        self._file = file.open("wb")
        self.dead_letters: dict[str, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                # Never committed: librdkafka wants a name.
                "group.id": dead_letter,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in (*sinks, dead_letter)])

    def read(self, seconds: float) -> None:
        """Take in what comes within ``seconds``. Raises KafkaException."""
        for message in self._consumer.consume(1000, seconds):
            if error := message.error():
                raise KafkaException(error)
            value, topic = message.value() or b"", message.topic() or ""
            if series := self._sinks.get(topic):
                if series.add(orjson.loads(value)):
                    self._file.write(value + b"\n")
            else:
                header = dict(message.headers() or [])["eventveil.reason"]
                reason = header.decode() if isinstance(header, bytes) else str(header)
                self.dead_letters[reason] = self.dead_letters.get(reason, 0) + 1

    def close(self) -> None:
        """Let go of the topics and of the file."""
        self._consumer.close()
        self._file.close()
