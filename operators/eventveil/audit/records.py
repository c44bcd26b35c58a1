"""Reading records of the ledger and of sinks, which may hold anything."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from eventveil.model.durable import is_version
from eventveil.model.records import TopicPartition

DIGEST_BYTES, STATEMENT_BYTES, SHOWN_BYTES = 32, 8, 16
_STATEMENTS = (
    *("fresh", "mechanism", "epsilon", "window", "units", "spent", "window_spent", "exhausted"),
    *("phase", "threshold", "forfeited", "noise", "delta"),
)


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record of the ledger or of a sink, where it was found; ``digest`` is the SHA-256 of its value.

    ``fields`` is its value if that is a JSON object, or a release by a schema, else None. ``committed`` is
    false for a record of an aborted transaction.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    fields: Mapping[str, Any] | None
    digest: bytes
    committed: bool = True

    @classmethod
    def read(
        cls,
        place: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        committed: bool = True,
        content: bytes | None = None,
    ) -> FoundRecord:
        """A record from its bytes; ``place`` is topic and partition. ``content`` is its value as JSON, where
        that is another one."""
        try:
            fields = orjson.loads((value if content is None else content) or b"null")
        except orjson.JSONDecodeError:
            fields = None
        known = fields if isinstance(fields, dict) else None
        return cls(*place, offset, key, known, hashlib.sha256(value or b"").digest(), committed)

    @property
    def stream(self) -> str:
        """The stream that the record says it is of; that of its key if it says nothing readable."""
        name = (self.fields or {}).get("stream")
        return name if isinstance(name, str) else (self.key or b"").decode(errors="replace")

    @property
    def timestamp(self) -> int | None:
        """The timestamp that the record says it is of, from 1 on; None if it names none."""
        timestamp = (self.fields or {}).get("timestamp")
        return timestamp if type(timestamp) is int and 1 <= timestamp < 2**63 else None

    @property
    def counts(self) -> list[Any] | None:
        """The released counts in the order of the columns, whichever form they have."""
        counts = (self.fields or {}).get("counts")
        if isinstance(counts, dict):
            return list(counts.values())
        return counts if isinstance(counts, list) else None

    @property
    def shown(self) -> bytes:
        """A hash of the counts that a release shows, whichever form they have; all zero for zeros alone."""
        counts = self.counts or []
        if not any(counts):
            return bytes(SHOWN_BYTES)
        return hashlib.blake2b(orjson.dumps(counts), digest_size=SHOWN_BYTES).digest()

    @property
    def statement(self) -> bytes:
        """A hash of what a record or an entry states of its charge."""
        stated = [(self.fields or {}).get(name) for name in _STATEMENTS]
        text = orjson.dumps(stated, option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(text, digest_size=STATEMENT_BYTES).digest()

    def __str__(self) -> str:
        aborted = "" if self.committed else " (aborted)"
        return TopicPartition(self.topic, self.partition).at(self.offset) + aborted


@dataclass(frozen=True, slots=True)
class Entry:
    """What the audit needs of a ledger entry, its types and signs checked.

    ``version`` is that of Eventveil which has decided the release; None if that is not recorded.
    """

    timestamp: int
    fresh: bool
    test: int
    publish: int
    window_spent: int
    digest: bytes
    instance: str
    exhausted: bool
    forfeited: bool
    version: str | None = None

    @classmethod
    def read(cls, found: FoundRecord) -> Entry | None:
        """The entry in a record; None if there is none."""
        fields = found.fields or {}
        try:
            spent, digest = fields["spent"], bytes.fromhex(fields["digest"])
            numbers = [fields["timestamp"], spent["test"], spent["publish"], fields["window_spent"]]
            fresh, instance = fields["fresh"], fields["instance"]
            exhausted, forfeited = fields.get("exhausted", False), fields.get("forfeited", False)
            version = fields.get("eventveil")
        except (KeyError, TypeError, ValueError):
            return None
        # Two of them are added up.
        sound = all(type(number) is int and 0 <= number < 2**62 for number in numbers) and numbers[0] >= 1
        sound = sound and {*map(type, (fresh, exhausted, forfeited))} == {bool} and type(instance) is str
        if not sound or len(digest) != DIGEST_BYTES or not ("eventveil" not in fields or is_version(version)):
            return None
        timestamp, test, publish, window_spent = numbers
        return cls(
            timestamp, fresh, test, publish, window_spent, digest, instance, exhausted, forfeited, version
        )
