"""Pan-private streams on a real broker: killed at every step, looked at when announced, read twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eventveil import __version__
from eventveil.cli.main import main
from eventveil.model.timeline import start_of
from eventveil.replay.inputs import TopicInput
from eventveil.replay.run import replay
from eventveil.topology.loading import load
from tests.kafka.topics import produce, read
from tests.worker.application import Application, Traffic
from tests.worker.process import ROOT, WorkerProcess
from tests.worker.silent import Silence
from tests.worker.taking_over import refusals
from tests.worker.waiting import settle, wait_for_releases

#: Every event counts: the producer is trusted.
EVERY = 10**9
#: Where a worker kills itself the third time it gets there, and whether its timestamp is given up for that.
DEATHS = {
    "expose:before-commit": False,
    "expose:committed": True,
    "decide:before-commit": True,
    "decide:committed": False,
    "publish:before-commit": False,
}


class PanPrivate(Application):
    """An application with one pan-private stream, whose noise is smaller than a count."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        looks: str,
        kind: str = "budget-distribution",
        # Half of the events are of the next timestamp, or late ones of the one before.
        interval: int = 400,
    ) -> None:
        super().__init__(bootstrap, folder, interval=interval, lateness=300, partitions=1)
        stream = self.document["streams"]["places"]
        stream["counts"]["contributions"] = "trusted"
        stream["mechanism"] = {
            "kind": kind, "epsilon": 1000, "window": 1, "pan_private": looks, "adjacency": "substitute",
        }  # fmt: skip
        self.write()
        self.create()

    def entries(self) -> dict[int, dict[str, Any]]:
        """The ledger by timestamp; each has one entry."""
        found = [json.loads(one.value() or b"") for one in self.read_ledger()]
        assert len({one["timestamp"] for one in found}) == len(found)
        return {one["timestamp"]: one for one in found}

    def read_ledger(self) -> list[Any]:
        ledger = f"{self.name}-ledger"
        return [one for place in (0, 1) for one in read(self.bootstrap, ledger, partition=place)]

    def check(self) -> set[int]:
        """Hold releases and dead letters against what was sent; the timestamps that were given up."""
        self._wait_for_decisions()
        draws = self.releases("read_uncommitted").values()
        assert all(len(set(records)) == 1 for records in draws)
        released = {timestamp: json.loads(one) for timestamp, (one,) in self.releases().items()}
        first, last = min(released), max(released)
        assert sorted(released) == list(range(first, last + 1))
        truth = self.truth(first=first, contributions=EVERY)
        before: dict[str, int] = {}
        for timestamp, release in sorted(released.items()):
            counts = Counter({name: count for name, count in release["counts"].items() if count})
            if "forfeited" in release:
                assert counts == before
                assert not release["fresh"]
                assert release["spent"]["publish"] > 0
            else:
                assert counts == truth.get(timestamp, Counter()), timestamp
            before = counts
        letters = [dict(one.headers() or [])["eventveil.offset"] for one in read(self.bootstrap, self.dead)]
        assert len(set(letters)) == len(letters) > 0
        assert "violation" not in self.command("ledger", str(self.path))
        return {timestamp for timestamp, release in released.items() if "forfeited" in release}


def test_killed_at_every_step_it_draws_once_and_gives_up_what_somebody_may_have_seen(
    kafka: str, tmp_path: Path
) -> None:
    application, log = PanPrivate(kafka, tmp_path, "single"), tmp_path / "worker.log"
    with Traffic(application, 7):
        for death in DEATHS:
            with WorkerProcess("tests.worker.quick", application.path, log, "5", f"{death}:3") as worker:
                assert worker.wait() == -9, log.read_text()
        with WorkerProcess("tests.worker.quick", application.path, log, "5") as worker:
            wait_for_releases(application, 60)
    with WorkerProcess("tests.worker.quick", application.path, log, "5") as worker:
        settle(application)
        assert worker.running, log.read_text()
    assert sum(DEATHS.values()) <= len(application.check()) <= sum(DEATHS.values()) + 1


