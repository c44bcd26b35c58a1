"""The schemas that a process knows: each requested once and kept, because the schema of an id never changes.

That an id is not known is not kept, or for seconds among many: it may become known. Whether a chunk may be
judged without it is decided by ``settled``: one server of a registry may serve a new schema a
moment later than another (docs/formats.md).
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
from eventveil.schema_registry.access import RegistryUnavailable
from eventveil.schema_registry.client import Client

#: A schema that a record names was known to all servers of a registry this long after, in milliseconds.
LAG_MS = 5_000
#: The most schemas that are kept.
_MOST = 1_000
#: A few unknown ids are asked for again whenever somebody names them. More, such as those of values that
#: somebody made up, not within these seconds; no more than the most are remembered.
_FEW, _UNKNOWN_SECONDS, _MOST_UNKNOWN = 10, 10.0, 50_000
#: A registry that could not be asked is not asked again sooner, in seconds.
_PAUSE_SECONDS = 1.0
#: One that was away may answer before it has read what it keeps: that it does not know a schema is not
#: believed for this long after it could not be asked.
_STARTING_SECONDS = 30.0


class KnownSchemas:
    """Schemas by id; ``ask`` is ``Client.schema``. From any thread."""

    def __init__(self, ask: Callable[[int], Schema | None], most: int = _MOST) -> None:
        self._ask, self._most = ask, most
        self._known: OrderedDict[int, Schema] = OrderedDict()
        #: When an id was last found unknown, in seconds of the monotonic clock, the oldest first.
        self._unknown: OrderedDict[int, float] = OrderedDict()
        # Nobody who has its schemas waits for a request: the first lock is held for moments only.
        self._remembering, self._asking = threading.Lock(), threading.Lock()
        self._failed_at, self._failure = 0.0, ""

    def of(self, values: Iterable[bytes | None]) -> Schemas:
        """What these values name. Blocks. Raises RegistryUnavailable."""
        found, missing = self.recall(values)
        return found | {number: self.find(number) for number in missing}

    def recall(
        self, values: Iterable[bytes | None], since: float = 0.0
    ) -> tuple[dict[int, Schema | None], list[int]]:
        """What these values name as far as nobody has to be asked, and the ids to be asked for.

        ``since``: that an id is unknown has to be as new, in seconds of the monotonic clock.
        """
        numbers = ids_in(values)
        since = max(since, time.monotonic() - _UNKNOWN_SECONDS)
        with self._remembering:
            known = [number for number in numbers if number in self._known]
            found: dict[int, Schema | None] = {number: self._recalled(number) for number in known}
            unknown = [number for number in numbers if self._unknown.get(number, -1.0) >= since]
        if len(unknown) > _FEW:
            found = dict.fromkeys(unknown) | found
        return found, sorted(numbers - found.keys())

    def find(self, number: int) -> Schema | None:
        """The schema with an id; the registry is asked by one at a time. Raises RegistryUnavailable."""
        with self._asking:
            with self._remembering:
                if number in self._known:
                    return self._recalled(number)
            found = self._asked(number)
            with self._remembering:
                self._remember(number, found)
            return found

    def _asked(self, number: int) -> Schema | None:
        if self._failure and time.monotonic() < self._failed_at + _PAUSE_SECONDS:
            raise _RetryLater(self._failure)
        try:
            found = self._ask(number)
        except RegistryUnavailable as error:
            self._failed_at, self._failure = time.monotonic(), str(error)
            raise
        if found is None and self._failure and time.monotonic() < self._failed_at + _STARTING_SECONDS:
            raise _RetryLater(
                f"the schema registry was unavailable and does not know the schema {number}; it may still "
                f"be starting, so this answer counts only {_STARTING_SECONDS:.0f} seconds after the outage"
            )
        return found

    def _recalled(self, number: int) -> Schema:
        self._known.move_to_end(number)
        return self._known[number]

    def _remember(self, number: int, found: Schema | None) -> None:
        self._unknown.pop(number, None)
        if found is None:
            self._unknown[number] = time.monotonic()
        else:
            self._known[number] = found
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        if len(self._unknown) > _MOST_UNKNOWN:
            self._unknown.popitem(last=False)


class _RetryLater(RegistryUnavailable):
    """The registry could not be asked a moment ago."""

    def __init__(self, before: str) -> None:
        EventveilError.__init__(self, before)


def known_schemas(topology: Topology) -> KnownSchemas | None:
    """None if no source needs any. Raises EventveilError if the extra ``registry`` is missing."""
    if topology.registry is None or not topology.by_schema:
        return None
    return KnownSchemas(Client(topology.registry, topology.has_protobuf).schema)


def settled(schemas: Schemas, append_times: Sequence[int], asked_at: int, now: int) -> bool:
    """Whether what is not known now was not known when the records were written. Times are in epoch ms.

    ``asked_at`` is when the schemas were first asked for, in place of append times where there are none;
    ``now`` is no later than when what is not known was asked for.
    """
    return None not in schemas.values() or now >= settles_at(append_times, asked_at)


def settles_at(append_times: Sequence[int], asked_at: int) -> int:
    """From when on an answer that a schema is not known is a verdict, in epoch ms; see ``settled``."""
    appended = max(append_times, default=NO_APPEND_TIME)
    return LAG_MS + (asked_at if appended == NO_APPEND_TIME else min(appended, asked_at))
