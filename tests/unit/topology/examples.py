"""A small valid topology, ways to change it, and the plain data that an editor sees."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest

from eventveil.model.topology import Stream, Topology
from eventveil.topology.document import Broken, Items, Node, Table, compose
from eventveil.topology.fingerprints import fingerprint_fields
from eventveil.topology.loading import load
from eventveil.topology.problems import Problem, Problems, TopologyInvalid

ROOT = Path(__file__).parents[3]
TOPOLOGIES = sorted(path for path in (ROOT / "topologies").glob("*.yaml") if not path.stem.endswith("_test"))
BASE = """\
version: 1
name: flights
kafka:
  bootstrap: localhost:9092
topics: {replication: 3, min_insync: 2, partitions: 12, partials: 4}
streams:
  destinations:
    source:
      topic: flights.events
      user: /tailnum
      column: /dest
      time: /time
    timeline:
      interval: 1h
      origin: 2013-01-01T00:00:00Z
    counts:
      columns: [ATL, BOS]
    mechanism:
      kind: budget-absorption
      epsilon: 1.0
      window: 120
    sink:
      topic: flights.sanitized
budget: {epsilon: 5, span: 5d}
"""
SECOND = """\
  second:
    source: {topic: other.events, user: /u, column: /c, time: /t}
    timeline: {interval: 1h, origin: "2013-01-01T00:00:00Z"}
    counts: {columns: [a]}
    mechanism: {kind: uniform, epsilon: 1, window: 120}
    sink: {topic: other.sanitized}
"""
DESIGN = """\
version: 1
name: flights                      # application id: group, transactional ids, prefix of internal topics
kafka:
  bootstrap: ${KAFKA_BOOTSTRAP:localhost:9092}
  security: {protocol: PLAINTEXT}  # one place for both clients
topics: {replication: 3, min_insync: 2, partitions: 12, partials: 4}
streams:
  destinations:
    source: {topic: flights.events, format: json, user: /tailnum, column: /dest, time: /time,
             partitioner: murmur2}
    timeline: {interval: 1h, origin: 2013-01-01T00:00:00Z, lateness: 10m, max_ahead: 1h, start: now}
    counts: {columns: [ATL, BOS], contributions: 1, unknown: dead-letter}
    mechanism: {kind: budget-absorption, epsilon: 1.0, window: 120, factor: 1, adjacency: add-remove}
    sink: {topic: flights.sanitized, counts: object}     # object | array
    dead_letter: flights.dead
budget: {epsilon: 5, span: 5d, users: travellers}
"""


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """A text with others in place of some of it; each must occur exactly once."""
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def changed(*changes: tuple[str, str]) -> str:
    """BASE with texts replaced."""
    return replaced(BASE, *changes)


def two_streams(*changes: tuple[str, str]) -> str:
    """BASE with SECOND before the budget (lines 24 to 29), and texts replaced in SECOND."""
    return BASE.replace("budget:", replaced(SECOND, *changes) + "budget:")


def load_text(directory: Path, text: str | bytes, environ: dict[str, str] | None = None) -> Topology:
    path = directory / "topology.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(str(path), environ or {})


def problems_of(
    directory: Path, text: str | bytes, environ: dict[str, str] | None = None
) -> tuple[Problem, ...]:
    with pytest.raises(TopologyInvalid) as caught:
        load_text(directory, text, environ)
    return caught.value.problems


def as_data(text: str) -> Any:
    """What an editor hands to a JSON Schema: plain data by the core schema of YAML 1.2."""
    problems = Problems("text")
    root = compose(text.encode(), problems)
    problems.raise_if_any()
    assert root is not None
    return _data(root)


def _data(node: Node) -> Any:
    if isinstance(node, Table):
        return {key: _data(value) for key, value in node.entries.items()}
    if isinstance(node, Items):
        return [_data(item) for item in node.items]
    assert not isinstance(node, Broken)
    match node.type:
        case "nothing":
            return None
        case "boolean":
            return node.text.lower() == "true"
        case "integer":
            return int(node.text[:100])  # Python refuses to read thousands of digits
        case "number":
            return float(node.text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        case "text":
            return node.text


def fingerprint(stream: Stream, partitions: int, partials: int) -> str:
    """SHA-256 of what the state records of a stream: sorted keys, no spaces, UTF-8."""
    fields = fingerprint_fields(stream, partitions, partials)
    return hashlib.sha256(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)).hexdigest()
