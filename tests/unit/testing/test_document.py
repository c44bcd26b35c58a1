"""Mistakes in a file of tests: each is named with its line, column and key, and what would be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from eventveil.testing.document import TestsInvalid, load_tests
from eventveil.testing.spec import json_schema_text
from eventveil.topology.problems import TopologyInvalid
from tests.unit.testing.support import write
from tests.unit.topology.examples import ROOT, as_data, replaced

VALIDATOR = Draft202012Validator(json.loads(json_schema_text()))
GOOD = """\
events:
  - value: {user: a, page: home, at: 2026-01-01T00:10:00Z}
  - raw: null
expect:
  counts: {2026-01-01T00:00:00Z: {home: 1}}
  dead_letters: [{event: 2, reason: tombstone}]
"""
#: What replaces what in GOOD, the message that it gives, and whether a schema can see it.
MISTAKES = [
    ("raw: null", "raw: null\n    vlaue: 1", "'vlaue' in tests[1].events[2]; did you mean value?", True),
    ("raw: null", "repeat: 2", "an event needs either value or raw, and not both", True),
    ("raw: null", "raw: [1]", "tests[1].events[2].raw: found a list, expected text, or null", True),
    ("raw: null", "raw: null\n    repeat: 0", "repeat: found the number 0, expected a whole", True),
    ("raw: null", "raw: null\n    partition: 1", "partition 1 is not one of 1; raise", False),
    ("raw: null", "value: {a: 0x10}", "0x10 is not a JSON number", False),
    ("user: a", "user: *a", "a YAML alias (*) is not accepted", False),
    ("  - raw: null", "  - raw: null\n    raw: x", "key 'raw' is set a second time", False),
    ("00:00:00Z: {home", "00:30:00Z: {home", "nearest are 2026-01-01T00:00:00Z and 2026-01-01T01", False),
    ("2026-01-01T00:00:00Z: {h", "2025-12-31T23:00:00Z: {h", "the first one begins at 2026-01-01", False),
    ("2026-01-01T00:00:00Z: {h", "1: {h", "expect.counts: found the number 1, expected a time such as", True),
    ("{home: 1}", "{hoem: 1}", "'hoem' is not a column of views; did you mean home?", False),
    ("{home: 1}", "{home: one}", "found 'one', expected a whole number", True),
    ("event: 2", "event: 3", "there is no event 3, only 2", False),
    ("tombstone", "tombstones", "expected one of tombstone, ", True),
    ("expect:\n", "expect:\n  closed: {2026-01-01T00:00:00Z: 3}\n", "there is no event 3, only 2", False),
    ("expect:\n", "expect:\n  readings: {1: null}\n", "readings does not apply to views, a stream", False),
    ("expect:\n", "expect:\n  spent: {2026-01-01T00:00:00Z: x}\n", "expected an exact number", True),
    ("expect:\n", "expect:\n  spend: {}\n", "did you mean spent?", True),
    ("events:\n", "stream: vews\nevents:\n", "there is no stream vews; did you mean views?", False),
    ("events:\n", "from: 2026-01-01T00:30:00Z\nevents:\n", "is not where a timestamp of views begins", False),
    ("events:\n", "until: tomorrow\nevents:\n", "tests[1].until: found 'tomorrow', expected a time", True),
    ("expect:", "expected:", "unknown key 'expected' in tests[1]; did you mean expect?", True),
]  # fmt: skip


def changed(old: str, new: str) -> str:
    return replaced(GOOD, (old, new))


def test_the_good_one_is_good(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert len(load_tests(path, {}).cases) == 1
    assert list(VALIDATOR.iter_errors(as_data(Path(path).read_text()))) == []


@pytest.mark.parametrize(
    ("old", "new", "message", "visible"), MISTAKES, ids=[row[2][:40] for row in MISTAKES]
)
def test_a_mistake_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str, visible: bool
) -> None:
    path = write(tmp_path, changed(old, new))
    with pytest.raises(TestsInvalid) as refused:
        load_tests(path, {})
    place, _, told = str(refused.value).splitlines()[0].partition(": ")
    assert message in told
    name, line, column = place.rsplit(":", 2)
    assert name == path
    at = Path(path).read_text().splitlines()[int(line) - 1]
    assert len(at) >= int(column) >= 1
    try:
        data = as_data(Path(path).read_text())
    except (yaml.YAMLError, TopologyInvalid, ValueError):
        assert not visible
        return
    assert VALIDATOR.is_valid(data) != visible


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, changed("{home: 1}", "{hoem: 1}").replace("event: 2", "event: 3"))
    with pytest.raises(TestsInvalid) as refused:
        load_tests(path, {})
    assert len(str(refused.value).splitlines()) == 2


def test_a_mistake_of_the_topology_is_that_of_its_own_file(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, {"epsilon: 1": "epsilon: -1"})
    with pytest.raises(TopologyInvalid, match=r"small\.yaml:9:"):
        load_tests(path, {})


def test_the_file_sets_variables_of_its_topology(tmp_path: Path) -> None:
    path = write(
        tmp_path, GOOD, {"${KAFKA_BOOTSTRAP:localhost:9092}": "${SHOP_KAFKA}"},
        "environment: {SHOP_KAFKA: 'here:1'}\n",
    )  # fmt: skip
    assert load_tests(path, {"SHOP_KAFKA": "there:1"}).topology.kafka.bootstrap == "here:1"


def test_two_tests_cannot_have_one_name(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    with open(path, "a") as file:
        file.write("  - {name: it, events: [], expect: {}}\n")
    with pytest.raises(TestsInvalid, match="a test on line 2 has the name 'it' too"):
        load_tests(path, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "the file is empty; a file of tests needs tests"), ("tests: 1\n", "expected a list of tests")],
)
def test_a_file_without_tests_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = Path(write(tmp_path, GOOD))
    path.write_text(text)
    with pytest.raises(TestsInvalid, match=message):
        load_tests(str(path), {})


def test_the_kept_schema_is_the_one_that_is_printed() -> None:
    assert (ROOT / "schemas" / "topology-test.schema.json").read_text() == json_schema_text()
    Draft202012Validator.check_schema(json.loads(json_schema_text()))


@pytest.mark.parametrize(
    "path", sorted((ROOT / "topologies").glob("*_test.yaml")), ids=lambda path: path.stem
)
def test_the_shipped_tests_fit_the_schema(path: Path) -> None:
    assert list(VALIDATOR.iter_errors(as_data(path.read_text()))) == []
