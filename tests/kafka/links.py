"""TCP proxies between the processes of a cluster and its clients, whose links can be cut one way or both.

A proxy stands before each server. Each client has a proxy of its own there. Brokers have to share one, as
they are all told the same address: which of them connects is known by the client id that its first request
names, in which brokers put their number.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from tests.kafka.ports import HOST, Reservation, reserve

CLIENT = "client"
#: A second client of the tests' cluster, which can be left with one broker alone.
MISLED = "misled"
#: As seen from the server: the bytes that go to it, those that come from it, or all.
Way = Literal["in", "out", "both"]


@dataclass(frozen=True, slots=True)
class Link:
    """Everything between a peer, which connects, and a server."""

    peer: str
    server: str


class Links:
    """Forwards the connections to servers, on an event loop of its own thread. Use as a context manager.

    A link that is cut both ways loses its connections, and new ones are refused. One that is cut one way
    keeps them, and what goes that way is held back until the link is healed, as by a network that loses the
    packets of one direction: TCP brings them late.
    """

    def __init__(self) -> None:
        self._ports: list[Reservation] = []
        self._cut: dict[Link, set[str]] = {}
        self._delay: dict[str, float] = {}
        self._open: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close)
        asyncio.run_coroutine_threadsafe(self._end_tasks(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for port in self._ports:
            port.release()

    def before(self, server: str, target: int, peer: str | None = None) -> int:
        """Put a proxy before the server that listens at the port ``target``; return the proxy's port.

        Whatever connects there is ``peer``; None: the broker that says who it is, or a client.
        """
        port = reserve()
        self._ports.append(port)
        serving = self._loop.create_server(
            lambda: _Client(self, server, target, peer), HOST, port.port, backlog=1000
        )
        self._servers.append(asyncio.run_coroutine_threadsafe(serving, self._loop).result(10))
        return port.port

    def cut(self, links: Iterable[Link], way: Way = "both") -> None:
        """Cut links one way or both."""
        ways = {"in", "out"} if way == "both" else {way}
        chosen = list(links)

        def cut() -> None:
            for link in chosen:
                self._cut.setdefault(link, set()).update(ways)
            self._apply()

        self._run(cut)

    def heal(self, links: Iterable[Link]) -> None:
        """Cut these links no more."""
        chosen = list(links)

        def heal() -> None:
            for link in chosen:
                self._cut.pop(link, None)
            self._apply()

        self._run(heal)

    def delay(self, peer: str, seconds: float) -> None:
        """From now on, whatever travels to or from ``peer`` arrives so much later; 0 for no delay."""
        self._run(lambda: self._delay.__setitem__(peer, seconds))

    def held(self, link: Link) -> frozenset[str]:
        """The ways in which a link is cut now."""
        return frozenset(self._cut.get(link, ()))

    def latency(self, peer: str) -> float:
        """By how many seconds the link of this peer is late, each way."""
        return self._delay.get(peer, 0.0)

    def opened(self, connection: _Connection) -> None:
        """Called by a connection when its peer is known."""
        self._open.add(connection)

    def closed(self, connection: _Connection) -> None:
        """Called by a connection at its end."""
        self._open.discard(connection)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that all of this runs on."""
        return self._loop

    def _apply(self) -> None:
        for connection in list(self._open):
            connection.obey()

    def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._open):
            connection.abort()

    async def _end_tasks(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, change: Callable[[], None]) -> None:
        """Do it on the loop, and return once it is done."""

        async def run() -> None:
            change()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)


class _Connection:
    """The two halves of a connection: ``client`` leads to who connects, ``server`` to the server."""

    def __init__(self, links: Links, link: Link, client: _End) -> None:
        self.links, self.link, self.client = links, link, client
        self.server: _End | None = None

    def obey(self) -> None:
        """Do what the link allows: all, one way, or nothing."""
        held = self.links.held(self.link)
        if held == {"in", "out"}:
            self.abort()
            return
        self.client.hold("in" in held or self.server is None)
        if self.server is not None:
            self.server.hold("out" in held)

    def abort(self) -> None:
        """End both halves at once."""
        self.links.closed(self)
        for end in (self.client, self.server):
            if end is not None and end.transport is not None:
                end.transport.abort()


class _End(asyncio.Protocol):
    """One half of a connection: what it receives goes out at the other half."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.connection: _Connection | None = None
        self._held = False
        self._full = False
        self._early = b""

    def other(self) -> _End | None:
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.connection is not None
        seconds = self.connection.links.latency(self.connection.link.peer)
        if seconds:
            self.connection.links.loop.call_later(seconds, self._pass, data)
        else:
            self._pass(data)

    def _pass(self, data: bytes) -> None:
        other = self.other()
        if other is not None and other.transport is not None and not other.transport.is_closing():
            other.transport.write(data)

    def hold(self, held: bool) -> None:
        """Read no more from this side, or go on."""
        self._held = held
        if not held and self._early:
            early, self._early = self._early, b""
            self.data_received(early)
        self._read_or_not()

    def pause_writing(self) -> None:
        self._throttle(True)

    def resume_writing(self) -> None:
        self._throttle(False)

    def _throttle(self, full: bool) -> None:
        other = self.other()
        if other is not None:
            other._full = full
            other._read_or_not()

    def _read_or_not(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._held or self._full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.connection is not None:
            self.connection.abort()


class _Client(_End):
    """The half of who connects."""

    def __init__(self, links: Links, server: str, target: int, peer: str | None) -> None:
        super().__init__()
        self._links, self._name, self._target, self._peer = links, server, target, peer

    def other(self) -> _End | None:
        return self.connection.server if self.connection is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._peer is not None:
            self._open(self._peer)

    def data_received(self, data: bytes) -> None:
        if self.connection is not None:
            super().data_received(data)
            return
        self._early += data
        client_id = _client_id(self._early)
        if client_id is not None:
            self._open(_peer(client_id))

    def _open(self, peer: str) -> None:
        """It is known who connects: go on to the server, unless the link is cut."""
        assert self.transport is not None
        self.connection = _Connection(self._links, Link(peer, self._name), self)
        self._links.opened(self.connection)
        self.connection.obey()
        if not self.transport.is_closing():
            self._links.loop.create_task(self._connect(self.connection))

    async def _connect(self, connection: _Connection) -> None:
        def server() -> _Server:
            return _Server(connection)

        try:
            await self._links.loop.create_connection(server, HOST, self._target)
        except OSError:
            connection.abort()


class _Server(_End):
    """The half of the server."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__()
        self.connection = connection

    def other(self) -> _End | None:
        return self.connection.client if self.connection is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.connection is not None
        self.connection.server = self
        if self.connection.client.transport is None or self.connection.client.transport.is_closing():
            self.connection.abort()
            return
        self.connection.obey()


def _client_id(first: bytes) -> str | None:
    """The client id in the header of a first request; None until all of it is there.

    Every request begins with its size, API, version and correlation, in 12 bytes, and the client id.
    """
    if len(first) < 14:
        return None
    size = max(0, int.from_bytes(first[12:14], "big", signed=True))
    return None if len(first) < 14 + size else first[14 : 14 + size].decode(errors="replace")


def _peer(client_id: str) -> str:
    """Who it was: "2", "raft-client-2", "broker-2-fetcher-0" and the like are broker 2."""
    number = re.fullmatch(r"(?:raft-client-|broker-)?(\d+)(?:-.*)?", client_id)
    return f"broker-{number[1]}" if number else CLIENT