@pytest.mark.parametrize("kind", ["budget-distribution", "budget-absorption"])
def test_a_replay_gives_the_bytes_of_the_worker(kafka: str, tmp_path: Path, kind: str) -> None:
    application, log = PanPrivate(kafka, tmp_path, "single", kind), tmp_path / "worker.log"
    with WorkerProcess("tests.worker.silent", application.path, log, "30"):
        with Traffic(application, 8):
            wait_for_releases(application, 20)
        settle(application)
    assert application.check() == set()
    topology = load(str(application.path), {})
    (stream,) = topology.streams
    live = application.releases()
    replayed = replay(
        topology,
        TopicInput(topology.kafka, application.source),
        start=start_of(stream.timeline, min(live)),
        end=start_of(stream.timeline, max(live) + 1),
        noise=lambda _: Silence(),
    )
    assert {one.timestamp: [one.record] for one in replayed} == live


def announced_in_time(application: Application) -> str:
    """What the command says once a timestamp was long enough for it: at a start a worker is behind."""
    deadline = time.monotonic() + 120
    while True:
        said = CliRunner().invoke(main, ["announce", str(application.path), "--stream", "announced"])
        if said.exit_code == 0:
            return said.output
        assert "its time is over" in said.output, said.output
        assert time.monotonic() < deadline


def at_once(arguments: tuple[str, ...], times: int) -> list[str]:
    """What a command says that is run this many times at once, if each succeeds."""
    command = [str(Path(sys.executable).with_name("eventveil")), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(times)
    ]
    said = [one.communicate(timeout=120)[0] for one in running]
    assert [one.returncode for one in running] == [0] * times, said
    return said


def test_each_announced_look_has_a_timestamp_of_its_own_which_is_published_without_a_test(
    kafka: str, tmp_path: Path
) -> None:
    application, log = PanPrivate(kafka, tmp_path, "announced", interval=8000), tmp_path / "worker.log"
    arguments = ("announce", str(application.path), "--stream", "places")
    for _ in range(2):
        application.failing_command(*arguments, "--timeout", "0.1")
    with Traffic(application, 9), WorkerProcess("tests.worker.quick", application.path, log, "5") as worker:
        # Nobody waits for those two any more, and these are none.
        produce(kafka, f"{application.name}-announcements", [b'{"stream": "places"}', b""], key=b"places")
        wait_for_releases(application, 1)
        said = at_once(arguments, 3)
        looked_at = [int(one.partition("places: timestamp ")[2].split()[0]) for one in said]
        assert len(set(looked_at)) == 3, said
        assert all("look once, and finish before" in one for one in said)
        # Somebody looked, and then the worker died: it is not counted twice.
        said.append(application.command(*arguments))
        worker.kill()
        worker.start()
        given_up = int(said[-1].partition("places: timestamp ")[2].split()[0])
        while wait_for_releases(application, 1) <= given_up:
            time.sleep(0.3)
    with WorkerProcess("tests.worker.quick", application.path, log, "5"):
        settle(application)
    # The worker that ended with the traffic may have been in the midst of a release, too.
    assert given_up in (all_given_up := application.check())
    assert len(all_given_up) <= 2
    audit = application.command("ledger", str(application.path))
    assert "3 timestamps published for an announced look" in audit
    assert f"  eventveil {__version__}: timestamps " in audit
    assert "not recorded" not in audit
    assert "given up after failures, and charged" in audit
    content = log.read_text()
    assert f"stream places: timestamp {given_up} forfeited" in content
    # The log follows the answer, so that the fourth look may not be in it: its worker was killed.
    assert all(
        f"stream places: look announced for timestamp {one}; it will be published" in content
        for one in looked_at
    )
    entries = application.entries()
    for timestamp in looked_at:
        assert entries[timestamp]["fresh"]
        assert entries[timestamp]["spent"]["test"] == 0
    tested = [timestamp for timestamp, one in entries.items() if not one["spent"]["test"]]
    assert sorted(tested) == sorted(looked_at)


