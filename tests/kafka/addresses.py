"""Names with several addresses, one of which drops whatever is sent to it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

#: Of this machine; nothing listens there.
_OTHER_HOST = "127.0.0.9"


@contextmanager
def behind_a_dead_address(name: str, port: int) -> Iterator[None]:
    """Let a name have two addresses: one at which no connection is ever made, then 127.0.0.1."""
    resolve = socket.getaddrinfo

    def found(host: Any, *more: Any, **others: Any) -> list[Any]:
        addresses = (_OTHER_HOST, "127.0.0.1") if host == name else (host,)
        return [one for address in addresses for one in resolve(address, *more, **others)]

    with _dropping(port), patch("socket.getaddrinfo", found):
        yield


@contextmanager
def _dropping(port: int) -> Iterator[None]:
    """As many wait to be accepted as there is room for."""
    with socket.create_server((_OTHER_HOST, port), backlog=0), ExitStack() as stack:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex((_OTHER_HOST, port))
        yield
