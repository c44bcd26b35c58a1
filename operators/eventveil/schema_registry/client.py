"""One schema of a registry with Confluent's interface, by confluent-kafka's own client."""

from __future__ import annotations

from typing import Any

from eventveil.decoding.schemas import Unfit, Unusable
from eventveil.model.records import Schema
from eventveil.model.topology import Registry
from eventveil.schema_registry.access import Access, RegistryUnavailable

#: "Schema not found", the one answer that is a verdict on an id; and "subject" or "version not found".
_NO_SCHEMA, _NO_REFERENCE = 40403, (40401, 40402)


class _MissingReference(Exception):
    """The registry does not know what a schema refers to."""


class Client:
    """Reads schemas. Raises EventveilError if the extra ``registry`` is missing or a file cannot be read.

    ``protobuf`` tells whether a source has this format: without one, a schema of Protobuf that the registry
    gives as text is as unusable as any other of Protobuf, and nothing waits for a descriptor of it.
    """

    def __init__(self, registry: Registry, protobuf: bool = True) -> None:
        self._access, self._protobuf = Access(registry), protobuf

    def schema(self, number: int) -> Schema | None:
        """The schema with an id; None if the registry says that there is none. Raises RegistryUnavailable.

        None, too, if it refers to what the registry does not know, which may become known like a schema. One
        that no value can be read by is one too: it tells why.
        """
        try:
            found = self._access.client.get_schema(number, fmt="serialized")
        except Exception as error:
            if self._access.code(error) == _NO_SCHEMA:
                return None
            raise self._access.unavailable(error) from None
        finally:
            # The client's own memory has no bound.
            self._access.client.clear_caches()
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
                self._access.registry.url,
                "it gives schemas of Protobuf as text only, not as descriptors (format=serialized)",
                "Register them as descriptors, or take a registry that converts them",
            )
        return ProtobufSchema(text, references.items())

    def _references(self, schema: Any) -> dict[str, str]:
        """The texts of the schemas that one refers to, by name, each before who needs it."""
        found: dict[str, str] = {}
        for one in schema.references or ():
            if one.name in found:
                continue
            try:
                other = self._access.client.get_version(one.subject, one.version, True, "serialized").schema
            except Exception as error:
                if self._access.code(error) in (_NO_SCHEMA, *_NO_REFERENCE):
                    raise _MissingReference from None
                raise self._access.unavailable(error) from None
            found |= self._references(other)
            found[one.name] = other.schema_str or ""
        return found
