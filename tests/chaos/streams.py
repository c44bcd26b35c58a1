"""The application that suffers: a stream of each kind, and the traffic of each."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tests.chaos.readings import ReadingLogs, ReadingReport, ReadingRules, verify_readings
from tests.chaos.sums import LocalRules
from tests.chaos.verifier import Record
from tests.kafka.topics import end_offset, read, unique
from tests.worker.application import Application, ScatteredTraffic, Traffic
from tests.worker.waiting import last_release, newest_of

Found = TypeVar("Found")

_HOUR = 3_600_000
_MAXIMUM, _HELD, _MAX_BYTES = 1000, 40, 200
_LOCAL = LocalRules("1/2", 8)
_UNREADABLE = (None, b"", b"{oops", b'{"value": "3"}', b'{"value": true}', b"7" * 300)

#: Of a cluster, as in ``timeline.clock_skew``: ten times what one broker on the same machine needs.
_SKEW_OF_REPLICAS = "1s"


class ChaosApplication(Application):
    """Streams of each kind: ordinary; quick, repeating releases; re-keyed, two events of a user counting;
    without a single event; pan-private; of local reports; of values."""

    def __init__(self, bootstrap: str, folder: Path, replication: int = 1) -> None:
        super().__init__(bootstrap, folder, replication=replication)
        self._known: dict[str, list[Record]] | None = None
        name = self.name
        uniform = {"kind": "uniform", "epsilon": 1, "window": 10}
        absorbing = {"kind": "budget-absorption", "epsilon": 1, "window": 50}
        self.scattered, self.hidden = f"{name}.scattered", f"{name}.hidden"
        self.reports, self.values = f"{name}.reports", f"{name}.values"
        self.document["kafka"]["bootstrap"] = f"${{KAFKA_BOOTSTRAP:{bootstrap}}}"
        self.document["streams"] = {
            "places": self.stream(self.source, f"{name}.places", uniform),
            "quick": self.stream(self.source, f"{name}.quick", absorbing, interval=40),
            "silent": self.stream(f"{name}.silent", f"{name}.silent.counts", uniform),
            "scattered": self._rekeyed(uniform),
            "hidden": self._pan_private(),
            "stays": self._local(),
            "levels": self._values(),
        }
        if replication > 1:
            for fields in self.counting.values():
                # Replicas lag, also for lack of processors: what is appended in time has to be read in time.
                fields["timeline"]["clock_skew"] = _SKEW_OF_REPLICAS
        self.write()
        self.create()
        # The verifier wants to see every decision.
        for changelog in ("ledger", "counting", "state"):
            self.alter(f"{name}-{changelog}-changelog", {"min.compaction.lag.ms": str(_HOUR)})

    def _rekeyed(self, mechanism: dict[str, Any]) -> dict[str, Any]:
        made = self.stream(self.scattered, f"{self.scattered}.counts", mechanism)
        made["source"]["repartition"] = True
        made["counts"]["contributions"] = 2
        return made

    def _pan_private(self) -> dict[str, Any]:
        mechanism = {
            "kind": "budget-distribution", "epsilon": 1000, "window": 2, "pan_private": "single",
            "adjacency": "substitute",
        }  # fmt: skip
        made = self.stream(self.hidden, f"{self.hidden}.counts", mechanism, interval=1000)
        made["counts"]["contributions"] = "trusted"
        return made

    def _local(self) -> dict[str, Any]:
        mechanism = {"kind": "topl", "epsilon": _LOCAL.epsilon, "estimate_after": 300, "range": 5000}
        made = self.stream(self.reports, f"{self.reports}.sums", mechanism, interval=500)
        del made["counts"], made["source"]["column"]
        made["source"]["report"] = "/place"
        made["values"] = {"maximum": _LOCAL.maximum}
        return made

    def _values(self) -> dict[str, Any]:
        mechanism = {
            "kind": "tops", "epsilon": 1, "held": _HELD, "chunk": 16, "fanout": 4, "smoothed": 0,
        }  # fmt: skip
        return {
            "source": {"topic": self.values, "value": "/value", "max_bytes": _MAX_BYTES},
            "values": {"maximum": _MAXIMUM, "step": 1},
            "mechanism": mechanism,
            "sink": {"topic": f"{self.values}.readings"},
        }

    @property
    def counting(self) -> dict[str, dict[str, Any]]:
        """The streams with timestamps, as they stand in the file."""
        return {name: fields for name, fields in self.document["streams"].items() if "timeline" in fields}

    def all_traffic(self, seed: int) -> dict[str, Traffic]:
        """The traffic of each topic, by its name; not begun."""
        return {
            self.source: Traffic(self, seed, per_second=200, idle=2),
            self.scattered: ScatteredTraffic(self, seed + 1, per_second=60, topic=self.scattered),
            self.hidden: Traffic(self, seed + 2, per_second=50, topic=self.hidden),
            self.reports: LocalTraffic(self, seed + 3, per_second=60, topic=self.reports),
            self.values: ValueTraffic(self, seed + 4, per_second=60, topic=self.values),
        }

    def nothing_runs(self) -> None:
        """From now on each topic is read once, for nobody writes any more."""
        persist(self._wait_for_decisions)
        self._known = {}

    def _wait_for_decisions(self) -> None:
        if self._known is None:
            super()._wait_for_decisions()

    def _records(self, topic: str) -> list[Record]:
        if self._known is None:
            return super()._records(topic)
        if topic not in self._known:
            read_all = super()._records
            self._known[topic] = persist(lambda: read_all(topic))
        return self._known[topic]

    def verify_values(self) -> ReadingReport:
        """As ``verify``, of the value stream."""
        self._wait_for_decisions()
        rules = ReadingRules("levels", self.partitions, _MAXIMUM, _HELD, _MAX_BYTES)
        logs = ReadingLogs(
            raw=self._records(self.values),
            sink=self._records(f"{self.values}.readings"),
            ledger=self._records(f"{self.name}-ledger"),
            state_changelog=self._records(f"{self.name}-state-changelog"),
        )
        return verify_readings(rules, logs)

    def progress(self) -> dict[str, int]:
        """The last release of each stream with timestamps."""
        return {
            name: persist(partial(last_release, self, fields["sink"]["topic"]))
            for name, fields in self.counting.items()
        }

    def released(self) -> int:
        """The number of releases by now, of all streams with timestamps."""
        sinks = [fields["sink"]["topic"] for fields in self.counting.values()]
        return sum(len(persist(partial(read, self.bootstrap, sink))) for sink in sinks)

    def settle_values(self, seconds: float, meanwhile: Callable[[], None]) -> None:
        """Wait until every value has its reading. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        for partition in range(self.partitions):
            values = end_offset(self.bootstrap, self.values, partition=partition)
            while (last := self._last_reading(partition)) < values - 1:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"values, partition {partition}: at {last}, not at {values - 1}, after {seconds} s"
                    )
                meanwhile()

    def _last_reading(self, partition: int) -> int:
        newest = newest_of(self, f"{self.values}.readings", partition)
        return -1 if newest is None else int(json.loads(newest.value() or b"")["offset"])


