"""The JSON Schema for editors agrees with the check."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from eventveil.mechanisms.registry import options_of
from eventveil.topology.fields import Named, RecordShape
from eventveil.topology.options import OPTIONS
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
from tests.unit.topology.test_local import MISTAKES as LOCAL_MISTAKES
from tests.unit.topology.test_local import changed as local_changed
from tests.unit.topology.test_values import MISTAKES as VALUE_MISTAKES
from tests.unit.topology.test_values import changed as value_changed

VALIDATOR = Draft202012Validator(json_schema())
# Mistakes that no schema can see: between settings, in the parser, or in the environment.
BEYOND_A_SCHEMA = {
    "Gaussian noise without delta",
    "delta that promises nothing",
    "delta without Gaussian noise",
    "delta too small",
    "more copies in sync than copies",
    "contributions trusted",
    "per_column above contributions",
    "more contributions than columns have room for",
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
    "re-keyed events in an internal topic",
    "two names that are one to Kafka",
    "budget exceeded",
    "budget exceeded by a window at the edge",
    "budget with a delta that promises nothing",
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
    "token without SASL",
    "token in the clear",
    "OAUTHBEARER without a source",
    "OAUTHBEARER with a password",
    "extensions without OAUTHBEARER",
    "an extension twice",
    "avro without a registry",
    "a registry that nothing needs",
    "AWS without region",
    "Kerberos without the name of the service",
    "Kerberos with a password",
    "ciphers without SSL",
    "commands beside ciphers",
    "a command alone",
    "ciphers of nobody",
    "ciphers without encryption",
    "ciphers for export",
    "many ciphers, some of nobody",
    "key password without key",
    "two sources of tokens",
    "secret file missing",
    "start beyond the year 9999",
    "windows beyond the year 9999",
    "mechanism of the user's own",
    "epsilon NaN",
    "bootstrap with an impossible port",
    "integers in a header",
    "repartition of what is keyed by the user",
    "record's time before another",
    "zone that nobody knows",
    "number in a header",
    "map of another field",
    "map to no column",
    "column that is no combination",
    "product of another number of fields",
    "product with what stands between",
    "product of too many",
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


def inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """A schema with each reference replaced by what it refers to."""
    if isinstance(schema, list):
        return [inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    target = schema.get("$ref", "").removeprefix("#/$defs/") if isinstance(schema.get("$ref"), str) else ""
    whole = {**definitions[target], **schema} if target else schema
    return {key: inlined(value, definitions) for key, value in whole.items() if key not in ("$ref", "$defs")}


def _documents() -> list[Any]:
    """Every topology that is shipped and every mistake of the tests that an editor would see."""
    texts = [path.read_text() for path in TOPOLOGIES] + [BASE, DESIGN, two_streams()]
    changes = [(changed, (old, new)) for _, old, new, *_ in IN_BASE]
    texts += [change(both) for change, both in changes]
    texts += [value_changed(old, new) for _, old, new, *_ in VALUE_MISTAKES]
    texts += [local_changed(old, new) for _, old, new, *_ in LOCAL_MISTAKES]
    found = []
    for text in texts:
        try:
            found.append(as_data(text))
        except (TopologyInvalid, AssertionError):
            continue  # not YAML, or refused by the parser
    return found


def test_references_change_no_verdict() -> None:
    schema = json_schema()
    whole = inlined(schema, schema["$defs"])
    assert "$ref" not in json.dumps(whole)
    old = Draft202012Validator(whole)
    verdicts = [VALIDATOR.is_valid(data) for data in _documents()]
    assert verdicts == [old.is_valid(data) for data in _documents()]
    assert len(verdicts) > 150
    assert verdicts.count(True) > 60
    assert verdicts.count(False) > 60


def test_what_is_used_twice_is_written_once() -> None:
    texts = [json.dumps(one, sort_keys=True) for one in _subschemas(json_schema())]
    long = [text for text in texts if len(text) > 200]
    assert len(long) > 30
    assert [text for text, times in Counter(long).items() if times > 1] == []


def test_every_definition_is_used_and_says_nothing_of_a_single_setting() -> None:
    schema = json_schema()
    used = {one["$ref"] for one in _subschemas(schema) if isinstance(one.get("$ref"), str)}
    assert used == {f"#/$defs/{name}" for name in schema["$defs"]}
    assert not any("description" in definition for definition in schema["$defs"].values())


def test_every_key_has_its_help_beside_it_where_editors_look_for_it() -> None:
    described = 0
    for one in _subschemas(json_schema()):
        for name, setting in one.get("properties", {}).items() if one.get("type") in _RECORDS else ():
            if name not in ("range", "kind") or "description" in setting:
                assert len(setting["description"]) > 5, name
                described += 1
    assert described > 80


_RECORDS = ("object", ["object", "null"])


def _subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _subschemas(one)


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


def _walk(record: RecordShape) -> list[RecordShape]:
    found = [record]
    for field in record.fields:
        shape = field.shape.record if isinstance(field.shape, Named) else field.shape
        shapes = [shape.counts, *shape.others.values()] if isinstance(shape, ByKind) else [shape]
        for one in shapes:
            found += _walk(one) if isinstance(one, RecordShape) else []
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
