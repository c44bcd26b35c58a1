"""The HTTP endpoint of a worker: /metrics, /health/live, /health/ready and a page; threads of its own."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import NamedTuple

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from eventveil.live.serving import Shown
from eventveil.model.errors import EventveilError
from eventveil.worker.observe.metrics import WorkerCollector
from eventveil.worker.observe.observation import Observation

#: A connection that is silent for this long is closed.
_PATIENCE_SECONDS = 10.0
_LAST_PORT = 65_535


class Answer(NamedTuple):
    """What an HTTP request gets."""

    status: HTTPStatus
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


class Endpoint:
    """Listens from the start; what it tells before ``watch`` is that the process lives and is not ready."""

    def __init__(self, host: str, port: int, raw: bool, further: int = 0, shown: Shown | None = None) -> None:
        """Port 0 takes a free one; where ``port`` is taken, so does the first free one of the ``further``
        ports after it. ``shown`` is the page at /; None: there is none.

        Raises EventveilError if the address cannot be had, or no port among these is free.
        """
        self._raw, self._wanted = raw, port
        self._seen: Observation | None = None
        self._shown = shown
        self._registry = CollectorRegistry()
        self._server = _listen_on_one(host, range(port, min(port + further, _LAST_PORT) + 1), self)
        threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    @property
    def description(self) -> str:
        """Where it listens and what it tells, for the log."""
        moved = self._wanted not in (0, self._server.server_address[1])
        taken = f", because port {self._wanted} is taken" * moved
        return f"{self.url}{taken}{', raw counts included' * self._raw}"

    @property
    def page(self) -> str | None:
        """Where the page is, if there is one."""
        return None if self._shown is None else f"{self.url}/"

    def watch(self, seen: Observation) -> None:
        """Tell of this worker from now on."""
        self._registry.register(WorkerCollector(seen, self._raw))
        self._seen = seen

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, accept: str = "") -> Answer:
        """The answer to a GET."""
        match path.partition("?")[0]:
            case "/metrics":
                encode, content_type = choose_encoder(accept)
                return Answer(HTTPStatus.OK, content_type, encode(self._registry))
            case "/health/live":
                alive = self._seen is None or self._seen.alive(time.monotonic())
                return _health("live", [] if alive else ["the event loop is blocked"])
            case "/health/ready":
                return _health("ready", self._obstacles(self._raw))
            case "/" if self._shown is not None:
                # Without raw data, also where metrics are raw.
                following = {} if self._seen is None else self._seen.following()
                text, headers = self._shown.serve(self._obstacles(raw=False), following)
                return Answer(HTTPStatus.OK, "text/html; charset=utf-8", text.encode(), headers)
        return Answer(HTTPStatus.NOT_FOUND, "text/plain", b"try /metrics, /health/live or /health/ready\n")

    def _obstacles(self, raw: bool) -> list[str]:
        return ["starting"] if self._seen is None else self._seen.obstacles(time.monotonic(), raw)


def _health(name: str, reasons: list[str]) -> Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return Answer(status, "application/json", orjson.dumps({name: not reasons, "reasons": reasons}))


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        # Not the parent's, which asks the name service for a name that nobody needs.
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()


def _listen_on_one(host: str, ports: range, endpoint: Endpoint) -> _Server:
    """A server on the first port that is not taken. Raises EventveilError if there is none."""
    for port in ports:
        try:
            return _listen(host, port, endpoint)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and port != ports[-1]:
                continue
            reason = error.strerror or error
            tried = f"{host}:{ports[0]}" + f" to {port}" * (port != ports[0])
            raise EventveilError(
                f"--metrics: cannot listen on {tried}: {reason}. Choose another address with "
                "--metrics HOST:PORT, or --metrics off"
            ) from None
    raise AssertionError("ports are never empty")


#: A page of elsewhere, open in a browser of this machine, may have its name resolved to the loopback address.
_REBOUND = Answer(HTTPStatus.FORBIDDEN, "text/plain", b"Host must be localhost or a loopback address\n")


def is_loopback(host: str) -> bool:
    """Whether a host, with a port or without, is this machine by a name that nobody else can give it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name.lower() in ("", "localhost")


def _listen(host: str, port: int, endpoint: Endpoint) -> _Server:
    """Raises OSError if the address cannot be had. Where it is of the loopback, others get no answer."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    local = is_loopback(str(address[0]))

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_SECONDS

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            """Load balancers and `curl -I` ask for no more."""
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            answer = _REBOUND
            if not local or is_loopback(self.headers.get("Host", "")):
                answer = endpoint.answer(self.path, self.headers.get("Accept", ""))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if with_body:
                self.wfile.write(answer.body)

        def log_message(self, format: str, *arguments: object) -> None:
            """A scrape is no news."""

    kind = type("_Server", (_Server,), {"address_family": family})
    server: _Server = kind(address[:2], Handler)
    return server
