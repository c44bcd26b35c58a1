"""Connections through TLS, after certificates were renewed in place."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from eventveil.kafka import settings
from eventveil.kafka.certificates import Renewing
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Kafka, Security
from tests.kafka.secured import Authority

WORKER, BROKER = "worker", "broker"


@contextmanager
def broker(authority: Authority, clients: Authority) -> Iterator[int]:
    """The port of a server that answers clients with a certificate of ``clients``, and no others."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(clients.file))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*authority.certificate(BROKER))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listening.accept()
                except OSError:
                    return
                with suppress(OSError), accepted, context.wrap_socket(accepted, server_side=True) as inside:
                    inside.sendall(b"in")

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def by_socket(context: ssl.SSLContext, port: int) -> bytes:
    """As a link of ours comes in."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as inside,
    ):
        return inside.recv(2)


def by_loop(context: ssl.SSLContext, port: int) -> bytes:
    """As aiokafka comes in."""

    async def come_in() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            return await reader.read(2)
        finally:
            writer.close()

    return asyncio.run(come_in())


def context_of(security: Security) -> Renewing:
    context: Renewing = settings.aiokafka(Kafka("127.0.0.1:9093", security))["ssl_context"]
    return context


@pytest.mark.parametrize("come_in", [by_socket, by_loop])
def test_a_renewed_certificate_is_that_of_the_next_connection(
    tmp_path: Path, come_in: type[by_socket], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    authority, former = Authority(tmp_path, "authority"), Authority(tmp_path, "former")
    certificate, key = former.certificate(WORKER)
    context = context_of(Security("SSL", ca=str(authority.file), certificate=str(certificate), key=str(key)))
    with broker(authority, authority) as port:
        for _ in range(2):
            with pytest.raises(ssl.SSLError):
                come_in(context, port)
        authority.certificate(WORKER)
        assert [come_in(context, port) for _ in range(3)] == [b"in"] * 3
    (told,) = [one for one in caplog.messages if "certificates" in one]
    assert told.startswith("certificates have changed: new connections use those of")


def test_a_renewed_authority_is_trusted_by_the_next_connection(tmp_path: Path) -> None:
    """Also where a link to the folder is turned, as Kubernetes does it."""
    authority, other = Authority(tmp_path, "authority"), Authority(tmp_path, "another")
    for folder, one in (("old", other), ("new", authority)):
        (tmp_path / folder).mkdir()
        shutil.copy2(one.file, tmp_path / folder / "ca.pem")
    data = tmp_path / "data"
    data.symlink_to(tmp_path / "old")
    certificate, key = authority.certificate(WORKER)
    context = context_of(Security("SSL", ca=str(data / "ca.pem"), certificate=str(certificate), key=str(key)))
    with broker(authority, authority) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            by_socket(context, port)
        turned = tmp_path / "turned"
        turned.symlink_to(tmp_path / "new")
        turned.replace(data)
        assert by_socket(context, port) == b"in"


def test_files_that_are_half_written_leave_the_former_certificates_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.certificate(WORKER)
    context = context_of(Security("SSL", ca=str(authority.file), certificate=str(certificate), key=str(key)))
    before, former = context.current, key.read_bytes()
    authority.certificate(WORKER)
    renewed = key.read_bytes()
    # The certificate has been written, and the key has not.
    key.write_bytes(former)
    assert context.current is context.current is before
    (told,) = caplog.messages
    assert told.startswith(
        "changed certificate files cannot be used, so the previous ones stay in use: kafka.security.cert"
    )
    key.unlink()
    assert context.current is before
    key.write_bytes(renewed)
    assert context.current is not before
    assert context.current is context.current


def test_files_that_cannot_be_used_from_the_beginning_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(EventveilError, match=r"kafka\.security\.ca"):
        context_of(Security("SSL", ca=str(tmp_path / "none.pem")))


def test_a_renewing_context_trusts_nobody_by_itself() -> None:
    """Whatever is asked of it beside connections."""
    context = context_of(Security("SSL"))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.get_ca_certs()
