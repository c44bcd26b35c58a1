"""Avro, Protobuf and JSON Schema with a real registry, which is away for a while, and schemas that change;
releases in each format that a sink can have, and who reads them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eventveil.cli.main import main
from eventveil.formats.release import as_json, schema_text
from eventveil.live.sink_tail import SinkTail
from eventveil.model.timeline import start_of, timestamp_of
from eventveil.model.topology import Registry, Stream, Topology
from eventveil.read.problems import ReadingError
from eventveil.read.sources import topic as read_topic
from eventveil.replay.inputs import TopicInput
from eventveil.replay.run import replay
from eventveil.schema_registry.access import RegistryUnavailable
from eventveil.schema_registry.subjects import Subjects
from eventveil.topology.loading import load
from tests.kafka.guarded import guarded
from tests.kafka.registry import local_registry
from tests.kafka.secured import Authority
from tests.kafka.topics import read, unique
from tests.unit.schema_registry.protos import KINDS, classes, file, message
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence

STREAM = """
  {form}:
    source: {{topic: {name}.{form}, format: {form}, {fields}}}
    timeline: {{interval: 1s, origin: 2026-01-01T00:00:00Z, lateness: 8s, max_ahead: 1h}}
    counts: {{columns: [home, shoes]}}
    mechanism: {{kind: uniform, epsilon: 1.0, window: 2}}
    sink: {{topic: {name}.{form}.sanitized, format: {sink}}}
    dead_letter: {name}.{form}.dead
"""
FIELDS = {
    "avro": "user: /visitor/id, user_type: integer, column: /page, time: /at",
    "protobuf": "user: $key, column: /place/page, time: $headers/ce_time, filter: {$headers/ce_type: seen}",
    "json-schema": "user: /user, column: /page, time: /at",
}
#: Of the streams that wait for the registry in any case, and of one that does not.
SINKS = {"avro": "avro", "protobuf": "json-schema", "json-schema": "json"}
Write = Callable[[int, str, int], bytes]


def visit(page: str, **more: Any) -> dict[str, Any]:
    visitor = {"type": "record", "name": "Visitor", "fields": [{"name": "id", "type": "int"}]}
    at = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": "visitor", "type": visitor}, {"name": page, "type": "string", **more}]
    return {"type": "record", "name": "Visit", "fields": [*fields, {"name": "at", "type": at}]}


def wider() -> dict[str, Any]:
    """A field is added, one is renamed with an alias, and one is widened, within a union."""
    made = visit("path", aliases=["page"])
    made["fields"][0]["type"]["fields"][0]["type"] = ["null", "long"]
    made["fields"].insert(0, {"name": "country", "type": ["null", "string"], "default": None})
    return made


def serializers(client: SchemaRegistryClient, name: str) -> dict[str, Write]:
    """What writes a visit of a user to a page at a time, by format, each with its schema registered."""

    def writing(form: str, serializer: Callable[..., bytes | None], made: Callable[..., Any]) -> Write:
        context = SerializationContext(f"{name}.{form}", MessageField.VALUE)
        return lambda user, page, at: serializer(made(user, page, at), context) or b""

    place = file("place.proto", message("Place", ("page", 1, KINDS.TYPE_STRING)))
    seen = file("seen.proto", message("Seen", ("place", 1, ".shop.Place")), imports=("place.proto",))
    kind = classes(place, seen)("shop.Seen")
    kinds = {"user": {"type": "string"}, "page": {"type": "string"}, "at": {"type": "integer"}}
    described = json.dumps({"title": "Visit", "type": "object", "properties": kinds})
    protobuf = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    return {
        "avro": writing("avro", AvroSerializer(client, json.dumps(visit("page"))), old),
        "protobuf": writing("protobuf", protobuf, lambda user, page, at: kind(place={"page": page})),
        "json-schema": writing("json-schema", JSONSerializer(described, client), flat),
    }


def old(user: int, page: str, at: int) -> dict[str, Any]:
    return {"visitor": {"id": user}, "page": page, "at": at * 1000}


def flat(user: int, page: str, at: int) -> dict[str, Any]:
    return {"user": str(user), "page": page, "at": at}


def send(bootstrap: str, topic: str, values: Mapping[int, bytes], at: int) -> None:
    """Values by user, whose number is the key, with the attributes of a CloudEvent in headers."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    headers = [("ce_type", b"seen"), ("ce_time", b"%d" % at)]
    for user, value in values.items():
        producer.produce(topic, value, str(user).encode(), headers=headers)
    assert producer.flush(60) == 0


def topology(folder: Path, bootstrap: str, name: str, url: str) -> Path:
    head = f"version: 1\nname: {name}\nkafka: {{bootstrap: '{bootstrap}'}}\nregistry: {{url: '{url}'}}\n"
    head += "topics: {replication: 1, min_insync: 1, partitions: 1, partials: 1}\nstreams:"
    streams = [
        STREAM.format(form=form, name=name, fields=fields, sink=SINKS[form])
        for form, fields in FIELDS.items()
    ]
    path = folder / "formats.yaml"
    path.write_text(head + "".join(streams), encoding="utf-8")
    return path


