"""A source of counts: what its file may say, what the state records of it, what `check` tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.kinds.registry import kind_of, plan_streams
from eventveil.model.topology import Stream, Topology
from eventveil.report.tasks import tasks
from eventveil.topology.changes import REFUSED, SOUND
from eventveil.topology.loading import load_text
from eventveil.topology.problems import TopologyInvalid
from tests.unit.topology.examples import replaced

FILE = """\
version: 1
name: shop
streams:
  pages:
    source: {topic: counts, counts: trusted, column: /page, time: /start, count: /n}
    timeline: {interval: 1h, origin: 2026-01-01T00:00:00Z}
    counts: {columns: [home, shop], contributions: 2}
    mechanism: {kind: uniform, epsilon: 1, window: 24}
    sink: {topic: pages}
"""


def loaded(text: str = FILE) -> Topology:
    return load_text("shop.yaml", text, {})


def the_stream(text: str = FILE) -> Stream:
    return loaded(text).streams[0]


def test_the_partition_of_a_count_follows_from_its_column() -> None:
    source = the_stream().source
    assert (source.user, source.user_type, source.count, source.watermark) == ("/page", "either", "/n", None)
    assert source.raw is None
    assert kind_of(the_stream()).name == "engine"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("count: /n", "count: /n, user: /user", "source.user: counts have no users"),
        ("count: /n", "count: /n, repartition: true", "let the engine key by the column"),
        ("count: /n", "count: /n, append_time: boundary", "message.timestamp.type=LogAppendTime"),
        ("count: /n", "count: /n, filter: {/a: b}", "source.filter: let the engine do it"),
        ("count: /n", "count: /n, maps: {/page: {otherwise: home}}", "source.maps: let the engine do it"),
        (", count: /n", "", "source lacks count"),
        ("counts: trusted", "counts: true", "expected trusted"),
        ("column: /page", "column: [/page, /country]", "source.column: found a list"),
        ("column: /page", "column: /page, watermarks: /w", "did you mean watermark?"),
        ("interval: 1h", "interval: 1h, on_missing: release", "all counts of its columns"),
        (
            "kind: uniform, epsilon: 1, window: 24",
            "kind: budget-absorption, epsilon: 1, window: 24, pan_private: single",
            "knows nothing of noise",
        ),
        ("contributions: 2", "contributions: trusted", "trusted"),
        (
            "contributions: 2",
            "contributions: 2, per_column: 1, unknown: home",
            "bounds what a user adds to each",
        ),
    ],
)
def test_what_counts_cannot_have_is_told_with_its_place(old: str, new: str, told: str) -> None:
    with pytest.raises(TopologyInvalid) as caught:
        loaded(replaced(FILE, (old, new)))
    assert told in str(caught.value)
    assert "shop.yaml:" in str(caught.value)


def test_an_engine_can_promise_a_bound_of_each_column() -> None:
    (stream,) = loaded(FILE.replace("contributions: 2", "contributions: 2, per_column: 1")).streams
    said = " ".join(kind_of(stream).describe(loaded(), stream))
    assert "a user adds at most 2 to all columns together, and at most 1 to each" in said
    assert "at most 2 to all columns of a timestamp together, and of these at most 1 to each;" in said


def test_counts_and_events_are_never_in_one_topic() -> None:
    events = (
        FILE.partition("  pages:")[2].replace("counts: trusted, ", "").replace("count: /n", "user: /user")
    )
    with pytest.raises(TopologyInvalid, match="topic counts is already the source of stream pages"):
        loaded(FILE + "  others:" + events.replace("topic: pages", "topic: others"))


def test_state_remembers_that_records_are_counts_and_what_completes_them() -> None:
    (plan,) = plan_streams(loaded())
    fields = plan.fields(3)
    assert (fields["source.counts"], fields["source.count"]) == ("trusted", "/n")
    assert not {"source.user", "source.watermark", "source.append_time"} & fields.keys()
    (marked,) = plan_streams(loaded(FILE.replace("count: /n", "count: /n, watermark: /until")))
    assert marked.fields(3) == {**fields, "source.watermark": "/until"}
    assert {"source.counts", "source.count", "source.watermark"} <= REFUSED.keys() - SOUND.keys()


def test_a_topic_of_counts_keeps_them_all_with_append_times(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE)
    told = CliRunner().invoke(main, ["topics", "--print", str(path)])
    assert told.exit_code == 0, told.output
    (line,) = [one for one in told.stdout.splitlines() if "--topic counts " in one]
    assert "cleanup.policy=delete" in line
    assert "message.timestamp.type=LogAppendTime" in line


def test_check_says_what_the_engine_must_guarantee_and_what_cannot_be_seen() -> None:
    told = "\n".join(kind_of(the_stream()).describe(loaded(), the_stream()))
    assert "one user adds at most 2 to all columns of a timestamp together" in told
    assert "no watermark that follows the times of events decides what is late" in told
    assert "one number per timestamp and column" in told
    assert "does not change once the timestamp is complete" in told
    assert "Not visible here: events, users, whether the engine keeps its promises" in told
    assert "the first 2 events of a user count" not in told
    assert "Complete: by the deadline" in told
    marked = FILE.replace("count: /n", "count: /n, watermark: /until")
    told = "\n".join(kind_of(the_stream(marked)).describe(loaded(marked), the_stream(marked)))
    assert "each partition has a record with /until at or after its end" in told


def test_a_report_asks_who_has_checked_the_engine_and_not_what_a_user_is() -> None:
    told = [*tasks(loaded(), None)]
    assert any(one.startswith("Engine of pages: who has checked") for one in told)
    assert not any(one.startswith("Identity") for one in told)


def test_a_replay_of_counts_releases_the_last_numbers_of_a_file(tmp_path: Path) -> None:
    """A file has lines of several partitions in any order, so nothing in it is late."""
    (tmp_path / "shop.yaml").write_text(FILE.replace("count: /n", "count: /n, watermark: /until"))
    lines = [
        {"page": "home", "start": "2026-01-01T01:00:00Z", "n": 4},
        {"until": "2026-01-01T02:00:00Z"},
        {"page": "home", "start": "2026-01-01T01:00:00Z", "n": 5},
        {"page": "shop", "start": "2026-01-01T01:00:00Z", "n": 7},
        {"page": "shop", "start": "2026-01-01T02:00:00Z", "n": -7},
    ]
    (tmp_path / "counts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    paths = {name: str(tmp_path / f"{name}.jsonl") for name in ("output", "truth")}
    given = [word for name, path in paths.items() for word in (f"--{name}", path)]
    files = [str(tmp_path / "shop.yaml"), "--input", str(tmp_path / "counts.jsonl")]
    told = CliRunner().invoke(main, ["replay", *files, "--to", "2026-01-01T03:00:00Z", *given])
    assert told.exit_code == 0, told.output
    truth = [json.loads(line)["counts"] for line in Path(paths["truth"]).read_text().splitlines()]
    none = {"home": 0, "shop": 0}
    assert truth == [none, {"home": 5, "shop": 7}, none]
