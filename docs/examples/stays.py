"""A producer of local reports: ``.venv/bin/python docs/examples/stays.py EPSILON < stays.txt``.

The reports are for ``topologies/museum.yaml``. Each line of its input is a device and its minutes in the
museum. What it sends says nothing more of the minutes than EPSILON allows; a device that is in the input k
times pays k epsilon. ``KAFKA_BOOTSTRAP`` says where the brokers are, by default localhost:9092; further
arguments name the control topic, the stream and the topic of the reports.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from fractions import Fraction

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from eventveil.local import Control


class Asked:
    """What a stream asks its producers for: the last record of its name in the control topic."""

    def __init__(self, bootstrap: str, topic: str, stream: str, epsilon: Fraction) -> None:
        """``epsilon`` is the most that a report may cost, whatever is asked for."""
        self._stream, self._epsilon = stream, epsilon
        self._control: Control | None = None
        self._waiting = f"waiting for a worker that says in {topic} what {stream} asks for"
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "stays", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def now(self) -> Control:
        """The newest record; waits for the first one. ValueError if it asks for another epsilon."""
        while (message := self._consumer.poll(0 if self._control else 1)) or self._control is None:
            if message is None and self._waiting:
                print(self._waiting, file=sys.stderr)
                self._waiting = ""
            if message is not None and message.error():
                raise RuntimeError(str(message.error()))
            if message is not None and message.key() == self._stream.encode():
                self._control = Control.read(message.value() or b"", self._epsilon)
        return self._control


def main(
    epsilon: str, control: str = "museum-control", stream: str = "stays", topic: str = "museum.reports"
) -> None:
    """Send a report for each line of standard input."""
    bootstrap = os.environ.get("KAFKA_BOOTSTRAP", "localhost:9092")
    asked = Asked(bootstrap, control, stream, Fraction(epsilon))
    # The key decides the partition as the topology says; a retry sends the same report, which counts once.
    producer = Producer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "enable.idempotence": True}
    )
    for line in sys.stdin:
        device, minutes = line.split()
        event = {
            "device": device,
            "report": asked.now().report(int(minutes)),
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        producer.produce(topic, key=device.encode(), value=json.dumps(event).encode())
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("not everything was sent; what was made must be sent as it is, or not at all")


if __name__ == "__main__":
    main(*sys.argv[1:])
