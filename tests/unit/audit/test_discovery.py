"""Streams whose columns are found: a whole run is audited, and what finding costs has to be said."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import orjson
import pytest

from eventveil.cli.ledger import describe
from eventveil.kinds.registry import kind_of
from eventveil.privacy.noise import SeededNoise
from tests.unit.audit.story import Item, _found
from tests.unit.support import stream, topology
from tests.unit.tasks.test_discovery import ENOUGH, HOW, TOPICS, feed, finding, named, turn, worker

KINDS = ("seasonal", "uniform")
FORGETS = replace(HOW, forget=1)


def run(kind):
    """The public records of a run in which several blocks find columns."""
    of = finding(kind=kind)
    task = worker(of=of, noise=SeededNoise(7))
    feed(task, [named(t, {f"c{at}": ENOUGH for at in range(1 + t // 3)}) for t in range(1, 20)])
    records = turn(task)[2]
    ledger = [one.value for one in records if one.topic == TOPICS.ledger]
    return of, ledger, [one.value for one in records if one.topic != TOPICS.ledger]


def run_that_forgets(kind, timestamps=40):
    """The same with columns that are forgotten after one quiet block, and one that is found again."""
    of = finding(kind=kind, discover=FORGETS)
    task = worker(of=of, noise=SeededNoise(7))
    said = [
        {"a": ENOUGH, "b": ENOUGH, "c": ENOUGH} if t < 9 or t > 28 else {"b": ENOUGH}
        for t in range(timestamps)
    ]
    feed(task, [named(t + 1, one) for t, one in enumerate(said)])
    records = turn(task)[2]
    ledger = [one.value for one in records if one.topic == TOPICS.ledger]
    return of, ledger, [one.value for one in records if one.topic != TOPICS.ledger]


def report(of, ledger, sink):
    app = topology(of)
    audit = kind_of(of).audit(app, of, ())
    place = kind_of(of).plan(app, of).partials_partition
    for found, _ in _found("ledger", [Item(value, partition=place) for value in ledger]):
        audit.entry(found)
    for found, _ in _found("sink", [Item(value) for value in sink]):
        audit.record(found)
    (one,) = audit.reports("everything")
    return one


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_no_findings_and_its_report_says_what_finding_has_cost(kind):
    of, ledger, sink = run(kind)
    assert len(orjson.loads(sink[-1])["counts"]) > 3
    found = report(of, ledger, sink)
    assert found.findings == ()
    assert found.releases == 19
    told = "\n".join(describe(found, "sink"))
    assert "every window has paid epsilon 0.5 with delta 1e-06 for finding columns" in told


@pytest.mark.parametrize(
    "stated",
    [None, {"epsilon": "0.4", "delta": "1/1000000"}, {"epsilon": "0.5", "delta": "1/10000000"}, "x", {}],
)
def test_another_cost_than_that_of_the_topology_is_a_violation(stated):
    of, ledger, sink = run("uniform")
    fields = orjson.loads(ledger[4])
    del fields["discovery"]
    ledger[4] = orjson.dumps(fields | ({} if stated is None else {"discovery": stated}))
    found = report(of, ledger, sink).findings
    assert any("finding columns costs something other" in str(one) for one in found)


def test_a_cost_is_a_violation_where_columns_are_listed():
    _, ledger, sink = run("uniform")
    found = report(stream(window=3), ledger, sink).findings
    assert any("finding columns costs something other than the topology says" in str(one) for one in found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_which_columns_are_forgotten_has_no_findings(kind):
    of, ledger, sink = run_that_forgets(kind)
    columns = [[*orjson.loads(one)["counts"]] for one in sink]
    assert {len(one) for one in columns} >= {2, 4}
    assert len(columns[20]) == 2 < len(columns[-1])
    assert report(of, ledger, sink).findings == ()
    # Also once the file has no such setting any more, which may change at any time.
    assert report(finding(kind=kind), ledger, sink).findings == ()


@pytest.mark.parametrize(
    ("timestamp", "change", "what", "named"),
    [
        (5, lambda names: ["rest", *names[1:]], "first column is not", "rest"),
        (5, lambda names: [*names, "x"], "where no block of timestamps begins", "x"),
        (5, lambda names: names[:-1], "where no block of timestamps begins", "c"),
        (5, lambda names: [names[0], *names[:0:-1]], "where no block of timestamps begins", ""),
        (40, lambda names: [names[0], *names[:0:-1]], "not those of the other releases", ""),
        (40, lambda names: [*names[:1], "new", *names[1:]], "not those of the other releases", "new"),
        (40, lambda names: [*names, *"vwxyz"], "than may be found", ""),
        (40, lambda names: [*names, "a\x07b"], "can have named", ""),
    ],
)
def test_columns_that_cannot_have_been_forgotten_so_are_violations(timestamp, change, what, named):
    found = changed("uniform", timestamp, change, run_that_forgets)
    assert any(what in one.what for one in found), found
    assert all(named in one.what for one in found if what in one.what)


def changed(kind, timestamp, change, of_run=run):
    """The findings of a run in which the columns of a release are others, and its entry has their digest."""
    of, ledger, sink = of_run(kind)
    fields = orjson.loads(sink[timestamp - 1])
    names = change([*fields["counts"]])
    fields["counts"] = dict.fromkeys(names, 1)
    sink[timestamp - 1] = orjson.dumps(fields)
    entry = orjson.loads(ledger[timestamp - 1])
    entry["digest"] = sha256(sink[timestamp - 1]).hexdigest()
    ledger[timestamp - 1] = orjson.dumps(entry)
    return [one for one in report(of, ledger, sink).findings if "column" in one.what]


#: Timestamps 4, 7 and 10 begin blocks of three; with those 5 is in the middle of one.
@pytest.mark.parametrize(
    ("timestamp", "change", "what", "named"),
    [
        (5, lambda names: ["rest", *names[1:]], "first column is not", "rest"),
        (5, lambda names: names[:0], "first column is not", "other"),
        (5, lambda names: [*names, "x"], "where no block of timestamps begins", "x"),
        (5, lambda names: names[:-1], "where no block of timestamps begins", "c1"),
        (19, lambda names: [*names[:-2], *names[:-3:-1]], "not those of the other releases", "c4"),
        (10, lambda names: names[:2], "where no block of timestamps begins", "c1"),
        (19, lambda names: [*names[:5], *"abcde"], "than may be found", "c"),
        (19, lambda names: ["other", "new", *names[1:]], "not those of the other releases", "new"),
    ],
)
def test_columns_that_cannot_have_been_found_so_are_violations(timestamp, change, what, named):
    found = changed("uniform", timestamp, change)
    assert any(what in one.what for one in found), found
    assert all(named in one.what for one in found if what in one.what)


@pytest.mark.parametrize("text", ["", "a\x07b", "a" * 13])
def test_texts_that_no_event_can_have_named_are_violations(text):
    (one,) = [one for one in changed("uniform", 4, lambda names: ["other", text]) if "can have" in one.what]
    assert (one.timestamp, one.what[-len(repr(text)) :]) == (4, repr(text))
