"""How a schema registry is reached: settings of confluent-kafka's own client, and what its errors mean."""

from __future__ import annotations

from functools import partial
from typing import Any

from eventveil.decoding.schemas import why
from eventveil.kafka.tokens import NoToken, tokens_of
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Registry

#: A registry that has not answered by then is away.
_TIMEOUT_SECONDS = 10
_MISSING = "the packages for schemas are not installed ({}): pip install 'eventveil[registry]'"
_UNREACHABLE = "Check registry.url and the network, and whether it runs"
#: What the text of an error of TLS has in it, and what that means. The first that fits counts.
_TLS = (
    (
        ("Hostname mismatch", "IP address mismatch"),
        "its certificate is of another name",
        "Write the name that is in the certificate into registry.url",
    ),
    (
        ("certificate verify failed", "CERTIFICATE_VERIFY_FAILED"),
        "its certificate is not trusted",
        "Name the file of its certificate authority in registry.ca",
    ),
    (
        ("CERTIFICATE_REQUIRED", "certificate required", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE"),
        "it asks for a client certificate that it trusts",
        "Name the files of one in registry.certificate and registry.key",
    ),
    (
        ("UNKNOWN_CA", "unknown ca"),
        "it does not trust the client certificate",
        "Use one from its certificate authority in registry.certificate and registry.key",
    ),
    (
        ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "record layer failure"),
        "it does not speak TLS at this address",
        "Write http:// into registry.url, or the port that has TLS",
    ),
)


class RegistryUnavailable(EventveilError):
    """The registry does not say what a schema is. That is not the fault of the events that name it."""

    def __init__(self, url: str, what: str, remedy: str = _UNREACHABLE) -> None:
        super().__init__(f"the schema registry at {url} cannot be queried: {what}. {remedy}")


class Access:
    """The client of a registry, and its errors.

    Raises EventveilError if the extra ``registry`` is missing or a file cannot be read.
    """

    def __init__(self, registry: Registry) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError

            import eventveil.decoding.avro
            import eventveil.decoding.protobuf  # noqa: F401
        except ImportError as error:
            raise EventveilError(_MISSING.format(error)) from None
        self.registry, self._refused = registry, SchemaRegistryError
        try:
            self.client = SchemaRegistryClient(_settings(registry))
        except (OSError, ValueError) as error:
            raise EventveilError(
                f"registry: {error}; check the files of ca, certificate and key, and url"
            ) from None

    def code(self, error: Exception, status: int = 404) -> int:
        """The registry's own code of an error that it answered with, under an HTTP status; 0 for others."""
        answered = isinstance(error, self._refused) and error.http_status_code == status
        return int(error.error_code or 0) if answered else 0  # type: ignore[attr-defined]

    def unavailable(self, error: Exception) -> RegistryUnavailable:
        """What an error means that is not a verdict, with what to do about it."""
        url = self.registry.url
        if isinstance(error, NoToken):
            return RegistryUnavailable(url, "it requires a token, and there is none", str(error))
        if isinstance(error, self._refused):
            status = error.http_status_code
            return RegistryUnavailable(url, why(error), self._remedy(status))
        for signs, what, remedy in _TLS:
            if any(sign in str(error) for sign in signs):
                return RegistryUnavailable(url, f"{what} ({why(error)})", remedy)
        return RegistryUnavailable(url, f"it cannot be reached ({why(error)})")

    def _remedy(self, status: int) -> str:
        given = self.registry
        if status == 401 and given.username is not None:
            return "It does not accept registry.username with this password: check both"
        if status == 401 and given.bearer:
            return "It does not accept the token: check who gives it, for which scope, and until when"
        if status == 401:
            return "It requires authentication: add registry.username and password, token_url, or token"
        if status == 403:
            return "It authenticated this principal but denied access: grant it read access to the schemas"
        return _UNREACHABLE


def _settings(registry: Registry) -> dict[str, Any]:
    settings: dict[str, Any] = {"url": registry.url, "timeout": _TIMEOUT_SECONDS, "max.retries": 0}
    if registry.username is not None:
        settings["basic.auth.user.info"] = f"{registry.username}:{registry.password}"
    for name in ("ca", "certificate", "key"):
        if (path := getattr(registry, name)) is not None:
            settings[f"ssl.{name}.location"] = path
    if registry.key_password is not None:
        settings["ssl.key.password"] = registry.key_password
    if registry.bearer:
        settings |= {
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.function": partial(_bearer, registry),
            "bearer.auth.custom.provider.config": {},
        }
    return settings


def _bearer(registry: Registry, _: object) -> dict[str, str]:
    """The token of a request, and what Confluent Cloud wants beside it. Raises NoToken."""
    token = registry.token or tokens_of(registry, "registry").token().text
    fields = {"bearer.auth.token": token, "bearer.auth.logical.cluster": registry.logical_cluster or ""}
    pool = registry.identity_pool
    return fields if pool is None else {**fields, "bearer.auth.identity.pool.id": pool}
