"""Every kind of mistake: the position to the character, and what would be right."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from eventveil.topology.loading import load
from eventveil.topology.problems import TopologyInvalid
from tests.unit.topology.examples import BASE, changed, load_text, problems_of, two_streams
from tests.unit.topology.mistakes import IN_BASE, IN_SECOND, WHOLE_FILES


@pytest.mark.parametrize(
    ("old", "new", "place", "message"), [row[1:] for row in IN_BASE], ids=[row[0] for row in IN_BASE]
)
def test_a_mistake_is_reported_at_its_place_with_a_remedy(
    tmp_path: Path, old: str, new: str, place: str, message: str
) -> None:
    problems = problems_of(tmp_path, changed((old, new)))
    assert [f"{p.line}:{p.column}" for p in problems] == [place], problems
    assert message in problems[0].message
    assert str(problems[0]) == f"{tmp_path}/topology.yaml:{place}: {problems[0].message}"


@pytest.mark.parametrize(
    ("old", "new", "place", "message"), [row[1:] for row in IN_SECOND], ids=[row[0] for row in IN_SECOND]
)
def test_a_mistake_between_streams_is_reported_at_the_second(
    tmp_path: Path, old: str, new: str, place: str, message: str
) -> None:
    problems = problems_of(tmp_path, two_streams((old, new)))
    assert [f"{p.line}:{p.column}" for p in problems] == [place], problems
    assert message in problems[0].message


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (
            "flights-repartition-flights.events",
            "topic flights-repartition-flights.events is already the topic of re-keyed events of stream"
            " destinations; give each its own topic",
        ),
        (
            "flights-repartition-flights_events",
            "flights-repartition-flights_events and flights-repartition-flights.events for the re-keyed"
            " events of flights.events cannot both exist",
        ),
    ],
)
def test_no_topic_has_the_name_of_that_of_re_keyed_events(tmp_path: Path, sink: str, message: str) -> None:
    rekeyed = ("topic: flights.events", "topic: flights.events\n      repartition: true")
    (problem,) = problems_of(tmp_path, changed(rekeyed, ("topic: flights.sanitized", f"topic: {sink}")))
    assert (problem.line, problem.column) == (24, 14)
    assert message in problem.message


def test_a_topic_is_re_keyed_or_read_as_re_keyed_but_not_both(tmp_path: Path) -> None:
    """The second stream would read what the first one writes."""
    text = two_streams(("topic: other.events", "topic: flights-repartition-flights.events"))
    text = text.replace("topic: flights.events", "topic: flights.events\n      repartition: true")
    (problem,) = problems_of(tmp_path, text)
    assert "is already the topic of re-keyed events of stream destinations" in problem.message


def both_rekeyed(other: str) -> str:
    text = two_streams(
        ("topic: other.events, user: /u", f"topic: {other}, repartition: true, user: /tailnum")
    )
    return text.replace("topic: flights.events\n", "topic: flights.events\n      repartition: true\n", 1)


def test_streams_share_a_topic_that_is_re_keyed(tmp_path: Path) -> None:
    topology = load_text(tmp_path, both_rekeyed("flights.events"))
    assert topology.sources == ("flights-repartition-flights.events",)


def test_of_topics_that_are_re_keyed_only_their_own_names_are_said_to_collide(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, both_rekeyed("flights_events"))
    assert "topic: flights_events and flights.events cannot both exist" in problem.message


@pytest.mark.parametrize(
    ("data", "place", "message"), [row[1:] for row in WHOLE_FILES], ids=[row[0] for row in WHOLE_FILES]
)
def test_a_file_that_is_no_topology_gives_one_message(
    tmp_path: Path, data: bytes, place: str, message: str
) -> None:
    problems = problems_of(tmp_path, data)
    assert [f"{p.line}:{p.column}" for p in problems] == [place], problems
    assert message in problems[0].message


def test_a_mistyped_population_of_a_budget_is_reported_at_its_place(tmp_path: Path) -> None:
    changes = (("/time\n", "/time\n      users: staff\n"), ("span: 5d", "span: 5d, users: stafff"))
    (problem,) = problems_of(tmp_path, changed(*changes))
    assert (problem.line, problem.column) == (25, 39)
    assert problem.message.endswith("did you mean staff?")


def test_all_mistakes_of_a_file_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = changed(
        ("epsilon: 1.0", "epsilon: 0"),
        ("name: flights", "name: Flights"),
        ("localhost:9092", "${NOT_SET}"),
        ("[ATL, BOS]", "[ATL, ATL]"),
        ("window: 120", "window: 1.5\n      windoww: 3"),
        ("/tailnum", "tailnum"),
        ("epsilon: 5, span", "span"),
    )
    problems = problems_of(tmp_path, text)
    assert [(p.line, p.column) for p in problems] == [
        (2, 7), (4, 14), (10, 13), (17, 22), (20, 16), (21, 15), (22, 7), (25, 9),
    ]  # fmt: skip


@pytest.mark.parametrize(("key", "misspelt"), [("window", "windo"), ("epsilon", "epsilom"), ("kind", "kin")])
def test_a_misspelt_key_is_not_also_a_key_that_is_missing(tmp_path: Path, key: str, misspelt: str) -> None:
    (problem,) = problems_of(tmp_path, changed((f"      {key}: ", f"      {misspelt}: ")))
    assert problem.message.startswith(f"unknown key '{misspelt}' in streams.destinations.mechanism")
    assert problem.message.endswith(f"did you mean {key}?")


def test_rules_over_several_settings_are_checked_although_another_setting_is_wrong(tmp_path: Path) -> None:
    text = changed(
        ("name: flights", "name: Flights"),
        ("min_insync: 2", "min_insync: 4"),
        ("topic: flights.sanitized", "topic: flights.events"),
        ("epsilon: 5,", "epsilon: 1,"),
    )
    assert [p.line for p in problems_of(tmp_path, text)] == [2, 5, 23, 24]


def test_anchors_and_aliases_are_all_reported(tmp_path: Path) -> None:
    text = changed(("name: flights", "name: &n flights"), ("/tailnum", "*n"), ("[ATL, BOS]", "[ATL, *n, *n]"))
    assert [(p.line, p.column) for p in problems_of(tmp_path, text)] == [(2, 7), (10, 13), (17, 22), (17, 26)]


def test_the_error_prints_one_line_per_mistake_and_says_how_many_more(tmp_path: Path) -> None:
    text = BASE + "".join(f"unknown{number}: 1\n" for number in range(150))
    with pytest.raises(TopologyInvalid) as caught:
        load_text(tmp_path, text)
    lines = str(caught.value).splitlines()
    assert len(caught.value.problems) == 150
    assert len(lines) == 101
    assert lines[-1] == "and 50 more mistakes"


def test_a_file_that_is_missing_or_a_folder_is_a_problem_of_the_file(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(TopologyInvalid, match=why) as caught:
            load(str(path), {})
        assert str(caught.value).startswith(f"{path}: the file cannot be read")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_the_right_to_read_it_is_a_problem_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(BASE)
    path.chmod(0)
    with pytest.raises(TopologyInvalid, match="Permission denied"):
        load(str(path), {})


def _alias_bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (BASE.encode() + b"#" * 10_000_000, "the file is larger than 1 MiB; move long lists of columns"),
        (_alias_bomb().encode(), "a YAML alias (*) is not accepted"),
        (("x: [" + "*a, " * 200_000 + "]").encode(), "a YAML alias (*) is not accepted"),
        (b"[" * 1_000_000, "nested more than 16 levels deep"),
        ("".join(f"k{n}: 1\n" for n in range(90_000)).encode(), "unknown key 'k0'"),
    ],
    ids=["10 MB", "alias bomb", "two hundred thousand aliases", "a million brackets", "unknown keys"],
)
def test_a_hostile_file_is_refused_quickly(tmp_path: Path, data: bytes, message: str) -> None:
    began = time.process_time()
    problems = problems_of(tmp_path, data)
    assert time.process_time() - began < 10
    assert any(message in problem.message for problem in problems)


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"ATL\nBOS\n\nATL\n", 4, "column 'ATL' is listed a second time, first on line 1; remove one"),
        (b"ATL\n\xe9\n", 2, "is not UTF-8"),
        (b"ATL\n" + b"x" * 1001 + b"\n", 2, "has 1001 characters; at most 1000"),
    ],
)
def test_a_mistake_in_a_column_file_is_reported_in_that_file(
    tmp_path: Path, content: bytes, line: int, message: str
) -> None:
    (tmp_path / "columns.txt").write_bytes(content)
    problems = problems_of(tmp_path, changed(("[ATL, BOS]", "{file: columns.txt}")))
    assert [(p.path, p.line) for p in problems] == [(str(tmp_path / "columns.txt"), line)]
    assert message in problems[0].message


def test_a_column_file_of_integers_refuses_words(tmp_path: Path) -> None:
    (tmp_path / "columns.txt").write_text("1\n2\nthree\n")
    problems = problems_of(tmp_path, changed(("[ATL, BOS]", "{file: columns.txt, type: integer}")))
    assert [p.line for p in problems] == [3]
    assert "column 'three' is not a whole number" in problems[0].message


def test_an_empty_column_file_is_a_mistake_of_the_topology(tmp_path: Path) -> None:
    (tmp_path / "columns.txt").write_text("# none\n\n")
    problems = problems_of(tmp_path, changed(("[ATL, BOS]", "{file: columns.txt}")))
    assert [(p.line, p.column) for p in problems] == [(17, 23)]
    assert "lists 0 columns, expected 1 to 1000000" in problems[0].message