def persist(look: Callable[[], Found], seconds: float = 300) -> Found:
    """Look again where the leader was moving, or the cluster not well. Raises what the last look raised."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return look()
        except (KafkaException, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


class LocalTraffic(Traffic):
    """Reports as the last word in the control topic asks for them; some as they were asked for before."""

    _LOOKS_EVERY = 0.5

    def __init__(self, application: Application, seed: int, per_second: float, topic: str) -> None:
        super().__init__(application, seed, per_second, topic=topic)
        settings = {
            "bootstrap.servers": application.bootstrap, "group.id": unique("reports"), "log_level": 0,
            "isolation.level": "read_committed",
        }  # fmt: skip
        self._asked = Consumer(settings)
        self._asked.assign([TopicPartition(f"{application.name}-control", 0, OFFSET_BEGINNING)])
        self._threshold: int | None = None
        self._looked = 0.0

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        # At the end of the process librdkafka may wait forever for one that is open.
        self._asked.close()

    def _place(self, choice: random.Random) -> str:
        self._look()
        if self._threshold is None or choice.random() < 0.05:
            return f"{_LOCAL.waves}{choice.randrange(_LOCAL.maximum + 1)}"
        return f"{_LOCAL.sums(self._threshold)}{choice.randrange(2)}"

    def _look(self) -> None:
        if time.monotonic() < self._looked + self._LOOKS_EVERY:
            return
        self._looked = time.monotonic()
        while (message := self._asked.poll(0)) is not None:
            if message.error() is None:
                self._threshold = json.loads(message.value() or b"").get("threshold")


class ValueTraffic(Traffic):
    """Values, some of them unreadable or beyond the maximum."""

    def _record(self) -> tuple[bytes, bytes | None]:
        choice = self._random
        key = b"sensor %d" % choice.randrange(40)
        if choice.random() < 0.1:
            return key, choice.choice(
                [None, b"", b"{oops", b'{"value": "3"}', b'{"value": true}', b"7" * 300]
            )
        return key, json.dumps({"value": choice.randrange(-50, _MAXIMUM + 100)}).encode()
