"""TCP proxies between the processes of a cluster and its clients, whose links can be cut one way or both.

A proxy stands before each server. Who connects to it is known by the process at the other end, which the
kernel names (Linux): so one address a server is enough, as clients and brokers alike are told the same one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from tests.kafka.ports import HOST, Reservation, reserve

CLIENT = "client"
#: As seen from the server: the bytes that go to it, those that come from it, or all.
Way = Literal["in", "out", "both"]
_PROC = Path("/proc")


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
        self._pids: dict[str, int] = {}
        self._cut: dict[Link, set[str]] = {}
        self._delay: dict[str, float] = {}
        self._open: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for port in self._ports:
            port.release()

    def before(self, server: str, target: int) -> int:
        """Put a proxy before the server that listens at the port ``target``; return the proxy's port."""
        port = reserve()
        self._ports.append(port)
        serving = self._loop.create_server(lambda: _Client(self, server, target), HOST, port.port)
        asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)
        return port.port

    def know(self, peer: str, pid: int) -> None:
        """From now on, connections of process ``pid`` or its children belong to ``peer``."""
        self._run(lambda: self._pids.__setitem__(peer, pid))

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

    def peer_of(self, port: int, own: int) -> str:
        """Who connects from ``port`` to the proxy at ``own``."""
        inode = _inode(port, own)
        if inode is not None:
            for peer, pid in self._pids.items():
                if inode in _sockets(pid):
                    return peer
        return CLIENT

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
        for connection in list(self._open):
            connection.abort()

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

    def __init__(self, links: Links, server: str, target: int) -> None:
        super().__init__()
        self._links, self._name, self._target = links, server, target

    def other(self) -> _End | None:
        return self.connection.server if self.connection is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        theirs, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        link = Link(self._links.peer_of(theirs[1], own[1]), self._name)
        self.connection = _Connection(self._links, link, self)
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


def _inode(local: int, remote: int) -> str | None:
    """The socket with these ports on this machine, as /proc names it."""
    ends = f":{local:04X}", f":{remote:04X}"
    for table in ("tcp6", "tcp"):  # Java's sockets are of both kinds at once.
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                    return fields[9]
    return None


def _sockets(pid: int) -> set[str]:
    """The inodes of all sockets that a process or a child of it holds."""
    return {inode for one in (pid, *children(pid)) for inode in _held_by(one)}


def children(pid: int) -> list[int]:
    """The processes that a process has started and that live."""
    with suppress(OSError):
        return [int(one) for one in (_PROC / f"{pid}/task/{pid}/children").read_text().split()]
    return []


def _held_by(pid: int) -> set[str]:
    found: set[str] = set()
    folder = _PROC / str(pid) / "fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                target = os.readlink(folder / name)
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return found
