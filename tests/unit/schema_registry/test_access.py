"""A registry that requires authentication, over real TLS: every way in, and what each wrong one is told."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from flask import Flask, Response, request
from werkzeug.serving import make_server

from eventveil.kafka.tokens import tokens_of
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Registry
from eventveil.schema_registry.access import RegistryUnavailable
from eventveil.schema_registry.client import Client
from eventveil.schema_registry.subjects import Subjects
from tests.kafka.guarded import Refuse, anybody, guarded
from tests.kafka.ports import HOST
from tests.kafka.secured import CLIENT, SECRET, Authority, Provider
from tests.unit.support import stream

STRING = {"schema": json.dumps("string")}
BASIC = "Basic " + base64.b64encode(b"worker:of the worker").decode()
AVRO = stream(sink_format="avro")


@dataclass
class World:
    folder: Path
    authority: Authority
    provider: Provider
    upstream: str

    def door(self, refuse: Refuse = anybody, clients: Path | None = None) -> Iterator[Registry]:
        with guarded(self.upstream, self.authority.certificate("registry"), clients, refuse) as url:
            yield Registry(url, ca=str(self.authority.file))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("access")
    authority = Authority(folder, "authority")
    provider, app = Provider(folder, authority), Flask("registry")
    answers = {
        "/schemas/ids/1": (200, STRING),
        "/subjects/visits.sanitized-value": (200, {"subject": "s", "version": 1, "id": 7} | STRING),
    }

    @app.route("/<path:path>", methods=["GET", "POST"])
    def answer(path: str) -> Response:
        status, body = answers.get(request.path, (404, {"error_code": 40401, "message": "Subject not found"}))
        return Response(json.dumps(body), status)

    server = make_server(HOST, 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield World(folder, authority, provider, f"http://{HOST}:{server.server_port}")
    server.shutdown()
    server.server_close()
    provider.close()


def read(registry: Registry) -> str:
    schema = Client(registry).schema(1)
    assert schema is not None
    return str(schema.read(b"\x02a"))


def refusal(registry: Registry) -> str:
    with pytest.raises(RegistryUnavailable) as caught:
        Client(registry).schema(1)
    # Who asks for the schema of a sink is told the same.
    with pytest.raises(RegistryUnavailable) as again:
        Subjects(registry, lambda _: "{}").find(AVRO)
    assert str(again.value).split("(")[0] == str(caught.value).split("(")[0]
    return str(caught.value)


def test_a_registry_behind_tls_is_read_by_its_own_authority_only(world: World) -> None:
    for registry in world.door():
        assert read(registry) == "a"
        stranger = Authority(world.folder, "stranger")
        told = refusal(replace(registry, ca=str(stranger.file)))
        assert "its certificate is not trusted" in told
        assert "registry.ca" in told
        told = refusal(replace(registry, url=registry.url.replace(HOST, "localhost")))
        assert "its certificate is of another name" in told
        assert "registry.url" in told


def test_a_client_certificate_is_shown_where_it_is_asked_for(world: World) -> None:
    certificate, key = map(str, world.authority.certificate("worker", "of the key"))
    for registry in world.door(clients=world.authority.file):
        shown = replace(registry, certificate=certificate, key=key, key_password="of the key")
        assert read(shown) == "a"
        told = refusal(registry)
        assert "it asks for a client certificate that it trusts" in told
        assert "registry.certificate and registry.key" in told
        other, its_key = map(str, Authority(world.folder, "else").certificate("worker of others"))
        told = refusal(replace(registry, certificate=other, key=its_key))
        assert "client certificate" in told
        with pytest.raises(EventveilError, match="check the files of ca, certificate and key"):
            Client(replace(shown, key_password="wrong"))


def test_name_and_password_are_sent_and_a_wrong_one_is_told(world: World) -> None:
    for registry in world.door(lambda given: None if given == BASIC else 401):
        known = replace(registry, username="worker", password="of the worker")
        assert read(known) == "a"
        assert Subjects(known, lambda _: "{}").find(AVRO) == 7
        told = refusal(replace(known, password="wrong"))
        assert "It does not accept registry.username with this password" in told
        assert "wrong" not in told.replace("registry.username with", "")
        assert "It requires authentication: add registry.username and password" in refusal(registry)
    for registry in world.door(lambda _: 403):
        told = refusal(replace(registry, username="worker", password="of the worker"))
        assert "denied access" in told


def test_tokens_come_from_the_file_that_is_there_now_or_from_a_provider(world: World) -> None:
    provider, file = world.provider, world.folder / "token"
    file.write_text("first\n")
    for registry in world.door(lambda given: None if given == "Bearer second" else 401):
        by_file = replace(registry, token_file=str(file))
        client = Client(by_file)
        with pytest.raises(RegistryUnavailable, match="It does not accept the token"):
            client.schema(1)
        file.write_text("second\n")
        assert client.schema(1) is not None
        assert read(replace(registry, token="second")) == "a"
        file.unlink()
        assert read(by_file) == "a", "the last token holds on"
        told = refusal(replace(registry, token_file=str(world.folder / "nowhere")))
        assert "there is none. registry.token_file" in told
        assert "cannot be read" in told
        assert "It requires authentication" in refusal(registry)
    asked = Registry(
        "", token_url=provider.url, client_id=CLIENT, client_secret=SECRET, scope="kafka",
        token_ca=str(world.authority.file),
    )  # fmt: skip
    token = tokens_of(asked, "registry").token().text
    for registry in world.door(lambda given: None if (given or "").count(".") == 2 else 401):
        known = replace(asked, url=registry.url, ca=registry.ca)
        given = provider.given
        assert read(known) == read(known) == "a"
        # One token for every client of a process.
        assert provider.given == given + 1
        assert token.count(".") == 2
        told = refusal(replace(known, client_secret="wrong"))
        assert "does not accept the client" in told
        assert "client_id and client_secret of registry" in told
        told = refusal(replace(known, token_ca=str(Authority(world.folder, "third").file)))
        assert "identity provider is not trusted" in told
        assert "registry.token_ca" in told


def test_an_address_where_nobody_listens_or_nobody_speaks_tls_is_told_as_that(world: World) -> None:
    with guarded(world.upstream, world.authority.certificate("gone")) as url:
        pass
    gone = Registry(url, ca=str(world.authority.file))
    assert "it cannot be reached" in refusal(gone)
    plain = replace(gone, url=world.upstream.replace("http:", "https:"))
    told = refusal(plain)
    assert "it does not speak TLS at this address" in told
    assert "Write http:// into registry.url" in told
