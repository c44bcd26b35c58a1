"""``eventveil test``: what it prints, writes and returns. The examples of docs/testing.md are among it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from eventveil.cli.main import main
from tests.unit.testing.support import TOPOLOGY, outcome, write
from tests.unit.topology.examples import ROOT

EVENTS = """\
events:
  - value: {user: a, page: home, at: 2026-01-01T00:10:00Z}
  - value: {user: b, page: sport, at: 2026-01-01T00:20:00Z}
    appended: 2026-01-01T01:30:00Z
"""
RIGHT = f"""{EVENTS}
expect:
  counts: {{2026-01-01T00:00:00Z: {{home: 1}}}}
  dead_letters: [{{event: 2, reason: late}}]
"""
WRONG = f"""{EVENTS}
expect:
  counts: {{2026-01-01T00:00:00Z: {{news: 1}}}}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["test", *arguments])


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [text for one, text in found if one == language]


def test_the_examples_of_the_page_come_to_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    (tests,) = blocks(page, "yaml")
    topology = blocks((ROOT / "README.md").read_text(encoding="utf-8"), "yaml")[0]
    command, passed, failed = blocks(page, "")
    monkeypatch.chdir(tmp_path)
    Path("shop.yaml").write_text(topology)
    Path("shop_test.yaml").write_text(tests)
    assert command == "eventveil test shop.yaml\n"
    assert run("shop.yaml").output == passed
    Path("shop.yaml").write_text(topology.replace("contributions: 1", "contributions: 2"))
    assert run("shop.yaml").output == failed


def test_the_page_has_every_key() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    schema = (ROOT / "schemas" / "topology-test.schema.json").read_text()
    keys = set(re.findall(r'^ *"([a-z_]+)": \{\s*"description"', schema, re.MULTILINE))
    assert len(keys) > 25
    assert {key for key in keys if not re.search(rf"`{key}[`:]", page)} == set()


def test_a_difference_has_its_line_both_values_and_what_became_of_events(tmp_path: Path) -> None:
    path = write(tmp_path, WRONG)
    tried = run(path)
    assert tried.exit_code == 1
    assert tried.output.splitlines() == [
        f"FAILED {path}:2: it",
        f"  {path}:9: counts, 2026-01-01T00:00:00Z, home: expected 0, found 1",
        f"  {path}:9: counts, 2026-01-01T00:00:00Z, news: expected 1, found 0",
        f"  {path}:9: dead_letters, event 2: expected none, found late",
        f"  {path}:5: event 2 was late: appended 25m after the deadline of 1",
        "1 test failed",
    ]


def test_a_null_is_told_as_one(tmp_path: Path) -> None:
    events = EVENTS.replace("user: a, ", "user: null, ").replace("page: sport", "page: 7")
    told = run(write(tmp_path, f"{events}expect: {{counts: {{}}}}")).output
    assert "event 1 was wrong-type: the user at /user should be a string, not null\n" in told
    assert "event 2 was wrong-type: the column at /page should be a string, not an integer\n" in told


def test_what_is_not_listed_is_compared_unless_the_test_is_partial(tmp_path: Path) -> None:
    unlisted = f"{EVENTS}expect: {{partial: true}}\n"
    assert outcome(tmp_path, unlisted).passed
    strict = outcome(tmp_path, unlisted.replace("true", "false"))
    assert [one.place for one in strict.differences] == [
        "counts, 2026-01-01T00:00:00Z, home", "dead_letters, event 2",
    ]  # fmt: skip
    listed = unlisted.replace("true", "true, counts: {2026-01-01T00:00:00Z: {home: 2}}")
    assert not outcome(tmp_path, listed).passed
    other = unlisted.replace("true", "true, dead_letters: [{event: 1, reason: late}]")
    assert [str(one) for one in outcome(tmp_path, other).differences] == [
        "dead_letters, event 1: expected late, found none"
    ]


