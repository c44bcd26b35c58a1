"""Free TCP ports on the loopback interface, safe when several brokers look for one at once."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"
# Below what operating systems hand out to outgoing connections, so that no client takes a port meanwhile.
CANDIDATES = range(20000, 30000)


class Reservation:
    """One TCP port, kept from other reservations until ``release`` or the end of this process.

    The lock is a UDP socket bound to the same number: the kernel drops it with the process, however that
    ends, and it leaves the TCP port free for the broker to bind.
    """

    def __init__(self, port: int) -> None:
        """Raise OSError when another reservation or another program holds the port."""
        self.port = port
        self._lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._lock.bind((HOST, port))
            _check_unused(port)
        except OSError:
            self._lock.close()
            raise

    def release(self) -> None:
        """Give the port back. May be called twice."""
        self._lock.close()


def reserve(port: int | None = None) -> Reservation:
    """Reserve ``port``, or any free port for None. Raises OSError when there is none."""
    if port is not None:
        return Reservation(port)
    for candidate in _shuffled():
        try:
            return Reservation(candidate)
        except OSError:
            continue
    raise OSError(f"no free port between {CANDIDATES.start} and {CANDIDATES.stop - 1}")


def _shuffled() -> Iterator[int]:
    yield from random.sample(CANDIDATES, len(CANDIDATES))


def _check_unused(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java's server sockets do: a port whose last connections are in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
