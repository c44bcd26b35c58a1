"""The schemas of sinks: whether a registry knows them, under which id, and how they are made known to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from eventveil.model.errors import EventveilError
from eventveil.model.topology import Registry, SinkFormat, Stream
from eventveil.schema_registry.access import Access

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

#: What a registry calls the formats of sinks.
_TYPES: dict[SinkFormat, str] = {"avro": "AVRO", "json-schema": "JSON"}
#: "Subject", "version" and "schema not found"; "incompatible" has no code of its own everywhere.
_NOT_FOUND = (40401, 40402, 40403)
_CONFLICT = 409
#: Ids are in four bytes, and registries have them in 32 bits with a sign.
_IDS = range(1, 2**31)


def subject_of(stream: Stream) -> str:
    """The subject of a sink's values, by the default strategy of serializers (TopicNameStrategy)."""
    return f"{stream.sink.topic}-value"


class Subjects:
    """Blocks. ``text`` gives the schema of a format. See ``Access`` for what making one raises."""

    def __init__(self, registry: Registry, text: Callable[[SinkFormat], str]) -> None:
        self._access, self._text = Access(registry), text

    def find(self, stream: Stream) -> int | None:
        """The id of the schema of a sink; None if the registry does not know it, under its subject.

        Raises RegistryUnavailable.
        """
        client = self._access.client
        try:
            found = client.lookup_schema(subject_of(stream), self._schema(stream.sink.format))
        except Exception as error:
            if self._access.code(error) in _NOT_FOUND:
                return None
            raise self._access.unavailable(error) from None
        finally:
            client.clear_caches()
        return self._id(found.schema_id)

    def register(self, stream: Stream) -> int:
        """Make the schema of a sink known; its id. Raises RegistryUnavailable, and EventveilError if the
        registry does not take it beside the schemas that the subject has."""
        client, subject = self._access.client, subject_of(stream)
        try:
            client.register_schema(subject, self._schema(stream.sink.format))
        except Exception as error:
            if self._access.code(error, _CONFLICT):
                raise EventveilError(
                    f"the schema registry at {self._access.registry.url} refuses the schema of {subject}"
                    f" ({error}): the subject already holds an incompatible schema. Give the stream a "
                    "sink.topic whose subject is free"
                ) from None
            raise self._access.unavailable(error) from None
        finally:
            client.clear_caches()
        found = self.find(stream)
        if found is None:
            raise EventveilError(
                f"the schema registry accepted the schema of {subject} but does not return it yet. Try again"
            )
        return found

    def _schema(self, form: SinkFormat) -> Schema:
        from confluent_kafka.schema_registry import Schema

        return Schema(self._text(form), _TYPES[form])

    def _id(self, number: int | None) -> int:
        if number is None or number not in _IDS:
            raise self._access.unavailable(ValueError(f"it gives the id {number}, which no schema can have"))
        return number
