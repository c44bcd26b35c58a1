"""One description of the cluster, translated for librdkafka and for aiokafka."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import faust
from aiokafka.abc import AbstractTokenProvider

from eventveil.kafka.tokens import Tokens, tokens
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Kafka, Security

#: Errors reach the caller as exceptions; a broker that is away would fill the log with one line per attempt.
_QUIET = {"log_level": 2, "reconnect.backoff.ms": 250, "reconnect.backoff.max.ms": 5000}
_BEARER = "OAUTHBEARER"


def librdkafka(kafka: Kafka) -> dict[str, Any]:
    """The connection settings of a confluent-kafka client."""
    security = kafka.security
    source = tokens(security)
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism if source is None else _BEARER,
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key,
        "ssl.key.password": security.key_password,
        # Left to its own means, it would ask for a token for every client.
        "oauth_cb": None if source is None else lambda _: source.token(),
    }
    return {**_QUIET, **{name: value for name, value in settings.items() if value is not None}}


def aiokafka(kafka: Kafka) -> dict[str, Any]:
    """The connection settings of an aiokafka client. Raises EventveilError if certificates do not fit."""
    security = kafka.security
    return {
        "bootstrap_servers": kafka.bootstrap.split(","),
        "security_protocol": security.protocol,
        "ssl_context": _ssl_context(security),
        **_sasl(security),
    }


def _sasl(security: Security) -> dict[str, Any]:
    if (source := tokens(security)) is not None:
        return {"sasl_mechanism": _BEARER, "sasl_oauth_token_provider": Provider(source)}
    if not security.mechanism:
        return {}
    return {
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password,
    }


class Provider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """The tokens, as aiokafka asks for them."""

    def __init__(self, source: Tokens) -> None:
        self.source = source

    async def token(self) -> str:
        """A token. Raises NoToken."""
        return (await asyncio.to_thread(self.source.token)).text


def faust_credentials(kafka: Kafka) -> Any:
    """The credentials of a Faust app, for the producer that Faust insists on; None without security."""
    security = kafka.security
    context = _ssl_context(security)
    if (source := tokens(security)) is not None:
        return faust.OAuthCredentials(oauth_cb=Provider(source), ssl_context=context)
    if security.mechanism:
        return faust.SASLCredentials(
            username=security.username,
            password=security.password,
            mechanism=security.mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context else None


def _ssl_context(security: Security) -> ssl.SSLContext | None:
    if not security.protocol.endswith("SSL"):
        return None
    try:
        context = ssl.create_default_context(cafile=security.ca)
    except (OSError, ValueError) as error:
        raise _unreadable("ca", security.ca, error) from None
    if security.certificate:
        # Without a password OpenSSL would ask for one at the terminal.
        try:
            context.load_cert_chain(security.certificate, security.key, security.key_password or "")
        except (OSError, ValueError) as error:
            raise _unreadable("certificate", f"{security.certificate}, key {security.key}", error) from None
    return context


def _unreadable(setting: str, path: str | None, error: Exception) -> EventveilError:
    if isinstance(error, ssl.SSLError):
        told = "not PEM, a certificate and a key that do not belong together, or a wrong key_password"
        told = f"{error.reason or error}: {told}"
    else:
        told = getattr(error, "strerror", None) or str(error)
    return EventveilError(
        f"kafka.security.{setting} {path}: it cannot be used ({told}). Check the files and their rights"
    )
