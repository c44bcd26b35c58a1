"""What the report says: budgets over spans, rights for every topic, the verdict, and open points."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from eventveil.audit.periods import ChargedPeriod
from eventveil.describe.sums import cost_of, delta_text
from eventveil.kinds.registry import kind_of
from eventveil.lifecycle.topics import plan_topics
from eventveil.model.topology import Topology
from eventveil.report.budget import populations
from eventveil.report.content import document, parameters
from eventveil.report.facts import AuditFacts, StreamFacts
from eventveil.report.page import page
from eventveil.report.rights import rights
from eventveil.topology.loading import load
from tests.unit.topology.examples import ROOT, TOPOLOGIES, changed, load_text

EVERY = ROOT / "tests" / "unit" / "cli" / "shipped" / "every-kind.yaml"
ALL = [*TOPOLOGIES, EVERY]
CLEAN = AuditFacts(
    at="2026-01-01T00:00:00Z", cluster="c", barrier=True, witness=True,
    streams=(StreamFacts("sections", ("sections: clean",), 0, False),),
    findings=(), others=(), notes=(), life=(), versions=(), violations=0,
)  # fmt: skip


def loaded(path: Path) -> Topology:
    return load(str(path), {})


def page_views() -> Topology:
    return loaded(ROOT / "topologies" / "page-views.yaml")


def test_a_day_a_month_and_a_year_cost_what_the_sums_of_check_say() -> None:
    """Sections: 144 timestamps of ten minutes per window; daily: 7 timestamps of a day."""
    (visitors,) = populations(page_views())
    # ceil(145 / 144), ceil(4465 / 144), ceil(52705 / 144); ceil(2 / 7), ceil(32 / 7), ceil(367 / 7).
    assert [line.epsilons for line in visitors.lines] == [("2", "32", "367"), ("1", "5", "53")]
    assert visitors.together == ("3", "37", "420")
    assert visitors.instead == ("6", "74", "840")
    assert visitors.lines[0].promise == "1.0 for any 144 consecutive timestamps (1 day)"
    assert visitors.cap.startswith("The file caps the sum at epsilon 4 over any 1 day")


def test_the_sum_and_the_cap_of_gaussian_streams_have_their_delta(tmp_path: Path) -> None:
    noise = ("kind: budget-absorption", "noise: gaussian\n      delta: 1e-9\n      kind: uniform")
    topology = load_text(tmp_path, changed(noise))
    (people,) = populations(topology)
    assert people.deltas == people.instead_deltas == ("1e-09",) * 3
    assert "That epsilon is at delta 1e-09, which nothing caps." in people.cap
    text = page(document(topology, "0" * 64, "now", None))
    assert re.search(r">with delta</td>\s*<td[^>]*>1e-09</td>", text)
    assert all(one.deltas is None and "delta" not in one.cap for one in populations(page_views()))


def test_a_delta_that_promises_nothing_is_marked_and_is_1_at_most(tmp_path: Path) -> None:
    text = changed(("kind: budget-absorption", "kind: uniform"))
    text = re.sub(r"columns: .*", "columns: {discover: {delta: 1e-4}}", text)
    (people,) = populations(load_text(tmp_path, text))
    # A window of 5 days each: 1 day meets one of them, 31 days 7, and 366 days 74.
    assert people.deltas == ("0.0001", "0.0007 (no promise)", "0.0074 (no promise)")
    assert "A delta above 0.0001 promises nothing" in people.cap
    assert delta_text(7) == "1 (no promise)"
    few = load_text(tmp_path, text.replace("delta: 1e-4", "delta: 1e-9"))
    assert "no promise" not in str(populations(few))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_every_stream_is_in_the_budget_once(path: Path) -> None:
    topology = loaded(path)
    told = [line.stream for one in populations(topology) for line in one.lines]
    beside = [line for one in populations(topology) for line in one.beside]
    for stream in topology.all_streams:
        named = sum(line.startswith(f"{stream.name} (") for line in beside)
        assert told.count(stream.name) + named == 1
        assert (stream.name in told) == kind_of(stream).in_sums
    assert all(cost_of(one, 86_400_000).epsilon for one in topology.streams if kind_of(one).in_sums)


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_rights_name_every_topic_of_a_topology_once(path: Path) -> None:
    topology = loaded(path)
    told = [topic for one in rights(topology) if one.role != "consumer group" for topic in one.topics]
    assert sorted(told) == sorted(plan.name for plan in plan_topics(topology, {}))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_each_sentence_of_check_is_there_once_with_all_its_streams(path: Path) -> None:
    topology = loaded(path)
    made = document(topology, "0" * 64, "now", None)
    for stream in topology.all_streams:
        for sentence in kind_of(stream).describe(topology, stream):
            (promise,) = (
                one for one in made.promises if sentence in one.sentence and stream.name in one.streams
            )
            assert set(promise.streams) <= {one.name for one in topology.all_streams}
    assert list(made.parameters) == [stream.name for stream in topology.all_streams]


def test_without_an_audit_the_page_says_that_there_was_none() -> None:
    made = document(page_views(), "0" * 64, "now", None)
    assert (made.state, made.verdict[:12]) == ("not-audited", "Not audited.")
    assert made.tasks[0].startswith("Audit: not done.")


def test_violations_come_before_everything_else() -> None:
    found = replace(CLEAN, violations=2, findings=("I2 sections: wrong", "I2 sections: wrong too"))
    made = document(page_views(), "0" * 64, "now", found)
    assert (made.state, made.verdict[:9]) == ("violated", "Violated:")
    assert "2 violations" in made.verdict
    assert made.tasks[0].startswith("Audit: it found violations.")


def test_a_clean_audit_with_barrier_and_witness_leaves_nothing_of_it_open() -> None:
    made = document(page_views(), "0" * 64, "now", CLEAN)
    assert made.state == "clean"
    assert not [line for line in made.tasks if line.startswith(("Audit", "Restored"))]


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        ({"barrier": False}, "Audit: it relied on the brokers"),
        ({"witness": False}, "Restored backups:"),
        ({"others": ("old",)}, "Streams in the ledger that the file does not have: old."),
        ({"streams": (StreamFacts("sections", (), 0, True),)}, "Audit: releases of sections are overdue."),
    ],
)
def test_what_an_audit_leaves_open_is_an_open_point(change: dict[str, object], begins: str) -> None:
    made = document(page_views(), "0" * 64, "now", replace(CLEAN, **change))
    assert made.tasks[0].startswith(begins)


def test_what_the_file_leaves_open_is_an_open_point() -> None:
    topology = page_views()
    before, after = (
        document(one, "0" * 64, "now", CLEAN) for one in (topology, replace(topology, budget=None))
    )
    assert any(line.startswith("Cap:") for line in after.tasks)
    assert not any(line.startswith("Cap:") for line in before.tasks)
    assert any(line.startswith("Connections (PLAINTEXT)") for line in before.tasks)


def test_a_limit_of_several_streams_is_told_once_with_their_names() -> None:
    told = document(loaded(ROOT / "topologies" / "web-shop.yaml"), "0" * 64, "now", None).limits
    (line,) = (one for one in told if "predictions" in one)
    assert line.startswith("views, orders: releases that are not fresh are predictions.")


def test_the_events_of_a_user_are_told_with_those_in_one_column(tmp_path: Path) -> None:
    both = ("[ATL, BOS]", "[ATL, BOS]\n      contributions: 3\n      per_column: 2")
    for change, told in ((("[ATL, BOS]", "[BOS, ATL]"), "1"), (both, "3, in one column 2")):
        (stream,) = load_text(tmp_path, changed(change)).streams
        assert parameters(stream)["events per user"] == told


def test_too_few_replicas_are_said_to_be_those_of_the_file() -> None:
    """Nobody has asked the brokers, which may have more or fewer."""
    one = page_views()
    few = replace(one, topics=replace(one.topics, replication=1, min_insync=1))
    told = document(few, "0" * 64, "now", None).limits
    assert any(sentence.startswith("The file gives topics 1 replica, of which 1") for sentence in told)


def test_generations_that_the_ledger_has_are_among_the_limits() -> None:
    period = ChargedPeriod(
        "sections", 1, "2026", "seasonal", "1.0", 144, "0" * 32, 10, 1, "2026-01-01T00:00:00Z",
        "2026-01-02T00:00:00Z", Fraction(1), 10, "ab" * 32,
    )  # fmt: skip
    told = [
        document(page_views(), "0" * 64, "now", replace(CLEAN, life=life)).limits
        for life in ((period,), (period, replace(period, generation=2)))
    ]
    assert [any("the ledger has 2 generations" in one for one in limits) for limits in told] == [False, True]
