"""Columns that are found in the data, in a topology: what they come to, what they cost, what they go with."""

from __future__ import annotations

import re
from fractions import Fraction
from math import exp
from pathlib import Path

import pytest

from eventveil.describe.guarantee import group_delta
from eventveil.describe.sums import describe_total, totals
from eventveil.kinds.registry import kind_of
from eventveil.lifecycle.topics import plan_topics
from eventveil.mechanisms.registry import KINDS
from eventveil.mechanisms.sizes import Room, bytes_of_name, largest_release, largest_state
from eventveil.model.records import MAX_MESSAGE_BYTES
from eventveil.model.topology import Stream
from eventveil.report.budget import populations
from eventveil.report.content import document
from eventveil.report.page import page
from eventveil.topology.fingerprints import fingerprint_fields
from eventveil.topology.problems import TopologyInvalid
from tests.unit.topology.examples import changed, load_text

COLUMNS = ("columns: [ATL, BOS]", "columns: {discover: {delta: 1e-9, share: 1/4, most: 50}}")
KIND = ("kind: budget-absorption", "kind: seasonal")
FOUND = (COLUMNS, KIND)


def test_a_share_of_epsilon_finds_columns_and_the_mechanism_has_the_rest(tmp_path: Path) -> None:
    (stream,) = load_text(tmp_path, changed(*FOUND)).streams
    how = stream.counts.discover
    assert how is not None
    assert (how.epsilon, how.delta, how.most, how.longest) == (Fraction(1, 4), Fraction(1, 10**9), 50, 64)
    assert (stream.mechanism.epsilon, stream.mechanism.epsilon_text) == (Fraction(3, 4), "0.75")
    assert (stream.epsilon, stream.columns) == (1, ("other",))


def test_columns_are_forgotten_if_it_is_said_and_state_does_not_remember_it(tmp_path: Path) -> None:
    text = changed((COLUMNS[0], COLUMNS[1].replace("50", "50, forget: 4")), KIND)
    (stream,), (other,) = (load_text(tmp_path, one).streams for one in (text, changed(*FOUND)))
    assert stream.counts.discover is not None
    assert other.counts.discover is not None
    assert (stream.counts.discover.forget, other.counts.discover.forget) == (4, None)
    assert fingerprint_fields(stream, 12, 4) == fingerprint_fields(other, 12, 4)
    assert largest_state(stream) > largest_state(other)
    topology = load_text(tmp_path, text)
    told = " ".join(kind_of(stream).describe(topology, stream))
    assert "After 4 blocks in a row in which its releases add up to less than their errors do" in told


def test_the_other_column_can_have_another_name(tmp_path: Path) -> None:
    text = changed((COLUMNS[0], "columns: {discover: {delta: 1e-9, other: elsewhere}}"), KIND)
    assert load_text(tmp_path, text).streams[0].columns == ("elsewhere",)


def test_state_remembers_how_columns_are_found_and_of_other_streams_nothing(tmp_path: Path) -> None:
    fields = fingerprint_fields(load_text(tmp_path, changed(*FOUND)).streams[0], 12, 4)
    told = {name: value for name, value in fields.items() if name.startswith("counts.columns.")}
    assert told.pop("counts.columns.digest")
    assert told == {
        "counts.columns.type": "string",
        "counts.columns.delta": "1/1000000000",
        "counts.columns.share": "1/4",
        "counts.columns.most": 50,
        "counts.columns.longest": 64,
    }
    assert "counts.columns.delta" not in fingerprint_fields(
        load_text(tmp_path, changed(KIND)).streams[0], 12, 4
    )


def test_check_says_what_is_promised_and_what_it_takes_to_be_found(tmp_path: Path) -> None:
    topology = load_text(tmp_path, changed(*FOUND))
    text = " ".join(kind_of(topology.streams[0]).describe(topology, topology.streams[0]))
    assert "Epsilon 1 with delta 1e-09 for any 120 consecutive timestamps" in text
    assert "by a factor of at most e^1, about 2.72, plus delta" in text
    assert "two such steps: e^2, about 7.39, plus 2.28e-09, delta times (1 + e^0.25)" in text
    assert "epsilon and delta are n times as large" in text
    assert "Columns are found in the data, at most 50, for epsilon 0.25 and delta 1e-09 of these" in text
    assert "reaches 11914, which is 100 a timestamp, with Laplace noise of scale 480" in text
    assert "Until then its events are in the column other." in text
    assert "It should be far below 1/n for n users." in text


