"""The schemas that a process knows: each asked for once and kept, for what has an id never changes.

That an id is not known is not kept: it may become known. Whether a chunk may be judged without it is decided
by ``settled``, for a registry of several servers may tell of a new schema a moment later on one than on
another (docs/formats.md).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from eventveil.decoding.schemas import ids_in
from eventveil.model.errors import EventveilError
from eventveil.model.records import NO_APPEND_TIME, Schema, Schemas
from eventveil.model.topology import Topology
from eventveil.schema_registry.client import Client, RegistryUnavailable

#: A schema that a record names was known to all servers of a registry this long after, in milliseconds.
LAG_MS = 5_000
#: The most schemas that are kept.
_MOST = 1_000
#: A registry that could not be asked is not asked again sooner, in seconds.
_PAUSE_SECONDS = 1.0


class KnownSchemas:
    """Schemas by id; ``ask`` is ``Client.schema``. From any thread."""

    def __init__(self, ask: Callable[[int], Schema | None], most: int = _MOST) -> None:
        self._ask, self._most = ask, most
        self._known: OrderedDict[int, Schema] = OrderedDict()
        self._asking = threading.Lock()
        self._failed_at, self._failure = 0.0, ""

    def of(self, values: Iterable[bytes | None]) -> Schemas:
        """What these values name. Blocks. Raises RegistryUnavailable."""
        with self._asking:
            return {number: self._find(number) for number in sorted(ids_in(values))}

    def _find(self, number: int) -> Schema | None:
        if number in self._known:
            self._known.move_to_end(number)
            return self._known[number]
        if self._failure and time.monotonic() < self._failed_at + _PAUSE_SECONDS:
            raise _Again(self._failure)
        try:
            found = self._ask(number)
        except RegistryUnavailable as error:
            self._failed_at, self._failure = time.monotonic(), str(error)
            raise
        if found is not None:
            self._known[number] = found
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return found


class _Again(RegistryUnavailable):
    """What the registry could not be asked a moment ago."""

    def __init__(self, before: str) -> None:
        EventveilError.__init__(self, before)


def known_schemas(topology: Topology) -> KnownSchemas | None:
    """None if no source needs any. Raises EventveilError if the extra ``registry`` is missing."""
    if topology.registry is None or not topology.by_schema:
        return None
    return KnownSchemas(Client(topology.registry).schema)


def settled(schemas: Schemas, append_times: Sequence[int], asked_at: int, now: int) -> bool:
    """Whether what is not known now was not known when the records were written. Times are in epoch ms.

    ``asked_at`` is when the schemas were first asked for, in place of append times where there are none.
    """
    appended = max(append_times, default=NO_APPEND_TIME)
    since = asked_at if appended == NO_APPEND_TIME else min(appended, asked_at)
    return None not in schemas.values() or now >= since + LAG_MS
