"""A secured cluster: the table of rights in docs/deploy.md is enough, and no entry can be missing unseen.

Clients come in with SASL; a client without an entry in the ACLs may do nothing.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from eventveil.cli.main import main
from eventveil.kafka.admin import Admin
from eventveil.local import Control
from tests.kafka.broker import LocalBroker
from tests.kafka.jars import missing_tools
from tests.kafka.ports import HOST, reserve
from tests.kafka.topics import grow_topic
from tests.worker.application import Application
from tests.worker.process import WorkerProcess
from tests.worker.waiting import settle, wait_for_releases

PRINCIPALS = ("worker", "creator", "auditor", "replayer", "migrator", "device", "reader", "sorter")
TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
DESCRIBE, CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
ALTER = AclOperation.ALTER
Right = tuple[ResourceType, str, ResourcePatternType, tuple[AclOperation, ...]]
LITERAL, PREFIX = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED


class SecuredBroker(LocalBroker):
    """A broker with a second listener for SASL; who comes in by the plain one is a super user."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._secured = reserve()

    @property
    def secured(self) -> str:
        return f"{HOST}:{self._secured.port}"

    def _write_settings(self) -> None:
        super()._write_settings()
        users = " ".join(f'user_{name}="secret of {name}"' for name in PRINCIPALS)
        login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        client, controller = (f"{HOST}:{port.port}" for port in self._ports)
        settings = {
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller},SECURED://{self.secured}",
            "advertised.listeners": f"PLAINTEXT://{client},SECURED://{self.secured}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secured.plain.sasl.jaas.config": login,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        with self._settings.open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())


