"""A connection to a broker: what was sent and not answered, what ends it, and how that is seen."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiokafka.protocol.admin import ApiVersionRequest_v0
from aiokafka.protocol.transaction import EndTxnRequest

from eventveil.kafka.connection import Address, Connection, Unanswered, Unreached, Unsupported
from eventveil.kafka.diagnosis import obstacle
from eventveil.kafka.epoch_requests import EpochEndRequest
from eventveil.kafka.transaction_requests import DescribeTransactionRequest
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka
from tests.kafka.addresses import behind_a_dead_address
from tests.worker.waiting import until

PLAINTEXT: dict[str, Any] = {"security_protocol": "PLAINTEXT"}
REQUEST = EndTxnRequest("owner", 7, 1, True)
VERSIONS = [(22, 0, 4), (23, 0, 2), (24, 0, 3), (26, 0, 3)]
PLACE = TopicPartition("raw", 0)


class Server:
    """A broker for one connection; ``answer`` is called with each request but the first, which it answers."""

    def __init__(
        self, answer: Callable[[socket.socket, int], None], context: ssl.SSLContext | None = None
    ) -> None:
        self._answer, self._context = answer, context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: Address = self._listening.getsockname()[:2]
        self.requests = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        # A client that goes away is not the broker's trouble.
        with suppress(OSError):
            self._serve()

    def _serve(self) -> None:
        accepted, _ = self._listening.accept()
        if self._context is not None:
            accepted = self._context.wrap_socket(accepted, server_side=True)
        with accepted:
            self._send(
                accepted, self._next(accepted), ApiVersionRequest_v0.RESPONSE_TYPE(0, VERSIONS).encode()
            )
            while (correlation := self._next(accepted)) is not None:
                self.requests += 1
                self._answer(accepted, correlation)

    @staticmethod
    def _send(to: socket.socket, correlation: int | None, content: bytes) -> None:
        message = struct.pack(">i", correlation or 0) + content
        to.sendall(struct.pack(">i", len(message)) + message)

    @staticmethod
    def _next(accepted: socket.socket) -> int | None:
        """The correlation id of the next request, None if there is none."""
        head = (
            accepted.recv(4, socket.MSG_WAITALL)
            if not isinstance(accepted, ssl.SSLSocket)
            else accepted.recv(4)
        )
        if len(head) < 4:
            return None
        (size,) = struct.unpack(">i", head)
        content = b""
        while len(content) < size:
            content += accepted.recv(size - len(content))
        return int(struct.unpack_from(">i", content, 4)[0])

    def close(self) -> None:
        self._listening.close()


def done(to: socket.socket, correlation: int) -> None:
    """The request was done."""
    Server._send(to, correlation, struct.pack(">ih", 0, 0))


def in_pieces(to: socket.socket, correlation: int) -> None:
    message = struct.pack(">iiih", 10, correlation, 0, 0)
    for position in range(len(message)):
        to.sendall(message[position : position + 1])
        time.sleep(0.002)


@contextmanager
def broker(answer: Callable[[socket.socket, int], None], **settings: Any) -> Iterator[Server]:
    server = Server(answer, **settings)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("answer", [done, in_pieces])
def test_an_answer_is_waited_for(answer: Callable[[socket.socket, int], None]) -> None:
    with broker(answer) as server:
        connection = Connection(server.address, PLAINTEXT, 60)
        for _ in range(3):
            assert connection.is_alive
            connection.send(REQUEST, 60)
            assert connection.receive(60).error_code == 0
        assert server.requests == 3


def hang_up(to: socket.socket, _: int) -> None:
    to.shutdown(socket.SHUT_RDWR)


def wrong(to: socket.socket, correlation: int) -> None:
    done(to, correlation + 1)


def cut_short(to: socket.socket, correlation: int) -> None:
    to.sendall(struct.pack(">ii", 10, correlation))
    hang_up(to, correlation)


@pytest.mark.parametrize("answer", [lambda *_: None, hang_up, wrong, cut_short])
def test_whatever_else_comes_is_no_answer_and_the_end(answer: Callable[[socket.socket, int], None]) -> None:
    with broker(answer) as server:
        connection = Connection(server.address, PLAINTEXT, 60)
        connection.send(REQUEST, 1)
        with pytest.raises(Unanswered):
            connection.receive(1)
        assert not connection.is_alive
        with pytest.raises(Unanswered):
            connection.send(REQUEST, 1)
        assert server.requests == 1


def test_it_is_not_alive_while_an_answer_is_missing() -> None:
    with broker(done) as server:
        connection = Connection(server.address, PLAINTEXT, 60)
        connection.send(REQUEST, 60)
        assert not connection.is_alive


def test_it_is_seen_that_a_broker_has_closed_it_meanwhile() -> None:
    def answer_and_go(to: socket.socket, correlation: int) -> None:
        done(to, correlation)
        hang_up(to, correlation)

    with broker(answer_and_go) as server:
        connection = Connection(server.address, PLAINTEXT, 60)
        connection.send(REQUEST, 60)
        connection.receive(60)
        until(lambda: not connection.is_alive)


def test_a_broker_that_is_away_was_not_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address: Address = unused.getsockname()[:2]
    with pytest.raises(Unreached, match="refused") as caught:
        Connection(address, PLAINTEXT, 1)
    assert not caught.value.is_final


def test_of_a_name_with_several_addresses_one_that_does_not_answer_leaves_time_for_the_next() -> None:
    with broker(done) as server, behind_a_dead_address("broker.test", server.address[1]):
        connection = Connection(("broker.test", server.address[1]), PLAINTEXT, 8)
        connection.send(REQUEST, 60)
        assert connection.receive(60).error_code == 0


@pytest.mark.parametrize("request_", [DescribeTransactionRequest("owner"), EpochEndRequest(PLACE, 7, 1)])
def test_what_a_broker_does_not_know_is_not_sent_and_asking_again_does_not_help(request_: Any) -> None:
    """It knows nothing of transactions that are described, and an older version of the other request."""
    with broker(done) as server:
        connection = Connection(server.address, PLAINTEXT, 60)
        with pytest.raises(Unsupported, match=r"Eventveil needs Apache Kafka 3\.0 or later") as caught:
            connection.send(request_, 60)
        assert caught.value.is_final
        assert connection.is_alive
        assert server.requests == 0


def test_through_tls_it_stays_alive_and_checks_the_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    trusting = {
        "security_protocol": "SSL",
        "ssl_context": ssl.create_default_context(cafile=str(certificate)),
    }
    with broker(done, context=serving) as server:
        connection = Connection(server.address, trusting, 5)
        for _ in range(3):
            # The tickets that TLS 1.3 sends on its own are no sign of an end.
            assert connection.is_alive
            connection.send(REQUEST, 60)
            assert connection.receive(60).error_code == 0
            time.sleep(0.05)
    with broker(done, context=serving) as server, pytest.raises(Unreached, match="CERTIFICATE_VERIFY_FAILED"):
        Connection(
            server.address, {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}, 5
        )


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x32"])
def test_a_port_of_another_service_is_told_from_one_that_is_silent(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall(answer)
                accepted.recv(1000)

        threading.Thread(target=serve, daemon=True).start()
        host, port = listening.getsockname()
        found = obstacle(Kafka(f"{host}:{port}"))
    assert str(found).startswith(
        f"{host}:{port}: it does not answer as a Kafka broker does. Is that the port"
    )