def test_sums_have_all_of_epsilon_and_delta_for_every_window(tmp_path: Path) -> None:
    topology = load_text(tmp_path, changed(*FOUND))
    (total,) = totals(topology.streams, topology.budget)
    assert (total.epsilon, total.delta) == (2, Fraction(2, 10**9))
    assert "2 windows, epsilon 2 and delta 2e-09" in " ".join(describe_total(total))
    assert "nothing caps delta" in " ".join(describe_total(total))


@pytest.mark.parametrize(("cap", "valid"), [("2e-9", True), ("1.99e-9", False)])
def test_a_cap_on_delta_holds_for_the_deltas_of_all_windows(tmp_path: Path, cap: str, valid: bool) -> None:
    text = changed(*FOUND, ("span: 5d}", f"span: 5d, delta: {cap}}}"))
    if not valid:
        told = "budget.delta: over any 5d the deltas of the streams of users are 2e-09 together"
        with pytest.raises(TopologyInvalid, match=re.escape(told)) as refused:
            load_text(tmp_path, text)
        assert "(destinations 2e-09), expected at most 1.99e-9" in str(refused.value)
        return
    topology = load_text(tmp_path, text)
    (total,) = totals(topology.streams, topology.budget)
    assert total.delta == total.delta_cap
    assert " on epsilon; 2e-09 on delta" in " ".join(describe_total(total))
    (people,) = populations(topology)
    assert "That epsilon is at delta 2e-09, which is capped at 2e-09." in people.cap


def test_what_a_user_did_instead_has_the_delta_of_two_steps_of_the_tests_alone(tmp_path: Path) -> None:
    topology = load_text(tmp_path, changed(*FOUND))
    (total,) = totals(topology.streams, topology.budget)
    # Two windows; finding columns has a quarter of epsilon 1.
    delta = 2 * 1e-9 * (1 + exp(0.25))
    assert total.instead_delta == total.costs[0].instead_delta == pytest.approx(delta, rel=1e-12)
    told = "what a user did instead costs at most epsilon 4 and delta 4.57e-09"
    assert describe_total(total)[-1].endswith(told)
    assert f"{group_delta(Fraction(1, 4), Fraction(1, 10**9), 2):.3g}" == "2.28e-09"


def test_the_report_has_the_delta_of_each_span(tmp_path: Path) -> None:
    """Windows of five days: a day meets 1 (25 of 120 hours), a month 7, a year 74; five days 2."""
    topology = load_text(tmp_path, changed(*FOUND))
    (people,) = populations(topology)
    assert people.together == ("1", "7", "74")
    assert people.deltas == ("1e-09", "7e-09", "7.4e-08")
    assert people.instead_deltas == tuple(f"{n * 1e-9 * (1 + exp(0.25)):.3g}" for n in (1, 7, 74))
    assert "That epsilon is at delta 2e-09, which nothing caps." in people.cap
    text = page(document(topology, "0" * 64, "now", None))
    cells = [re.findall(r"<t[dh][^>]*>([^<]*)<", row) for row in text.split("<tr>")]
    assert ["", "with delta", *people.deltas] in cells
    assert ["", "with delta", *people.instead_deltas] in cells


def wide(tmp_path: Path, most: int = 100_000, managed: str = "false") -> Stream:
    topics = ("partials: 4}", f"partials: 4, managed: {managed}}}")
    text = changed((COLUMNS[0], COLUMNS[1].replace("50", str(most))), KIND, topics)
    return load_text(tmp_path, text).streams[0]


def test_what_a_release_and_a_state_take_is_known_for_the_columns_of_a_stream(tmp_path: Path) -> None:
    (stream,) = load_text(tmp_path, changed(*FOUND)).streams
    wider = stream.having(("\U0001f600" * 64,) * 5000)
    assert largest_state(wider) - largest_state(stream) > 5000 * 64 * 4 * 3
    assert largest_release(wide(tmp_path, 5000)) > 2 * 5000 * 64 * 4


def test_a_hundred_thousand_may_be_found_and_as_many_are_as_fit(tmp_path: Path) -> None:
    stream = wide(tmp_path)
    names = [f"{number:064}" for number in range(100_000)]
    room = Room(stream)
    found = room.take(names)
    assert len(found) == Room(stream).about(64) > 20_000
    assert found == names[: len(found)]
    assert largest_state(stream.having(found)) <= MAX_MESSAGE_BYTES
    assert largest_state(stream.having([*found, names[-1]])) > MAX_MESSAGE_BYTES
    # Short names take less, a managed cluster holds less, and what is in already is counted.
    managed = Room(wide(tmp_path, managed="true")).about(64)
    assert Room(stream).about(5) > Room(stream).about(64) > 1.8 * managed > 0
    assert Room(stream.having(found)).take(names[len(found) :]) == []
    assert largest_release(stream) == MAX_MESSAGE_BYTES


