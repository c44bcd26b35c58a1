"""What a stream is, is decided in one place, and found through one object."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import eventveil
from eventveil.kinds.kind import Role
from eventveil.kinds.registry import KINDS, kind_of, roles
from eventveil.model.topology import KindOfStream, Topology
from eventveil.topology import build, loading
from eventveil.topology.fields import Section
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


QUESTIONS = {
    "a flag": r"\bis_(local|pan_private|announced|value\w*)\b",
    "the name": r"kind(_of)?(\([^()]*\))?(\.name)? ([!=]= |in \()"
    r"\"(counts|local|engine|pan-private|values)\"",
    "the class": r"isinstance\([^()]*\b(Reading)?Stream\b",
    "the mechanism": r"\bLOCAL_KINDS\b",
    "where the number is": r"\bsource\.count is (not )?None",
}
"""How one can ask of which kind a stream is."""
ASKING: dict[str, set[str]] = {
    "a flag": set(),
    # Sections of a file are no streams yet.
    "the name": {"model/topology.py", "topology/build.py", "topology/checks.py"},
    "the class": {"counting/remedies.py", "live/recent.py", "read/following.py"},
    # Tables of all kinds of mechanism.
    "the mechanism": {"mechanisms/registry.py", "topology/mechanism.py", "topology/spec.py"},
    "where the number is": {"counting/engine.py", "model/topology.py", "tasks/aggregate.py"},
}
#: The engine, and what only records of an engine have. The topology's ``clients`` know another engine.
OF_AN_ENGINE = re.compile(
    r"(?<!ssl\.)engine|source\.(count|watermark)\b|def completed|\.completed\b", re.IGNORECASE
)


def listed(mark: str) -> list[str]:
    """The files of a numbered list of the page."""
    text = PAGE.partition(f"<!-- {mark}: begin -->")[2].partition(f"<!-- {mark}: end -->")[0]
    return re.findall(r"^\d+\. `([^`]+)`", text, re.MULTILINE)


@pytest.mark.parametrize("how", QUESTIONS)
def test_nobody_else_asks_of_which_kind_a_stream_is(how: str) -> None:
    assert {name for name, text in SOURCES.items() if re.search(QUESTIONS[how], text)} == ASKING[how]


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("a flag", "if stream.is_local:"),
        ("the name", 'if kind_of(stream).name == "engine":'),
        ("the name", 'return stream.kind != "local"'),
        ("the name", 'kind in ("counts", "local")'),
        ("the class", "if not isinstance(one.stream, ReadingStream):"),
        ("the class", "assert isinstance(self._stream, Stream)"),
        ("the mechanism", "kind in registry.LOCAL_KINDS"),
        ("where the number is", "self.stream.source.count is not None"),
    ],
)
def test_a_question_would_be_found(how: str, text: str) -> None:
    assert re.search(QUESTIONS[how], text)


def test_a_new_kind_touches_at_most_eight_files_that_are_there() -> None:
    files = listed("kind")
    assert 0 < len(files) <= 8
    for file in files:
        assert file in SOURCES or ("<kind>" in file and (PACKAGE / file).parent.is_dir()), file


def test_the_newest_kind_is_in_the_files_that_are_listed_and_in_no_others() -> None:
    found = {name for name, text in SOURCES.items() if OF_AN_ENGINE.search(text)}
    assert sorted(listed("engine")) == sorted(found)
    assert f"in these files, {len(listed('engine'))} of them" in PAGE


def test_the_section_of_each_stream_is_known_to_be_of_its_kind(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pan-private streams are written as counts are, with an option of the mechanism."""
    sections: dict[str, Section] = {}
    monkeypatch.setattr(loading, "check", lambda file: sections.update(build.all_streams_of(file)))
    load(topology.path, {})
    assert {name: build.written_kind(one) for name, one in sections.items()} == {
        one.name: "counts" if one.kind == "pan-private" else one.kind for one in topology.all_streams
    }


def test_a_task_is_restored_by_the_role_of_its_kind_alone() -> None:
    owners = dict(re.findall(r'"(\w+)": self\.(_\w+),', SOURCES["worker/owners.py"]))
    assert set(owners) == set(get_args(Role)) >= {kind.role for kind in KINDS.values()}
    assert all(f"def {method}(" in SOURCES["worker/owners.py"] for method in owners.values())


def test_the_kinds_are_named_nowhere_but_in_the_files_that_a_new_one_touches() -> None:
    """An object of a kind is known to the registry alone: others find it through a stream."""
    own = {f"kinds/{name}.py" for name in ("counts", "local", "engine", "pan_private", "values", "registry")}
    imports = re.compile(r"eventveil\.kinds\.(counts|local|engine|pan_private|values)\b")
    assert {name for name, text in SOURCES.items() if imports.search(text)} <= own
