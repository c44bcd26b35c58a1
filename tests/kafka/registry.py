"""A schema registry on this machine: Apicurio Registry, from Maven Central, with its schemas in Kafka.

It speaks the interface of Confluent's registry, whose jars are in no public Maven repository. 3.0.9 is the
newest that Java 17 runs; it needs some 110 MB once, in the repository's ``.cache``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.kafka.broker import JAVA, WATCHED
from tests.kafka.jars import CACHE, REMEDY, BrokerError, maven
from tests.kafka.ports import HOST, reserve

VERSION = "3.0.9"
_SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
START_SECONDS = 120.0


class LocalRegistry:
    """A registry that can be stopped and started again at its address; its schemas stay in Kafka."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self._port = reserve()
        self.url = f"http://{HOST}:{self._port.port}/apis/ccompat/v7"
        self.log = folder / "registry.log"
        self._folder = folder
        self._settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": self._port.port,
            "quarkus.http.access-log.enabled": "false",
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": bootstrap,
            "apicurio.kafkasql.topic": topic,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return at once; ``wait`` until it serves."""
        (jar,) = _program().glob("*-runner.jar")
        settings = [f"-D{name}={value}" for name, value in self._settings.items()]
        command = [*JAVA, "-Xmx256m", *settings, "-jar", str(jar)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", WATCHED, "registry", *command],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it serves. Raises BrokerError with the end of the log if it does not."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None, "not started"
            if self._process.poll() is not None:
                break
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                return
            time.sleep(0.1)
        raise BrokerError(f"the registry does not serve; {self.log} says:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """At once, as a crash would."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def release(self) -> None:
        """Stop and give the port back."""
        self.stop()
        self._port.release()


@contextmanager
def local_registry(bootstrap: str, topic: str, folder: Path) -> Iterator[LocalRegistry]:
    """A registry that is starting; stopped at the end. Its schemas are in a topic of this name."""
    made = LocalRegistry(bootstrap, topic, folder)
    try:
        made.start()
        yield made
    finally:
        made.release()


def _program() -> Path:
    """Where it is; fetched when no earlier call has. Raises BrokerError.

    Safe to call from several processes at once.
    """
    if missing := [REMEDY[tool] for tool in ("java", "mvn") if shutil.which(tool) is None]:
        raise BrokerError("\n".join(missing))
    folder = CACHE / f"registry-{VERSION}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "registry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    archive = unfinished / "registry.tar.gz"
    # This old one: newer ones read the artifact's description, whose parent is not on Maven Central.
    goal = ["org.apache.maven.plugins:maven-dependency-plugin:2.10:get", "-Dtransitive=false"]
    maven(
        [*goal, f"-Dartifact={_ARTIFACT}", f"-Ddest={archive}"], "the registry (is Maven Central reachable?)"
    )
    if hashlib.sha256(archive.read_bytes()).hexdigest() != _SHA256:
        raise BrokerError(f"{archive} is not the registry that these tests were written with; remove it")
    with tarfile.open(archive) as packed:
        packed.extractall(unfinished, filter="data")
    archive.unlink()
    unfinished.rename(folder)
