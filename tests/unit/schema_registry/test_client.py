"""What is concluded from the answers of a registry, and what is waited for, over real HTTP."""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import requires
from typing import Any

import pytest
from flask import Flask, Response, request
from packaging.requirements import Requirement
from werkzeug.serving import make_server

from eventveil.decoding.rules import Reason, Rejection, parse
from eventveil.model.errors import EventveilError
from eventveil.model.records import Schema
from eventveil.model.topology import Registry
from eventveil.schema_registry.access import RegistryUnavailable
from eventveil.schema_registry.client import Client
from eventveil.schema_registry.known import LAG_MS, KnownSchemas, known_schemas, settled
from tests.unit.schema_registry.protos import KINDS, file, message, text, whole
from tests.unit.support import stream, topology

STRING = json.dumps("string")
USER = json.dumps({"type": "record", "name": "User", "fields": [{"name": "id", "type": "string"}]})
VISIT = json.dumps({"type": "record", "name": "Visit", "fields": [{"name": "by", "type": "User"}]})
LINE = text(file("line.proto", message("Line", ("sku", 1, KINDS.TYPE_STRING))))
ORDER = text(file("o.proto", message("Order", ("line", 1, ".shop.Line")), imports=("line.proto",)))


def refers(to: str, version: int = 1, name: str | None = None) -> dict[str, Any]:
    return {"name": name or to, "subject": to, "version": version}


