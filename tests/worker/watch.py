"""Watching a worker over HTTP, as Prometheus and an orchestrator do."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.worker.process import WorkerProcess


class Watch:
    """The endpoint of a worker that was started with ``--metrics 127.0.0.1:0``.

    While the ``with`` block lasts, another thread asks for everything all the time; ``statuses`` counts the
    answers by path and status.
    """

    def __init__(self, worker: WorkerProcess) -> None:
        log = worker.wait_for_log("metrics and health on ")
        self.url = re.findall(r"metrics and health on (http://127\.0\.0\.1:\d+)", log)[-1]
        self.statuses: Counter[tuple[str, int]] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for path in ("/metrics", "/health/live", "/health/ready"):
                self.get(path)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=60) as answer:
                status, body = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read().decode()
        self.statuses[path, status] += 1
        return status, body

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Values by name and label values, the latter in the order of the labels' names."""
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.get("/metrics")[1])
            for sample in family.samples
        }

    def until(
        self, condition: Callable[[Mapping[tuple[str, ...], float]], bool], seconds: float = 180
    ) -> dict[tuple[str, ...], float]:
        """The first metrics that meet a condition: they are up to half a second old."""
        deadline = time.monotonic() + seconds
        while not condition(found := self.metrics()):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found

    def obstacles(self) -> list[str]:
        """Why the worker is not ready; empty if it is."""
        status, body = self.get("/health/ready")
        answer = json.loads(body)
        assert answer["ready"] == (status == 200) == (not answer["reasons"])
        reasons: list[str] = answer["reasons"]
        return reasons

    def wait_until_ready(self, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while reasons := self.obstacles():
            assert time.monotonic() < deadline, reasons
            time.sleep(0.05)
