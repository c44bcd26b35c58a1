"""``eventveil doctor`` against a real broker, with records that real clients have written."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from confluent_kafka import Producer

from eventveil.cli.main import main
from eventveil.model.timeline import format_rfc3339
from tests.kafka.topics import LOG_APPEND_TIME, create_topic, unique
from tests.unit.doctor.making import FILE
from tests.worker.process import WorkerProcess

PARTITIONS, EVENTS = 20, 400


def shop(kafka: str, folder: Path, topic: str) -> Path:
    path = folder / "shop.yaml"
    text = FILE.replace("localhost:9092", kafka).replace("shop.views", topic)
    path.write_text(text.replace("kafka:\n", "topics: {replication: 1, min_insync: 1}\nkafka:\n"))
    return path


def write(kafka: str, topic: str, **settings: str) -> None:
    """Events of a hundred customers, keyed by them; librdkafka's default partitioner unless told."""
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0, **settings})
    now = int(time.time() * 1000)
    for number in range(EVENTS):
        customer = f"c-{number % 100}"
        event = {"customer": customer, "section": "home", "at": now}
        producer.produce(topic, key=customer, value=json.dumps(event))
    assert producer.flush(30) == 0


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    found = CliRunner().invoke(main, ["doctor", *arguments, "--json"])
    assert found.exit_code in {0, 3}, found.output
    return found.exit_code, json.loads(found.stdout)


def test_a_topic_of_librdkafka_without_append_times_goes_in_as_proposed(kafka: str, tmp_path: Path) -> None:
    topic = create_topic(kafka, unique("views"), PARTITIONS)
    path, output = shop(kafka, tmp_path, topic), tmp_path / "proposed.yaml"
    write(kafka, topic)

    status, found = doctor(str(path), "--output", str(output))
    (source,), (stream,) = found["sources"], found["streams"]
    assert status == 3
    assert (source["read"], source["partitions"], source["stamped_by_broker"]) == (EVENTS, PARTITIONS, 0)
    assert source["timestamp_type"] == "CreateTime"
    assert any("LogAppendTime" in one for one in source["mistakes"])
    assert stream["would_count"] == 0
    assert stream["keys"]["keys"]["partitioner"] == "crc32"
    assert stream["keys"]["users_in_several_partitions"] == 0
    assert stream["would_count_as_proposed"] == EVENTS
    said = yaml.safe_load(output.read_text())["streams"]["views"]["source"]
    assert (said["partitioner"], said["append_time"]) == ("crc32", "boundary")
    status, again = doctor(str(output), "--records", "100")
    assert status == 0
    assert again["sources"][0]["read"] == 100
    assert again["streams"][0]["would_count"] == 100


def test_where_the_broker_stamps_records_the_worker_would_say_the_same(kafka: str, tmp_path: Path) -> None:
    topic = create_topic(kafka, unique("views"), PARTITIONS, LOG_APPEND_TIME)
    path = shop(kafka, tmp_path, topic)
    write(kafka, topic, partitioner="murmur2_random")
    status, found = doctor(str(path))
    outcomes = found["streams"][0]["outcomes"]
    assert status == 0
    assert (outcomes["counted"], outcomes["bounded"]) == (100, EVENTS - 100)
    assert found["sources"][0]["mistakes"] == []
    assert found["changes"] == []


def test_a_topic_that_is_not_there_is_told(kafka: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["doctor", str(shop(kafka, tmp_path, unique("nowhere")))])
    assert found.exit_code == 1
    assert "it does not exist" in found.stderr


def visit(number: int, now: int) -> dict[str, Any]:
    """An event of the shop of docs/doctor.md: one in four is an order, one in five a guest's."""
    user: dict[str, Any] = {"id": number % 150 if number % 2 else str(number % 150)}
    data = {"user": {} if number % 5 == 0 else user, "session": f"s-{number % 300}"}
    if number % 4 == 0:
        kind, more = "ordered", {"total": 12}
    else:
        kind, more = "viewed", {"section": ("home", "shoes")[number % 2]}
    return {
        "specversion": "1.0",
        "type": f"com.example.shop.{kind}",
        "source": "/web",
        "id": f"e-{number}",
        "time": format_rfc3339(now),
        "data": data | more,
    }


def test_a_web_shops_topic_goes_in_with_the_doctor_as_a_guide(kafka: str, tmp_path: Path) -> None:
    """The steps of docs/doctor.md, to the letter."""
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")
    guide = page.partition("## A web shop, step by step")[2].partition("\n## ")[0]
    name = unique("shop")
    text = guide.partition("```yaml\n")[2].partition("```")[0]
    text = text.replace("${KAFKA_BOOTSTRAP:localhost:9092}", kafka).replace("name: shop", f"name: {name}")
    text = text.replace("${KAFKA_REPLICATION:3}", "1").replace("${KAFKA_MIN_INSYNC:2}", "1")
    text = text.replace("topic: shop.", f"topic: {name}.").replace(
        "dead_letter: shop.", f"dead_letter: {name}."
    )
    path, output = tmp_path / "shop.yaml", tmp_path / "proposed.yaml"
    path.write_text(text)
    topic = create_topic(kafka, f"{name}.events", PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0, "compression.type": "gzip"})
    now = int(time.time() * 1000)
    for number in range(1000):
        event = visit(number, now)
        producer.produce(topic, key=event["data"]["session"], value=json.dumps(event))
    assert producer.flush(30) == 0

    status, found = doctor(str(path), "--output", str(output))
    assert (status, found["streams"][0]["would_count"]) == (3, 0)
    changes = {one["setting"]: one["value"] for one in found["changes"]}
    assert changes.pop("source.partitioner") is None
    assert changes == {
        "source.user": "/data/user/id",
        "source.column": "/data/section",
        "source.filter": '{/type: ["com.example.shop.viewed"]}',
        "source.user_type": "either",
        "source.repartition": "true",
        "source.append_time": "boundary",
    }
    status, found = doctor(str(output))
    details = [one["examples"][0]["detail"] for one in found["streams"][0]["reasons"]]
    assert status == 3
    assert details
    assert all("/data/user/id" in one for one in details)

    lines = guide.partition("replace `user: /data/user/id` with this line:\n\n```\n")[2].partition("```")[0]
    proposed = output.read_text()
    assert "      user: /data/user/id\n" in proposed
    output.write_text(proposed.replace("      user: /data/user/id\n", lines))
    status, found = doctor(str(output))
    (stream,) = found["streams"]
    assert (status, stream["reasons"], found["changes"]) == (0, [], [])
    assert stream["outcomes"]["filtered"] == 250
    created = CliRunner().invoke(main, ["topics", str(output), "--create"])
    assert created.exit_code == 0, created.output
    with WorkerProcess("eventveil", output, tmp_path / "log", "--metrics", "off") as worker:
        worker.wait_for_log(" ready")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
