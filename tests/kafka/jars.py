"""The broker's jars: resolved once by Maven from ``pom.xml``, then kept in the repository's ``.cache``.

The variable KAFKA_VERSION asks for another version than that of ``pom.xml``; each is kept apart.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

POM = Path(__file__).with_name("pom.xml")
CACHE = Path(__file__).parents[2] / ".cache"
REMEDY = {
    "java": "install Java 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)",
    "mvn": "install Maven (Debian, Ubuntu: apt-get install maven)",
}


class BrokerError(Exception):
    """The development broker cannot run; the message says why and what to do."""


def newest_version() -> str:
    """The version of Apache Kafka that pom.xml names, which every test runs against by default."""
    return _property("kafka.version")


def kafka_version() -> str:
    """The version of Apache Kafka to run: KAFKA_VERSION, else the newest. Raises BrokerError."""
    version = os.environ.get("KAFKA_VERSION") or newest_version()
    if re.fullmatch(r"\d+\.\d+\.\d+", version, re.ASCII) is None:
        raise BrokerError(f"KAFKA_VERSION={version}: say a whole version, such as {newest_version()}")
    return version


def at_least(version: str) -> bool:
    """Whether the version to run is ``version``, such as "4.0.0", or a later one."""
    return _numbers(kafka_version()) >= _numbers(version)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def missing_tools() -> list[str]:
    """The remedies for what a local broker needs and this machine lacks; empty if nothing."""
    needed = ["java"] if _folder().is_dir() else ["java", "mvn"]
    return [f"{tool} is missing: {REMEDY[tool]}" for tool in needed if shutil.which(tool) is None]


def class_path() -> str:
    """Java's class path of the broker; see ``jars``."""
    return f"{jars()}/*"


def jars() -> Path:
    """The folder of the broker's jars. Downloads them when no earlier call has. Raises BrokerError.

    Safe to call from several processes at once: the folder appears whole or not at all.
    """
    if missing := missing_tools():
        raise BrokerError("\n".join(missing))
    with _locked():
        if not _folder().is_dir():
            _resolve(_folder())
    return _folder()


def jars_of(pom: Path) -> Path:
    """The folder of the jars that another pom.xml names, as ``jars`` has those of the broker."""
    folder = CACHE / f"{pom.parent.name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if missing := [] if folder.is_dir() or shutil.which("mvn") else [f"mvn is missing: {REMEDY['mvn']}"]:
        raise BrokerError("\n".join(missing))
    with _locked():
        if not folder.is_dir():
            _download(pom, folder.with_name(f"{folder.name}.unfinished")).rename(folder)
    return folder


@contextmanager
def _locked() -> Iterator[None]:
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _property(name: str) -> str:
    value = ElementTree.parse(POM).findtext(f".//{{*}}{name}")
    assert value is not None, f"{POM} names no {name}"
    return value


def _folder() -> Path:
    """Where the jars of this version by this very pom.xml are, so that a changed one is resolved anew."""
    return CACHE / f"kafka-{kafka_version()}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"


def _resolve(folder: Path) -> None:
    version = f"-Dkafka.version={kafka_version()}"
    unfinished = _download(POM, folder.with_name(f"{folder.name}.unfinished"), version)
    _check_jars(unfinished)
    unfinished.rename(folder)


def maven(arguments: Sequence[str], what: str) -> None:
    """Run Maven. Raises BrokerError, with all that it says, if it could not fetch ``what``."""
    # Without the option, Java leaves /tmp/hsperfdata_<user> behind.
    options = f"{os.environ.get('MAVEN_OPTS', '')} -XX:-UsePerfData"
    done = subprocess.run(
        ["mvn", "-q", "-B", "-Dstyle.color=never", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "MAVEN_OPTS": options},
    )
    if done.returncode != 0:
        raise BrokerError(f"Maven could not fetch {what}:\n{done.stdout}")


def _download(pom: Path, unfinished: Path, *settings: str) -> Path:
    """The folder, with the jars in it."""
    shutil.rmtree(unfinished, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    maven(
        ["-f", str(pom), *settings, *goal],
        f"what {pom} names, {settings} (is Maven Central reachable, and does it have that version?)",
    )
    return unfinished


def _check_jars(folder: Path) -> None:
    """Raise BrokerError unless these are Kafka's of the version, with the one binding of slf4j that fits."""
    expected = {f"kafka_2.13-{kafka_version()}.jar"}
    expected |= {f"slf4j-{part}-{_property('slf4j.version')}.jar" for part in ("api", "simple")}
    found = {jar.name for jar in folder.glob("*.jar") if jar.name.startswith(("kafka_", "slf4j-"))}
    if found != expected:
        raise BrokerError(
            f"the jars of Apache Kafka {kafka_version()} are {', '.join(sorted(found))} and should be "
            f"{', '.join(sorted(expected))}: change slf4j.version in {POM}"
        )
