"""The schema registry of a topology: who needs one, how it is reached, and what is not shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventveil.model.topology import Registry
from tests.unit.topology.examples import changed, load_text, problems_of

AVRO = ("/time\n", "/time\n      format: avro\n")
URL = "url: 'https://registry:8081'"


def registry(settings: str) -> str:
    return changed(AVRO, ("9092\n", f"9092\nregistry: {{{settings}}}\n"))


def test_a_registry_has_an_address_files_and_a_password_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("secret\n")
    settings = f"{URL}, username: u, password: '${{file:{tmp_path}/password}}', ca: ca.pem"
    loaded = load_text(tmp_path, registry(settings))
    assert loaded.registry == Registry(
        "https://registry:8081", username="u", password="secret", ca=str(tmp_path / "ca.pem")
    )
    assert "secret" not in repr(loaded)
    assert loaded.by_schema == {"flights.events"}
    assert load_text(tmp_path, changed()).registry is None


def test_tokens_come_from_a_file_a_variable_or_an_identity_provider(tmp_path: Path) -> None:
    given = "token_url: 'https://i/t', client_id: c, client_secret: '${SECRET}', scope: s, token_ca: i.pem"
    cloud = "logical_cluster: lsrc-1, identity_pool: pool-1"
    loaded = load_text(tmp_path, registry(f"{URL}, {given}, {cloud}"), {"SECRET": "hidden"})
    assert loaded.registry == Registry(
        "https://registry:8081", token_url="https://i/t", client_id="c", client_secret="hidden", scope="s",
        token_ca=str(tmp_path / "i.pem"), logical_cluster="lsrc-1", identity_pool="pool-1",
    )  # fmt: skip
    assert "hidden" not in repr(loaded)
    of_file = load_text(tmp_path, registry(f"{URL}, token_file: token")).registry
    assert of_file == Registry("https://registry:8081", token_file=str(tmp_path / "token"))
    fixed = load_text(tmp_path, registry(f"{URL}, token: '${{SECRET}}'"), {"SECRET": "hidden"}).registry
    assert fixed is not None
    assert (fixed.bearer, "hidden" in repr(fixed)) == (True, False)


def test_a_sink_with_a_schema_needs_a_registry_and_names_for_its_counts(tmp_path: Path) -> None:
    def written(sink: str, settings: str = "") -> str:
        text = changed(("topic: flights.sanitized", f"topic: flights.sanitized\n      {sink}"))
        return text.replace("9092\n", f"9092\n{settings}", 1)

    def told(sink: str, settings: str = "") -> str:
        return " ".join(map(str, problems_of(tmp_path, written(sink, settings), {})))

    url = f"registry: {{{URL}}}\n"
    (one,) = load_text(tmp_path, written("format: avro", url)).with_schemas
    assert one.sink.format == "avro"
    assert "avro needs a schema registry, and the file names none" in told("format: avro")
    both = told("format: avro\n      counts: array", url)
    assert "sink.counts: with format: avro every count is a row with the name of its column" in both
    assert load_text(tmp_path, written("format: json-schema\n      counts: array", url)).with_schemas
    assert "registry has no effect: no source" in told("format: json", url)
    assert "expected one of json, json-schema, avro" in told("format: protobuf", url)


def test_a_source_that_is_re_keyed_needs_it_before_and_after(tmp_path: Path) -> None:
    text = registry(URL).replace("format: avro", "format: protobuf\n      repartition: true")
    (one,) = load_text(tmp_path, text).streams
    assert load_text(tmp_path, text).by_schema == {one.source.topic, "flights.events"}
    assert one.source.topic != one.source.raw == "flights.events"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("username: u", "registry lacks url; add the address"),
        (f"{URL}, username: u", "registry.username is set without password"),
        (f"{URL}, certificate: c", "registry.certificate is set without key"),
        (f"{URL}, key_password: '${{SECRET}}'", "registry.key_password is set without key"),
        (f"{URL}, username: u, password: p", "found a hidden value, expected ${file:/path} or ${VARIABLE}"),
        ("url: 'http://r:8081', ca: ca.pem", "registry.ca has no effect with http://"),
        ("url: 'http://r:8081', username: u, password: '${SECRET}'", "a password over http:// can be read"),
        (
            "url: 'https://r,http://r', username: u, password: '${SECRET}'",
            "a password over http:// can be read",
        ),
        ("url: 'http://u:p@r:8081'", "expected http:// or https:// and a host"),
        ("url: 'registry:8081'", "expected http:// or https:// and a host"),
        (f"{URL}, username: 'a:b'", "a name on one line without a colon"),
        (f"{URL}, token: t", "found a hidden value, expected ${file:/path} or ${VARIABLE}"),
        (
            f"{URL}, token: '${{SECRET}}', token_file: t",
            "registry.token_file and token are two ways to authenticate",
        ),
        (f"{URL}, token_url: 'https://i'", "registry.token_url is set without client_id"),
        (f"{URL}, client_id: c", "registry.client_id has no effect without token_url"),
        (f"{URL}, scope: s", "registry.scope has no effect without token_url"),
        (f"{URL}, identity_pool: p", "registry.identity_pool goes with a token only"),
        ("url: 'http://r', token: '${SECRET}'", "a token over http:// can be read by others"),
        (
            f"{URL}, token_url: 'http://i', client_id: c, client_secret: '${{SECRET}}'",
            "registry.token_url: the secret over http:// can be read",
        ),
    ],
)
def test_a_registry_that_cannot_be_meant_is_refused(tmp_path: Path, settings: str, told: str) -> None:
    problems = " ".join(map(str, problems_of(tmp_path, registry(settings), {"SECRET": "s"})))
    assert told in problems
    assert "u:p" not in problems


def test_a_password_may_go_to_this_machine_in_the_clear(tmp_path: Path) -> None:
    settings = "url: 'http://127.0.0.1:8081', username: u, password: '${SECRET}'"
    assert load_text(tmp_path, registry(settings), {"SECRET": "s"}).registry is not None
