"""The broker's jars: resolved once by Maven from ``pom.xml``, then kept in the repository's ``.cache``."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).with_name("pom.xml")
CACHE = Path(__file__).parents[2] / ".cache"
REMEDY = {
    "java": "install Java 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)",
    "mvn": "install Maven (Debian, Ubuntu: apt-get install maven)",
}


class BrokerError(Exception):
    """The development broker cannot run; the message says why and what to do."""


def missing_tools() -> list[str]:
    """The remedies for what a local broker needs and this machine lacks; empty if nothing."""
    needed = ["java"] if _folder().is_dir() else ["java", "mvn"]
    return [f"{tool} is missing: {REMEDY[tool]}" for tool in needed if shutil.which(tool) is None]


def class_path() -> str:
    """Java's class path of the broker. Downloads the jars when no earlier call has.

    Safe to call from several processes at once: the folder appears whole or not at all.
    """
    if missing := missing_tools():
        raise BrokerError("\n".join(missing))
    folder = _folder()
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _resolve(folder)
    return f"{folder}/*"


def _folder() -> Path:
    """Where the jars of this very pom.xml are, so that a changed version is resolved anew."""
    return CACHE / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def _resolve(folder: Path) -> None:
    unfinished = folder.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(POM)]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    # Without the option, Java leaves /tmp/hsperfdata_<user> behind.
    options = f"{os.environ.get('MAVEN_OPTS', '')} -XX:-UsePerfData"
    maven = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "MAVEN_OPTS": options},
    )
    if maven.returncode != 0:
        raise BrokerError(
            f"Maven could not fetch Apache Kafka (is Maven Central reachable?):\n{maven.stdout}"
        )
    unfinished.rename(folder)
