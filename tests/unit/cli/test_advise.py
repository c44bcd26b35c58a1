from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from eventveil.cli.main import main
from eventveil.topology.loading import load

pytestmark = pytest.mark.slow

KAFKA = """kafka:
  bootstrap: broker.example:9093  # the inner one
  security: {protocol: SASL_SSL, ca: ca.pem, mechanism: SCRAM-SHA-512, username: shop,
             password: "${PASSWORD}"}
# The next section.
topics:
  replication: 1
  min_insync: 1
  partials: 2
"""
SOURCE = """      repartition: true
      append_time: boundary
      max_bytes: 4096
      users: "night shift"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def advise(*arguments: str) -> Result:
    return run("advise", *arguments, "--seed", "1", "--processes", "1")


def generate(events: int, days: int = 2) -> None:
    made = run(
        "generate", "shop", "--output", "shop.jsonl", "--topology", "shop.yaml", "--events", str(events),
        "--days", str(days),
    )  # fmt: skip
    assert made.exit_code == 0, made.output


def lines(path: str) -> list[dict[str, dict[str, int]]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_week_of_a_shop_gets_day_totals_whose_largest_column_is_within_five_percent() -> None:
    generate(90_000, days=7)
    advised = advise("shop.jsonl", "--output", "advised.yaml")
    assert advised.exit_code == 0, advised.output
    assert "home, is off by" in advised.stdout
    assert "within the 5 % that are wanted" in advised.stdout
    assert "not within" not in advised.stdout
    # With other noise than what advice was given on, and against every event, by a replay.
    errors = []
    for seed in range(3):
        replayed = run(
            "replay", "advised.yaml", "--input", "shop.jsonl", "--output", "out", "--truth", "truth",
            "--from", "2026-01-05T00:00:00Z", "--to", "2026-01-12T00:00:00Z", "--seed", f"{seed}", "--force",
        )  # fmt: skip
        assert replayed.exit_code == 0, replayed.output
        days: dict[str, list[int]] = {"out": [0] * 7, "truth": [0] * 7}
        for path, field in (("out", "counts"), ("truth", "events")):
            found = lines(path)
            for index, line in enumerate(found):
                days[path][index * 7 // len(found)] += line[field]["home"]
        errors.append(np.abs(np.subtract(days["out"], days["truth"])).sum() / sum(days["truth"]))
    assert np.mean(errors) < 0.05


def test_the_topology_does_not_tell_when_a_single_event_happened() -> None:
    generate(300, days=1)
    asked = ("--columns", "home,search,cart", "--contributions", "1")
    first = json.dumps({"user": "anna", "column": "home", "time": "2026-01-03T05:00:00Z"})
    Path("with.jsonl").write_text(first + "\n" + Path("shop.jsonl").read_text())
    topologies = []
    for events in ("shop.jsonl", "with.jsonl"):
        advised = advise(events, *asked, "--output", "advised.yaml", "--force")
        assert advised.exit_code == 0, advised.output
        topologies.append(load("advised.yaml", {}).streams[0].timeline)
    assert topologies[0].origin == topologies[1].origin == 1_767_225_600_000
    assert "to replay these events with the topology, add --from 2026-01-03T00:00:00Z" in advised.stderr


def test_advice_on_older_events_keeps_the_origin_of_the_topology() -> None:
    generate(300, days=1)
    text = Path("shop.yaml").read_text()
    Path("shop.yaml").write_text(re.sub("origin: .*", "origin: 2026-02-01T00:00:00Z", text))
    advised = advise("shop.yaml", "--input", "shop.jsonl", "--output", "advised.yaml")
    assert advised.exit_code == 0, advised.output
    assert "origin: 2026-02-01T00:00:00Z" in Path("advised.yaml").read_text()
    assert "older than its origin: to replay them, use a copy with the origin 2026-01-05T" in advised.stderr


def test_what_is_recommended_passes_check_and_promises_what_check_says() -> None:
    generate(3_000)
    advised = advise(
        "shop.yaml",
        "--input",
        "shop.jsonl",
        "--output",
        "advised.yaml",
        "--contributions",
        "4",
        "--html",
        "advice.html",
    )
    assert advised.exit_code == 0, advised.output
    assert "advice.html, which is raw data" in advised.stderr
    page = Path("advice.html")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    for line in Path("advised.yaml").read_text().splitlines():
        assert escape(line) in page.read_text()
    checked = run("check", "advised.yaml")
    assert checked.exit_code == 0, checked.output
    promise = advised.stdout.partition("What it promises\n")[2].partition("\n\n")[0]
    assert promise in checked.stdout
    assert "the first 4 events of a user count" in promise
    assert "Bounding leaves out" in advised.stdout
    assert "reveals something about them" in advised.stdout
    assert "raw data" in advised.stdout
    topology = Path("advised.yaml").read_text()
    assert "topic: shop.views\n" in topology
    assert "contributions: 4\n" in topology


def test_advice_on_a_topology_keeps_all_that_it_does_not_try_and_can_run_beside_it() -> None:
    generate(300, days=1)
    Path("ca.pem").write_text("")
    given = Path("shop.yaml").read_text()
    given = re.sub(r"kafka:\n.*?streams:\n", KAFKA + "streams:\n", given, flags=re.DOTALL)
    given = given.replace("      partitioner: murmur2\n", SOURCE)
    given = given.replace("    timeline:\n", "    timeline:\n      lateness: ${LATE:7m}  # trains\n")
    Path("shop.yaml").write_text(given)
    before = load("shop.yaml", {"PASSWORD": "none"})
    advised = CliRunner().invoke(
        main,
        [
            *("advise", "shop.yaml", "--input", "shop.jsonl", "--output", "advised.yaml"),
            *("--contributions", "1", "--seed", "1", "--processes", "1"),
        ],
        env={"PASSWORD": "none"},
    )  # fmt: skip
    assert advised.exit_code == 0, advised.output
    text = Path("advised.yaml").read_text()
    after = load("advised.yaml", {"PASSWORD": "none"})
    assert 'password: "${PASSWORD}"}\n' in text
    assert (after.kafka, after.topics) == (before.kafka, before.topics)
    (old,), (new,) = before.streams, after.streams
    assert new.source == replace(old.source, topic="shop-advised-repartition-shop.views")
    assert new.timeline.lateness == 7 * 60_000
    assert {after.name, new.sink.topic, new.dead_letter}.isdisjoint(
        {before.name, old.sink.topic, old.dead_letter}
    )
    head, _, _ = text.partition("version: 1")
    assert "Yours to check before it runs" in head


def test_the_same_seed_gives_the_same_advice() -> None:
    generate(300, days=1)
    first = advise("shop.jsonl", "--contributions", "1", "--total", "hour")
    assert first.exit_code == 0, first.output
    assert advise("shop.jsonl", "--contributions", "1", "--total", "hour").stdout == first.stdout


def test_a_delta_is_explained_and_what_is_recommended_with_it_passes_check() -> None:
    generate(20_000)
    asked = (
        "shop.jsonl",
        "--contributions",
        "1",
        "--total",
        "hour",
        "--protect",
        "week",
        "--columns",
        "home",
    )
    advised = advise(*asked, "--delta", "1e-6", "--output", "advised.yaml")
    assert advised.exit_code == 0, advised.output
    assert "also with Gaussian noise and delta 1e-6" in advised.stdout
    assert "may fail with probability 1e-6" in advised.stdout
    assert "noise: gaussian\n      delta: 1e-6\n" in Path("advised.yaml").read_text()
    checked = run("check", "advised.yaml")
    assert checked.exit_code == 0, checked.output
    promise = advised.stdout.partition("What it promises\n")[2].partition("\n\n")[0]
    assert promise in checked.stdout
    assert "Delta 1e-06: the promise of epsilon may fail" in promise
    large = advise(*asked, "--delta", "1e-6", "--epsilon", "2000")
    assert (large.exit_code, "--delta is for epsilon of at most 1,000" in large.stderr) == (1, True)


def test_fields_may_be_anywhere_and_of_other_types() -> None:
    events = [
        {"visitor": number % 50, "page": {"section": number % 3}, "at": 1_767_571_200_000 + 40_000 * number}
        for number in range(3_000)
    ]
    Path("views.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    where = ("--user", "/visitor", "--column", "/page/section", "--time", "/at")
    advised = advise("views.jsonl", *where, "--contributions", "2", "--output", "a.yaml")
    assert advised.exit_code == 0, advised.output
    assert "user_type: integer" in Path("a.yaml").read_text()
    assert "columns: [0, 1, 2]" in Path("a.yaml").read_text()
    some = advise("views.jsonl", *where, "--contributions", "2", "--columns", "2,0")
    assert "in 2 columns" in some.stdout
    assert "1,000 unknown-column" in some.stdout


def test_events_with_wrong_times_do_not_make_the_time_longer() -> None:
    generate(2_000)
    with Path("shop.jsonl").open("a") as file:
        for time in (0, 4_294_967_295_000):
            file.write(json.dumps({"user": "u", "column": "home", "time": time}) + "\n")
    advised = advise("shop.jsonl", "--contributions", "1", "--html", "a.html")
    told = (
        "over 2 days (read: 2,002 can count). 2 others are left out: their times, from 1970-01-01 to"
        " 2106-02-07, are separated from those from 2026-01-05 to 2026-01-06 by more than a year"
    )
    assert told in advised.stdout, advised.output
    assert told in Path("a.html").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("shop.yaml",), "--input FILE or topic:NAME says where events are"),
        (("shop.jsonl", "--epsilon", "-1"), "an exact number above 0"),
        (("shop.jsonl", "--accuracy", "much"), "a number of percent"),
        (("shop.jsonl", "--delta", "0.5"), "should be at most 0.0001, and far below 1/n for n users"),
        (("shop.jsonl", "--delta", "none"), "an exact number from 1e-30 to 1e-4,"),
        (
            ("shop.yaml", "--input", "shop.jsonl", "--stream", "other"),
            "name one stream of counts, by --stream or by the topic of --input: views",
        ),
        (("shop.jsonl", "--output", "shop.jsonl"), "shop.jsonl exists; --force replaces it"),
    ],
)
def test_wrong_usage_says_what_would_be_right(options: tuple[str, ...], told: str) -> None:
    generate(20, days=1)
    result = advise(*options)
    assert (result.exit_code, told in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    ("option", "pointer", "told"),
    [
        ("--user", "/usr", "has a user at /usr; did you mean /user (in 20)? --user names the field"),
        ("--column", "/clumn", "has a column at /clumn; did you mean /column (in 20)? --column names"),
        ("--time", "/happened", "has a time at /happened. --time names the field"),
    ],
)
def test_a_pointer_that_finds_nothing_is_named(option: str, pointer: str, told: str) -> None:
    generate(20, days=1)
    result = advise("shop.jsonl", option, pointer)
    assert result.exit_code == 1
    assert f"none of the first 20 events {told}" in result.stderr


def test_events_that_cannot_count_are_told_with_their_reasons() -> None:
    generate(20, days=1)
    result = advise("shop.jsonl", "--columns", "none,of,these")
    assert result.exit_code == 1
    assert "no event can be counted: 20 unknown-column" in result.stderr
    assert "see --columns" in result.stderr
    missing = advise("nowhere.jsonl")
    assert missing.exit_code == 1
    assert "nowhere.jsonl" in missing.stderr
