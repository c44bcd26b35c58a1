"""What a stream is, is decided in one place, and found through one object."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import eventveil
from eventveil.kinds.registry import KINDS, kind_of, roles
from eventveil.model.topology import KindOfStream, Topology
from eventveil.topology.loading import load
from tests.unit.topology.examples import ROOT

PACKAGE = Path(eventveil.__file__).parent
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")
}
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def topology() -> Topology:
    return load(str(ROOT / "tests/unit/cli/shipped/every-kind.yaml"), {})


def test_every_kind_has_its_object_and_every_object_a_stream(topology: Topology) -> None:
    assert set(KINDS) == set(get_args(KindOfStream))
    assert {kind_of(stream).name for stream in topology.all_streams} == set(KINDS)


def test_a_stream_is_of_the_kind_that_its_file_asks_for(topology: Topology) -> None:
    assert {stream.name: stream.kind for stream in topology.all_streams} == {
        "pages": "counts",
        "searches": "counts",
        "lifts": "counts",
        "doors": "pan-private",
        "halls": "pan-private",
        "stays": "local",
        "minutes": "values",
        "visits": "engine",
    }


def test_each_topic_that_is_read_has_a_role(topology: Topology) -> None:
    assert roles(topology) == {
        "every.pages": "aggregate",
        "every.doors": "accumulate",
        "every.reports": "aggregate",
        "every-repartition-every.searches": "aggregate",
        "every.lifts": "aggregate",
        "every.halls": "accumulate",
        "every.visits": "aggregate",
        "every.landed": "perturb",
        "every-partials": "sanitize",
        "every.searches": "rekey",
    }


def test_nobody_else_asks_of_which_kind_a_stream_is() -> None:
    """Neither by flags on the stream, nor by comparing its kind; sections of the file are no streams yet."""
    asking = re.compile(
        r"\bis_(local|pan_private|announced|value\w*)\b"
        r"|\.kind [!=]= \"(counts|local|engine|pan-private|values)"
    )
    found = {name for name, text in SOURCES.items() if asking.search(text)}
    assert found == {"model/topology.py", "topology/build.py", "topology/checks.py", "topology/values.py"}


def test_a_new_kind_touches_at_most_eight_files_that_are_there() -> None:
    listed = PAGE.partition("<!-- kind: begin -->")[2].partition("<!-- kind: end -->")[0]
    files = re.findall(r"^\d+\. `([^`]+)`", listed, re.MULTILINE)
    assert 0 < len(files) <= 8
    for file in files:
        assert file in SOURCES or ("<kind>" in file and (PACKAGE / file).parent.is_dir()), file


def test_the_kinds_are_named_nowhere_but_in_the_files_that_a_new_one_touches() -> None:
    """An object of a kind is known to the registry alone: others find it through a stream."""
    own = {f"kinds/{name}.py" for name in ("counts", "local", "engine", "pan_private", "values", "registry")}
    imports = re.compile(r"eventveil\.kinds\.(counts|local|engine|pan_private|values)\b")
    assert {name for name, text in SOURCES.items() if imports.search(text)} <= own