class Fake:
    """Answers by path: what is to be JSON, with a status."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, tuple[int, Any]] = {
            "schemas/ids/1": (200, {"schema": STRING}),
            "schemas/ids/2": (200, {"schema": VISIT, "references": [refers("user")]}),
            "subjects/user/versions/1": (200, {"subject": "user", "version": 1, "id": 9, "schema": USER}),
            "schemas/ids/3": (200, {"schema": "{}", "schemaType": "JSON"}),
            "schemas/ids/4": (200, {"schema": VISIT, "references": [refers("gone")]}),
            "subjects/gone/versions/1": (404, {"error_code": 40401, "message": "Subject not found"}),
            "schemas/ids/5": (404, {"error_code": 40403, "message": "Schema not found"}),
            "schemas/ids/6": (200, {"schema": ORDER, "schemaType": "PROTOBUF",
                                    "references": [refers("lines", name="line.proto")]}),
            "subjects/lines/versions/1": (
                200, {"subject": "lines", "version": 1, "id": 8, "schema": LINE, "schemaType": "PROTOBUF"},
            ),
            "schemas/ids/7": (200, {"schema": "syntax = \"proto3\";", "schemaType": "PROTOBUF"}),
        }  # fmt: skip
        app = Flask("registry")
        app.add_url_rule("/api/<path:path>", "api", self._answer)
        self._server = make_server("127.0.0.1", 0, app, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/api"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, path: str) -> Response:
        self.asked.append(path)
        status, body = self.answers.get(path, (404, None))
        if path.startswith("schemas/ids/"):
            assert request.args["format"] == "serialized"
        authorization = request.authorization
        if authorization is not None and (authorization.username, authorization.password) != ("u", "p:w"):
            status, body = 401, {"error_code": 40101, "message": "Unauthorized"}
        return Response(json.dumps(body) if body is not None else "<html>", status)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def _fake() -> Iterator[Fake]:
    made = Fake()
    yield made
    made.close()


@pytest.fixture
def fake(_fake: Fake) -> Iterator[Fake]:
    answers, _fake.asked = dict(_fake.answers), []
    yield _fake
    _fake.answers = answers


@pytest.fixture
def client(fake: Fake) -> Client:
    return Client(Registry(fake.url))


def test_schemas_come_with_all_that_they_refer_to(client: Client) -> None:
    found = [client.schema(number) for number in (1, 2, 6)]
    bodies = (b"\x02a", b"\x02b", b"\0\x0a\x03\x0a\x01c")
    read = [one.read(body) for one, body in zip(found, bodies, strict=True) if one is not None]
    assert whole(read) == ["a", {"by": {"id": "b"}}, {"line": {"sku": "c"}}]


def test_a_schema_that_nothing_can_be_read_by_tells_why(client: Client) -> None:
    schema = client.schema(3)
    assert schema is not None
    with pytest.raises(ValueError, match="it is of JSON"):
        schema.read(b"")


def test_a_schema_whose_reference_is_not_known_may_become_known(client: Client, fake: Fake) -> None:
    known = KnownSchemas(client.schema)
    assert known.of(framed(4)) == {4: None}
    fake.answers["subjects/gone/versions/1"] = fake.answers["subjects/user/versions/1"]
    schema = known.of(framed(4))[4]
    assert schema is not None
    assert schema.read(b"\x02b") == {"by": {"id": "b"}}


def test_only_the_registrys_own_word_says_that_there_is_no_such_schema(client: Client, fake: Fake) -> None:
    assert client.schema(5) is None
    for status, body in (
        (404, None),  # of a proxy, or a wrong address
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (404, {"error_code": 40401, "message": "Subject not found"}),
        (500, {"error_code": 50001, "message": "Error in the backend datastore"}),
        (503, None),
        (403, {"error_code": 40301, "message": "User is denied operation"}),
        (200, None),
    ):
        fake.answers["schemas/ids/5"] = status, body
        with pytest.raises(RegistryUnavailable):
            client.schema(5)
    fake.answers["subjects/gone/versions/1"] = 503, None
    with pytest.raises(RegistryUnavailable):
        client.schema(4)


def test_protobuf_as_text_is_the_registrys_fault_and_not_that_of_events(client: Client) -> None:
    with pytest.raises(RegistryUnavailable, match="as text only"):
        client.schema(7)


def test_protobuf_as_text_holds_nobody_up_where_no_source_is_in_protobuf(fake: Fake) -> None:
    one, other, registry = stream(format="avro"), stream(name="other", format="protobuf"), Registry(fake.url)
    known = known_schemas(replace(topology(one), registry=registry))
    assert known is not None
    schemas = known.of(framed(7))
    verdict = parse(framed(7)[0], 100, "avro", schemas)
    assert isinstance(verdict, Rejection)
    assert (verdict.reason, verdict.detail) == (
        Reason.NOT_OF_SCHEMA, "schema 7 is of protobuf, and the source has format: avro"
    )  # fmt: skip
    both = known_schemas(replace(topology(one, other), registry=registry))
    assert both is not None
    with pytest.raises(RegistryUnavailable, match="as text only"):
        both.of(framed(7))


def test_a_password_is_sent_and_a_wrong_one_is_told_without_it(fake: Fake) -> None:
    assert Client(Registry(fake.url, username="u", password="p:w")).schema(1) is not None
    with pytest.raises(RegistryUnavailable, match="Unauthorized") as told:
        Client(Registry(fake.url, username="u", password="wrong")).schema(1)
    assert "wrong" not in str(told.value)
    assert "p:w" not in repr(Registry(fake.url, username="u", password="p:w"))


def test_of_several_addresses_the_first_that_answers_is_asked(fake: Fake) -> None:
    assert Client(Registry(f"http://127.0.0.1:1,{fake.url}")).schema(1) is not None
    with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1:1 cannot be queried.*Connect"):
        Client(Registry("http://127.0.0.1:1")).schema(1)


def test_files_that_are_not_there_are_told_at_once() -> None:
    with pytest.raises(EventveilError, match="check the files of ca"):
        Client(Registry("https://127.0.0.1:1", ca="/nowhere/ca.pem"))


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def lacking(name: str, *others: Any) -> Any:
        if name == "confluent_kafka.schema_registry":
            raise ImportError("No module named 'httpx'")
        return real(name, *others)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(EventveilError, match=r"pip install 'eventveil\[registry\]'"):
        Client(Registry("http://127.0.0.1:1"))


def framed(*numbers: int) -> list[bytes | None]:
    return [b"\0" + number.to_bytes(4, "big") for number in numbers]


def test_a_schema_is_asked_for_once_and_one_that_is_not_known_again(client: Client, fake: Fake) -> None:
    known = KnownSchemas(client.schema)
    values = [*framed(1, 5, 1), None, b"", b"{}"]
    assert known.of(values).keys() == {1, 5}
    assert known.of(values)[5] is None
    fake.answers["schemas/ids/5"] = 200, {"schema": STRING}
    assert None not in known.of(values).values()
    assert fake.asked == [f"schemas/ids/{number}" for number in (1, 5, 5, 5)]


def test_the_memory_of_schemas_is_bounded_and_keeps_what_was_used_last() -> None:
    asked: list[int] = []

    def ask(number: int) -> Schema:
        asked.append(number)
        return Client.__new__(Client)  # type: ignore[return-value]

    known = KnownSchemas(ask, most=2)
    for number in (1, 2, 1, 3, 1, 2):
        known.of(framed(number))
    assert asked == [1, 2, 3, 2]
    # However many a chunk names, it has all of them.
    assert known.of(framed(*range(1, 11))).keys() == set(range(1, 11))


def test_a_registry_that_is_away_is_not_asked_by_everybody(fake: Fake) -> None:
    fake.answers["schemas/ids/1"] = 503, None
    known = KnownSchemas(Client(Registry(fake.url)).schema)
    for _ in range(5):
        with pytest.raises(RegistryUnavailable, match="503"):
            known.of(framed(1))
    assert fake.asked == ["schemas/ids/1"]
    known._failed_at -= 60
    fake.answers["schemas/ids/1"] = 200, {"schema": STRING}
    assert known.of(framed(1))[1] is not None


def test_a_registry_that_was_away_is_not_believed_at_once_that_it_knows_no_schema(fake: Fake) -> None:
    """It answers before it has read what it keeps; what is known then is believed."""
    fake.answers["schemas/ids/1"] = 503, None
    known = KnownSchemas(Client(Registry(fake.url)).schema)
    with pytest.raises(RegistryUnavailable, match="503"):
        known.of(framed(1))
    fake.answers["schemas/ids/1"] = 200, {"schema": STRING}
    known._failed_at -= 10
    assert known.of(framed(1))[1] is not None
    with pytest.raises(RegistryUnavailable, match="was unavailable and does not know the schema 5"):
        known.of(framed(5))
    known._failed_at -= 21
    assert known.of(framed(5)) == {5: None}


@pytest.mark.parametrize(
    ("known", "appended", "now", "expected"),
    [
        (True, [10_000], 10_000, True),
        (False, [10_000], 10_000 + LAG_MS - 1, False),
        (False, [9_000, 10_000, -1], 10_000 + LAG_MS, True),
        # What was appended by a clock ahead of ours is not waited for longer.
        (False, [99_000], 20_000 + LAG_MS, True),
        (False, [-1], 20_000 + LAG_MS - 1, False),
        (False, [], 20_000 + LAG_MS, True),
    ],
)
def test_that_a_schema_is_not_known_counts_once_every_server_would_know_it(
    known: bool, appended: Sequence[int], now: int, expected: bool
) -> None:
    schema: Schema | None = Client.__new__(Client) if known else None  # type: ignore[assignment]
    assert settled({1: schema}, appended, 20_000, now) is expected


def test_the_extra_has_what_confluents_client_needs() -> None:
    own = {Requirement(one).name for one in requires("eventveil") or () if "extra == 'registry'" in one}
    theirs = [Requirement(one) for one in requires("confluent-kafka") or ()]
    for extra in ("schemaregistry", "protobuf"):
        markers = ((one.name, one.marker) for one in theirs)
        needed = {
            name
            for name, marker in markers
            if marker and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})
        }
        assert needed
        assert needed <= own
