"""A single-node Apache Kafka on this machine, from the jars.

``python -m tests.kafka.broker --port 19092 --directory DIR`` runs it in the foreground: it prints
``ready 127.0.0.1:19092`` once it serves, stops cleanly on SIGINT, SIGTERM and SIGHUP, and continues with its
data when started again with the same directory. Programs use ``local_broker``.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

import click
from confluent_kafka import KafkaException

from eventveil.kafka.admin import Admin
from tests.kafka import archive
from tests.kafka.jars import BrokerError, class_path
from tests.kafka.ports import HOST, Reservation, reserve
from tests.kafka.settings import single_node
from tests.kafka.topics import create_topic, read, transact, transactional_producer

#: Several may start at once, on a busy machine.
START_SECONDS = 240.0
STOP_SECONDS = 30.0
JAVA = [
    "java",
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",  # or it leaves /tmp/hsperfdata_<user> behind
    "-Djava.awt.headless=true",
]
LOGGING = [
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
]
#: By class path and roles, the files of a directory that was just prepared. They differ by identifiers and by
#: the number of the node alone, and to make them takes a third of what starting a broker does.
_FORMATTED: dict[tuple[str, str], dict[str, bytes]] = {}
# Java ends when standard input ends, so that no broker outlives a program that was killed without warning. In
# the end it is killed: asked to stop, a broker whose controller is gone would wait for it for minutes.
WATCHED = """
exec 3<&0
"$@" </dev/null 3<&- & java=$!
{ read -r _ <&3; kill "$java"; sleep 20; kill -9 "$java"; } 2>/dev/null & watch=$!
trap 'kill "$java" 2>/dev/null' TERM
wait "$java"; code=$?
while kill -0 "$java" 2>/dev/null; do wait "$java"; code=$?; done
kill "$watch" 2>/dev/null
exit "$code"
"""


class LocalBroker:
    """A broker process and its directory: ``server.properties``, ``broker.log`` and ``data``.

    ``stop`` and ``kill`` leave the directory as it is, and ``start`` continues with it on the same port.
    ``proxies`` are ports of proxies: for each there is a further listener, at the same place in
    ``proxied_ports``, which tells its clients to come back through that proxy. ``settings`` are further
    settings of the broker, or others.
    """

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        proxies: Sequence[int] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.heap = "512m"
        #: Further options of Java.
        self.java: list[str] = []
        #: Options of Java by which it starts from the archive of classes; None asks for them at the start.
        self.sharing: list[str] | None = None
        #: Folders of further classes.
        self.classes: list[Path] = []
        self._proxies = proxies
        self._further = dict(settings or {})
        self.log = self.directory / "broker.log"
        self._log_start = 0
        self._wanted_port = port
        self._ports: list[Reservation] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    @property
    def port(self) -> int:
        """The port that clients connect to; known after the first ``start``."""
        return self._ports[0].port

    @property
    def proxied_ports(self) -> list[int]:
        """Where the proxies find the broker; known after the first ``start``."""
        return [reservation.port for reservation in self._ports[2:]]

    @property
    def bootstrap(self) -> str:
        """``host:port`` for Kafka clients."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Return once the broker serves. Raises BrokerError with the end of the log when it does not."""
        java_classes = ":".join([class_path(), *map(str, self.classes)])
        if self.sharing is None:
            self.sharing = archive.options(_train)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock_directory()
        self._reserve_ports()
        self._write_settings()
        self._format(java_classes)
        self._launch(java_classes)
        self._wait_until_it_serves()

    @property
    def pid(self) -> int:
        """The process whose child Java is. Raises BrokerError when there is none."""
        if self._process is None:
            raise BrokerError(f"no broker of {self.directory} is running")
        return self._process.pid

    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop cleanly, forcibly after ``seconds``. Does nothing when it is not running."""
        self._signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        self._forget()

    def kill(self) -> None:
        """Stop at once, as a crash would (SIGKILL)."""
        self._signal(signal.SIGKILL)
        self._forget()

    def pause(self) -> None:
        """Stand still, as under a long garbage collection (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after ``pause``."""
        self._signal(signal.SIGCONT)

    def release(self) -> None:
        """Stop and give the ports back."""
        self.stop()
        for port in self._ports:
            port.release()
        self._ports.clear()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _lock_directory(self) -> None:
        """Kafka's own lock comes late: until then a second broker writes into the metadata of the first."""
        if self._lock is not None:
            return
        self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BrokerError(f"another broker uses {self.directory}: choose another directory") from error

    def _reserve_ports(self) -> None:
        if self._ports:
            return
        try:
            self._ports.append(reserve(self._wanted_port))
        except OSError as error:
            raise BrokerError(f"port {self._wanted_port or ''} on {HOST} is taken: choose another") from error
        self._ports += [reserve() for _ in range(1 + len(self._proxies))]

    def _write_settings(self) -> None:
        client, controller, *proxied = (f"{HOST}:{port.port}" for port in self._ports)
        listeners = {"PLAINTEXT": client, "CONTROLLER": controller}
        advertised = {"PLAINTEXT": client}
        for number, (port, address) in enumerate(zip(self._proxies, proxied, strict=True)):
            listeners[f"PROXIED{number}"] = address
            advertised[f"PROXIED{number}"] = f"{HOST}:{port}"
        settings = single_node(listeners, advertised, controller, str(self.directory / "data"))
        settings |= self._further
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._settings.write_text(text, encoding="utf-8")

    @property
    def _settings(self) -> Path:
        return self.directory / "server.properties"

    def _format(self, java_classes: str) -> None:
        """Prepare an empty directory as Kafka's tool does, which is asked once: see ``_FORMATTED``."""
        data, told = self.directory / "data", dict(_properties(self._settings.read_text(encoding="utf-8")))
        if (data / "meta.properties").exists():
            return
        kind = java_classes, told["process.roles"]
        if kind not in _FORMATTED:
            self._ask_to_format(java_classes)
            _FORMATTED[kind] = {one.name: one.read_bytes() for one in data.iterdir() if one.is_file()}
            return
        own = {"cluster.id": self._cluster_id(), "directory.id": _identifier(), "node.id": told["node.id"]}
        data.mkdir(exist_ok=True)
        for name, content in _FORMATTED[kind].items():
            if name == "meta.properties":
                lines = (f"{key}={own.get(key, value)}\n" for key, value in _properties(content.decode()))
                content = "".join(lines).encode()
            (data / name).write_bytes(content)

    def _ask_to_format(self, java_classes: str) -> None:
        command = [*JAVA, *(self.sharing or []), *LOGGING, "-cp", java_classes, "kafka.tools.StorageTool"]
        command += ["format", "-t", self._cluster_id(), "-c", str(self._settings)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise BrokerError(f"cannot prepare {self.directory}:\n{done.stdout}")

    def _cluster_id(self) -> str:
        return _identifier()

    def _launch(self, java_classes: str) -> None:
        command = [
            *JAVA,
            f"-Xmx{self.heap}",
            *(self.sharing or []),
            *self.java,
            *LOGGING,
            "-cp",
            java_classes,
            "kafka.Kafka",
            str(self._settings),
        ]
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                ["sh", "-c", WATCHED, "broker", *command],
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        # Only an unfenced broker is in the metadata.
        admin = Admin({"bootstrap.servers": self.bootstrap, "log_level": 0})
        while time.monotonic() < deadline:
            if not self.running():
                self._give_up("ended while starting")
            with suppress(KafkaException):
                if admin.list_topics(timeout=1.0).brokers:
                    return
        self._give_up(f"did not serve within {START_SECONDS:.0f} s")

    def _give_up(self, what: str) -> None:
        self.kill()
        lines = self.log.read_bytes()[self._log_start :].decode(errors="replace").splitlines()
        # The errors themselves; the stack traces stay in the file.
        told = "\n".join([line for line in lines if not line.startswith("\t")][-10:])
        raise BrokerError(f"the broker {what}; {self.log} says:\n{told}")

    def _signal(self, number: signal.Signals) -> None:
        """Signal the process group that ``_launch`` made: the watching shell and Java."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None


def _identifier() -> str:
    # The leading zero byte keeps the identifier from starting with "-", like an option.
    return urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).rstrip(b"=").decode()


def _properties(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not key.startswith("#"):
            yield key, value


def _train(folder: Path, java: Sequence[str]) -> None:
    """Let a broker load the classes that it needs for topics and transactions, then stop it cleanly."""
    broker = LocalBroker(folder)
    broker.java, broker.sharing = [*java], []
    try:
        broker.start()
        topic = create_topic(broker.bootstrap, "topic")
        transact(transactional_producer(broker.bootstrap, "producer"), topic, ["record"])
        read(broker.bootstrap, topic)
        # Which is when Java writes the archive.
        broker.stop(START_SECONDS)
    finally:
        broker.release()


@contextmanager
def local_broker(
    port: int | None = None, directory: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[LocalBroker]:
    """A running broker; stopped at the end.

    ``port`` None takes a free one; ``directory`` None means a temporary one that is removed at the end;
    ``settings`` as for ``LocalBroker``.
    """
    if directory is None:
        with (
            tempfile.TemporaryDirectory(prefix="eventveil-kafka-") as temporary,
            local_broker(port, Path(temporary), settings) as broker,
        ):
            yield broker
        return
    broker = LocalBroker(directory, port, settings=settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.release()


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=19092, show_default=True)
@click.option("--directory", type=click.Path(path_type=Path), required=True, help="Of data and log.")
def main(port: int, directory: Path) -> None:
    """Run a single-node Apache Kafka in the foreground until it is told to stop."""
    told_to_stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: told_to_stop.set())
    try:
        with local_broker(port, directory) as broker:
            print(f"ready {broker.bootstrap}", flush=True)
            while not told_to_stop.wait(0.2):
                if not broker.running():
                    raise BrokerError(f"the broker ended by itself; see {broker.log}")
    except BrokerError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
