"""A new setting is a row of its section's table and a field of the model; the rest follows from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from eventveil.model.topology import Sink, Source, Timeline
from eventveil.topology import build, counts, spec
from eventveil.topology.changes import REFUSED, SOUND
from eventveil.topology.engine import ENGINE_SOURCE
from eventveil.topology.fields import Field, Kept, One, RecordShape, Section
from eventveil.topology.fingerprints import fingerprint_fields
from eventveil.topology.loading import load_with_defaults
from eventveil.topology.options import OPTIONS
from eventveil.topology.scalars import Whole
from eventveil.topology.schema import json_schema
from tests.unit.topology.examples import (
    BASE,
    ROOT,
    as_data,
    changed,
    fingerprint,
    load_text,
    problems_of,
    two_streams,
)
from tests.unit.topology.test_fingerprints import KNOWN
from tests.unit.topology.test_local import TEXT as LOCAL

GRAIN = Field(
    "grain",
    One(Whole(1, 9)),
    "How coarse it is.",
    default="1",
    kept=Kept("it says what is coarse from the change on", sound=True, newer=True),
)
#: The last line of each section in BASE.
LAST = {
    "source": "time: /time",
    "timeline": "origin: 2013-01-01T00:00:00Z",
    "sink": "topic: flights.sanitized",
}


@dataclass(frozen=True, slots=True)
class GrainedSource(Source):
    grain: int = 1


@dataclass(frozen=True, slots=True)
class GrainedTimeline(Timeline):
    grain: int = 1


@dataclass(frozen=True, slots=True)
class GrainedSink(Sink):
    grain: int = 1


@pytest.fixture(params=[("source", GrainedSource), ("timeline", GrainedTimeline), ("sink", GrainedSink)])
def section(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A section with one more row in its table, and one more field in the model; its name."""
    name, model = request.param
    with a_row_more(monkeypatch, name, model, GRAIN):
        yield str(name)


@contextmanager
def a_row_more(monkeypatch: pytest.MonkeyPatch, name: str, model: type, row: Field) -> Iterator[None]:
    table = replace(counts.KEPT[name], fields=(*counts.KEPT[name].fields, row))
    rows = [replace(one, shape=table) if one.name == name else one for one in counts.STREAM.fields]
    monkeypatch.setitem(counts.KEPT, name, table)
    monkeypatch.setattr(spec, "STREAM", replace(counts.STREAM, fields=tuple(rows)))
    monkeypatch.setattr(build, model.__base__.__name__, model)
    spec.layout.cache_clear()
    yield
    spec.layout.cache_clear()


def with_grain(section: str, value: str) -> str:
    return changed((LAST[section] + "\n", f"{LAST[section]}\n      grain: {value}\n"))


def test_a_new_setting_is_read_checked_explained_and_in_the_model(section: str, tmp_path: Path) -> None:
    given = load_text(tmp_path, with_grain(section, "3")).streams[0]
    assert getattr(given, section).grain == 3
    (problem,) = problems_of(tmp_path, with_grain(section, "10"))
    assert problem.message.endswith(
        f"{section}.grain: found the number 10, expected a whole number from 1 to 9"
    )
    (problem,) = problems_of(tmp_path, with_grain(section, "3").replace("grain", "grian"))
    assert "did you mean grain?" in problem.message
    schema = json_schema()
    validator = Draft202012Validator(schema)
    assert validator.is_valid(as_data(with_grain(section, "3")))
    assert not validator.is_valid(as_data(with_grain(section, "10")))
    assert "How coarse it is. Default: 1." in str(schema["$defs"])


def test_a_new_setting_has_its_default_and_changes_no_fingerprint_until_it_is_used(
    section: str, tmp_path: Path
) -> None:
    (tmp_path / "topology.yaml").write_text(BASE)
    topology, defaults = load_with_defaults(str(tmp_path / "topology.yaml"), {})
    (plain,) = topology.streams
    assert getattr(plain, section).grain == 1
    assert [one.value for one in defaults if one.setting.endswith(f"{section}.grain")] == ["1"]
    assert fingerprint(plain, 12, 4) == KNOWN
    (same,) = load_text(tmp_path, with_grain(section, "1")).streams
    (other,) = load_text(tmp_path, with_grain(section, "3")).streams
    assert fingerprint(same, 12, 4) == KNOWN
    fact = {f"{section}.grain": 3}
    assert counts.facts(section, getattr(other, section)).items() >= fact.items()
    if section == "sink":  # moves releases about, and is remembered beside the fingerprint
        assert fingerprint(other, 12, 4) == KNOWN
    else:
        assert fingerprint_fields(other, 12, 4) == {**fingerprint_fields(plain, 12, 4), **fact}


