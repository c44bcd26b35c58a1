"""The settings of a single-node Apache Kafka in KRaft mode, for jars and for containers alike."""

from __future__ import annotations

_MEBIBYTE = 1024 * 1024


def single_node(
    listeners: dict[str, str], advertised: dict[str, str], controller: str, data: str
) -> dict[str, str]:
    """Broker settings.

    ``listeners`` maps the names of listeners, PLAINTEXT and CONTROLLER among them, to host:port;
    ``advertised`` says for all but the latter where clients that came through it find the broker;
    ``controller`` is where the broker finds its controller, ``data`` the directory of the log.
    """
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
        "advertised.listeners": ",".join(f"{name}://{address}" for name, address in advertised.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
        "log.dirs": data,
        # One node only.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Topics are created on purpose, with their settings; a misspelt name must fail.
        "auto.create.topics.enable": "false",
        # Small and prompt, for a developer's machine.
        # After a crash the controller waits for the old session's end before it takes the broker back.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        # So that tests need not wait long for the session of a killed worker to end.
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "log.cleaner.dedupe.buffer.size": str(16 * _MEBIBYTE),
        "num.io.threads": "4",
        "num.network.threads": "2",
    }
