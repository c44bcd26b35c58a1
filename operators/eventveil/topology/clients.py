"""Settings that every client of Kafka gets as they are: a closed list, by librdkafka's names.

A worker has clients of two libraries and connections of its own. What only one of them can do would hold for
a part of a worker, so it is refused by name; so is what exactly-once releases or the guarantee rest on.
"""

from __future__ import annotations

import re
import ssl

from eventveil.model.topology import Clients
from eventveil.topology.fields import Field, One, RecordShape, Section
from eventveil.topology.scalars import Text, Whole

_ONCE = "exactly-once releases depend on it, and Eventveil sets it itself; remove it"
_READ = "what counts, and that it counts once, depends on it, and Eventveil sets it itself; remove it"
_GROUP = "which worker owns a partition depends on it, and Eventveil sets it itself; remove it"
_SAFE = "it would let somebody impersonate the brokers, and read events; remove it"
_TOLD = "it would write what events and credentials hold to a log; remove it"
_CODE = "it would run foreign code in the worker; remove it"
_ONE = "only one of the two client libraries has it, so it would hold for a part of a worker; remove it"

#: Why a setting of clients cannot be passed, and what to do.
REFUSED = {
    **dict.fromkeys(
        ("acks", "request.required.acks", "enable.idempotence", "transactional.id", "transaction.timeout.ms",
         "max.in.flight", "max.in.flight.requests.per.connection", "retries", "message.send.max.retries",
         "message.timeout.ms", "delivery.timeout.ms", "request.timeout.ms", "socket.timeout.ms",
         "enable.gapless.guarantee", "partitioner", "message.max.bytes", "compression.type"),
        _ONCE,
    ),
    **dict.fromkeys(
        ("isolation.level", "auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store",
         "check.crcs", "client.rack", "fetch.max.bytes", "fetch.message.max.bytes",
         "max.partition.fetch.bytes", "receive.message.max.bytes", "metadata.max.age.ms",
         "topic.metadata.refresh.interval.ms", "allow.auto.create.topics", "enable.partition.eof"),
        _READ,
    ),
    **dict.fromkeys(
        ("group.id", "group.instance.id", "group.protocol", "partition.assignment.strategy",
         "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"),
        _GROUP,
    ),
    **dict.fromkeys(
        ("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm",
         "ssl.engine.location", "ssl.providers"),
        _SAFE,
    ),
    **dict.fromkeys(("debug", "log_level", "statistics.interval.ms"), _TOLD),
    **dict.fromkeys(
        ("plugin.library.paths", "interceptor.classes", "sasl.jaas.config", "sasl.kerberos.kinit.cmd"), _CODE
    ),
    **dict.fromkeys(
        ("socket.keepalive.enable", "broker.address.family", "client.dns.lookup", "ssl.crl.location",
         "ssl.curves.list", "ssl.sigalgs.list", "reconnect.backoff.ms", "reconnect.backoff.max.ms",
         "socket.connection.setup.timeout.ms", "retry.backoff.ms", "linger.ms", "batch.size"),
        _ONE,
    ),
    "bootstrap.servers": "it is set in kafka.bootstrap; remove it",
    **{
        setting: f"it is set in kafka.security.{ours}; write it there"
        for setting, ours in {
            "security.protocol": "protocol",
            "sasl.mechanism": "mechanism",
            "sasl.mechanisms": "mechanism",
            "sasl.username": "username",
            "sasl.password": "password",
            "ssl.ca.location": "ca",
            "ssl.certificate.location": "certificate",
            "ssl.key.location": "key",
            "ssl.key.password": "key_password",
            "sasl.kerberos.service.name": "service_name",
            "sasl.oauthbearer.client.id": "client_id",
            "sasl.oauthbearer.client.secret": "client_secret",
            "sasl.oauthbearer.scope": "scope",
            "sasl.oauthbearer.extensions": "extensions",
            "sasl.oauthbearer.token.endpoint.url": "token_url",
        }.items()
    },
    **dict.fromkeys(
        ("sasl.kerberos.keytab", "sasl.kerberos.principal"),
        "tickets are those of the environment; set KRB5_CLIENT_KTNAME or KRB5CCNAME there, and remove it",
    ),
}  # fmt: skip

CLIENTS = RecordShape(
    (
        Field(
            "client.id",
            One(Text("1 to 200 letters, digits, dots, dashes and underscores", r"[A-Za-z0-9._-]{1,200}")),
            "The name that quotas and the logs of brokers go by.",
        ),
        Field(
            "connections.max.idle.ms",
            One(Whole(10_000, 2**31 - 1)),
            "Connections that were idle for longer are closed before a firewall forgets them.",
        ),
        Field(
            "ssl.cipher.suites",
            One(Text("ciphers as OpenSSL names them, separated by colons", r"[A-Za-z0-9:!+@=_-]{1,1000}")),
            "What TLS 1.2 may use.",
        ),
    ),
    later=REFUSED,
)


def clients_of(section: Section) -> Clients:
    """The model of a section without mistakes."""
    return Clients(
        section.get("client.id"), section.get("ssl.cipher.suites"), section.get("connections.max.idle.ms")
    )


def check_clients(kafka: Section) -> None:
    """Note ciphers of connections that have none, and those that leave brokers or events unprotected."""
    clients, security = kafka.get("clients"), kafka.get("security")
    if clients is None or "ssl.cipher.suites" not in clients.positions:
        return
    protocol = security.get("protocol") if security is not None else None
    ciphers = clients.get("ssl.cipher.suites")
    if protocol is not None and "SSL" not in protocol:
        why: str | None = f"has no effect with protocol {protocol}; use SSL, or remove it"
    else:
        why = weakness(ciphers) if ciphers else None
    if why is not None:
        clients.note("ssl.cipher.suites", f"kafka.clients.ssl.cipher.suites {why}")


#: Parts of the names of ciphers without authentication or encryption, or with short keys. The OpenSSL of
#: librdkafka may know some that Python's does not.
_OPEN = re.compile(r"(?<![A-Za-z])(aNULL|eNULL|NULL|ADH|AECDH|anon|EXP|EXPORT\d*|LOW|DES|RC2)(?![A-Za-z0-9])")
_LEAST_BITS = 128


def weakness(ciphers: str) -> str | None:
    """Why these cannot be handed to clients; None if they can, or if OpenSSL here knows none of them."""
    if "@" in ciphers:
        return "has a command (@), which can lower what OpenSSL requires of brokers; list ciphers alone"
    for one in ciphers.split(":"):
        if not one.startswith(("!", "-")) and _OPEN.search(one):
            return f"has {one}: {_IMPERSONATED}; remove it"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError:
        # Clients refuse it with a message of their own.
        return None
    for suite in context.get_ciphers():
        weak = suite["auth"] == "auth-null" or suite["strength_bits"] < _LEAST_BITS
        if suite["protocol"] != "TLSv1.3" and weak:
            return f"allows {suite['name']}: {_IMPERSONATED}; list others, such as ECDHE+AESGCM"
    return None


_IMPERSONATED = (
    f"without authentication, or with fewer than {_LEAST_BITS} bits, somebody could impersonate the"
    " brokers, and read events"
)
