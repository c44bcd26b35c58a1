"""The table of docs/comparison.md does not deny what a topology can say, nor claim what it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCHEMA = (ROOT / "schemas" / "topology.schema.json").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
TABLE = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:1] == "|"
]
OURS = {name: ours for name, ours, *_ in TABLE}


def test_every_row_has_a_cell_for_every_tool() -> None:
    assert TABLE[0][1] == "Eventveil"
    assert {len(row) for row in TABLE} == {len(TABLE[0])}
    assert len(OURS) == len(TABLE)


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        ("(epsilon, delta), Gaussian noise", ["noise", "delta"]),
        ("columns found in the data", ["discover"]),
        ("changing events", ["filter", "maps"]),
    ],
)
def test_what_a_topology_can_say_is_not_denied(row: str, settings: list[str]) -> None:
    assert all(f'"{one}"' in SCHEMA for one in settings) == (OURS[row] != "no")


def test_formats_are_those_of_sources_and_sinks() -> None:
    for setting, name in (("avro", "Avro"), ("protobuf", "Protobuf"), ("json-schema", "JSON Schema")):
        assert (f'"{setting}"' in SCHEMA) == (name in OURS["formats"])