def test_a_default_that_other_settings_decide_is_in_the_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def derive(file: Section, stream: Section, timeline: Section) -> tuple[int, str] | None:
        columns = stream.get("counts").get("columns")
        return None if columns is None else (len(columns.labels), f"{len(columns.labels)} columns")

    grain = replace(GRAIN, default=None, derived="the number of columns", derive=derive, kept=None)
    with a_row_more(monkeypatch, "timeline", GrainedTimeline, grain):
        (tmp_path / "topology.yaml").write_text(BASE)
        topology, defaults = load_with_defaults(str(tmp_path / "topology.yaml"), {})
        assert topology.streams[0].timeline.grain == 2  # type: ignore[attr-defined]
        assert [one.value for one in defaults if one.setting.endswith("timeline.grain")] == ["2 columns"]
        given = load_text(tmp_path, with_grain("timeline", "7")).streams[0]
        assert given.timeline.grain == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["counts", "local"])
def test_rules_between_settings_are_asked_in_every_kind_of_stream_that_has_the_section(
    kind: str, tmp_path: Path
) -> None:
    text = BASE if kind == "counts" else LOCAL
    time = LAST["source"] if kind == "counts" else "time: /at"
    assert text.count(time) == 1
    both = text.replace(time, f"{time}\n      partitioner: crc32\n      repartition: true")
    (problem,) = problems_of(tmp_path, both)
    assert "source.partitioner has no effect with repartition: true" in problem.message


DIFFERENT = {
    "user": "/tailnum2",
    "user_type": "integer",
    "partitioner": "crc32",
    "users": "others",
    "append_time": "boundary",
    "repartition": "true",
    "format": "json-schema",
}


@pytest.mark.parametrize("setting", DIFFERENT)
def test_streams_that_read_one_topic_must_agree_on_what_is_shared(setting: str, tmp_path: Path) -> None:
    """Or they would see other users, in other partitions, or by another clock."""
    alike = two_streams(("topic: other.events, user: /u,", "topic: flights.events, user: /tailnum,"))
    load_text(tmp_path, alike)
    old = "user: /tailnum, " if setting == "user" else "column: /c, "
    new = f"{setting}: {DIFFERENT[setting]}, " + ("" if setting == "user" else old)
    (problem,) = problems_of(tmp_path, alike.replace(old, new))
    assert f"second.source.{setting}: is {DIFFERENT[setting]}, but " in problem.message
    assert {row.name for row in counts.SOURCE.fields if row.shared} == DIFFERENT.keys()


def test_an_option_touches_at_most_three_files_of_the_program() -> None:
    package = ROOT / "operators" / "eventveil"
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("## Adding an option")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.*`.*) \| (`.*) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for of, files in rows:
        named = re.findall(r"`([a-z_]+/[a-z_<>]+\.py)`", files)
        assert 2 <= len(named) + files.count("the file that uses it") <= 3, of
        for file in named:
            assert (package / file).is_file() or ((package / file).parent.is_dir() and "<kind>" in file), file


def test_every_table_says_of_what_is_kept_why_it_may_change_or_not() -> None:
    told: dict[str, Any] = {}
    for name, table in (*counts.KEPT.items(), ("source", ENGINE_SOURCE)):
        for row in _kept(table):
            assert row.kept is not None
            assert len(row.kept.why) > 20, row.name
            told |= {f"{name}.{row.name}": row.kept.sound}
    assert {name for name, sound in told.items() if sound} < SOUND.keys()
    assert {name for name, sound in told.items() if not sound} < REFUSED.keys()
    rest = {*SOUND, *REFUSED} - told.keys() - {f"mechanism.{name}" for name in OPTIONS}
    assert {name.split(".")[0] for name in rest} == {
        "counts",
        "fingerprint",
        "plugin",
        "sink",
        "source",
        "topics",
    }
    assert {name for name in rest if not name.startswith(("plugin.", "counts.columns."))} == {
        "fingerprint.version", "sink.topic_id", "source.partitions", "topics.partials",
    }  # fmt: skip


def _kept(table: RecordShape) -> list[Field]:
    return [row for row in table.fields if row.kept is not None]
