"""A TCP proxy between a worker and the broker, whose connections can be cut, refused and delayed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType

from tests.kafka.ports import HOST, reserve

_CHUNK = 65_536


class Proxy:
    """Forwards connections of ``port`` to ``target``, on an event loop of its own thread.

    ``target`` is set once the broker's port is known.
    """

    def __init__(self) -> None:
        self._reservation = reserve()
        self.port = self._reservation.port
        self.target = 0
        self._cut = False
        self._delay = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        serving = asyncio.start_server(self._serve, HOST, self.port)
        asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._reservation.release()

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self._call(self._break_all)

    def delay(self, seconds: float) -> None:
        """From now on, whatever travels arrives so much later, in both directions."""
        self._call(lambda: setattr(self, "_delay", seconds))

    def heal(self) -> None:
        """Neither cut nor delay any more."""

        def heal() -> None:
            self._cut, self._delay = False, 0.0

        self._call(heal)

    def _call(self, change: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(change)

    def _break_all(self) -> None:
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._cut:
                return
            with contextlib.suppress(OSError):
                broker_reader, broker_writer = await asyncio.open_connection(HOST, self.target)
                ways = [
                    asyncio.ensure_future(self._forward(reader, broker_writer)),
                    asyncio.ensure_future(self._forward(broker_reader, writer)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                broker_writer.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                writer.write(data)
                await writer.drain()