def soon() -> int:
    """A whole second that has not begun, for timestamps begin when the topics are there; in epoch ms."""
    return (time.time_ns() // 10**9 + 2) * 1000


def released(bootstrap: str, loaded: Topology, form: str, at: int) -> dict[str, int] | None:
    """The counts of a stream at a time; None before they are released."""
    stream = next(one for one in loaded.streams if one.name == form)
    wanted = timestamp_of(stream.timeline, at)
    for one in read(bootstrap, stream.sink.topic):
        release = json.loads(as_json(one.value() or b""))
        if release["timestamp"] == wanted:
            return dict(release["counts"])
    return None


def await_release(bootstrap: str, loaded: Topology, form: str, at: int, log: Path) -> dict[str, int]:
    deadline = time.monotonic() + 180
    while (found := released(bootstrap, loaded, form, at)) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.3)
    return found


def letters(bootstrap: str, topic: str) -> Counter[tuple[str, str]]:
    found = [dict(one.headers() or []) for one in read(bootstrap, topic)]
    return Counter((one["eventveil.reason"].decode(), one["eventveil.detail"].decode()) for one in found)


def check_readers(bootstrap: str, path: Path, loaded: Topology, url: str, at: int) -> None:
    """What the serializers' own counterparts read, and every command of ours."""
    client = SchemaRegistryClient({"url": url})
    deserializers: dict[str, Callable[..., Any]] = {
        "avro": AvroDeserializer(client),
        "json-schema": JSONDeserializer(None, schema_registry_client=client),
    }
    for stream in loaded.with_schemas:
        topic = stream.sink.topic
        assert f"{topic}-value" in client.get_subjects()
        context = SerializationContext(topic, MessageField.VALUE)
        values = [one.value() or b"" for one in read(bootstrap, topic)]
        found = [deserializers[stream.sink.format](value, context) for value in values]
        assert {one["stream"] for one in found} == {stream.name}
        releases = read_topic(str(path), stream=stream.name)
        assert releases.timestamps.tolist() == sorted(one["timestamp"] for one in found)
        direct = read_topic(bootstrap=bootstrap, topic=topic, registry=url)
        assert (direct.counts == releases.counts).all()
        assert (direct.errors == releases.errors).all()
        place = timestamp_of(stream.timeline, at)
        assert dict(zip(releases.columns, releases.counts[releases.timestamps == place][0], strict=True)) == {
            "home": 2, "shoes": 1,
        }  # fmt: skip
    with pytest.raises(ReadingError, match=r"it is written by schema .* of a registry, and none is given"):
        read_topic(bootstrap=bootstrap, topic=loaded.with_schemas[0].sink.topic)
    table = path.with_suffix(".csv")
    for arguments in (
        ["ledger", str(path)],
        ["tail", str(path), "--stream", "avro", "--last", "1", "--count", "1", "--json"],
        ["export", str(path), "--stream", "avro", "--output", str(table)],
        ["topics", str(path)],
    ):
        told = CliRunner().invoke(main, arguments)
        assert told.exit_code == 0, (arguments, told.output)
    assert "home" in table.read_text()
    told = CliRunner().invoke(main, ["status", str(path), "--json"])
    streams = {one["stream"]: one for one in json.loads(told.output)["streams"]}
    assert all(streams[stream.name]["releases_looked_at"] for stream in loaded.with_schemas)
    following = SinkTail(loaded)
    seen = following.look()
    assert following.problem == ""
    assert all(seen[stream.name].rows for stream in loaded.with_schemas)


def check_doors(folder: Path, stream: Stream, url: str) -> None:
    """The registry behind TLS that wants a certificate and a token: with both, and without either."""
    authority, base = Authority(folder, "authority"), url.removesuffix("/apis/ccompat/v7")
    certificate, key = map(str, authority.certificate("worker"))
    door = guarded(
        base,
        authority.certificate("registry"),
        authority.file,
        lambda given: None if given == "Bearer known" else 401,
    )
    with door as secured:
        known = Registry(
            secured + "/apis/ccompat/v7", ca=str(authority.file), certificate=certificate, key=key,
            token="known",
        )  # fmt: skip
        assert Subjects(known, schema_text).find(stream) == Subjects(Registry(url), schema_text).find(stream)
        for wrong, told in (
            (replace(known, token="other"), "It does not accept the token"),
            (replace(known, token=None), "It requires authentication"),
            (replace(known, certificate=None, key=None), "it asks for a client certificate"),
            (replace(known, ca=None), "its certificate is not trusted"),
        ):
            with pytest.raises(RegistryUnavailable, match=told):
                Subjects(wrong, schema_text).find(stream)
    with pytest.raises(RegistryUnavailable, match="it cannot be reached"):
        Subjects(known, schema_text).find(stream)


