"""In which format values are: plain JSON, or behind the prefix of a schema registry, and then in which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from eventveil.decoding.places import Filter
from eventveil.decoding.rules import Reason
from eventveil.decoding.schemas import PREFIX, ids_in, schema_id
from eventveil.doctor.sample import SourceSample
from eventveil.model.records import NO_SCHEMAS, Schemas
from eventveil.model.topology import BY_SCHEMA, Condition, Format

#: The reasons that values in another format than the stated one are refused for.
REASONS = frozenset({Reason.NOT_JSON, Reason.UNKNOWN_SCHEMA, Reason.NOT_OF_SCHEMA})
_PREFIX = "most values begin with the prefix of a schema registry (a zero byte and the id of a schema)"


@dataclass(frozen=True, slots=True)
class Framing:
    """How many of ``values`` are a JSON object or array, as they are or behind a prefix.

    ``framed`` are behind a prefix with an id that a schema can have, whatever follows. ``kinds`` are how many
    have a schema of each format, as far as a registry was asked and knows it.
    """

    values: int = 0
    plain: int = 0
    framed: int = 0
    framed_json: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def found(self) -> Format | None:
        """The format that more than half of the values have; None if there is none, or it is not known.

        What a registry says of a schema is believed before what the bytes look like.
        """
        for kind in BY_SCHEMA:
            if self._is_most(self.kinds[kind]):
                return kind
        if self._is_most(self.framed_json):
            return "json-schema"
        return "json" if self._is_most(self.plain) else None

    @property
    def is_unknown(self) -> bool:
        """Whether most values name schemas and are no JSON, and nobody has said what they are."""
        return self.found is None and self._is_most(self.framed - self.framed_json)

    def _is_most(self, number: int) -> bool:
        return 2 * number > self.values

    def remedy(self, stated: Format, has_registry: bool) -> str | None:
        """What to do if ``stated`` is not what most values have; None if that is not it."""
        found = self.found
        if found == stated:
            return None
        if found == "json":
            return f"most values are JSON without the prefix of a schema registry: format: json, not {stated}"
        if found == "json-schema":
            return f"{_PREFIX} and JSON follows: format: json-schema, not {stated}"
        if found is not None:
            return f"{_PREFIX}, and these schemas are of {found}: format: {found}, not {stated}"
        if not self.is_unknown or stated in BY_SCHEMA:
            return None
        if has_registry:
            return (
                f"{_PREFIX}, and registry.url does not say that these are of Avro or Protobuf: name the"
                " registry of the producer's serializer there"
            )
        return (
            f"{_PREFIX} and no JSON follows: write format: avro or format: protobuf, whichever the producer's"
            " serializer writes, and registry: {url: https://...} at the top level"
        )


def framing_of(values: Iterable[bytes | None], schemas: Schemas = NO_SCHEMAS) -> Framing:
    """What these values look like; those of records without one are not among them."""
    number = plain = framed = framed_json = 0
    kinds = Counter[str]()
    for value in values:
        if value is None:
            continue
        number += 1
        if not ids_in([value]):
            plain += _is_json(value)
            continue
        framed += 1
        schema = schemas.get(schema_id(value) or 0)
        if schema is not None and schema.form is not None:
            kinds[schema.form] += 1
        else:
            framed_json += _is_json(value[PREFIX:])
    return Framing(number, plain, framed, framed_json, kinds)


def framing(sample: SourceSample, conditions: Iterable[Condition] = ()) -> Framing:
    """The same of the records of a sample that pass the conditions on what is around their values.

    Nothing of a file: its events are JSON, however the topic is written.
    """
    if sample.is_file:
        return Framing()
    rules = Filter(conditions)
    values = [one.value for one in sample.records if rules.passes_around(one.around)]
    return framing_of(values, sample.schemas)


def _is_json(text: bytes) -> bool:
    """Whether it is an object or an array: digits alone are often something else."""
    if text.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
