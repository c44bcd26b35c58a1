"""The flights as events on the raw topic, each when its moment has come."""

from __future__ import annotations

import orjson
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.demo.flights import Flight
from benchmarks.demo.topology import Timetable
from eventveil.model.timeline import format_rfc3339


class Feed:
    """Produces events keyed by the aircraft, to the partition that the Java client chooses (murmur2)."""

    def __init__(self, bootstrap: str, topic: str, timetable: Timetable, flights: list[Flight]) -> None:
        self._topic, self._timetable, self._flights = topic, timetable, flights
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "partitioner": "murmur2",
                "linger.ms": 5,
                "acks": "all",
                # Errors come as exceptions; nothing is to be written over the picture.
                "log_level": 0,
            }
        )
        self._errors: list[KafkaError] = []
        self.produced = 0

    @property
    def done(self) -> bool:
        """Whether every flight has been produced."""
        return self.produced == len(self._flights)

    def catch_up(self, now: int) -> None:
        """Produce every event whose moment is not after ``now`` (epoch ms). Raises RuntimeError."""
        while not self.done:
            flight = self._flights[self.produced]
            instant = self._timetable.instant(flight)
            if instant > now:
                break
            event = {
                "tailnum": flight.tail_number,
                "origin": flight.origin,
                "dest": flight.destination,
                "time": format_rfc3339(instant),
            }
            self._producer.produce(
                self._topic, orjson.dumps(event), flight.tail_number.encode(), on_delivery=self._delivered
            )
            self.produced += 1
        self._producer.poll(0)
        self._check()

    def finish(self, seconds: float = 10.0) -> None:
        """Wait until the broker has every event. Raises RuntimeError if it does not take them."""
        left = self._producer.flush(seconds)
        self._check()
        if left:
            raise RuntimeError(f"{left} events did not reach the broker")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _check(self) -> None:
        if self._errors:
            raise RuntimeError(f"{len(self._errors)} events did not reach the broker: {self._errors[0]}")
