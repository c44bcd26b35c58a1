"""One recorded topic through the worker and through ``replay``: the same bytes for every timestamp."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from eventveil.model.timeline import start_of
from eventveil.replay.inputs import TopicInput
from eventveil.replay.run import replay
from eventveil.topology.loading import load
from tests.contract.noises import W_EVENT_KINDS
from tests.kafka.topics import read
from tests.worker.application import COLUMNS, Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence
from tests.worker.waiting import wait_for_releases

#: One horizon passes during the test and one renews; grouping and windows keep true sums over a crash.
HORIZONS: dict[str, dict[str, object]] = {
    "shp-point": {"horizon": 30, "span": 4},
    "shp-window": {"horizon": 30, "span": 4, "on_horizon": "renew"},
    "shp-adaptive": {"horizon": 2000, "span": 8, "samples": 0.5},
}
GROUPS = {"window": 5, "groups": 2, "regroup": 3, "shift": True}
OTHER_LEVELS: dict[str, dict[str, object]] = {
    "time-unit": {"span": 6},
    "retroactive-grouping": {"span": 6, "factor": 100},
    "totals": {"blocks": [3, 6]},
    **HORIZONS,
}
#: (epsilon, delta): Gaussian noise, and columns that nobody has listed.
GAUSSIAN: dict[str, dict[str, object]] = {
    f"{kind}.gaussian": {"noise": "gaussian", "delta": 1e-6, "window": 5}
    for kind in ("uniform", "sample", "seasonal")
} | {
    "time-unit.gaussian": {"noise": "gaussian", "delta": 1e-6, "span": 6},
    "totals.gaussian": {"noise": "gaussian", "delta": 1e-6, "blocks": [3, 6]},
}
#: With so large an epsilon that a column is found of few users, also where the traffic is slow.
FOUND: dict[str, dict[str, object]] = {
    f"{kind}.found": {"window": 5, "epsilon": 50} for kind in ("uniform", "seasonal")
}
PLUGIN = {"stride": {"kind": "docs.examples.stride:Stride", "window": 5, "stride": 2}}


def test_replaying_the_topic_that_a_worker_read_gives_the_workers_records(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path)
    kinds = {kind: {"window": 5} for kind in W_EVENT_KINDS} | OTHER_LEVELS | PLUGIN
    kinds |= {f"{kind}.groups": GROUPS for kind in ("budget-distribution", "budget-absorption")}
    kinds |= GAUSSIAN | FOUND
    application.document["streams"] = {
        name: application.stream(
            application.source,
            f"{application.name}.{name}",
            {"kind": name.partition(".")[0], "epsilon": 4, **settings},
        )
        for name, settings in kinds.items()
    }
    for kind in HORIZONS:
        application.document["streams"][kind]["counts"] = {"columns": ["north"], "unknown": "ignore"}
    for name in ("uniform.gaussian", "totals.gaussian"):
        application.document["streams"][name]["counts"] |= {"contributions": 2, "per_column": 1}
    for name in FOUND:
        finding = {"discover": {"delta": 1e-4, "share": 0.5}}
        application.document["streams"][name]["counts"] = {"columns": finding}
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "3") as worker:
        with Traffic(application, seed=7):
            wait_for_releases(application, 20, sink=f"{application.name}.uniform")
            worker.kill()
            worker.start()
            wait_for_releases(application, 60, sink=f"{application.name}.uniform")
        for kind in kinds:
            wait_for_releases(application, 70, sink=f"{application.name}.{kind}")
    letters = {
        dict(message.headers() or [])["eventveil.reason"]
        for message in read(application.bootstrap, application.dead)
    }
    assert letters >= {b"late", b"too-far-ahead", b"wrong-partition", b"not-json"}
    topology = load(str(application.path), os.environ)
    for stream in topology.streams:
        live = application.releases(sink=stream.sink.topic)
        first, last = min(live), max(live)
        replayed = replay(
            topology,
            TopicInput(topology.kafka, application.source),
            start=start_of(stream.timeline, first),
            end=start_of(stream.timeline, last + 1),
            only=[stream.name],
            noise=lambda _: Silence(),
        )
        records = {one.timestamp: [one.record] for one in replayed}
        assert records == live, stream.name
        assert sum(bool(one[0].count(b'"fresh":true')) for one in live.values()) > 5
        assert any(b'"exhausted":true' in one[0] for one in live.values()) == (stream.name == "shp-point")
        if stream.name in FOUND:
            columns = [{*json.loads(one[0])["counts"]} for _, one in sorted(live.items())]
            # How many pass, and when, depends on how fast the traffic was on this machine.
            assert columns[0] == {"other"}
            assert {*COLUMNS} & set().union(*columns)
    application.command("ledger", str(application.path))


def test_a_live_worker_is_not_disturbed_by_a_replay(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path)
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "3"):
        with Traffic(application, seed=8):
            wait_for_releases(application, 10)
            topology = load(str(application.path), os.environ)
            stream = topology.streams[0]
            first = min(application.releases())
            source = TopicInput(topology.kafka, application.source)
            assert list(
                replay(
                    topology,
                    source,
                    start=start_of(stream.timeline, first),
                    end=int(time.time() * 1000) // 250 * 250,
                )
            )
        before = max(application.releases())
        wait_for_releases(application, before - first + 10)
    released = application.releases()
    assert sorted(released) == list(range(first, max(released) + 1))
