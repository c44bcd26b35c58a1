"""Finds the schemas of sinks before anything is released: where the registry does not know one, all of its
stream waits. Streams beside it do not, however long the registry takes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from eventveil.model.errors import EventveilError
from eventveil.schema_registry.subjects import subject_of
from eventveil.tasks.release import StreamSanitizer
from eventveil.worker.restore.restored import Context

log = logging.getLogger(__name__)

#: A registry is not asked again sooner, in seconds.
_PAUSE_SECONDS = 1.0


class SinkSchemas:
    """Those of the streams of a task. What an id means never changes, so each is asked for once."""

    def __init__(
        self, sanitizers: Sequence[StreamSanitizer], context: Context, beside: Callable[[], Awaitable[None]]
    ) -> None:
        self._sanitizers, self._beside = sanitizers, beside
        self._subjects, self._asking = context.subjects, context.threads.asking
        self._round: asyncio.Task[None] | None = None
        self._ask_again = 0.0
        self._found: dict[str, int] = {}
        self._told: dict[str, str] = {}

    def waits(self) -> bool:
        """Whether nothing of a stream is released because its schema is not known."""
        return any(one.lacks_schema for one in self._sanitizers)

    async def look(self) -> None:
        """Take what was answered; ask for what is not known yet, without waiting for the answer; then look
        at whatever else there is."""
        self._take()
        if self._round is None and self.waits() and time.monotonic() >= self._ask_again:
            self._round = asyncio.create_task(self._ask())
        await self._beside()

    def _take(self) -> None:
        """Here alone, where nothing is being decided: no decision sees a schema come."""
        for one in self._sanitizers:
            if one.lacks_schema and one.stream.name in self._found:
                one.schema = self._found[one.stream.name]
                log.info("stream %s: releases use schema id %d", one.stream.name, one.schema)
        if self._round is not None and self._round.done():
            ended, self._round = self._round, None
            self._ask_again = time.monotonic() + _PAUSE_SECONDS
            ended.result()

    async def _ask(self) -> None:
        assert self._subjects is not None, "a sink has a schema, and nobody can ask for it"
        for one in self._sanitizers:
            if not one.lacks_schema or one.stream.name in self._found:
                continue
            try:
                found = await self._asking(self._subjects.find, one.stream)
            except EventveilError as error:
                self._tell(one, str(error))
                continue
            if found is None:
                self._tell(
                    one,
                    f"its schema is not in the registry, {subject_of(one.stream)};"
                    " `eventveil topics TOPOLOGY --create` registers it",
                )
                continue
            self._found[one.stream.name] = found

    def _tell(self, one: StreamSanitizer, why: str) -> None:
        name = one.stream.name
        if self._told.get(name) != why:
            log.warning("stream %s: releases paused: %s", name, why)
        self._told[name] = why
