"""``eventveil migrate`` and ``eventveil reset`` on real Kafka, before and after real workers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventveil import __version__
from eventveil.cli.main import main
from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.fitting import check_file
from eventveil.model.errors import StateRefused
from eventveil.topology.loading import load
from tests.kafka.topics import create_topic, produce
from tests.unit.read.making import record
from tests.worker.application import Application, Traffic
from tests.worker.process import ROOT, WorkerProcess
from tests.worker.taking_over import refusals
from tests.worker.waiting import wait_for_releases

#: Long enough to stop between two timestamps at the first or second attempt.
INTERVAL = 1000


@pytest.fixture
def application(kafka: str, tmp_path: Path) -> Application:
    made = Application(
        kafka, tmp_path, interval=INTERVAL, mechanism={"kind": "sample", "epsilon": 1, "window": 3}
    )
    made.create()
    return made


def run(application: Application, releases: int) -> None:
    """Let a worker release more timestamps, and stop it half an interval after the last."""
    before = len(application.releases())
    log = application.path.with_suffix(".log")
    with WorkerProcess("tests.worker.silent", application.path, log, "3") as worker:
        wait_for_releases(application, before + releases)
        time.sleep(INTERVAL / 4000)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def migrate_between_timestamps(application: Application, former: str) -> Result:
    """Apply the file; as the refusal says, run the ``former`` one again while timestamps are under way."""
    for _ in range(20):
        result = invoke("migrate", str(application.path), "--apply")
        if "stop it between two timestamps" not in result.output:
            return result
        target = application.path.read_text()
        application.path.write_text(former)
        run(application, 1)
        application.path.write_text(target)
    return result


def edit(application: Application, section: str, **settings: object) -> str:
    """Change the file; the former one."""
    former = application.path.read_text()
    application.document["streams"]["places"][section].update(settings)
    application.write()
    return former


def test_a_stream_goes_on_under_other_terms_and_the_audit_follows(application: Application) -> None:
    with Traffic(application, seed=1, per_second=100):
        run(application, 3)
        former = edit(application, "mechanism", kind="uniform", epsilon=2, window=4)
        edit(application, "counts", contributions=2, per_column=1)
        assert "eventveil migrate" in refusals(application.path)[0]

        dry = invoke("migrate", str(application.path))
        assert dry.exit_code == 0
        assert "mechanism.epsilon 2, was 1" in dry.output
        assert "counts.contributions 2, was 1" in dry.output
        assert "counts.per_column 1\n" in dry.output
        assert "windows of 4 timestamps across the change cost at most epsilon 2" in dry.output
        assert "nothing was written" in dry.output
        assert "eventveil migrate" in refusals(application.path)[0]

        done = migrate_between_timestamps(application, former)
        assert done.exit_code == 0, done.output
        assert "places: continues from timestamp" in done.output
        assert refusals(application.path) == []
        assert invoke("migrate", str(application.path), "--apply").output == "places: unchanged\n"
        run(application, 5)
        pure = edit(application, "mechanism", noise="gaussian", delta="0.000001")
        done = migrate_between_timestamps(application, pure)
        assert done.exit_code == 0, done.output
        assert "mechanism.noise gaussian" in done.output
        assert "cost at most epsilon 2 and delta 1e-06: a release that would cost more repeats" in done.output
        run(application, 5)
    records = [json.loads(one) for values in application.releases().values() for one in values]
    timestamps = [record["timestamp"] for record in records]
    assert timestamps == list(range(timestamps[0], timestamps[0] + len(timestamps)))
    assert {record["mechanism"] for record in records} == {"sample", "uniform"}
    assert records[-1]["fresh"]
    assert records[-1]["noise"] == "gaussian"
    # Of windows of four, those with a Laplace publication of half an epsilon have no mu squared left.
    normal = [record["fresh"] for record in records if "noise" in record]
    assert normal == [False] * 3 + [True] * (len(normal) - 3)
    audit = invoke("ledger", str(application.path))
    assert audit.exit_code == 0, audit.output
    assert "mechanism.kind sample to uniform" in audit.stdout
    assert "mechanism.noise unset to gaussian" in audit.stdout
    told = f"  eventveil {__version__}: timestamps {timestamps[0]} to {timestamps[-1]}, "
    assert told in audit.stdout
    assert "not recorded" not in audit.stdout
    application.path.write_text(former)
    assert any("counts.contributions was 2 and is 1 now" in message for message in refusals(application.path))


def test_a_worker_with_the_former_file_is_refused_before_it_joins_the_group(
    application: Application, tmp_path: Path
) -> None:
    """Its genesis stays in the log until it is compacted, and says that all is well."""
    run(application, 2)
    former = edit(application, "mechanism", epsilon=2)
    file = tmp_path / "former.yaml"
    file.write_text(former)
    done = migrate_between_timestamps(application, former)
    assert done.exit_code == 0, done.output
    for releases in (0, 2):
        if releases:
            run(application, releases)
        topology = load(str(application.path), {})
        cluster = Cluster(topology.kafka)
        check_file(topology, cluster)
        with pytest.raises(StateRefused, match="epsilon was 2 and is 1 now"):
            check_file(load(str(file), {}), cluster)


def test_a_running_worker_and_an_unsound_change_are_refused(application: Application, tmp_path: Path) -> None:
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "log", "3") as worker:
        worker.wait_for_log("owns")
        edit(application, "mechanism", epsilon=2)
        result = invoke("migrate", str(application.path), "--apply")
        assert result.exit_code == 1
        assert (
            f"consumer group {application.name}: it has 1 member, so a worker seems to be running"
            in result.stderr
        )
        assert worker.running
        wait_for_releases(application, len(application.releases()) + 2)
    edit(application, "timeline", interval="2s")
    result = invoke("migrate", str(application.path), "--apply")
    assert result.exit_code == 1
    assert "timeline.interval was 1s and is 2s now, which cannot be migrated: releases of" in result.stderr
    assert "give the stream a new name" in result.stderr


def test_a_migration_that_is_killed_has_happened_or_has_not(application: Application) -> None:
    run(application, 2)
    former = edit(application, "mechanism", window=3, epsilon=3)
    unharmed = 0
    for point in ("take-over:fenced", "change:before-begin", "change:produced", "change:before-commit"):
        unharmed += die(application, former, point)
        (*counting, budget) = refusals(application.path)
        assert len(counting) == application.partitions
        assert all("mechanism.epsilon was 1 and is 3 now" in message for message in (*counting, budget))
        target = application.path.read_text()
        application.path.write_text(former)
        assert refusals(application.path) == []
        application.path.write_text(target)
    assert unharmed == 4
    assert die(application, former, "change:committed")
    assert refusals(application.path) == []
    run(application, 3)
    assert invoke("ledger", str(application.path)).exit_code == 0


def die(application: Application, former: str, point: str) -> bool:
    """Migrate until kill -9 at ``point``; whatever refuses the migration before that is waited for."""
    for _ in range(20):
        command = [sys.executable, "-m", "tests.worker.killed_change", str(application.path), point]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
        if ended.returncode == -signal.SIGKILL:
            return True
        assert "stop it between two timestamps" in ended.stderr, ended.stderr
        target = application.path.read_text()
        application.path.write_text(former)
        run(application, 1)
        application.path.write_text(target)
    return False


def test_a_sink_that_was_replaced_is_migrated_to(application: Application) -> None:
    run(application, 2)
    application.recreate(application.sink)
    assert any("sink.topic_id was" in message for message in refusals(application.path))
    produce(application.bootstrap, application.sink, [record(1, stream="shops")], key=b"shops")
    for command in (("migrate",), ("reset", "--stream", "places")):
        refused = invoke(*command, str(application.path))
        assert refused.exit_code == 1
        assert "it has releases of stream shops; a sink must have those of one stream only" in refused.stderr
    application.recreate(application.sink)
    done = invoke("migrate", str(application.path), "--apply")
    assert done.exit_code == 0, done.output
    run(application, 3)
    audit = invoke("ledger", str(application.path))
    assert audit.exit_code == 0, audit.output
    assert "sink.topic_id" in audit.stdout


def test_a_reset_releases_the_same_events_again_in_a_new_generation(application: Application) -> None:
    with Traffic(application, seed=2, per_second=100):
        run(application, 4)
        path = str(application.path)
        refused = invoke("reset", path, "--stream", "places", "--adds-epsilon", "1")
        assert "its sink holds the releases of this generation" in refused.stderr
        old = application.releases()
        application.sink = f"{application.name}.again"
        create_topic(application.bootstrap, application.sink)
        edit(application, "sink", topic=application.sink)

        dry = invoke("reset", path, "--stream", "places")
        assert dry.exit_code == 0, dry.output
        assert f"generation 2 would begin at timestamp {min(old)}" in dry.output
        assert "2 generations together cost epsilon 2" in dry.output
        wrong = invoke("reset", path, "--stream", "places", "--adds-epsilon", "0.5")
        assert (wrong.exit_code, "this adds epsilon 1, not 0.5" in wrong.stderr) == (2, True)
        assert any("eventveil migrate" in message for message in refusals(application.path))

        done = invoke("reset", path, "--stream", "places", "--adds-epsilon", "1.0")
        assert done.exit_code == 0, done.output
        run(application, len(old) + 2)
    again = application.releases()
    assert min(again) == min(old)
    truth = application.truth(first=min(again))
    fresh = {t: json.loads(one) for t, (one,) in again.items() if json.loads(one)["fresh"]}
    for timestamp, release in fresh.items():
        assert {name: count for name, count in release["counts"].items() if count} == truth.get(timestamp, {})
    audit = invoke("ledger", path)
    assert audit.exit_code == 0, audit.output
    assert "places, generation 1: " in audit.stdout
    assert "places, generation 2: " in audit.stdout
    once_more = invoke("reset", path, "--stream", "places", "--adds-epsilon", "1")
    assert "its sink holds the releases of this generation" in once_more.stderr

    # An hour meets 1,201 windows, of each generation. What the file alone costs is within its budget.
    application.document["budget"] = {"epsilon": 2 * 1201, "span": "1h"}
    edit(application, "mechanism", epsilon=2)
    dearer = invoke("migrate", path)
    assert dearer.exit_code == 1
    assert "cost epsilon 1201, with all streams as they are now 3603, above the cap of 2402" in dearer.stderr
    application.document["budget"]["epsilon"] = 3 * 1201
    application.write()
    assert "mechanism.epsilon 2" in application.command("migrate", path)
