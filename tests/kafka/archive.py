"""The classes of a broker, loaded and verified once: an archive that Java maps instead (class data sharing).

With it a broker starts in two thirds of the time and for two thirds of the work. The first broker of a
``.cache`` has it made; it belongs to these jars and to one Java. Where it does not fit, Java goes on without.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException

from tests.kafka.jars import BrokerError, class_path, jars

log = logging.getLogger(__name__)

#: Java says nothing of an archive that does not fit: it loads the classes as ever.
_USE = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]


def options(train: Callable[[Path, Sequence[str]], None]) -> list[str]:
    """Java's options for a broker that starts from the archive; it is made where there is none.

    ``train`` runs a broker in a folder, with further options of Java, and stops it cleanly. Safe to call
    from several processes at once: the archive appears whole or not at all. Where ``train`` fails, as
    on a machine that is too busy, this broker starts without, and the next one tries again.
    """
    folder = jars()
    archive = folder.with_name(f"{folder.name}-{_java()}.jsa")
    with folder.with_name("archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            try:
                _make(archive, train)
            except (BrokerError, KafkaException, OSError, AssertionError) as error:
                log.warning("brokers start without an archive of classes: %r", error)
                return []
    # An empty one: this Java makes none.
    return _from(archive) if archive.stat().st_size else []


def _from(archive: Path) -> list[str]:
    return [*_USE, f"-XX:SharedArchiveFile={archive}"]


def _make(archive: Path, train: Callable[[Path, Sequence[str]], None]) -> None:
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="eventveil-archive-") as folder:
            train(Path(folder), [*_USE, f"-XX:ArchiveClassesAtExit={unfinished}"])
        if not works(unfinished):
            unfinished.unlink(missing_ok=True)
            unfinished.touch()
        unfinished.rename(archive)
    finally:
        unfinished.unlink(missing_ok=True)


def works(archive: Path) -> bool:
    """Whether Java gets on with it: one that was cut short, on a full disk, would end every broker."""
    command = ["java", "-XX:+UseSerialGC", "-XX:ErrorFile=/dev/null", *_from(archive), "-cp", class_path()]
    command += ["kafka.tools.StorageTool", "random-uuid"]
    return archive.exists() and subprocess.run(command, capture_output=True).returncode == 0


def _java() -> str:
    """A name for the Java of this machine, which changes when another one is installed."""
    path = Path(shutil.which("java") or "").resolve()
    found = path.stat()
    return hashlib.sha256(f"{path} {found.st_mtime_ns} {found.st_size}".encode()).hexdigest()[:12]
