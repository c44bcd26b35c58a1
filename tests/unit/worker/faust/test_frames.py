"""Answers come out of a socket as they were written, however its bytes are split."""

from __future__ import annotations

import asyncio
import gc
import struct
import tracemalloc
import weakref
from collections.abc import Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import conn
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.worker.faust import frames
from eventveil.worker.faust.frames import FramedConnection, FramedProtocol, Frames

SIZES = st.one_of(st.integers(0, 9), st.integers(65_520, 65_550), st.integers(100_000, 300_000))
STEPS = st.one_of(st.integers(1, 5), st.integers(1, 70_000), st.just(10**6))


def framed(answers: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(answer)) + answer for answer in answers)


def fill(one: Frames, data: bytes | memoryview, step: int) -> Iterator[bytes]:
    """As a socket that has these numbers of bytes at a time."""
    while data:
        space = one.space()
        assert len(space) > 0
        number = min(len(space), len(data), step)
        space[:number] = data[:number]
        yield from one.filled(number)
        data = data[number:]


@settings(max_examples=50)
@given(st.lists(SIZES, max_size=5), st.lists(STEPS, min_size=1, max_size=20), st.integers())
def test_frames_are_cut_wherever_they_are_split(sizes: list[int], steps: list[int], seed: int) -> None:
    chance, one = Random(seed), Frames()
    answers = [chance.randbytes(size) for size in sizes]
    data, found = memoryview(framed(answers)), list[bytes]()
    while data:
        step = chance.choice(steps) if len(data) > 200 else 1
        found += fill(one, data[:step], step)
        data = data[step:]
    assert found == answers


def test_what_was_given_is_not_written_to_again() -> None:
    one, large, small = Frames(), b"a" * 100_000, b"b" * 1000
    first, second = [*fill(one, framed([large, small]), 10**6)]
    third, fourth = [*fill(one, framed([b"c" * 100_000, b"d" * 1000]), 10**6)]
    assert (first, second, third[:1], fourth[:1]) == (large, small, b"c", b"d")


def test_a_long_answer_is_not_copied() -> None:
    one, data = Frames(), framed([bytes(10**7)])
    tracemalloc.start()
    try:
        (answer,) = fill(one, memoryview(data), 10**6)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(answer) < most < 1.1 * len(answer)


def test_a_length_below_zero_is_no_answer_of_a_broker() -> None:
    with pytest.raises(ValueError, match="a frame of -2 bytes"):
        list(fill(Frames(), struct.pack(">i", -2) + b"xx", 10))


async def connected(sent: bytes, ends: bool) -> tuple[Any, asyncio.Server, asyncio.Event]:
    """A connection whose broker sends this, then ends it or waits for the event."""
    over = asyncio.Event()

    async def answer(_: Any, writer: Any) -> None:
        for begin in range(0, len(sent), 50_000):
            writer.write(sent[begin : begin + 50_000])
            await writer.drain()
        if not ends:
            await over.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    closed, loop = asyncio.get_running_loop().create_future(), asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = FramedProtocol(closed, reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, "127.0.0.1", port)
    return SimpleNamespace(protocol=protocol, transport=transport, reader=reader), server, over


async def test_answers_that_came_before_the_end_are_given_before_it() -> None:
    answers = [b"x" * 300_000, b"", b"y" * 10]
    one, server, _ = await connected(framed(answers) + struct.pack(">i", 10) + b"half", ends=True)
    await asyncio.sleep(0.1)
    assert [await one.protocol.next_frame() for _ in answers] == answers
    with pytest.raises(asyncio.IncompleteReadError):
        await one.protocol.next_frame()
    assert one.reader.at_eof(), "aiokafka takes the connection for open"
    one.transport.close()
    server.close()


def test_who_waits_is_told_of_the_end_and_of_its_reason() -> None:
    async def check(sent: bytes, error: type[Exception]) -> None:
        one, server, over = await connected(sent, ends=False)
        waiting = asyncio.create_task(one.protocol.next_frame())
        if not sent:
            await asyncio.sleep(0)
            one.transport._fatal_error(ConnectionResetError("gone"), "for the test")
        with pytest.raises(error):
            await waiting
        over.set()
        server.close()

    asyncio.run(check(b"", ConnectionResetError))
    asyncio.run(check(b"\xff\xff\xff\xfe", ValueError))


async def test_a_connection_hands_on_its_answers_and_is_not_kept_alive() -> None:
    one, server, over = await connected(framed([b"first", b"second"]), ends=False)
    handled: list[bytes] = []

    class Connection:
        _protocol, _handle_frame = one.protocol, handled.append

    connection = Connection()
    gone = weakref.ref(connection)
    reading = asyncio.create_task(FramedConnection._read(gone))
    while len(handled) < 2:
        await asyncio.sleep(0.01)
    assert handled == [b"first", b"second"]
    del connection
    gc.collect()
    assert gone() is None
    reading.cancel()
    over.set()
    one.transport.close()
    server.close()


def test_connections_are_replaced_where_aiokafka_looks_them_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conn, "AIOKafkaConnection", conn.AIOKafkaConnection)
    monkeypatch.setattr(conn, "AIOKafkaProtocol", conn.AIOKafkaProtocol)
    frames.read_whole_answers()
    assert "AIOKafkaConnection" in conn.create_conn.__code__.co_names
    assert (conn.AIOKafkaConnection, conn.AIOKafkaProtocol) == (FramedConnection, FramedProtocol)
