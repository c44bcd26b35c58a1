"""``eventveil doctor`` over files; tests/integration/test_doctor.py has topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventveil.cli.main import main
from tests.unit.doctor.making import FILE, event, nested


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE)
    return path


def doctor(topology: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", str(topology), *arguments])


def test_the_last_events_of_a_file_are_looked_at(topology: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    lines = [json.dumps(nested(one)) for one in range(50)] + [json.dumps(event(one)) for one in range(300)]
    events.write_text("\n".join(lines))
    good = doctor(topology, "--input", str(events), "--records", "300")
    assert good.exit_code == 0, good.output
    assert "read the newest 300 of 350 records" in good.output
    assert "300 of 300 events would count" in good.output
    much = doctor(topology, "--input", str(events))
    assert much.exit_code == 3
    assert "300 of 350 events would count" in much.output
    assert "for example event 1 of the file" in much.output
    assert f"{topology}:10:7: source.user: correct the pointer" in much.output


def test_the_proposed_file_passes_check_and_helps(topology: Path, tmp_path: Path) -> None:
    events, output = tmp_path / "events.jsonl", tmp_path / "proposed.yaml"
    events.write_text("".join(f"{json.dumps(nested(one))}\n" for one in range(300)))
    arguments = ["--input", str(events), "--output", str(output)]
    found = doctor(topology, *arguments, "--json")
    assert found.exit_code == 3
    assert json.loads(found.stdout)["streams"][0]["would_count_as_proposed"] == 300
    checked = CliRunner().invoke(main, ["check", str(output)])
    assert checked.exit_code == 0, checked.output
    assert doctor(output, "--input", str(events)).exit_code == 0
    refused = doctor(topology, *arguments)
    assert refused.exit_code == 2
    assert "--force replaces it" in refused.output


def test_in_a_file_too_problems_behind_the_user_are_told(topology: Path, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text("".join(f'{{"section": "home", "at": "{one}"}}\n' for one in range(300)))
    told = doctor(topology, "--input", str(events))
    assert told.exit_code == 3
    assert "  300 missing-field: no user at /customer\n" in told.output
    assert "could be read:\n  300 time-unreadable: " in told.output


def test_what_cannot_be_read_is_told(topology: Path, tmp_path: Path) -> None:
    missing = doctor(topology, "--input", str(tmp_path / "none.jsonl"))
    assert missing.exit_code == 1
    assert "none.jsonl" in missing.stderr
    topology.write_text("version: 2")
    assert doctor(topology).exit_code == 78


VALUES = """
version: 1
name: museum
kafka: {bootstrap: "localhost:9092"}
streams:
  minutes:
    source: {topic: landed, value: VALUE}
    values: {maximum: 480, step: 1}
    mechanism: {kind: tops, epsilon: 1, held: 4096}
    sink: {topic: minutes}
"""


@pytest.mark.parametrize(("value", "reason"), [("/minute", "missing-field"), ("/room", "wrong-type")])
def test_the_pointer_of_values_is_named_where_no_number_is(value: str, reason: str, tmp_path: Path) -> None:
    path, events = tmp_path / "museum.yaml", tmp_path / "events.jsonl"
    path.write_text(VALUES.replace("VALUE", value))
    events.write_text("".join(f'{{"minutes": {one}, "room": "east"}}\n' for one in range(300)))
    told = doctor(path, "--input", str(events))
    assert told.exit_code == 3
    assert f"300 {reason}: the value at {value} would be 0" in told.output
    assert f"{path}:7:29: source.value: point to the number that is the value" in told.output
    meant = "Did you mean /minutes? It is in 300 of 300 records of the sample\n"
    assert (meant in told.output) == (value == "/minute")
    path.write_text(VALUES.replace("VALUE", "/minutes"))
    assert "300 of 300 events would count" in doctor(path, "--input", str(events)).output
