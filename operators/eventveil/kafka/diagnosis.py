"""Why a cluster cannot be reached: what librdkafka calls a transport failure, in words.

The same is tried once more by a connection of our own (``eventveil.kafka.connection``), which sees what TLS,
SASL and the identity provider say, broker by broker: first those of ``kafka.bootstrap``, then those that the
cluster names. Each obstacle has its place, its cause and its remedy; no message holds a secret.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from aiokafka.conn import collect_hosts
from aiokafka.protocol.metadata import MetadataRequest

from eventveil.kafka.connection import (
    Address,
    Connection,
    NotAdmitted,
    NoTicket,
    NotKafka,
    NotOffered,
    Unanswered,
    Unreached,
)
from eventveil.kafka.settings import aiokafka as aiokafka_settings
from eventveil.kafka.tokens import NoToken
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Kafka, Security

_SECONDS = 5.0
#: What OpenSSL calls the alerts of a broker that wants another client certificate, or one at all.
_ABOUT_CERTIFICATES = (
    "CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "HANDSHAKE_FAILURE",
    "CERTIFICATE_EXPIRED", "UNSUPPORTED_CERTIFICATE", "ACCESS_DENIED",
)  # fmt: skip
_NO_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


class NotReached(EventveilError):
    """A cluster cannot be reached; ``is_final`` tells that another attempt will meet the same."""

    def __init__(self, place: str, what: str, remedy: str, *, is_final: bool) -> None:
        super().__init__(f"{place}: {what}. {remedy}")
        self.is_final = is_final


def obstacle(kafka: Kafka) -> NotReached | None:
    """What keeps this process from the brokers: from all of ``kafka.bootstrap``, or from all that these name.

    None if one of each lets it in. Blocks for some seconds at most for each broker. Raises EventveilError for
    certificates that cannot be read.
    """
    settings = aiokafka_settings(kafka)
    found: list[NotReached] = []
    for host, port, _ in collect_hosts(settings["bootstrap_servers"]):
        try:
            named = [*_named((host, port), settings)]
        except (Unreached, Unanswered) as error:
            found.append(_told(f"{host}:{port}", error, kafka.security))
        else:
            return _of_all(named, settings, kafka.security)
    return _worst(found)


def _of_all(brokers: list[Address], settings: dict[str, object], security: Security) -> NotReached | None:
    found: list[NotReached] = []
    for address in brokers:
        try:
            Connection(address, settings, _SECONDS).close()
        except Unreached as error:
            place = f"{address[0]}:{address[1]}, which the cluster names as one of its brokers"
            found.append(_told(place, error, security))
        else:
            return None
    return _worst(found)


def _worst(found: list[NotReached]) -> NotReached | None:
    """One for which waiting is no help, if there is one."""
    return next((one for one in found if one.is_final), found[0] if found else None)


def _named(address: Address, settings: dict[str, object]) -> Iterator[Address]:
    """The brokers that one names. Raises Unreached and Unanswered."""
    connection = Connection(address, settings, _SECONDS)
    try:
        connection.send(MetadataRequest([], allow_auto_topic_creation=False), _SECONDS)
        for _, host, port, *_ in connection.receive(_SECONDS).brokers:
            yield host, port
    finally:
        connection.close()


def _told(place: str, error: Unreached | Unanswered, security: Security) -> NotReached:
    cause = error.__cause__
    if isinstance(cause, NotAdmitted):
        return NotReached(place, *_not_admitted(cause, security), is_final=True)
    if isinstance(cause, NoToken):
        return NotReached(place, "no token to authenticate with", str(cause), is_final=not cause.passes)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return NotReached(place, *_not_trusted(cause), is_final=True)
    encrypted = security.protocol.endswith("SSL")
    if isinstance(cause, ssl.SSLError) and not _says(cause, _NO_TLS):
        final = _says(cause, _ABOUT_CERTIFICATES)
        return NotReached(place, *_refused_by_tls(cause, security), is_final=final)
    if isinstance(cause, ssl.SSLError):
        what = f"it does not speak TLS ({cause.reason})"
        remedy = f"Is that a listener without TLS? kafka.security.protocol is {security.protocol}"
        return NotReached(place, what, remedy, is_final=False)
    if isinstance(cause, socket.gaierror):
        return NotReached(place, "no host has this name", "Check kafka.bootstrap", is_final=False)
    if isinstance(cause, ConnectionRefusedError):
        return NotReached(
            place, "nothing listens there", "Check kafka.bootstrap; is the broker up?", is_final=False
        )
    if isinstance(cause, TimeoutError):
        what, remedy = (
            "it does not answer in time",
            "Is it a Kafka broker? Check the address, and the network in between (a firewall?)",
        )
        return NotReached(place, what, remedy, is_final=False)
    if isinstance(cause, NotKafka):
        what = "it does not answer as a Kafka broker does"
        remedy = (
            f"Is that the port of another service, or of a listener with{'out' if encrypted else ''} TLS?"
            f" kafka.security.protocol is {security.protocol}"
        )
        return NotReached(place, what, remedy, is_final=False)
    if isinstance(cause, (EOFError, ConnectionError)):
        what = "it closes the connection without an answer"
        wants = "a client certificate" if encrypted else "TLS (SSL, SASL_SSL)"
        remedy = (
            f"Does that listener require {wants}, or SASL? kafka.security.protocol is {security.protocol}"
        )
        return NotReached(place, what, remedy, is_final=False)
    return NotReached(place, f"it cannot be reached ({cause!r})", "Check kafka.bootstrap", is_final=False)


def _says(error: ssl.SSLError, words: tuple[str, ...]) -> bool:
    return any(word in f"{error.reason} {error}".upper().replace(" ", "_") for word in words)


def _not_admitted(error: NotAdmitted, security: Security) -> tuple[str, str]:
    if isinstance(error, NotOffered):
        return (
            f"{error} (SASL)",
            "Set kafka.security.mechanism to one that it offers, or choose another listener",
        )
    if isinstance(error, NoTicket):
        remedy = (
            "Give the process a ticket or a keytab (KRB5CCNAME, KRB5_CLIENT_KTNAME); check that the name of"
            " the broker in kafka.bootstrap, and kafka.security.service_name, are those of its principal"
        )
        return f"Kerberos has no ticket for it ({error})", remedy
    if security.mechanism == "GSSAPI":
        return f"the broker does not accept the ticket ({error})", "Check the clock, and the broker's keytab"
    if security.mechanism == "OAUTHBEARER":
        remedy = (
            "Check issuer, audience and scope of the token, and kafka.security.extensions, against what the"
            " broker expects"
        )
        return f"the broker does not accept the token ({error})", remedy
    if security.mechanism == "AWS_MSK_IAM":
        remedy = "Check region, and the rights of the role (kafka-cluster:Connect)"
        return f"the broker does not accept the token ({error})", remedy
    what = f"the broker does not accept user name and password ({security.mechanism}: {error})"
    return what, "Check username and password of kafka.security"


def _not_trusted(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    told = error.verify_message
    if "mismatch" in told or "doesn't match" in told or "not valid for" in told:
        remedy = "Use a name that the certificate has, in kafka.bootstrap and in the broker's listeners"
        return f"the broker's certificate is for another name ({told})", remedy
    if "expired" in told or "not yet valid" in told:
        return f"the broker's certificate is out of date ({told})", "Renew it, or set the clock"
    remedy = "Name the file of the authority that signed it in kafka.security.ca"
    return f"the broker's certificate is signed by an unknown authority ({told})", remedy


def _refused_by_tls(error: ssl.SSLError, security: Security) -> tuple[str, str]:
    told = error.reason or str(error)
    if not _says(error, _ABOUT_CERTIFICATES):
        return f"the TLS handshake fails ({told})", "Compare the versions and ciphers of both sides"
    if security.certificate is None:
        remedy = "Name its files in kafka.security.certificate and key"
        return f"the broker requires a client certificate, and there is none ({told})", remedy
    remedy = "Check who signed kafka.security.certificate, for whom, and how long it is valid"
    return f"the broker does not accept the client certificate ({told})", remedy
