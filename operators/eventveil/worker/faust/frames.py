"""Answers of brokers read from the socket into the place where they stay.

aiokafka reads through asyncio's StreamReader, whose buffer is full after 64 KiB: of an answer of megabytes
each part is read and appended, reading is paused and resumed, and then all is copied once more. Here the
socket, or TLS, writes each answer into its own bytes. It leans on private members of aiokafka
(``eventveil.worker.faust.compatibility``). The answers are the same.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Iterator
from typing import Any

from aiokafka import conn
from aiokafka.conn import AIOKafkaConnection, AIOKafkaProtocol

#: An answer is as long as the number before it says, which has this many bytes.
_HEAD = 4
#: Answers that fit into it are read at once, several if they are there.
_SMALL = 64 * 1024


def read_whole_answers() -> None:
    """Let the connections that aiokafka makes from now on in this process read as told above."""
    conn.AIOKafkaProtocol, conn.AIOKafkaConnection = FramedProtocol, FramedConnection


class Frames:
    """Cuts what a connection brings into frames: four bytes with a length, and as many bytes.

    ``space`` is where the next bytes belong, at least one; ``filled`` is told how many there are.
    """

    def __init__(self) -> None:
        self._small, self._held = memoryview(bytearray(_SMALL)), 0
        #: Of a frame that is longer than what had come with its head.
        self._large: io.BytesIO | None = None
        self._rest = memoryview(b"")

    def space(self) -> memoryview:
        """Where the next bytes are to be written."""
        return self._small[self._held :] if self._large is None else self._rest

    def filled(self, number: int) -> Iterator[bytes]:
        """The frames that are complete with this number of bytes more; to be iterated over to its end.

        Raises ValueError if a length is negative: what comes is not the answer of a broker.
        """
        if self._large is None:
            self._held += number
            yield from self._cut()
            return
        written, self._rest = self._rest, self._rest[number:]
        # asyncio still has it. As long as a view is there, the stream copies all bytes that it gives.
        written.release()
        if not self._rest:
            self._rest.release()
            frame = self._large.getvalue()
            self._large, self._rest = None, memoryview(b"")
            yield frame

    def _cut(self) -> Iterator[bytes]:
        begin, held, small = 0, self._held, self._small
        while held - begin >= _HEAD:
            size = int.from_bytes(small[begin : begin + _HEAD], "big", signed=True)
            if size < 0:
                raise ValueError(f"a frame of {size} bytes")
            begin += _HEAD
            if size > held - begin:
                self._begin_large(size, small[begin:held])
                self._held = 0
                return
            yield bytes(small[begin : begin + size])
            begin += size
        small[: held - begin] = bytes(small[begin:held])
        self._held = held - begin

    def _begin_large(self, size: int, first: memoryview) -> None:
        self._large = io.BytesIO(bytes(size))
        whole = self._large.getbuffer()
        whole[: len(first)] = first
        self._rest = whole[len(first) :]


class FramedProtocol(AIOKafkaProtocol, asyncio.BufferedProtocol):  # type: ignore[misc]  # it has no types
    """What asyncio calls when bytes come; ``next_frame`` has the answers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._frames, self._answers = Frames(), deque[bytes]()
        self._waiter: asyncio.Future[None] | None = None
        self._end: Exception | None = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio."""
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio; an error here ends the connection."""
        self._answers.extend(self._frames.filled(nbytes))
        if self._answers:
            self._wake()

    def eof_received(self) -> bool | None:
        """See asyncio."""
        self._ended(None)
        keep_open: bool | None = super().eof_received()
        return keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._ended(exc)
        super().connection_lost(exc)

    def _ended(self, error: Exception | None) -> None:
        self._end = self._end or error or asyncio.IncompleteReadError(b"", None)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next_frame(self) -> bytes:
        """The next answer. Raises what ended the connection, IncompleteReadError if the broker did."""
        while not self._answers:
            if self._end is not None:
                raise self._end
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._answers.popleft()


class FramedConnection(AIOKafkaConnection):  # type: ignore[misc]  # it has no types
    """A connection that takes its answers from the protocol."""

    @staticmethod
    async def _read(self_ref: Any) -> None:
        """As aiokafka's own, it keeps no connection alive while it waits."""
        if (connection := self_ref()) is None:
            return
        protocol = connection._protocol
        del connection
        while True:
            frame = await protocol.next_frame()
            if (connection := self_ref()) is None:
                return
            connection._handle_frame(frame)
            del connection, frame
