"""An application under test: its topology file, its topics, its events, and what must come of them.

What must come of them is for ``tests.chaos.verifier`` to say, which shares no code with the program.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition

from eventveil.cli.main import main
from eventveil.kafka.admin import Admin
from eventveil.kafka.log import offset_of
from eventveil.lifecycle.topics import plan_topics
from eventveil.topology.loading import load
from tests.chaos.sums import LocalRules
from tests.chaos.verifier import (
    Event,
    Logs,
    Record,
    Report,
    Rules,
    java_partition,
    judge,
    true_counts,
    verify,
)
from tests.kafka.topics import Isolation, alter_topic, create_topic, end_offset, read, unique

ORIGIN = 1_767_225_600_000  # 2026-01-01T00:00:00Z
COLUMNS = ["north", "east", "south", "west"]
MAX_BYTES = 2_000


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
        replication: int = 1,
    ) -> None:
        self.bootstrap, self.partitions = bootstrap, partitions
        self.interval, self.lateness, self.max_ahead = interval, lateness, max_ahead
        self.name = unique("app")
        self.source, self.sink, self.dead = f"{self.name}.raw", f"{self.name}.counts", f"{self.name}.dead"
        self.path = folder / f"{self.name}.yaml"
        self._admin = Admin({"bootstrap.servers": bootstrap, "log_level": 0})
        self.document: dict[str, Any] = {
            "version": 1,
            "name": self.name,
            "kafka": {"bootstrap": bootstrap},
            "topics": {
                "replication": replication,
                "min_insync": 1 if replication == 1 else replication - 1,
                "partitions": partitions,
                "partials": 2,
            },
            "streams": streams
            or {
                "places": self.stream(
                    self.source, self.sink, mechanism or {"kind": "uniform", "epsilon": 1, "window": 10}
                )
            },
        }
        self.write()

    def stream(
        self, source: str, sink: str, mechanism: dict[str, Any], interval: int | None = None
    ) -> dict[str, Any]:
        """A stream as it stands in a topology file."""
        return {
            "source": {
                "topic": source,
                "user": "/user",
                "column": "/place",
                "time": "/time",
                "max_bytes": MAX_BYTES,
            },
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
            "dead_letter": self.dead,
        }

    def write(self) -> None:
        """Write the topology file (JSON is YAML)."""
        self.path.write_text(json.dumps(self.document, indent=1))

    def command(self, *arguments: str, status: int = 0) -> str:
        """Run an eventveil command in this process, which ends with that status; its output."""
        result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result.output

    def failing_command(self, *arguments: str) -> str:
        """Run an eventveil command that must fail; its output."""
        return self.command(*arguments, status=1)

    def alter(self, topic: str, settings: dict[str, str]) -> None:
        """Change settings of a topic."""
        alter_topic(self.bootstrap, topic, settings)

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
        self.delete(topic)
        self.create_again(topic)

    def create_again(self, topic: str) -> None:
        """Create a topic as ``topics --create`` would."""
        plans = plan_topics(load(str(self.path), {}), {self.source: self.partitions})
        plan = next(plan for plan in plans if plan.name == topic)
        create_topic(self.bootstrap, topic, plan.partitions, plan.settings)

    def create(self) -> None:
        """Create all topics and the genesis records."""
        arguments = ("topics", str(self.path), "--create", "--sources")
        deadline = time.monotonic() + 120
        while True:
            result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
            if result.exit_code == 0:
                return
            # The controller takes a broker for dead that a busy machine lets say so too late.
            assert "0 brokers can be reached" in result.output, result.output
            assert time.monotonic() < deadline, result.output
            time.sleep(0.5)

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

    def rules(self, stream: str = "places") -> Rules:
        """What the topology says of a stream."""
        fields = self.document["streams"][stream]
        source, mechanism = fields["source"], fields["mechanism"]
        return Rules(
            stream=stream,
            source=source["topic"],
            partitions=1 if "pan_private" in mechanism else self.partitions,
            columns=COLUMNS,
            origin=ORIGIN,
            interval=int(fields["timeline"]["interval"].removesuffix("ms")),
            lateness=self.lateness,
            max_ahead=self.max_ahead,
            max_bytes=source["max_bytes"],
            window=mechanism.get("window", 1),
            contributions=_contributions(fields),
            per_column=fields.get("counts", {}).get("per_column", sys.maxsize),
            rekeyed=source.get("repartition", False),
            pan_private="pan_private" in mechanism,
            local=_local(mechanism, fields),
        )

    def audit(self) -> str:
        """What ``eventveil ledger`` says; nothing may run meanwhile."""
        self._wait_for_decisions()
        return self.command("ledger", str(self.path))

    def verify(self, stream: str = "places") -> Report:
        """Hold everything that the topics have of a stream against the rules; nothing may run meanwhile."""
        self._wait_for_decisions()
        fields = self.document["streams"][stream]
        logs = Logs(
            raw=self._records(fields["source"]["topic"]),
            sink=self._records(fields["sink"]["topic"]),
            dead=self._records(self.dead),
            ledger=self._records(f"{self.name}-ledger"),
            ledger_changelog=self._records(f"{self.name}-ledger-changelog"),
            counting_changelog=self._records(f"{self.name}-counting-changelog"),
        )
        changelogs = (*logs.ledger_changelog, *logs.counting_changelog)
        manifest = next(one for one in changelogs if one.key == f"genesis/{stream}".encode())
        first = json.loads(manifest.value or b"")["first"]
        return verify(replace(self.rules(stream), first=first), logs)

    def _wait_for_decisions(self) -> None:
        """Until no transaction of a killed worker is open, which would hide committed records behind it."""
        deadline = time.monotonic() + 180
        for name, topic in self._admin.list_topics(timeout=30).topics.items():
            if name.startswith(self.name):
                for partition in topic.partitions:
                    while end_offset(self.bootstrap, name, "read_committed", partition) < end_offset(
                        self.bootstrap, name, partition=partition
                    ):
                        assert time.monotonic() < deadline, f"a transaction in {name} stays open"
                        time.sleep(0.2)

    def _records(self, topic: str) -> list[Record]:
        partitions = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
        return [
            record for partition in sorted(partitions) for record in records(self.bootstrap, topic, partition)
        ]

    def truth(
        self,
        interval: int | None = None,
        first: int = 1,
        contributions: int = 1,
        per_column: int = sys.maxsize,
        without: Mapping[int, Collection[int]] | None = None,
    ) -> dict[int, Counter[str]]:
        """The counts per timestamp that the rules give, for a stream over the source with this interval.

        ``without`` are partitions, by timestamp, that do not count.
        """
        stream = next(iter(self.document["streams"]))
        rules = replace(self.rules(stream), interval=interval or self.interval, first=first)
        judged = ((record.partition, judge(record, rules)) for record in self.raw())
        events = (
            event
            for partition, event in judged
            if isinstance(event, Event) and partition not in (without or {}).get(event.timestamp, ())
        )
        return true_counts(events, contributions, per_column)

    def raw(self) -> list[Record]:
        """Every committed record of the source."""
        return [record for record in self._records(self.source) if record.committed]


def _contributions(fields: Mapping[str, Any]) -> int:
    found = fields.get("counts", {}).get("contributions", 1)
    return sys.maxsize if found == "trusted" else int(found)


def _local(mechanism: Mapping[str, Any], fields: Mapping[str, Any]) -> LocalRules | None:
    if mechanism["kind"] != "topl":
        return None
    return LocalRules(str(mechanism["epsilon"]), fields["values"]["maximum"])


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


def time_in_the_value(record: Record) -> dict[str, Any] | None:
    """The event in a record, None if there is none."""
    return valid_event(record.value)


def time_of_the_record(record: Record) -> dict[str, Any] | None:
    """The same by the time that the record carries, whatever time is in the value."""
    found = json.loads(record.value) if record.value and record.value.endswith(b"}") else {}
    event = valid_event(json.dumps({**found, "time": record.time}).encode() if "time" in found else None)
    return None if record.time == -1 else event


def records(bootstrap: str, topic: str, partition: int) -> list[Record]:
    """Every record of a partition for the verifier, those of aborted transactions included and marked."""
    committed = {message.offset() for message in read(bootstrap, topic, partition=partition)}
    return [
        Record(
            partition=partition,
            offset=offset_of(message),
            time=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            headers=dict(cast(list[tuple[str, bytes]], message.headers() or [])),
            committed=message.offset() in committed,
        )
        for message in read(bootstrap, topic, "read_uncommitted", partition)
    ]


class Traffic:
    """Events of 40 users until the ``with`` block is left: on time, late, repeated, malformed, too large.

    ``produced`` counts the records, which go to ``topic``, by default the application's source. Nothing goes
    to the partition ``idle``.
    """

    def __init__(
        self,
        application: Application,
        seed: int,
        per_second: float = 400,
        idle: int | None = None,
        topic: str | None = None,
    ) -> None:
        partitions = application.partitions
        users = [f"user {number}" for number in range(40)]
        self._users = [user for user in users if java_partition(user, partitions) != idle]
        self._last: tuple[bytes, bytes | None] | None = None
        self._application, self._pause = application, 1 / per_second
        self._topic = topic or application.source
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.produced = 0

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """No more events after this."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._application.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        while not self._stop.is_set():
            key, value = self._record()
            producer.produce(
                self._topic, value=value, key=key, partition=self._partition(), timestamp=self._timestamp()
            )
            self.produced += 1
            producer.poll(0)
            time.sleep(self._pause)
        assert producer.flush(30) == 0

    def _partition(self) -> int:
        """Where the next record goes; -1: where the client's partitioner puts its key."""
        return -1

    def _timestamp(self) -> int:
        """What the producer says of the time of its next record; 0: the client puts in its clock's."""
        return 0

    def _record(self) -> tuple[bytes, bytes | None]:
        choice = self._random
        if self._last is not None and choice.random() < 0.03:
            return self._last
        user = choice.choice(self._users)
        event: dict[str, Any] = {
            "user": user,
            "place": self._place(choice),
            "time": int(time.time() * 1000) - choice.choice([0, 0, 0, 0, 50, 200, 400, 2000, -300, -3000]),
        }
        key = user.encode()
        self._last = key, self._spoilt(event)
        if choice.random() < 0.02:
            # The key of somebody else, who may belong to another partition.
            self._last = choice.choice(self._users).encode(), self._last[1]
        return self._last

    def _place(self, choice: random.Random) -> str:
        return choice.choice(COLUMNS)

    def _spoilt(self, event: dict[str, Any]) -> bytes | None:
        """The event as bytes, one in ten of them not as it should be."""
        kind = self._random.random()
        if kind < 0.02:
            return None
        if kind < 0.04:
            return b'{"user": "user'
        if kind < 0.06:
            event["place"] = "nowhere"
        elif kind < 0.08:
            event["time"] = "yesterday"
        elif kind < 0.09:
            del event["user"]
        elif kind < 0.10:
            event["padding"] = "x" * MAX_BYTES
        return json.dumps(event).encode()


class ScatteredTraffic(Traffic):
    """Events whose keys say nothing about their users, so that each user's are in all partitions."""

    def _record(self) -> tuple[bytes, bytes | None]:
        _, value = super()._record()
        return b"session %d" % self._random.randrange(1000), value


class SprayedTraffic(Traffic):
    """Events keyed by their users, which producers write to any partition, whatever the key."""

    def _partition(self) -> int:
        return self._random.randrange(self._application.partitions)


class TimedTraffic(Traffic):
    """Records carry times that are not those in the values: on time, late, too far ahead, none."""

    def _timestamp(self) -> int:
        if self._random.random() < 0.02:
            return -1
        return int(time.time() * 1000) - self._random.choice([0, 0, 0, 0, 50, 200, 400, 2000, -300, -3000])


class TimedScatteredTraffic(TimedTraffic, ScatteredTraffic):
    """Both."""