def check_proposed_formats(path: Path, name: str) -> None:
    """The doctor asks the registry what the values of a source are that the file says are JSON."""
    text = path.read_text()
    for form in FIELDS:
        text = text.replace(f"{name}.{form}, format: {form}", f"{name}.{form}")
    other = path.with_name("json.yaml")
    other.write_text(text)
    told = CliRunner().invoke(main, ["doctor", str(other), "--json"], catch_exceptions=False)
    changes = {(one["stream"], one["setting"]): one["value"] for one in json.loads(told.stdout)["changes"]}
    assert changes == {(form, "source.format"): form for form in FIELDS}


def test_a_worker_waits_for_its_registry_and_goes_on_while_schemas_change(kafka: str, tmp_path: Path) -> None:
    name = unique("formats")
    with local_registry(kafka, f"{name}-registry", tmp_path) as registry:
        path = topology(tmp_path, kafka, name, registry.url)
        registry.wait()
        made = CliRunner().invoke(
            main, ["topics", str(path), "--create", "--sources"], catch_exceptions=False
        )
        assert made.exit_code == 0, made.output
        assert f"registered the schema of {name}.avro.sanitized-value (id " in made.output
        loaded, log = load(str(path), os.environ), tmp_path / "worker.log"
        client = SchemaRegistryClient({"url": registry.url})
        write = serializers(client, name)
        for one in write.values():
            one(0, "home", 0)
        registry.stop()

        first = soon()
        pages = {1: "home", 2: "home", 3: "shoes"}
        for form, one in write.items():
            send(
                kafka, f"{name}.{form}", {user: one(user, page, first) for user, page in pages.items()}, first
            )
        # Of an unknown schema, of no schema, too short for its schema, of another format's schema.
        protobuf = write["protobuf"](1, "home", first)
        broken = {5: b"\0\x7f\xff\xff\xff?", 6: b"{}", 7: write["avro"](7, "home", first)[:8], 8: protobuf}
        send(kafka, f"{name}.avro", broken, first)
        with WorkerProcess("tests.worker.silent", path, log, "6") as worker:
            worker.wait_for_log(f"{name}.avro, partition 0, is held up: the schemas that records name")
            worker.wait_for_log("schema registry unavailable: the schema registry at http")
            worker.wait_for_log("stream avro: releases paused: the schema registry at http")
            # What needs no schema continues, past the deadline of what waits.
            counts = {"json-schema": await_release(kafka, loaded, "json-schema", first, log)}
            assert released(kafka, loaded, "avro", first) is None
            assert released(kafka, loaded, "protobuf", first) is None
            registry.start()
            registry.wait()
            counts |= {form: await_release(kafka, loaded, form, first, log) for form in ("avro", "protobuf")}
            assert counts == {form: {"home": 2, "shoes": 1} for form in FIELDS}
            worker.wait_for_log(f"{name}.avro, partition 0, is no longer held up")
            worker.wait_for_log("stream avro: releases use schema id")

            new = AvroSerializer(client, json.dumps(wider()))
            context = SerializationContext(f"{name}.avro", MessageField.VALUE)
            value = {"country": "DE", "visitor": {"id": 4}, "path": "shoes", "at": 0}
            # Its schema is registered now, and does not make the events late.
            new(value, context)
            second = soon()
            value["at"] = second * 1000
            values = {3: write["avro"](3, "home", second), 4: new(value, context) or b""}
            send(kafka, f"{name}.avro", values, second)
            assert await_release(kafka, loaded, "avro", second, log) == {"home": 1, "shoes": 1}

        found = letters(kafka, f"{name}.avro.dead")
        assert sorted(reason for reason, _ in found) == [*["not-of-schema"] * 3, "unknown-schema"]
        assert ("unknown-schema", "the registry knows no schema with id 2147483647") in found
        assert any("is of protobuf, and the source has format: avro" in detail for _, detail in found)
        assert not letters(kafka, f"{name}.protobuf.dead")

        check_readers(kafka, path, loaded, registry.url, first)
        check_doors(tmp_path, loaded.with_schemas[0], registry.url)

        # The same once more from the log, and what the doctor says of it.
        for stream in loaded.streams:
            by_schema = loaded.registry if stream.name != "json-schema" else None
            source = TopicInput(loaded.kafka, stream.source.topic, envelope=True, registry=by_schema)
            start = start_of(stream.timeline, timestamp_of(stream.timeline, first))
            (again,) = replay(
                loaded, source, start=start, end=start + 1000, only=[stream.name], noise=lambda _: Silence()
            )
            assert json.loads(again.record)["counts"] == {"home": 2, "shoes": 1}
        told = CliRunner().invoke(main, ["doctor", str(path)])
        assert "unknown-schema" in told.output
        check_proposed_formats(path, name)
        registry.stop()
        for command in ("doctor", "status", "ledger", "topics"):
            told = CliRunner().invoke(main, [command, str(path)])
            assert (told.exit_code, "cannot be queried" in told.output) == (1, True), (command, told.output)