SECTIONS = {
    "closed": ("{}", "closed, 2026-01-01T00:00:00Z: expected nothing, found closed after event 1"),
    "spent": ("{}", "spent, 2026-01-01T00:00:00Z: expected nothing, found 1/4"),
    "most_spent": ("1/2", "most_spent: expected 1/2, found 1/4"),
    "left_out": ("[{event: 1, why: ignored}]", "left_out, event 1: expected ignored, found none"),
    "released": ("{}", "released, 2026-01-01T00:00:00Z: expected nothing, found home: 1"),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_that_is_given_is_compared_completely(tmp_path: Path, section: str) -> None:
    given, told = SECTIONS[section]
    result = outcome(tmp_path, f"{RIGHT}  {section}: {given}\n")
    assert [str(one) for one in result.differences] == [told]


def test_timestamps_that_are_not_closed_are_told_apart_from_zeros(tmp_path: Path) -> None:
    result = outcome(tmp_path, f"{RIGHT}  closed: {{2026-01-01T00:00:00Z: 1, 2026-01-01T05:00:00Z: 1}}\n")
    assert [str(one) for one in result.differences] == [
        "closed, 2026-01-01T05:00:00Z: expected closed after event 1, found the timestamp is not closed"
    ]


def test_timestamps_are_told_in_the_zone_of_the_test(tmp_path: Path) -> None:
    result = outcome(tmp_path, WRONG.replace("2026-01-01T00:00:00Z: {n", "2026-01-01T05:30:00+05:30: {n"))
    assert result.differences[0].place == "counts, 2026-01-01T05:30:00+05:30, home"


def test_times_that_go_back_and_an_end_before_the_last_event_cannot_be_played(tmp_path: Path) -> None:
    back = f"{EVENTS}  - {{raw: x, appended: 2026-01-01T01:00:00Z}}\nexpect: {{}}\n"
    result = outcome(tmp_path, back)
    assert result.broken is not None
    assert "small_test.yaml:7: event 3 is appended at 2026-01-01T01:00:00Z, before the one" in result.broken
    early = outcome(tmp_path, f"until: 2026-01-01T01:00:00Z\n{EVENTS}expect: {{}}\n")
    assert early.broken is not None
    assert "until is 2026-01-01T01:00:00Z, but the last event is appended at" in early.broken


def test_timestamps_without_end_are_refused_with_a_remedy(tmp_path: Path) -> None:
    result = outcome(tmp_path, f"until: 2036-01-01T00:00:00Z\n{EVENTS}expect: {{}}\n")
    assert result.broken is not None
    assert (
        "more than 10,000 timestamps from 2026-01-01T00:00:00Z on; begin later with `from:`" in result.broken
    )


def test_junit_has_each_test_with_its_failure(tmp_path: Path) -> None:
    path = write(tmp_path, RIGHT)
    with open(path, "a") as file:
        file.write('  - name: wrong "<&>" \u2713\n')
        file.writelines(f"    {line}\n" for line in WRONG.splitlines() if line)
    report = tmp_path / "report.xml"
    tried = run(path, "--junit", str(report))
    assert tried.exit_code == 1
    root = ElementTree.parse(report).getroot()
    assert root.attrib["tests"] == "2"
    assert root.attrib["failures"] == "1"
    right, wrong = root.iter("testcase")
    assert right.attrib["name"] == "it"
    assert right.attrib["classname"] == "small.views"
    assert len(right) == 0
    assert wrong.attrib["name"] == 'wrong "<&>" \u2713'
    (failure,) = wrong
    assert failure.tag == "failure"
    assert "home: expected 0, found 1" in failure.attrib["message"]
    assert failure.text is not None
    assert "dead_letters, event 2: expected none, found late" in failure.text


def test_tests_are_listed_and_chosen_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, RIGHT)
    with open(path, "a") as file:
        file.writelines(
            f"{line}\n" for line in ("  - name: Wrong one", *(f"    {x}" for x in WRONG.splitlines()))
        )
    listed = run(path, "--list")
    assert [line.partition(": ")[2] for line in listed.output.splitlines()] == ["it", "Wrong one"]
    assert run(path, "-k", "IT").output == "1 test passed\n"
    assert run(path, "-k", "wrong").exit_code == 1
    nobody = run(path, "-k", "nobody")
    assert nobody.exit_code == 2
    assert "no test has 'nobody' in its name" in nobody.output


def test_topologies_files_and_folders_are_taken_and_each_file_once(tmp_path: Path) -> None:
    path = write(tmp_path, RIGHT)
    topology = str(tmp_path / "small.yaml")
    assert run(topology, path, str(tmp_path)).output == "1 test passed\n"
    (tmp_path / "alone.yaml").write_text(TOPOLOGY)
    lonely = run(str(tmp_path / "alone.yaml"))
    assert lonely.exit_code == 2
    assert "it has no tests; write them to" in lonely.output
    (tmp_path / "empty").mkdir()
    for place, message in (
        ("empty", "no file in this folder ends in _test.yaml"),
        ("x.yaml", "no such file"),
    ):
        refused = run(str(tmp_path / place))
        assert refused.exit_code == 2
        assert message in refused.output


def test_an_invalid_file_ends_with_2_an_invalid_topology_with_78_and_nothing_is_run(tmp_path: Path) -> None:
    path = write(tmp_path, RIGHT, {"epsilon: 1": "epsilon: 0"})
    assert run(path).exit_code == 78
    write(tmp_path, RIGHT.replace("late", "tardy"))
    refused = run(path)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "small_test.yaml:10:41: tests[1].expect.dead_letters[1].reason: found 'tardy'" in refused.stderr


def test_nothing_is_written_and_no_socket_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, RIGHT)
    before = sorted(tmp_path.rglob("*"))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("confluent_kafka.Consumer", refuse)
    assert run(path).exit_code == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_only_the_tests_of_topologies_use_no_noise() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "operators").rglob("*.py")
        if re.search(r"\bNoiseOff\b|eventveil\.testing\b", path.read_text(encoding="utf-8"))
    ]
    outside = {one for one in users if "/testing/" not in one}
    assert outside <= {"operators/eventveil/cli/test.py", "operators/eventveil/cli/schema.py"}
