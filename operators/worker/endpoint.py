"""The HTTP endpoint of a worker: /metrics, /health/live, /health/ready, from threads of its own."""

from __future__ import annotations

import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from operators.errors import EventveilError
from operators.worker.metrics import WorkerCollector
from operators.worker.observation import Observation

#: Who says nothing for so long is hung up on.
_PATIENCE_SECONDS = 10.0


class Answer(NamedTuple):
    """What an HTTP request gets."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Endpoint:
    """Listens from the start; what it tells before ``watch`` is that the process lives and is not ready."""

    def __init__(self, host: str, port: int, raw: bool) -> None:
        """Port 0 takes a free one. Raises EventveilError if the address cannot be had."""
        self._raw = raw
        self._seen: Observation | None = None
        self._registry = CollectorRegistry()
        self._server = _listen(host, port, self)
        threading.Thread(target=self._server.serve_forever, name="endpoint", daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

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
                return _health("live", [] if alive else ["the event loop stands still"])
            case "/health/ready":
                seen = self._seen
                return _health("ready", ["starting"] if seen is None else seen.obstacles(time.monotonic()))
        return Answer(HTTPStatus.NOT_FOUND, "text/plain", b"try /metrics, /health/live or /health/ready\n")


def _health(name: str, reasons: list[str]) -> Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return Answer(status, "application/json", orjson.dumps({name: not reasons, "reasons": reasons}))


class _Server(ThreadingHTTPServer):
    def server_bind(self) -> None:
        # Not the parent's, which asks the name service for a name that nobody needs.
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()


def _listen(host: str, port: int, endpoint: Endpoint) -> _Server:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_SECONDS

        def do_GET(self) -> None:
            answer = endpoint.answer(self.path, self.headers.get("Accept", ""))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *arguments: object) -> None:
            """A scrape is no news."""

    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        kind = type("_Server", (_Server,), {"address_family": family})
        server: _Server = kind(address[:2], Handler)
        return server
    except OSError as error:
        reason = error.strerror or error
        raise EventveilError(
            f"--metrics: cannot listen on {host}:{port}: {reason}. Choose another address with "
            "--metrics HOST:PORT, or --metrics off"
        ) from None
