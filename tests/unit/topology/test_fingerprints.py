"""The fingerprint changes exactly with what changes counts or noise."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from eventveil.topology.columns import columns_digest
from eventveil.topology.fingerprints import fingerprint_fields
from tests.unit.topology.examples import BASE, changed, fingerprint, load_text

#: Of the stream of BASE.
KNOWN = "3302061a70e37ee385eb8062b0502d3413e445ad056c6a405bfe67d02b8e7287"
# the change, and the fields that must differ
RELEVANT = [
    ("topic: flights.events", "topic: flights.raw", {"source.topic"}),
    ("/tailnum", "/tail", {"source.user"}),
    ("/tailnum", "/tailnum\n      user_type: integer", {"source.user_type"}),
    ("/dest", "/origin", {"source.column"}),
    ("/time", "/at", {"source.time"}),
    ("/time\n", "/time\n      format: json-schema\n", {"source.format"}),
    ("/tailnum", "[/tailnum, $key]", {"source.user"}),
    ("/tailnum", "/tailnum\n      user_type: either", {"source.user_type"}),
    ("/time\n", "/time\n      time_unit: s\n", {"source.time_unit"}),
    ("/time\n", "/time\n      time_zone: Europe/Berlin\n", {"source.time_zone"}),
    ("/time\n", "/time\n      filter: {/type: landed}\n", {"source.filter"}),
    ("/time\n", "/time\n      maps: {/dest: {prefixes: {AT: ATL}}}\n", {"source.maps"}),
    ("/time\n", "/time\n      partitioner: crc32\n", {"source.partitioner"}),
    ("/time\n", "/time\n      max_bytes: 9\n", {"source.max_bytes"}),
    ("/time\n", "/time\n      append_time: boundary\n", {"source.append_time", "timeline.max_ahead"}),
    ("/time\n", "/time\n      repartition: true\n", {"source.repartition"}),
    ("interval: 1h", "interval: 2h", {"timeline.interval", "timeline.max_ahead"}),
    ("00:00:00Z", "01:00:00Z", {"timeline.origin"}),
    ("interval: 1h", "interval: 1h\n      lateness: 1s", {"timeline.lateness"}),
    ("interval: 1h", "interval: 1h\n      max_ahead: 1s", {"timeline.max_ahead"}),
    ("[ATL, BOS]", "[BOS, ATL]", {"counts.columns.digest"}),
    ("[ATL, BOS]", "[ATL, BOS, JFK]", {"counts.columns", "counts.columns.digest"}),
    ("[ATL, BOS]", "[ATL, BOS]\n      contributions: 2", {"counts.contributions"}),
    (
        "[ATL, BOS]",
        "[ATL, BOS]\n      contributions: 2\n      per_column: 1",
        {"counts.contributions", "counts.per_column"},
    ),
    ("[ATL, BOS]", "[ATL, BOS]\n      unknown: ignore", {"counts.unknown"}),
    ("[ATL, BOS]", "[ATL, BOS]\n      unknown: BOS", {"counts.unknown"}),
    ("kind: budget-absorption", "kind: budget-distribution", {"mechanism.kind"}),
    ("kind: budget-absorption", "kind: uniform", {"mechanism.kind", "mechanism.factor"}),
    ("epsilon: 1.0", "epsilon: 1.00001", {"mechanism.epsilon"}),
    ("window: 120", "window: 121", {"mechanism.window"}),
    ("window: 120", "window: 120\n      factor: 2", {"mechanism.factor"}),
    ("window: 120", "window: 120\n      shift: true", {"mechanism.shift"}),
    ("window: 120", "window: 120\n      groups: 2", {"mechanism.groups"}),
    (
        "window: 120",
        "window: 120\n      groups: 2\n      regroup: 9",
        {"mechanism.groups", "mechanism.regroup"},
    ),
    ("window: 120", "window: 120\n      adjacency: substitute", {"mechanism.adjacency"}),
]
IRRELEVANT = [
    ("localhost:9092", "other:9092"),
    ("replication: 3", "replication: 5"),
    ("partitions: 12", "partitions: 13"),
    ("topic: flights.sanitized", "topic: elsewhere"),
    ("topic: flights.sanitized", "topic: flights.sanitized\n      counts: array"),
    ("topic: flights.sanitized", "topic: flights.sanitized\n    dead_letter: elsewhere"),
    ("interval: 1h", "interval: 1h\n      clock_skew: 5s"),
    ("interval: 1h", "interval: 1h\n      start: 2013-02-01T00:00:00Z"),
    ("interval: 1h", "interval: 60m"),
    ("interval: 1h", "interval: 1h\n      on_missing: release"),
    ("epsilon: 1.0", "epsilon: 1"),
    ("00:00:00Z", "01:00:00+01:00"),
    ("window: 120", "window: 120\n      factor: 1.0"),
    ("window: 120", "window: 120\n      shift: false"),
    ("window: 120", "window: 120\n      groups: 1"),
    ("budget: {epsilon: 5, span: 5d}", ""),
    ("span: 5d", "span: 5d, users: others"),
    ("name: flights", "name: other"),
]


@pytest.mark.parametrize(("old", "new", "fields"), RELEVANT)
def test_what_changes_counts_or_noise_changes_the_fingerprint(
    tmp_path: Path, old: str, new: str, fields: set[str]
) -> None:
    before = load_text(tmp_path, BASE).streams[0]
    after = load_text(tmp_path, changed((old, new))).streams[0]
    was, now = fingerprint_fields(before, 12, 4), fingerprint_fields(after, 12, 4)
    assert {name for name in was.keys() | now.keys() if was.get(name) != now.get(name)} == fields
    assert fingerprint(before, 12, 4) != fingerprint(after, 12, 4)


@pytest.mark.parametrize(("old", "new"), IRRELEVANT)
def test_what_changes_neither_leaves_the_fingerprint(tmp_path: Path, old: str, new: str) -> None:
    before = load_text(tmp_path, BASE).streams[0]
    after = load_text(tmp_path, changed((old, new))).streams[0]
    assert fingerprint(before, 12, 4) == fingerprint(after, 12, 4)


def test_partition_counts_and_the_type_of_columns_change_the_fingerprint(tmp_path: Path) -> None:
    stream = load_text(tmp_path, BASE).streams[0]
    texts = load_text(tmp_path, changed(("[ATL, BOS]", '["1", "2"]'))).streams[0]
    numbers = load_text(tmp_path, changed(("[ATL, BOS]", "[1, 2]"))).streams[0]
    prints = [fingerprint(stream, 12, 4), fingerprint(stream, 13, 4), fingerprint(stream, 12, 5)]
    prints += [fingerprint(texts, 12, 4), fingerprint(numbers, 12, 4)]
    assert len(set(prints)) == 5


def test_the_fingerprint_is_the_digest_of_the_canonical_json_of_its_fields(tmp_path: Path) -> None:
    stream = load_text(tmp_path, BASE).streams[0]
    text = json.dumps(fingerprint_fields(stream, 12, 4), sort_keys=True, separators=(",", ":"))
    assert fingerprint(stream, 12, 4) == hashlib.sha256(text.encode()).hexdigest()


def test_the_fingerprint_of_a_known_stream_never_changes_between_versions(tmp_path: Path) -> None:
    """State that was written with it would be refused: raise the version in the fields knowingly."""
    stream = load_text(tmp_path, BASE).streams[0]
    assert fingerprint(stream, 12, 4) == KNOWN


def test_the_digest_of_columns_tells_where_one_label_ends() -> None:
    assert columns_digest(["a,b"]) != columns_digest(["a", "b"])
    assert columns_digest(["é"]) == hashlib.sha256('["é"]'.encode()).hexdigest()