def test_nobody_is_told_to_look_while_no_worker_has_heard_it(kafka: str, tmp_path: Path) -> None:
    application = PanPrivate(kafka, tmp_path, "announced", interval=2500)
    arguments = ("announce", str(application.path), "--stream", "places", "--timeout", "1")
    said = application.failing_command(*arguments)
    assert "no worker answered within 1 s. Do not look" in said
    # What it says of times would not be what a worker goes by.
    document = json.dumps(application.document)
    application.document["streams"]["places"]["timeline"]["lateness"] = "1h"
    application.write()
    assert "timeline.lateness was 300ms and is 1h now" in application.failing_command(*arguments)
    application.document = json.loads(document)
    application.write()
    application.recreate(f"{application.name}-announcements")
    assert "announcements.topic_id was" in application.failing_command(*arguments)
    (refusal,) = refusals(application.path)
    assert "announcements.topic_id was" in refusal


def test_what_a_pan_private_stream_needs_is_asked_for_and_what_it_cannot_do_is_refused(
    kafka: str, tmp_path: Path
) -> None:
    application = PanPrivate(kafka, tmp_path, "single", interval=2500)
    said = application.command("migrate", str(application.path))
    assert "places: unchanged, as a pan-private stream has to be" in said
    application.document["streams"]["places"]["mechanism"]["pan_private"] = "announced"
    application.write()
    application.command("topics", str(application.path), "--create")
    # What the file says is looked at before what the brokers say: that there was no topic of announcements.
    change = "mechanism.pan_private was 'single' and is 'announced' now"
    (refusal,) = refusals(application.path)
    assert change in refusal
    assert change in application.failing_command("migrate", str(application.path))


def test_beside_other_streams_it_shares_the_ledger_with_every_worker_killed_in_turn(
    kafka: str, tmp_path: Path
) -> None:
    application, log = PanPrivate(kafka, tmp_path, "single", interval=2500), tmp_path / "worker.log"
    pan_private = application.document["streams"].pop("places")
    application.document["name"] = application.name = f"{application.name}-more"
    application.document["topics"]["partials"] = 1
    streams = application.document["streams"]
    for looks in ("single", "announced", "ordinary"):
        stream = json.loads(json.dumps(pan_private))
        stream["source"]["topic"] = f"{application.name}.{looks}"
        stream["sink"]["topic"] = f"{application.name}.{looks}.counts"
        stream["mechanism"]["pan_private"] = looks
        if looks == "ordinary":
            del stream["counts"]["contributions"], stream["mechanism"]["pan_private"]
        streams[looks] = stream
    application.write()
    application.create()
    with ExitStack() as stack:
        for stream in streams.values():
            stack.enter_context(Traffic(application, 3, 100, topic=stream["source"]["topic"]))
        for death in ("expose:committed:2", "decide:committed:3", "publish:before-commit:3"):
            with WorkerProcess("tests.worker.quick", application.path, log, "2", death) as worker:
                assert worker.wait() == -9, log.read_text()
        with WorkerProcess("tests.worker.quick", application.path, log, "2") as worker:
            said = announced_in_time(application)
            assert "look once, and finish before" in said
            for stream in streams.values():
                wait_for_releases(application, 4, sink=stream["sink"]["topic"])
            assert worker.running, log.read_text()
    application._wait_for_decisions()
    audit = application.command("ledger", str(application.path))
    assert "violation" not in audit
    for name, stream in streams.items():
        assert name in audit
        draws = application.releases("read_uncommitted", sink=stream["sink"]["topic"])
        assert all(len(set(records)) == 1 for records in draws.values())
        assert sorted(draws) == list(range(min(draws), max(draws) + 1))
