"""One schema of a registry with Confluent's interface, by confluent-kafka's own client."""

from __future__ import annotations

from typing import Any

from eventveil.decoding.schemas import Unfit, Unusable, why
from eventveil.model.errors import EventveilError
from eventveil.model.records import Schema
from eventveil.model.topology import Registry

#: A registry that has not answered by then is away.
_TIMEOUT_SECONDS = 10
#: "Schema not found", the one answer that is a verdict on an id; and "subject" or "version not found".
_NO_SCHEMA, _NO_REFERENCE = 40403, (40401, 40402)
_MISSING = "what reads by schemas is not installed ({}): pip install 'eventveil[registry]'"


class RegistryUnavailable(EventveilError):
    """The registry does not say what a schema is. That is not the fault of the events that name it."""

    def __init__(self, url: str, what: str) -> None:
        super().__init__(
            f"the schema registry at {url} cannot be asked: {what}. Check registry in the topology, its"
            " credentials, and whether it runs"
        )


class _MissingReference(Exception):
    """The registry does not know what a schema refers to."""


class Client:
    """Reads schemas. Raises EventveilError if the extra ``registry`` is missing or a file cannot be read.

    ``protobuf`` tells whether a source has this format: without one, a schema of Protobuf that the registry
    gives as text is as unusable as any other of Protobuf, and nothing waits for a descriptor of it.
    """

    def __init__(self, registry: Registry, protobuf: bool = True) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError

            import eventveil.decoding.avro
            import eventveil.decoding.protobuf  # noqa: F401
        except ImportError as error:
            raise EventveilError(_MISSING.format(error)) from None
        self._url, self._refused, self._protobuf = registry.url, SchemaRegistryError, protobuf
        try:
            self._client = SchemaRegistryClient(_settings(registry))
        except (OSError, ValueError) as error:
            raise EventveilError(
                f"registry: {error}; check the files of ca, certificate and key, and url"
            ) from None

    def schema(self, number: int) -> Schema | None:
        """The schema with an id; None if the registry says that there is none. Raises RegistryUnavailable.

        None, too, if it refers to what the registry does not know, which may become known like a schema. One
        that no value can be read by is one too: it tells why.
        """
        try:
            found = self._client.get_schema(number, fmt="serialized")
        except Exception as error:
            if self._code(error) == _NO_SCHEMA:
                return None
            raise self._unavailable(error) from None
        finally:
            # The client's own memory has no bound.
            self._client.clear_caches()
        try:
            return self._compiled(found)
        except _MissingReference:
            return None
        except Unfit as error:
            return Unusable(str(error))

    def _compiled(self, schema: Any) -> Schema:
        kind, text = schema.schema_type, schema.schema_str
        if kind not in ("AVRO", "PROTOBUF"):
            raise Unfit(f"it is of {kind}, which is neither Avro nor Protobuf")
        references = self._references(schema)
        if kind == "AVRO":
            from eventveil.decoding.avro import AvroSchema

            return AvroSchema(text, [*references.values()])
        from eventveil.decoding.protobuf import ProtobufSchema, is_descriptor

        if not all(map(is_descriptor, (text, *references.values()))):
            if not self._protobuf:
                return Unusable("it is of Protobuf, as text", "protobuf")
            raise RegistryUnavailable(
                self._url, "it gives schemas of Protobuf as text only, not as descriptors (format=serialized)"
            )
        return ProtobufSchema(text, references.items())

    def _references(self, schema: Any) -> dict[str, str]:
        """The texts of the schemas that one refers to, by name, each before who needs it."""
        found: dict[str, str] = {}
        for one in schema.references or ():
            if one.name in found:
                continue
            try:
                other = self._client.get_version(one.subject, one.version, True, "serialized").schema
            except Exception as error:
                if self._code(error) in (_NO_SCHEMA, *_NO_REFERENCE):
                    raise _MissingReference from None
                raise self._unavailable(error) from None
            found |= self._references(other)
            found[one.name] = other.schema_str or ""
        return found

    def _code(self, error: Exception) -> int:
        """The registry's own code of an error that it answered with; 0 for any other."""
        answered = isinstance(error, self._refused) and error.http_status_code == 404
        return int(error.error_code or 0) if answered else 0  # type: ignore[attr-defined]

    def _unavailable(self, error: Exception) -> RegistryUnavailable:
        return RegistryUnavailable(self._url, why(error))


def _settings(registry: Registry) -> dict[str, Any]:
    settings: dict[str, Any] = {"url": registry.url, "timeout": _TIMEOUT_SECONDS, "max.retries": 0}
    if registry.username is not None:
        settings["basic.auth.user.info"] = f"{registry.username}:{registry.password}"
    files = {"ca": "ca", "certificate": "certificate", "key": "key"}
    for name, option in files.items():
        if (path := getattr(registry, name)) is not None:
            settings[f"ssl.{option}.location"] = path
    if registry.key_password is not None:
        settings["ssl.key.password"] = registry.key_password
    return settings
