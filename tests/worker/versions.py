"""``python -m tests.worker.versions REVISION``: workers of another commit and of this one, in turns.

A stream runs for as long as they are killed (kill -9): a worker of the other commit takes over from one of
this one, and the other way round. In the end each timestamp must be released once with the true counts, no
second draw may be seen, and `eventveil ledger` must find nothing. It needs git, and starts an Apache Kafka.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from tests.kafka.broker import local_broker
from tests.worker.application import Application, Traffic
from tests.worker.checks import assert_truth
from tests.worker.process import ROOT
from tests.worker.waiting import settle

_PATIENCE = 180.0
_SESSION = "2"
#: What an earlier worker says of the moment between deciding a release and publishing it.
_REFUSAL = "the state has version"


class _Version:
    """The program of a commit, in ``folder``, and the workers that are started of it."""

    def __init__(self, name: str, folder: Path, logs: Path) -> None:
        self.name, self._folder, self._log = name, folder, logs / f"{name}.log"
        paths = (folder, folder / "operators")
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}

    def start(self, topology: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.worker.silent", str(topology), _SESSION]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder, env=self._environment)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def source(self) -> str:
        """Where the program that it runs is."""
        command = [sys.executable, "-c", "import eventveil; print(eventveil.__file__)"]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=True
        )
        return done.stdout


def _turn(version: _Version, application: Application, more: int, rnd: random.Random) -> bool:
    """A worker of this version releases ``more`` timestamps and is killed; False if it refused the state."""
    wanted, deadline = len(application.releases()) + more, time.monotonic() + _PATIENCE
    process = version.start(application.path)
    try:
        while len(application.releases()) < wanted:
            if process.poll() is not None:
                assert _REFUSAL in version.log, version.log[-3000:]
                return False
            assert time.monotonic() < deadline, version.log[-3000:]
            time.sleep(0.2)
        time.sleep(rnd.random())
        return True
    finally:
        process.kill()
        process.wait()


@click.command()
@click.argument("revision")
@click.option(
    "--turns", type=click.IntRange(2), default=16, show_default=True, help="Workers, one after another."
)
@click.option("--seed", type=int, default=1, show_default=True)
def main(revision: str, turns: int, seed: int) -> None:
    """Let workers of REVISION and of this commit take over from each other."""
    rnd, seen = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="eventveil-versions-") as made, local_broker() as broker:
        folder = Path(made)
        (folder / "other").mkdir()
        archive = subprocess.run(
            ["git", "archive", revision, "operators", "tests"], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(folder / "other")], input=archive.stdout, check=True)
        versions = [_Version("other", folder / "other", folder), _Version("this", ROOT, folder)]
        assert str(folder / "other") in versions[0].source
        application = Application(broker.bootstrap, folder)
        application.create()
        with Traffic(application, seed=seed):
            for number in range(turns):
                version = versions[number % 2]
                released = _turn(version, application, rnd.randrange(4, 12), rnd)
                seen[f"{version.name}: {'took over and released' if released else 'refused the state'}"] += 1
        last = versions[1].start(application.path)
        try:
            settle(application)
        finally:
            last.kill()
            last.wait()
        assert_truth(application, application.sink)
        public = application.releases("read_uncommitted")
        assert all(len({*records}) == 1 for records in public.values()), "a second draw can be seen"
        click.echo(application.command("ledger", str(application.path)))
        for what, number in sorted(seen.items()):
            click.echo(f"{what}, {number} times")
        click.echo(f"{len(public)} timestamps, each released once with its true counts")


if __name__ == "__main__":
    main()
