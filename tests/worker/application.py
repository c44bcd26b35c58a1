"""An application under test: its topology file, its topics, its events, and what must come of them.

``truth`` applies the rules of the guarantee to the raw log, record by record, and shares no code with the
program.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from operators.cli.main import main
from operators.provisioning import plan_topics
from operators.topology import load
from tests.kafka.topics import Isolation, create_topic, read, unique

ORIGIN = 1_767_225_600_000  # 2026-01-01T00:00:00Z
COLUMNS = ["north", "east", "south", "west"]


class Application:
    """One stream over one source, unless ``streams`` says otherwise (as in a topology file)."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        interval: int = 250,
        lateness: int = 150,
        max_ahead: int = 1000,
        partitions: int = 3,
        mechanism: dict[str, Any] | None = None,
        streams: dict[str, Any] | None = None,
    ) -> None:
        self.bootstrap, self.partitions = bootstrap, partitions
        self.interval, self.lateness, self.max_ahead = interval, lateness, max_ahead
        self.name = unique("app")
        self.source, self.sink, self.dead = f"{self.name}.raw", f"{self.name}.counts", f"{self.name}.dead"
        self.path = folder / f"{self.name}.yaml"
        self.document: dict[str, Any] = {
            "version": 1,
            "name": self.name,
            "kafka": {"bootstrap": bootstrap},
            "topics": {"replication": 1, "min_insync": 1, "partitions": partitions, "partials": 2},
            "streams": streams
            or {
                "places": self.stream(
                    self.source, self.sink, mechanism or {"kind": "uniform", "epsilon": 1, "window": 10}
                )
            },
        }
        self.write()
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def stream(
        self, source: str, sink: str, mechanism: dict[str, Any], interval: int | None = None
    ) -> dict[str, Any]:
        """A stream as it stands in a topology file."""
        return {
            "source": {"topic": source, "user": "/user", "column": "/place", "time": "/time"},
            "timeline": {
                "interval": f"{interval or self.interval}ms",
                "origin": "2026-01-01T00:00:00Z",
                "lateness": f"{self.lateness}ms",
                "max_ahead": f"{self.max_ahead}ms",
                "clock_skew": "100ms",
            },
            "counts": {"columns": COLUMNS},
            "mechanism": mechanism,
            "sink": {"topic": sink},
        }

    def write(self) -> None:
        """Write the topology file (JSON is YAML)."""
        self.path.write_text(json.dumps(self.document, indent=1))

    def command(self, *arguments: str) -> str:
        """Run an eventveil command in this process; its output, if it succeeds."""
        result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def failing_command(self, *arguments: str) -> str:
        """Run an eventveil command that must fail; its output."""
        result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        assert result.exit_code == 1, result.output
        return result.output

    def alter(self, topic: str, settings: dict[str, str]) -> None:
        """Change settings of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(30)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self._admin.delete_topics([topic])[topic].result(30)
        while topic in self._admin.list_topics(timeout=30).topics:
            time.sleep(0.1)

    def delete_records(self, topic: str, before: int) -> None:
        """Remove the records of partition 0 below an offset, as retention does."""
        partition = TopicPartition(topic, 0, before)
        self._admin.delete_records([partition])[partition].result(30)

    def recreate(self, topic: str) -> None:
        """Delete a topic and create it as ``topics --create`` would, empty."""
        plans = plan_topics(load(str(self.path), {}), {self.source: self.partitions})
        plan = next(plan for plan in plans if plan.name == topic)
        self.delete(topic)
        create_topic(self.bootstrap, topic, plan.partitions, plan.settings)

    def create(self) -> None:
        """Create all topics and the genesis records."""
        self.command("topics", str(self.path), "--create", "--sources")

    def releases(
        self, isolation: Isolation = "read_committed", sink: str | None = None
    ) -> dict[int, list[bytes]]:
        """All values per timestamp in the sink."""
        found: defaultdict[int, list[bytes]] = defaultdict(list)
        for message in read(self.bootstrap, sink or self.sink, isolation):
            value = message.value()
            assert value is not None
            found[json.loads(value)["timestamp"]].append(value)
        return dict(found)

    def raw(self) -> list[Message]:
        """Every committed record of the source."""
        return [
            message
            for partition in range(self.partitions)
            for message in read(self.bootstrap, self.source, partition=partition)
        ]

    def truth(self, interval: int | None = None, first: int = 1) -> dict[int, Counter[str]]:
        """The counts per timestamp that the rules give, the first valid event of a user counting."""
        interval = interval or self.interval
        counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        seen = set()
        for message in self.raw():
            event = valid_event(message.value())
            if event is None or message.partition() != self.partition_of(event["user"]):
                continue
            append = message.timestamp()[1]
            timestamp = (event["time"] - ORIGIN) // interval + 1
            deadline = ORIGIN + timestamp * interval + self.lateness
            if timestamp < first or event["time"] > append + self.max_ahead or append >= deadline:
                continue
            if (timestamp, event["user"]) not in seen:
                seen.add((timestamp, event["user"]))
                counts[timestamp][event["place"]] += 1
        return dict(counts)

    def partition_of(self, user: str) -> int:
        """Where a producer with murmur2 puts a user; found out by asking one, see ``Traffic``."""
        return java_partition(user, self.partitions)


def valid_event(value: bytes | None) -> dict[str, Any] | None:
    """The event in a record of ``Traffic``, None if it is one of the malformed ones."""
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(event, dict) or set(event) != {"user", "place", "time"}:
        return None
    if not isinstance(event["user"], str) or not event["user"] or event["place"] not in COLUMNS:
        return None
    return event if isinstance(event["time"], int) else None


def java_partition(user: str, partitions: int) -> int:
    """murmur2 as aiokafka implements it."""
    from aiokafka.partitioner import murmur2

    return int((murmur2(user.encode()) & 0x7FFFFFFF) % partitions)


class Traffic:
    """Events of 40 users until the ``with`` block is left: on time, late, early, repeated, malformed.

    ``produced`` counts the records.
    """

    def __init__(self, application: Application, seed: int, per_second: float = 400) -> None:
        self._application, self._pause = application, 1 / per_second
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.produced = 0

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._application.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "enable.idempotence": True,
            }
        )
        while not self._stop.is_set():
            key, value = self._record()
            producer.produce(self._application.source, value=value, key=key)
            self.produced += 1
            producer.poll(0)
            time.sleep(self._pause)
        assert producer.flush(30) == 0

    def _record(self) -> tuple[bytes, bytes | None]:
        choice = self._random
        user = f"user {choice.randrange(40)}"
        event: dict[str, Any] = {
            "user": user,
            "place": choice.choice(COLUMNS),
            "time": int(time.time() * 1000) - choice.choice([0, 0, 0, 0, 50, 200, 400, 2000, -300, -3000]),
        }
        key = user.encode()
        kind = choice.random()
        if kind < 0.02:
            return key, None
        if kind < 0.04:
            return key, b'{"user": "user'
        if kind < 0.06:
            event["place"] = "nowhere"
        elif kind < 0.08:
            event["time"] = "yesterday"
        elif kind < 0.10:
            key = b"another key"
        elif kind < 0.11:
            del event["user"]
        return key, json.dumps(event).encode()