def test_names_need_room_by_their_bytes_as_json(tmp_path: Path) -> None:
    assert bytes_of_name("abc") == 3 + 6
    assert bytes_of_name("\u00e4") == 2 + 6
    assert bytes_of_name('"') == 4 + 6
    room = Room(wide(tmp_path, 3))
    assert room.take(["a", "b"]) == ["a", "b"]
    assert not room.full
    assert room.take(["c", "d"]) == ["c"]
    assert room.full


def test_check_says_how_many_fit_where_they_are_fewer(tmp_path: Path) -> None:
    topology = load_text(tmp_path, changed((COLUMNS[0], COLUMNS[1].replace("50", "100000")), KIND))
    text = " ".join(kind_of(topology.streams[0]).describe(topology, topology.streams[0]))
    fit = Room(topology.streams[0]).about(64)
    told = f"at most 100000, or as many as fit into the state (about {fit} with names of 64 bytes), for"
    assert told in text


def test_partial_counts_are_kept_for_a_block_longer(tmp_path: Path) -> None:
    def kept(text: str) -> int:
        plans = plan_topics(load_text(tmp_path, text), {})
        (partials,) = [plan for plan in plans if plan.role == "partials"]
        return int(partials.settings["retention.ms"])

    assert kept(changed(*FOUND)) == kept(changed(KIND)) + 120 * 3_600_000


REFUSED = [
    ("a kind that cannot grow", (("kind: seasonal", "kind: budget-absorption"),), "cannot take columns"),
    ("an array", (("flights.sanitized", "flights.sanitized\n      counts: array"),), "counts need names"),
    ("avro", (("flights.sanitized", "flights.sanitized\n      format: avro"),), "says nothing of columns"),
    (
        "json-schema",
        (("flights.sanitized", "flights.sanitized\n      format: json-schema"),),
        "says nothing of columns",
    ),
    ("an engine", (("user: /tailnum", "counts: trusted\n      count: /n"),), "an engine bounds"),
    ("unknown", (("50}}", "50}}\n      unknown: ignore"),), "count in `other` anyway; remove it"),
    ("substitute", (("epsilon: 1.0", "epsilon: 1.0\n      adjacency: substitute"),), "there or not"),
    ("gaussian", (("epsilon: 1.0", "epsilon: 1.0\n      noise: gaussian\n      delta: 1e-9"),), "for Lapl"),
    ("release", (("2013-01-01T00:00:00Z", "2013-01-01T00:00:00Z\n      on_missing: release"),), "again"),
    ("trusted", (("50}}", "50}}\n      contributions: trusted"),), "needs a bound"),
    ("per_column", (("50}}", "50}}\n      contributions: 3\n      per_column: 1"),), "the noise is Laplace"),
    ("several fields", (("column: /dest", "column: [/dest, /a]"),), "values of one field"),
    ("a large delta", (("1e-9", "1e-3"),), "expected at most 0.0001"),
    ("all of epsilon", (("1/4", "1"),), "less than 1"),
    (
        "a threshold beyond noise",
        (("epsilon: 1.0", "epsilon: 1e-6"), ("share: 1/4", "share: 1e-6"),
         ("50}}", "50}}\n      contributions: 3")),
        "no column would ever be found",
    ),
    ("no delta", (("delta: 1e-9, ", ""),), "lacks delta"),
    ("more than one", (("50}}", "50}, file: a.txt}"),), "discover cannot be combined with other keys"),
    ("none", (("most: 50", "most: 0"),), "most"),
    ("a window beyond the state", (("window: 120", "window: 1000000"),), "must stay a Kafka message"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "what"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED])
def test_what_is_not_proved_or_cannot_be_is_refused(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], what: str
) -> None:
    text = changed(*FOUND)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(TopologyInvalid) as invalid:
        load_text(tmp_path, text)
    assert any(what in str(problem) for problem in invalid.value.problems)


def test_kinds_that_grow_are_those_that_are_proved() -> None:
    assert {kind for kind, of in KINDS.items() if of.grows} == {"seasonal", "uniform"}
