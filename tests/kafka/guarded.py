"""A door in front of a schema registry: TLS, client certificates, passwords and tokens.

What it lets through it passes on as it is, so that the registry behind it is the real one.
"""

from __future__ import annotations

import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.kafka.ports import HOST

#: Given the header Authorization: the status to refuse a request with, or None to let it pass.
Refuse = Callable[[str | None], int | None]


def anybody(authorization: str | None) -> int | None:
    return None


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Handshakes that fail are what the tests are about."""


@contextmanager
def guarded(
    upstream: str, files: tuple[Path, Path], clients: Path | None = None, refuse: Refuse = anybody
) -> Iterator[str]:
    """The https address of a door to ``upstream``, which is the address of a registry.

    ``files`` are certificate and key; ``clients`` the authority of those who may come in, None for all.
    """

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            # Here, in the thread of the connection, and not in the one that accepts all of them.
            self.request.do_handshake()
            super().setup()

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status = refuse(self.headers.get("Authorization"))
            if status is not None:
                self._answer(status, b'{"error_code": %d01, "message": "no"}' % status)
                return
            kept = {name: self.headers[name] for name in ("Content-Type", "Accept") if name in self.headers}
            request = urllib.request.Request(upstream + self.path, body or None, kept, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    self._answer(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self._answer(error.code, error.read())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = _pass  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, files))
    if clients is not None:
        context.load_verify_locations(str(clients))
        context.verify_mode = ssl.CERT_REQUIRED
    server = _Quiet((HOST, 0), Door)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
