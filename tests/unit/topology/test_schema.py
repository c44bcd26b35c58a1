"""The JSON Schema for editors agrees with the check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from eventveil.topology.fields import Named, Record
from eventveil.topology.options import OPTIONS, options_of
from eventveil.topology.problems import TopologyInvalid
from eventveil.topology.schema import json_schema, json_schema_text
from eventveil.topology.spec import layout
from eventveil.topology.values import ByKind
from tests.unit.topology.examples import (
    BASE,
    DESIGN,
    ROOT,
    TOPOLOGIES,
    as_data,
    changed,
    load_text,
    two_streams,
)
from tests.unit.topology.mistakes import IN_BASE

VALIDATOR = Draft202012Validator(json_schema())
# Mistakes that no schema can see: between settings, in the parser, or in the environment.
BEYOND_A_SCHEMA = {
    "more copies in sync than copies",
    "contributions trusted",
    "day that does not exist",
    "time finer than milliseconds",
    "start before the origin",
    "grace without release",
    "repartition beside a partitioner",
    "repartition with boundaries",
    "repartition of huge events",
    "interval endless",
    "numbers among texts",
    "range backwards",
    "range too long",
    "column file missing",
    "unknown is no column",
    "epsilon with too many digits",
    "epsilon next to nothing",
    "sink equal to the source",
    "sink equal to dead letters",
    "dead letters into an internal topic",
    "two names that are one to Kafka",
    "budget exceeded",
    "more groups than columns",
    "more samples than timestamps",
    "regroup without groups",
    "regroup of a single group",
    "key twice",
    "tab as indentation",
    "variable not set",
    "variable never closed",
    "variable without a name",
    "default as in a shell",
    "message as in a shell",
    "window with a leading zero",
    "epsilon with a leading zero",
    "bound with a leading zero",
    "unknown is a word and a column",
    "unknown is the default and a column",
    "budget of people whom no stream counts",
    "secret outside security",
    "SASL without password",
    "password without SASL",
    "authority without SSL",
    "certificate without key",
    "secret file missing",
    "start beyond the year 9999",
    "windows beyond the year 9999",
    "mechanism of the user's own",
    "epsilon NaN",
    "bootstrap with an impossible port",
}


def test_the_kept_schema_is_the_one_that_is_printed() -> None:
    assert (ROOT / "schemas" / "topology.schema.json").read_text() == json_schema_text()


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(json.loads(json_schema_text()))


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.name)
def test_the_topologies_to_start_from_fit_the_schema(path: Path) -> None:
    assert list(VALIDATOR.iter_errors(as_data(path.read_text()))) == []


@pytest.mark.parametrize("text", [BASE, DESIGN, two_streams()], ids=["base", "documentation", "two streams"])
def test_valid_examples_fit_the_schema(text: str) -> None:
    assert list(VALIDATOR.iter_errors(as_data(text))) == []


@pytest.mark.parametrize(
    ("name", "old", "new"), [row[:3] for row in IN_BASE], ids=[row[0] for row in IN_BASE]
)
def test_the_schema_refuses_every_mistake_that_a_schema_can_see(name: str, old: str, new: str) -> None:
    try:
        data = as_data(changed((old, new)))
    except TopologyInvalid:
        return  # the parser refuses it; an editor shows that by itself
    except AssertionError:
        return  # not YAML
    assert VALIDATOR.is_valid(data) == (name in BEYOND_A_SCHEMA)


def test_the_schema_refuses_an_unknown_key_in_every_record() -> None:
    data = as_data(BASE)
    records = 0
    for path in _records(data):
        _at(data, path)["unknown-key"] = 1
        assert not VALIDATOR.is_valid(data), path
        del _at(data, path)["unknown-key"]
        records += 1
    assert VALIDATOR.is_valid(data)
    assert records == 11


def _records(data: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return []
    below = [found for key, value in data.items() for found in _records(value, (*path, key))]
    return [path, *below]


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def test_every_key_of_the_table_has_help_and_options_belong_to_a_kind() -> None:
    for record in _walk(layout()):
        assert all(len(field.help) > 5 for field in record.fields)
    from eventveil.mechanisms.registry import KINDS

    assert set().union(*(options_of(kind) for kind in KINDS)) == set(OPTIONS)


def _walk(record: Record) -> list[Record]:
    found = [record]
    for field in record.fields:
        shape = field.shape.record if isinstance(field.shape, Named) else field.shape
        shapes = [shape.counts, *shape.others.values()] if isinstance(shape, ByKind) else [shape]
        for one in shapes:
            found += _walk(one) if isinstance(one, Record) else []
    return found


VALUES = st.sampled_from(
    [
        "0",
        "1",
        "-1",
        "1.5",
        "x",
        "''",
        "null",
        "true",
        "false",
        "[]",
        "[a]",
        "{}",
        "{a: b}",
        "1h",
        "/x",
        "now",
        "'7'",
        "1/3",
        "'${V:1}'",
    ]
)
PLACES = st.sampled_from([line.split(":")[0] for line in BASE.splitlines() if line.startswith("      ")])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=PLACES, value=VALUES)
def test_whatever_the_check_accepts_fits_the_schema(tmp_path: Path, place: str, value: str) -> None:
    lines = [f"{place}: {value}" if line.split(":")[0] == place else line for line in BASE.splitlines()]
    text = "\n".join(lines)
    try:
        load_text(tmp_path, text)
    except TopologyInvalid:
        return
    assert list(VALIDATOR.iter_errors(as_data(text))) == []
