"""The schemas of sinks: each stream is asked for, and none waits for a registry that another one needs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from eventveil.schema_registry.access import RegistryUnavailable
from eventveil.worker.restore import sink_schemas
from eventveil.worker.restore.restored import nothing
from eventveil.worker.restore.sink_schemas import SinkSchemas
from eventveil.worker.threads import Threads

Find = Callable[[Any], int | None]


class Sanitizer:
    """What is asked of the one of a stream."""

    def __init__(self, name: str, form: str = "avro") -> None:
        self.stream = SimpleNamespace(name=name, sink=SimpleNamespace(topic=f"{name}.counts", format=form))
        self.schema: int | None = None

    @property
    def lacks_schema(self) -> bool:
        return self.stream.sink.format != "json" and self.schema is None


def schemas_of(sanitizers: list[Sanitizer], find: Find, beside: Any = nothing) -> SinkSchemas:
    context: Any = SimpleNamespace(subjects=SimpleNamespace(find=find), threads=Threads())
    return SinkSchemas(sanitizers, context, beside)  # type: ignore[arg-type]


async def settled(schemas: SinkSchemas, until: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not until():
            await schemas.look()
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("failure", [None, "it is away"])
def test_streams_behind_one_without_a_schema_are_asked_for(
    failure: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sink_schemas, "_PAUSE_SECONDS", 0.0)
    first, last, asked = Sanitizer("first"), Sanitizer("last"), list[str]()

    def find(stream: Any) -> int | None:
        asked.append(stream.name)
        if stream.name == "last":
            return 7
        if failure is not None:
            raise RegistryUnavailable("https://registry", failure)
        return None

    schemas = schemas_of([first, last], find)
    asyncio.run(settled(schemas, lambda: last.schema == 7 and asked.count("first") > 3))
    assert first.schema is None
    assert schemas.waits()
    # What is known is not asked for again, and what stays the same is told once.
    assert asked.count("last") == 1
    assert caplog.text.count("stream first: releases paused") == 1


async def test_a_registry_that_never_answers_holds_up_no_stream_without_a_schema() -> None:
    answers, settles = threading.Event(), list[bool]()
    plain, typed = Sanitizer("plain", "json"), Sanitizer("typed")

    def find(stream: Any) -> int:
        assert stream.name == "typed"
        assert answers.wait(60)
        return 7

    async def beside() -> None:
        settles.append(answers.is_set())

    schemas = schemas_of([typed, plain], find, beside)
    try:
        async with asyncio.timeout(60):
            for _ in range(3):
                await schemas.look()
                # The thread asks meanwhile.
                await asyncio.sleep(0.001)
        assert settles == [False] * 3
        assert typed.schema is None
    finally:
        answers.set()
    await settled(schemas, lambda: typed.schema == 7)


async def test_an_answer_is_taken_where_nothing_is_decided() -> None:
    typed = Sanitizer("typed")
    schemas = schemas_of([typed], lambda _: 7)
    await schemas.look()
    async with asyncio.timeout(60):
        while not schemas._found:
            await asyncio.sleep(0.001)
    assert typed.schema is None
    await schemas.look()
    assert typed.schema == 7