class Secured:
    """An application on a secured broker, and who may do what."""

    def __init__(self, broker: SecuredBroker, folder: Path) -> None:
        # So far ahead that an event that is of the near future is in time, however long sending it takes.
        self.application = Application(broker.bootstrap, folder, max_ahead=5000)
        self._broker, self._folder = broker, folder
        self._admin = Admin({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        name, source = self.application.name, self.application.source
        outputs = [self.application.sink, self.application.dead]
        worker: list[Right] = [
            (TOPIC, source, LITERAL, (READ, CONFIGS)),
            (TOPIC, f"{name}-", PREFIX, (READ, WRITE, CONFIGS)),
            (TOPIC, self.application.sink, LITERAL, (READ, WRITE, CONFIGS)),
            (TOPIC, self.application.dead, LITERAL, (WRITE, CONFIGS)),
            (GROUP, name, LITERAL, (READ,)),
            (TRANSACTION, f"{name}-", PREFIX, (WRITE, DESCRIBE)),
            (GROUP, "eventveil-reader-", PREFIX, (DESCRIBE,)),
        ]
        creations: list[Right] = [
            (TOPIC, f"{name}-", PREFIX, (CREATE,)),
            *((TOPIC, topic, LITERAL, (CREATE,)) for topic in [source, *outputs]),
        ]
        auditor: list[Right] = [
            (TOPIC, f"{name}-ledger", LITERAL, (READ, CONFIGS)),
            (TOPIC, self.application.sink, LITERAL, (READ, CONFIGS)),
            (GROUP, "eventveil-reader-", PREFIX, (DESCRIBE,)),
        ]
        replayer: list[Right] = [
            (TOPIC, source, LITERAL, (READ, CONFIGS)),
            (GROUP, "eventveil-reader-", PREFIX, (DESCRIBE,)),
        ]
        reader: list[Right] = [
            (TOPIC, self.application.sink, LITERAL, (READ,)),
            (GROUP, "eventveil-reader-", PREFIX, (DESCRIBE,)),
        ]
        sorter: list[Right] = [
            (TOPIC, self.application.dead, LITERAL, (READ,)),
            (GROUP, "eventveil-reader-", PREFIX, (DESCRIBE,)),
        ]
        #: The table of docs/deploy.md.
        self.rights = {
            "worker": worker, "creator": [*worker, *creations], "auditor": auditor, "replayer": replayer,
            "migrator": worker, "reader": reader, "sorter": sorter,
        }  # fmt: skip
        #: What the auditor needs as well for ``--barrier``, and the migrator where a source has grown.
        self.barrier: list[Right] = [
            (TOPIC, f"{name}-ledger", LITERAL, (WRITE,)),
            (TOPIC, self.application.sink, LITERAL, (WRITE,)),
            (TRANSACTION, f"{name}-audit", LITERAL, (WRITE, DESCRIBE)),
        ]
        self.growth: Right = (TOPIC, f"{name}-counting-changelog", LITERAL, (ALTER,))
        for principal, rights in self.rights.items():
            for right in rights:
                self.allow(principal, right)

    def allow(self, principal: str, right: Right) -> None:
        self._finish(self._admin.create_acls(self._bindings(principal, right)))

    def withdraw(self, principal: str, right: Right) -> None:
        filters = [
            AclBindingFilter(
                one.restype, one.name, one.resource_pattern_type, one.principal, one.host,
                one.operation, one.permission_type,
            )
            for one in self._bindings(principal, right)
        ]  # fmt: skip
        self._finish(self._admin.delete_acls(filters))

    @staticmethod
    def _finish(futures: dict[object, object]) -> None:
        for future in futures.values():
            future.result(30)  # type: ignore[attr-defined]

    @staticmethod
    def _bindings(principal: str, right: Right) -> list[AclBinding]:
        kind, name, pattern, operations = right
        return [
            AclBinding(kind, name, pattern, f"User:{principal}", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]

    @property
    def address(self) -> str:
        """Where principals come in."""
        return self._broker.secured

    def path_for(self, principal: str) -> Path:
        """A topology file with which this principal comes in."""
        document = {**self.application.document}
        document["kafka"] = {
            "bootstrap": self.address,
            "security": {
                "protocol": "SASL_PLAINTEXT",
                "mechanism": "PLAIN",
                "username": principal,
                "password": "${file:" + str(self._secret(principal)) + "}",
            },
        }
        path = self._folder / f"{principal}.yaml"
        path.write_text(json.dumps(document))
        return path

    def _secret(self, principal: str) -> Path:
        """A file with the password: it may not stand in the topology."""
        path = self._folder / f"{principal}.secret"
        path.write_text(f"secret of {principal}")
        return path

    def worker(self, name: str = "worker") -> WorkerProcess:
        log = self._folder / f"{name}.log"
        return WorkerProcess("tests.worker.silent", self.path_for("worker"), log, "3")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    if missing := missing_tools():
        pytest.skip("; ".join(missing))
    one = SecuredBroker(tmp_path_factory.mktemp("secured") / "broker")
    try:
        one.start()
        yield one
    finally:
        one.release()


@pytest.fixture
def secured(broker: SecuredBroker, tmp_path: Path) -> Secured:
    return Secured(broker, tmp_path)


@contextmanager
def running(secured: Secured) -> Iterator[WorkerProcess]:
    with secured.worker() as one:
        wait_for_releases(secured.application, 4)
        yield one
        one.signal(signal.SIGTERM)
        assert one.wait() == 0


def test_the_rights_of_the_readme_are_enough_for_everyone(secured: Secured, tmp_path: Path) -> None:
    application, began = secured.application, datetime.now(UTC).isoformat(timespec="seconds")
    application.command("topics", str(secured.path_for("creator")), "--create", "--sources")
    producer = Producer(
        {"bootstrap.servers": application.bootstrap, "partitioner": "murmur2_random", "log_level": 0}
    )
    # Connected by now, so that the event is not late on a busy machine.
    producer.list_topics(application.source, timeout=30)
    with running(secured):
        # The second is a dead letter.
        for value in (json.dumps(event()).encode(), b"{"):
            producer.produce(application.source, key=b"somebody", value=value)
        producer.flush(30)
        settle(application)
    counts = [json.loads(records[0])["counts"] for records in application.releases().values()]
    assert sum(sum(one.values()) for one in counts) == 1
    witness = str(tmp_path / "witness")
    output = application.command("ledger", str(secured.path_for("auditor")), "--witness", witness)
    assert "of epsilon 1" in output
    assert f"witness {witness}: created" in output
    replayed = tmp_path / "replayed.jsonl"
    arguments = ["--input", f"topic:{application.source}", "--output", str(replayed), "--from", began]
    application.command("replay", str(secured.path_for("replayer")), *arguments, "--to", "last")
    assert replayed.stat().st_size > 0

    # One event in two is a dead letter. That one counts is mostly not told from noise, and sometimes is.
    for command, principal, statuses, told in (
        (["status"], "reader", {0, 3}, " of 1 spent in the window, "),
        (["tail", "--count", "1"], "reader", {0}, "places, timestamp"),
        (["doctor"], "replayer", {3}, "1 of 2 events would count"),
        (["dead"], "sorter", {0}, "places: 1 not-json"),
    ):
        name, *options = command
        found = CliRunner().invoke(main, [name, str(secured.path_for(principal)), *options])
        assert found.exit_code in statuses, found.output
        assert told in found.output, found.output


def denied(application: Application, *arguments: str) -> bool:
    """Whether a command fails for lack of a right."""
    return "authorization failed" in application.failing_command(*arguments).lower().replace("_", " ")


def test_an_audit_behind_the_barrier_needs_to_write_and_a_migration_to_more_partitions_to_alter(
    secured: Secured,
) -> None:
    application = secured.application
    application.create()
    audit = ("ledger", str(secured.path_for("auditor")), "--barrier")
    for right in secured.barrier:
        assert denied(application, *audit), right
        secured.allow("auditor", right)
    application.command(*audit)

    # With the rights of the worker nothing is missing, as long as the changelog keeps its partitions.
    application.document["streams"]["places"]["timeline"]["lateness"] = "200ms"
    migrate = ("migrate", str(secured.path_for("migrator")), "--apply")
    assert "timeline.lateness" in application.command(*migrate)
    grow_topic(application.bootstrap, application.source, 5)
    assert denied(application, *migrate)
    secured.allow("migrator", secured.growth)
    assert "source.partitions 5, was 3" in application.command(*migrate)


def test_with_local_reports_auditors_and_devices_may_read_what_is_asked_for(secured: Secured) -> None:
    application = secured.application
    stream, control = application.document["streams"]["places"], f"{application.name}-control"
    del stream["counts"]
    stream["source"]["report"] = stream["source"].pop("column")
    stream |= {"values": {"maximum": 9}, "mechanism": {"kind": "topl", "epsilon": 1}}
    application.command("topics", str(secured.path_for("creator")), "--create", "--sources")
    for right in ((TOPIC, control, LITERAL, (READ,)), (GROUP, "device", LITERAL, (DESCRIBE,))):
        secured.allow("device", right)
    with running(secured):
        pass
    assert "authorization failed" in application.failing_command(
        "ledger", str(secured.path_for("auditor"))
    ).lower().replace("_", " ")
    secured.allow("auditor", (TOPIC, control, LITERAL, (READ,)))
    output = application.command("ledger", str(secured.path_for("auditor")))
    assert "threshold: still to be chosen" in output

    consumer = Consumer(
        {
            "bootstrap.servers": secured.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "device",
            "sasl.password": "secret of device",
            "group.id": "device",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(control, 0, OFFSET_BEGINNING)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.error() is None
    assert Control.read(message.value() or b"", Fraction(1)).phase == "distribution"


def event() -> dict[str, object]:
    return {"user": "somebody", "place": "north", "time": time.time_ns() // 1_000_000 + 4500}


def test_without_one_of_its_rights_the_worker_says_so_and_stops(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    """All of them at once, each in an application of its own."""
    with ExitStack() as stack:
        refused = []
        for number in range(7):
            folder = tmp_path / str(number)
            folder.mkdir()
            secured = Secured(broker, folder)
            right = secured.rights["worker"][number]
            if right[1] in {secured.application.dead, "eventveil-reader-"}:
                # Used for dead letters only; for a witness, local reports, and streams read back.
                continue
            secured.application.create()
            secured.withdraw("worker", right)
            refused.append((right, secured, stack.enter_context(secured.worker())))
        for right, secured, one in refused:
            assert one.wait(180) == 1, right
            assert "authorization failed" in said(one) or "authorizationfailed" in said(one), right
            assert not secured.application.releases()


def said(one: WorkerProcess) -> str:
    return one.log.read_text().lower().replace("_", " ")


def test_a_group_right_withdrawn_while_the_worker_runs_stops_it(secured: Secured) -> None:
    secured.application.create()
    group = next(one for one in secured.rights["worker"] if one[:2] == (GROUP, secured.application.name))
    with secured.worker() as one:
        wait_for_releases(secured.application, 4)
        secured.withdraw("worker", group)
        assert one.wait() == 1
    assert "groupauthorizationfailed" in said(one)
