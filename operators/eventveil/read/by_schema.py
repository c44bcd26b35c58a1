"""Releases behind the prefix of a schema registry, read by the schema that each one names."""

from __future__ import annotations

from eventveil.decoding.schemas import Unfit, UnknownSchema, read, schema_id
from eventveil.formats.release import as_json
from eventveil.model.topology import Registry
from eventveil.read.problems import ReadingError
from eventveil.schema_registry.client import Client
from eventveil.schema_registry.known import KnownSchemas

_NO_REGISTRY = "Read with a topology that names it, or give its address as `registry`"
_UNKNOWN = (
    "Is it the registry that the worker uses, and was the schema deleted there? `eventveil topics TOPOLOGY"
    " --create` registers it"
)
_DAMAGED = "Find out who else writes to this topic: `eventveil ledger` audits a sink"


class BySchema:
    """Makes JSON of the values of sinks. ``registry`` is asked once for each schema; None: there is none."""

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry
        self._known: KnownSchemas | None = None

    def json(self, value: bytes | None, place: str) -> bytes:
        """The JSON of a release; what is none comes back as it is. ``place`` is where it was found.

        Blocks. Raises ReadingError for a value that cannot be read, and EventveilError if the registry cannot
        be asked or the extra ``registry`` is missing.
        """

        def read_avro(value: bytes) -> bytes:
            return self._read(value, place)

        return as_json(value or b"", read_avro)

    def _read(self, value: bytes, place: str) -> bytes:
        if self._known is None:
            if self._registry is None:
                what = f"it is written by schema {schema_id(value)} of a registry, and none is given"
                raise ReadingError(place, what, _NO_REGISTRY)
            self._known = KnownSchemas(Client(self._registry, protobuf=False).schema)
        from eventveil.formats import avro

        try:
            return avro.as_json(read(value, "avro", self._known.of([value])))
        except UnknownSchema as error:
            raise ReadingError(place, str(error), _UNKNOWN) from None
        except (Unfit, ValueError) as error:
            raise ReadingError(place, str(error), _DAMAGED) from None
