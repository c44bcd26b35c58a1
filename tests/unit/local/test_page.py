"""docs/mechanisms/topl.md shows what is so: its settings work, its code runs, its records are as written."""

from __future__ import annotations

import json
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from click.testing import CliRunner

from docs.examples.stays import Asked
from eventveil.cli.main import main
from eventveil.formats.release import control_record, release_record
from eventveil.local import Control
from eventveil.mechanisms.registry import of_stream
from eventveil.model.topology import Stream
from eventveil.privacy.noise import SystemNoise
from eventveil.topology.spec import layout
from tests.unit.local.streams import SeededRandomness
from tests.unit.topology.examples import ROOT, load_text

PAGE = (ROOT / "docs" / "mechanisms" / "topl.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def stays(directory: Path) -> Stream:
    return load_text(directory, f"version: 1\nname: museum\n{block('yaml')}").streams[0]


def test_the_settings_are_those_of_the_topology_to_start_from(tmp_path: Path) -> None:
    example = load_text(tmp_path, (ROOT / "topologies" / "museum.yaml").read_text()).streams[0]
    stream = stays(tmp_path)
    assert (stream.mechanism, stream.counts, stream.source) == (
        example.mechanism, example.counts, example.source,
    )  # fmt: skip


def test_the_code_of_the_page_makes_a_report_of_its_record(tmp_path: Path) -> None:
    record = control_record(stays(tmp_path), None)
    assert f"`{record.decode()}`" in PAGE
    names: dict[str, Any] = {"record": record}
    exec(block("python"), names)
    assert names["event"]["report"] in stays(tmp_path).counts.labels
    assert Control.read(control_record(stays(tmp_path), 120), Fraction(1)).threshold == 120


def test_the_producer_says_that_it_waits_for_the_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = Mock(**{"error.return_value": None, "key.return_value": b"stays"})
    record.value.return_value = control_record(stays(tmp_path), None)
    consumer = Mock(**{"poll.side_effect": [None, None, record, None]})
    monkeypatch.setattr("docs.examples.stays.Consumer", lambda _: consumer)
    asked = Asked("localhost:9092", "museum-control", "stays", Fraction(1))
    assert asked.now().threshold is None
    assert capsys.readouterr().err == "waiting for a worker that says in museum-control what stays asks for\n"


def test_the_release_of_the_page_is_one_of_its_stream(tmp_path: Path) -> None:
    stream, shown = stays(tmp_path), json.loads(block("json"))
    mechanism = of_stream(stream, SystemNoise())
    counts = np.zeros(len(stream.counts.labels), np.int64)
    counts[0] = 10_000
    mechanism.step(counts)
    written = json.loads(release_record(stream, 42, mechanism.step(counts), mechanism.units))
    assert list(written) == list(shown)
    assert list(written["counts"]) == list(shown["counts"])
    same = ("stream", "phase", "fresh", "mechanism", "epsilon", "window", "units", "spent", "window_spent")
    assert {name: written[name] for name in same} == {name: shown[name] for name in same}


def test_every_setting_is_in_its_table() -> None:
    (streams,) = [field.shape for field in layout().fields if field.name == "streams"]
    record = streams.record.others["topl"]  # type: ignore[attr-defined]
    fields = {field.name: field.shape for field in record.fields}
    settings = [*fields["values"].fields, *fields["mechanism"].fields]
    rows = re.findall(r"^\| `([a-z_]+)`", PAGE, re.MULTILINE)
    assert rows == [field.name for field in settings if field.name not in ("kind", "epsilon")]


def test_a_file_of_reports_is_replayed_into_sums_of_its_threshold(tmp_path: Path) -> None:
    """One report a device and hour, as the producer of the page would make them."""
    text = (ROOT / "topologies" / "museum.yaml").read_text().replace("10000", "200")
    stream, randomness = load_text(tmp_path, text).streams[0], SeededRandomness(5)
    mechanism, threshold, events, sent = of_stream(stream, SystemNoise()), None, "", list[str]()
    for hour in range(2):
        asked = Control("stays", Fraction(1), 600, threshold)
        sent = [asked.report(30 + device % 60, randomness) for device in range(250)]
        threshold = mechanism.step(np.array([sent.count(label) for label in stream.counts.labels])).threshold
        for device, report in enumerate(sent):
            at = f"2026-01-01T0{hour}:30:00+01:00"
            events += json.dumps({"device": f"d{device}", "report": report, "at": at}) + "\n"
    (tmp_path / "events").write_text(events)
    arguments = [f"--input={tmp_path}/events", f"--output={tmp_path}/out", f"--truth={tmp_path}/truth"]
    result = CliRunner().invoke(main, ["replay", f"{tmp_path}/topology.yaml", "--to=last", *arguments])
    assert result.exit_code == 0, result.output
    assert "were private before they were sent: a replay adds nothing" in result.stderr
    first, second = (json.loads(line) for line in (tmp_path / "out").read_text().splitlines())
    assert first["counts"] == {"sum": 0, "reports": 250, "unused": 0}
    assert (second["counts"]["reports"], second["counts"]["unused"]) == (250, 0)
    assert (second["phase"], second["threshold"]) == ("sums", threshold)
    truth = [json.loads(line)["counts"] for line in (tmp_path / "truth").read_text().splitlines()]
    assert truth[1] == dict(Counter(sent))
    assert sum(truth[0].values()) == 250
