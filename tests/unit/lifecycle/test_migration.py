"""Migrations and resets without Kafka: the promise, the audit, and what is refused."""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from math import pi
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventveil.counting.boundaries import Boundary
from eventveil.formats.change import Change, ChangeLimit, Difference, Terms, change_limits
from eventveil.formats.release import decided
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.lifecycle.migration import check_reset, check_sound
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.registry import KINDS
from eventveil.mechanisms.time_unit import TimeUnit
from eventveil.model.errors import StateRefused
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Condition, Discover, NameMap
from eventveil.privacy import gaussian
from eventveil.topology.changes import REFUSED, REFUSED_BY_BOUNDARY, REFUSED_TO_PURE, SOUND, changed
from tests.contract.noises import W_EVENT_KINDS, ZeroNoise, make
from tests.unit.migrating import BUDGET, COUNTING, FIRST, PARTITIONS, Lifetime, states

ONE, TWO, THIRD = Fraction(1), Fraction(2), Fraction(1, 3)
EPSILONS = st.sampled_from([ONE, TWO, THIRD, Fraction(5, 7)])


DISCOVERS: dict[str, Any] = {
    "labels": ("other",),
    "discover": Discover(Fraction(1, 10), Fraction(1, 10**9), Fraction(1, 10), 50, 20),
}


def terms(kind: str = "uniform", epsilon: Fraction = ONE, window: int = 3) -> dict[str, Any]:
    return {"kind": kind, "epsilon": epsilon, "epsilon_text": str(epsilon), "window": window}


class Regime(NamedTuple):
    """Terms, and the index of the first timestamp that had them."""

    start: int
    epsilon: Fraction
    delta: Fraction | None
    window: int


def check_promise(ledger: list[bytes]) -> None:
    """(a) to (c) of ``eventveil.lifecycle.migration`` in exact rationals, from the public ledger alone."""
    #: Of each timestamp the part of its epsilon that it has spent.
    parts: list[Fraction] = []
    #: Terms that no timestamp had are not there.
    regimes: list[Regime] = []
    for value in ledger:
        fields = orjson.loads(value)
        if "change" in fields:
            continue
        delta = Fraction(fields["delta"]) if fields.get("noise") == "gaussian" else None
        one = Regime(len(parts), Fraction(fields["epsilon"]), delta, fields["window"])
        if not regimes or regimes[-1][1:] != one[1:]:
            regimes.append(one)
        parts.append(Fraction(sum(fields["spent"].values()), fields["units"]))
    ends = [*(one.start for one in regimes[1:]), len(parts)]
    for regime, end in zip(regimes, ends, strict=False):  # no regime has one end
        own = parts[regime.start : end]
        assert all(sum(own[i : i + regime.window]) <= 1 for i in range(len(own)))
    for earlier, later in pairwise(regimes):
        width, epsilon = max(earlier.window, later.window), max(earlier.epsilon, later.epsilon)
        reaches_from = later.start - width + 1
        for begin in range(max(0, reaches_from), later.start):
            whole = range(begin, min(begin + width, len(parts)))
            last = max((i for i in whole if parts[i]), default=begin)
            # Terms that come later do not loosen what was held before them.
            deltas = [
                regime.delta
                for regime, end in zip(regimes, ends, strict=True)
                if regime.delta is not None and regime.start <= last and end > reaches_from
            ]
            spent_after = last >= later.start
            if spent_after or (later.window <= earlier.window and begin >= earlier.start and not deltas):
                delta = max(deltas, default=None)
                limit = epsilon if delta is None else gaussian.mu_squared(epsilon, delta)
                assert sum(cost_of(parts[i], held(regimes, i), delta) for i in whole) <= limit


def held(regimes: list[Regime], index: int) -> Regime:
    """The terms of a timestamp."""
    return next(one for one in reversed(regimes) if one.start <= index)


def cost_of(part: Fraction, regime: Regime, delta: Fraction | None) -> Fraction:
    """What a timestamp cost: in terms of epsilon, or of mu squared if windows have a ``delta``."""
    if delta is None:
        return part * regime.epsilon
    if regime.delta is None:
        return Fraction(pi) / 2 * (part * regime.epsilon) ** 2
    return part * gaussian.mu_squared(regime.epsilon, regime.delta)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), list(product(W_EVENT_KINDS, W_EVENT_KINDS)))
@pytest.mark.parametrize("windows", [(3, 3), (2, 5), (5, 2), (1, 4), (4, 1)], ids=str)
@pytest.mark.parametrize("epsilons", [(ONE, ONE), (TWO, ONE), (THIRD, TWO)], ids=str)
def test_every_kind_goes_on_as_every_other_and_the_audit_finds_nothing(
    old: str, new: str, windows: tuple[int, int], epsilons: tuple[Fraction, Fraction]
) -> None:
    life = Lifetime(**terms(old, epsilons[0], windows[0]))
    life.release(7)
    life.change(**terms(new, epsilons[1], windows[1]))
    life.release(12)
    check_promise(life.ledger)
    (report,) = life.audit()
    assert report.findings == ()
    assert len(life.sink) == report.releases == 19
    assert any(orjson.loads(record)["fresh"] for record in life.sink[7:])


# Nothing was released under the first terms, so no window straddles their end.
@example(changes=[("budget-absorption", ONE, 3, 0), ("budget-absorption", ONE, 1, 2)], seed=1)
# A prediction stays one after a change to a kind that does not predict.
@example(changes=[("paced", ONE, 2, 5), ("budget-absorption", ONE, 1, 1)], seed=0)
@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(W_EVENT_KINDS), EPSILONS, st.integers(1, 6), st.integers(0, 5)),
        min_size=2,
        max_size=6,
    ),
    seed=st.integers(0, 2**32),
)
def test_any_sequence_of_changes_keeps_the_promise_of_each(
    changes: list[tuple[str, Fraction, int, int]], seed: int
) -> None:
    generator = random.Random(seed)
    (kind, epsilon, window, length), *rest = changes
    life = Lifetime(**terms(kind, epsilon, window))
    life.decisions = iter(lambda: generator.random() < 0.5, None)
    life.release(length)
    for kind, epsilon, window, length in rest:
        life.change(**terms(kind, epsilon, window))
        life.release(length)
    check_promise(life.ledger)
    assert [report.findings for report in life.audit()] == [()]


def test_an_epsilon_that_was_in_force_for_no_timestamp_buys_nothing() -> None:
    life = Lifetime(**terms("sample", ONE, 3))
    life.release(1)
    life.change(**terms("sample", TWO, 3))
    life.change(**terms("sample", ONE, 3))
    life.release(4)
    assert [orjson.loads(record)["fresh"] for record in life.sink] == [True, False, False, True, False]
    assert [report.findings for report in life.audit()] == [()]


def test_what_cannot_be_paid_is_repeated_until_it_can() -> None:
    life = Lifetime(**terms("sample", ONE, 3))
    life.release(1)
    life.change(**terms("sample", ONE, 6))
    life.release(12)
    fresh = [orjson.loads(record)["fresh"] for record in life.sink]
    assert fresh == [True] + [False] * 5 + [True] + [False] * 5 + [True]
    counts = [orjson.loads(record)["counts"] for record in life.sink]
    assert counts[:6] == [counts[0]] * 6


def test_uniform_goes_on_without_a_gap_if_nothing_but_the_counting_changes() -> None:
    life = Lifetime(**terms())
    life.release(5)
    life.change(lateness=9, max_ahead=3)
    life.release(5)
    assert all(orjson.loads(record)["fresh"] for record in life.sink)


def test_a_mechanism_that_forgets_what_was_spent_is_found_by_the_audit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inherit = KINDS["uniform"].inherit

    def forget(self: Mechanism, predecessor: bytes, bridges: object) -> None:
        inherit(self, predecessor, [])

    monkeypatch.setattr(KINDS["uniform"], "inherit", forget)
    life = Lifetime(**terms("sample", ONE, 3))
    life.release(1)
    life.change(**terms("uniform", ONE, 3))
    life.release(4)
    with pytest.raises(AssertionError):
        check_promise(life.ledger)
    (report,) = life.audit()
    what = "a window across a change of terms spent more than the larger epsilon"
    assert {(one.invariant, one.timestamp) for one in report.findings} == {("I7", 6), ("I7", 7)}
    assert all(one.what == what for one in report.findings)


def test_a_second_draw_from_before_a_change_counts_in_the_windows_across_it() -> None:
    life = Lifetime(**terms(window=2))
    life.release(4)
    life.change(**terms(window=3))
    life.release(4)
    assert [report.findings for report in life.audit()] == [()]
    # The last timestamp under the old terms was drawn again, from a state that was rewound.
    entry, record = orjson.loads(life.ledger[3]), orjson.loads(life.sink[3])
    record["counts"] = {name: value + 1 for name, value in record["counts"].items()}
    life.sink.append(orjson.dumps(record))
    entry["digest"] = hashlib.sha256(life.sink[-1]).hexdigest()
    life.ledger.append(orjson.dumps(entry))
    (report,) = life.audit()
    what = "with what was charged twice, a window across a change of terms spent more than it may"
    spends = {one["timestamp"]: one["fresh"] for one in map(orjson.loads, life.ledger) if "fresh" in one}
    across = range(FIRST + 4, FIRST + 6)
    assert {one.timestamp for one in report.findings if one.what == what} == {
        one for one in across if spends[one]
    }
    assert any(spends[one] for one in across)


def test_all_places_get_the_new_instance_and_nothing_else_of_the_counting_state_changes() -> None:
    life = Lifetime(**terms())
    life.release(4)
    before = life.checkpoint
    life.change(epsilon=TWO, epsilon_text="2")
    after = life.checkpoint
    assert {state.instance for state in states(after)} == {"instance-1"}
    for place, (manifest, state) in after.counting.items():
        assert (manifest.instance, manifest.fields["mechanism.epsilon"]) == ("instance-1", "2")
        known = before.counting[place][1]
        assert (state.next, state.resume, state.judged) == (known.next, known.resume, known.judged)
    assert (after.state.next, after.state.resume) == (before.state.next, 100)
    assert after.manifest.fields == life.plan.budget_fields(PARTITIONS, "sink-0")


def test_the_ledger_says_what_changed() -> None:
    life = Lifetime(**terms())
    life.release(4)
    life.change(window=5, lateness=6)
    change = Change.read(orjson.loads(life.ledger[-1]))
    assert change is not None
    assert change.fields == {"mechanism.window": Difference(3, 5), "timeline.lateness": Difference(5, 6)}
    assert (change.start, change.previous, change.instance) == (FIRST + 4, "instance-0", "instance-1")
    assert change.encode() == life.ledger[-1]


def test_a_stream_that_has_released_nothing_can_change_too() -> None:
    life = Lifetime(**terms())
    life.change(epsilon=TWO, epsilon_text="2")
    life.release(5)
    assert [report.findings for report in life.audit()] == [()]


def test_what_was_decided_and_not_published_goes_out_with_the_change_and_is_paid_for() -> None:
    life = Lifetime(**terms("sample", ONE, 3))
    life.release(2)
    life.release(2, publish=False)
    pending = [one.encode() for one in life.checkpoint.state.pending]
    life.change(**terms("uniform", ONE, 3))
    assert life.sink[-2:] == pending
    life.release(4)
    check_promise(life.ledger)
    assert [report.findings for report in life.audit()] == [()]


@pytest.mark.parametrize("form", ["avro", "json-schema"])
def test_a_stream_goes_on_in_another_format_in_a_new_sink_and_in_no_other(form: str) -> None:
    life, other = Lifetime(**terms()), Lifetime(**terms(), sink_format=form)
    life.release(3)
    differences = life.checkpoint.differences(other.target())
    with pytest.raises(StateRefused, match=r"sink.format was json and is .* readers of .* expect one format"):
        check_sound(life.checkpoint, differences)
    other.sink_id = "another"
    differences = life.checkpoint.differences(other.target())
    check_sound(life.checkpoint, differences)
    life.release(1, publish=False)
    with pytest.raises(StateRefused, match="1 releases are decided as json and not published yet"):
        check_sound(life.checkpoint, differences)
    life = Lifetime(**terms())
    life.release(3)
    life.change(sink_format=form, sink_id="another")
    assert life.checkpoint.manifest.fields["sink.format"] == form
    life.release(3)
    assert {value[0] for value in life.sink} == {0}
    # In the same format as before what is decided goes out with the change, as it was decided.
    life.release(1, publish=False)
    (pending,) = life.checkpoint.state.pending
    life.change(sink_id="a third")
    assert life.sink == [decided(pending).published]
    life.change(sink_format="json", sink_id="a fourth")
    assert "sink.format" not in life.checkpoint.manifest.fields
    life.release(2)
    assert [report.findings for report in life.audit()] == [()]
    check_promise(life.ledger)


def test_releases_before_the_sink_was_replaced_are_not_missed_and_later_ones_are() -> None:
    life = Lifetime(**terms())
    life.release(4)
    life.change(sink_id="another")
    life.release(3)
    (report,) = life.audit()
    assert (report.findings, report.matched_from, report.sink_since) == ((), FIRST + 4, FIRST + 4)
    del life.sink[1]
    (report,) = life.audit()
    assert [one.timestamp for one in report.findings] == [FIRST + 5]


@pytest.mark.parametrize("change", [{"sink_id": "another"}, {"epsilon": TWO, "epsilon_text": "2"}], ids=str)
def test_what_a_migration_publishes_names_the_version_that_has_decided_it(change: dict[str, Any]) -> None:
    life = Lifetime(**terms("sample", ONE, 3))
    life.release(2, publish=False)
    life.tables[BUDGET, 0][b"visits"] = life.checkpoint.state.replace(eventveil="0.0.7").encode()
    life.change(**change)
    entries = [orjson.loads(one) for one in life.ledger]
    assert [one.get("eventveil") for one in entries if "digest" in one] == ["0.0.7", "0.0.7"]
    assert (life.checkpoint.state.pending, life.checkpoint.state.eventveil) == ((), "")


def test_a_sink_can_be_replaced_in_the_middle_of_a_timestamp_and_the_same_life_goes_on() -> None:
    life = Lifetime(**terms("sample", ONE, 3))
    life.release(1)
    life.release(1, publish=False)
    life.count(TopicPartition(COUNTING, 1), FIRST + 3)
    before = life.checkpoint
    life.change(sink_id="another")
    after = life.checkpoint
    assert after.state == before.state.replace(pending=())
    assert after.counting == before.counting
    fields = life.plan.budget_fields(PARTITIONS, "another")
    assert after.manifest == before.manifest.replace(fields=fields, cluster="cluster", ledger_id="ledger-id")
    assert [orjson.loads(record)["timestamp"] for record in life.sink] == [FIRST + 1]
    life.change(sink_id="a third")
    life.release(5)
    life.change(epsilon=TWO, epsilon_text="2")
    life.release(5)
    check_promise(life.ledger)
    (report,) = life.audit()
    assert (report.findings, report.matched_from, report.windows) == ((), FIRST + 2, 3)


@pytest.mark.parametrize("counted", [FIRST + 3, FIRST + 5])
def test_counts_of_a_timestamp_that_was_not_released_are_refused(counted: int) -> None:
    life = Lifetime(**terms())
    life.release(4)
    life.count(TopicPartition(COUNTING, 1), counted)
    with pytest.raises(StateRefused, match="it is released up to timestamp 8, but counted up to") as refusal:
        life.change(lateness=9)
    assert "stop it between two timestamps" in refusal.value.remedy


def test_a_ledger_that_does_not_fit_the_state_is_refused() -> None:
    life = Lifetime(**terms())
    life.release(4)
    life.ledger.pop()
    with pytest.raises(StateRefused, match="the ledger has timestamps 5 to 7, the state 5 to 8"):
        life.change(epsilon=TWO)


@pytest.mark.parametrize("damage", [b"", b"{}", b"[]", b'{"timestamp": 9}', None])
def test_a_ledger_that_cannot_be_read_is_refused(damage: bytes | None) -> None:
    life = Lifetime(**terms())
    life.release(2)
    history = life.history
    with pytest.raises(StateRefused, match="cannot be continued"):
        history.add(damage, "there")


def test_a_gap_in_the_ledger_is_refused() -> None:
    life = Lifetime(**terms())
    life.release(4)
    del life.ledger[1]
    with pytest.raises(StateRefused, match="timestamp 7, where 6 was due"):
        _ = life.history


def test_changelogs_of_different_lives_are_refused() -> None:
    life = Lifetime(**terms())
    life.release(4)
    manifest = life.checkpoint.manifest
    life.change(epsilon=TWO, epsilon_text="2")
    life.tables[BUDGET, 0][ManifestRecord.key("visits")] = manifest.encode()
    with pytest.raises(StateRefused, match="does not belong to its genesis"):
        _ = life.checkpoint
    del life.tables[BUDGET, 0][b"visits"]
    target = life.target()
    with pytest.raises(StateRefused, match="is not that of app-ledger-changelog"):
        life.checkpoint.differences(target)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        ({"previous": "somebody"}, "the change is of another instance of the stream"),
        ({"instance": "somebody"}, "the entry is of another instance of the stream than the first one"),
        ({"from": FIRST + 5}, "the change does not follow the entry before it"),
        (
            {"after": {"mechanism": "uniform", "epsilon": "3", "window": 3, "units": 1}},
            "it ends with other terms",
        ),
        (
            {"before": {"mechanism": "uniform", "epsilon": "3", "window": 3, "units": 1}},
            "epsilon is not that",
        ),
    ],
)
def test_a_change_that_does_not_fit_the_ledger_is_a_violation(edit: dict[str, Any], what: str) -> None:
    life = Lifetime(**terms())
    life.release(4)
    life.change(epsilon=TWO, epsilon_text="2")
    life.release(4)
    life.ledger[4] = orjson.dumps({**orjson.loads(life.ledger[4]), **edit})
    (report,) = life.audit()
    assert any(one.what.startswith(what) for one in report.findings), report.findings
    assert {one.invariant for one in report.findings} == {"I7"}


OPTIONS_IN_TURN: list[tuple[str, dict[str, Any]]] = [
    ("budget-distribution", {}),
    ("budget-distribution", {"shift": "true"}),
    ("budget-distribution", {"shift": "true", "groups": 2}),
    ("budget-absorption", {"shift": "true", "groups": 2, "regroup": 1}),
    ("budget-absorption", {"shift": "true"}),
    ("fast", {"max_samples": 2}),
    ("fast", {}),
    ("budget-absorption", {"groups": 3}),
]


def with_options_in_turn(regimes: list[tuple[str, dict[str, Any]]]) -> Lifetime:
    """Twenty columns, so that shifting moves budget; eight timestamps under each."""
    labels = tuple(f"column {number}" for number in range(20))
    life = Lifetime(**terms(regimes[0][0]), options=regimes[0][1], labels=labels)
    life.release(8)
    for kind, options in regimes[1:]:
        life.change(kind=kind, options=options)
        life.release(8)
    return life


@pytest.mark.parametrize("regimes", [OPTIONS_IN_TURN, OPTIONS_IN_TURN[::-1]], ids=["there", "back"])
def test_what_options_let_a_timestamp_cost_is_audited_across_changes_of_them(
    regimes: list[tuple[str, dict[str, Any]]],
) -> None:
    life = with_options_in_turn(regimes)
    check_promise(life.ledger)
    assert [report.findings for report in life.audit()] == [()]
    life.settings["options"] = {"groups": 2}
    assert life.audit()[0].findings[0].what.startswith("it ends with other terms")


@pytest.mark.parametrize(
    ("index", "shift", "what"),
    [
        (8, {"old": None, "new": None}, "budget-distribution cannot have spent this"),
        (8, {"old": None, "new": "false"}, "budget-distribution cannot have spent this"),
        (17, {"old": "false", "new": "true"}, "the change is one of terms that were not in force"),
    ],
)
def test_a_change_of_options_that_does_not_fit_the_ledger_is_a_violation(
    index: int, shift: dict[str, Any], what: str
) -> None:
    life = with_options_in_turn(OPTIONS_IN_TURN[:3])
    change = orjson.loads(life.ledger[index])
    change["fields"]["mechanism.shift"] = shift
    life.ledger[index] = orjson.dumps(change)
    findings = life.audit()[0].findings
    assert any(finding.what.startswith(what) for finding in findings), findings


def test_windows_before_a_change_are_reported_beside_those_after_it() -> None:
    life = Lifetime(**terms())
    window = terms()["window"]
    life.release(window + 2)
    life.change(epsilon=TWO, epsilon_text="2")
    (report,) = life.audit()
    assert (report.windows, report.windows_before) == (0, 3)
    life.release(window + 1)
    (report,) = life.audit()
    assert (report.windows, report.windows_before) == (2, 3)


def test_a_change_that_is_missing_in_the_ledger_is_a_violation() -> None:
    life = Lifetime(**terms())
    life.release(4)
    life.change(epsilon=TWO, epsilon_text="2")
    life.release(4)
    del life.ledger[4]
    assert {one.invariant for one in life.audit()[0].findings} == {"I7"}


# Which fields may change


def test_every_field_is_either_sound_or_refused_with_a_reason() -> None:
    everything: dict[str, Any] = {
        "options": {"factor": ONE},
        "contributions": 2,
        "per_column": 1,
        "append_time": "boundary",
        "raw": "keyed otherwise",
        "filter": (Condition("/kind", "present"),),
        "maps": (NameMap("/to", (("x", "a"),)),),
        "time_unit": "s",
        "time_zone": "UTC",
    }
    fields = Lifetime(**terms("budget-absorption"), **everything).checkpoint.manifest.fields
    fields |= Lifetime(**terms("uniform"), count="/n", watermark="/until").checkpoint.manifest.fields
    fields |= Lifetime(**terms("uniform"), sink_format="avro").checkpoint.manifest.fields
    fields |= Lifetime(**terms("uniform"), **DISCOVERS).checkpoint.manifest.fields
    options = {f"mechanism.{option}" for kind in W_EVENT_KINDS for option in KINDS[kind].options}
    assert {*fields, *options, *PLUGIN} == {*SOUND, *REFUSED}
    assert not SOUND.keys() & REFUSED.keys()


def refused_change(field: str, why: str) -> str:
    return f"{changed(field, 1, 2)}, which cannot be migrated: {why}"


@pytest.mark.parametrize("field", [*REFUSED, "mechanism.unheard-of"])
def test_a_field_that_cannot_change_is_refused_by_name_with_reason_and_remedy(field: str) -> None:
    with pytest.raises(StateRefused) as refusal:
        check_sound(
            Lifetime(**terms()).checkpoint,
            {"mechanism.epsilon": Difference("1", "2"), field: Difference(1, 2)},
        )
    why = REFUSED.get(field, "it is not known what it would change")
    assert refusal.value.what == refused_change(field, why)
    assert "epsilons of both add up" in refusal.value.remedy


def test_where_columns_are_found_only_where_counts_come_from_and_go_to_may_change() -> None:
    life = Lifetime(**terms("uniform"), **DISCOVERS).checkpoint
    check_sound(life, {"sink.topic": Difference("a", "b"), "source.partitions": Difference(2, 3)})
    with pytest.raises(StateRefused, match=r"window was 3 and is 4 now.*not proved"):
        check_sound(life, {"mechanism.window": Difference(3, 4)})
    with pytest.raises(StateRefused, match="found in the data"):
        check_reset(life, {"sink.topic_id": Difference("a", "b")}, 1)


GAUSSIAN = {"noise": "gaussian", "delta": Fraction(1, 10**9)}


@pytest.mark.parametrize(
    ("old", "new"), [("uniform", "sample"), ("sample", "seasonal"), ("seasonal", "uniform")]
)
@pytest.mark.parametrize("windows", [(3, 3), (2, 5), (5, 2)], ids=str)
def test_gaussian_kinds_and_windows_go_over_with_what_was_spent(
    old: str, new: str, windows: tuple[int, int]
) -> None:
    life = Lifetime(**terms(old, window=windows[0]), options=GAUSSIAN)
    life.release(7)
    life.change(**terms(new, window=windows[1]), options=GAUSSIAN)
    life.release(12)
    check_promise(life.ledger)  # mu squared is in proportion to epsilon while epsilon and delta stay
    (report,) = life.audit()
    assert report.findings == ()
    assert report.delta == Fraction(1, 10**9)


@pytest.mark.parametrize(("old", "new", "square"), [(None, 1, 3), (1, 2, 5), (2, None, 9)])
def test_another_bound_of_each_column_has_noise_of_its_own_from_the_change_on(
    old: int | None, new: int | None, square: int
) -> None:
    bounds = {"labels": ("a", "b", "c"), "contributions": 3, "options": GAUSSIAN}
    life = Lifetime(**terms(), **bounds, per_column=old)
    life.release(7)
    life.change(**terms(), **bounds, per_column=new)
    life.release(12)
    check_promise(life.ledger)
    (report,) = life.audit()
    assert report.findings == ()
    assert orjson.loads(life.checkpoint.state.mechanism)["settings"]["squared_sensitivity"] == square


DELTA = Fraction(1, 10**6)
MORE: dict[str, Any] = {"noise": "gaussian", "delta": DELTA}
NORMAL_KINDS = [kind for kind in W_EVENT_KINDS if "noise" in KINDS[kind].options]


@pytest.mark.parametrize(("old", "new"), list(product(W_EVENT_KINDS, NORMAL_KINDS)))
@pytest.mark.parametrize("windows", [(3, 3), (2, 5), (5, 2)], ids=str)
@pytest.mark.parametrize("epsilons", [(ONE, ONE), (THIRD, TWO)], ids=str)
def test_every_kind_goes_over_to_gaussian_noise_and_the_audit_finds_nothing(
    old: str, new: str, windows: tuple[int, int], epsilons: tuple[Fraction, Fraction]
) -> None:
    life = Lifetime(**terms(old, epsilons[0], windows[0]))
    life.release(7)
    life.change(**terms(new, epsilons[1], windows[1]), options=MORE)
    life.release(12)
    check_promise(life.ledger)
    (report,) = life.audit()
    assert report.findings == ()
    assert report.delta == DELTA
    assert any(orjson.loads(record)["fresh"] for record in life.sink[7:])


@settings(max_examples=80, deadline=None)
@given(
    changes=st.lists(
        st.tuples(
            st.sampled_from(NORMAL_KINDS),
            EPSILONS,
            st.integers(1, 6),
            st.integers(0, 5),
            st.sampled_from([DELTA, Fraction(1, 10**9)]),
        ),
        min_size=2,
        max_size=6,
    ),
    pure=st.integers(0, 4),
    seed=st.integers(0, 2**32),
)
def test_any_sequence_of_noises_epsilons_and_deltas_keeps_the_promise_of_each(
    changes: list[tuple[str, Fraction, int, int, Fraction]], pure: int, seed: int
) -> None:
    generator = random.Random(seed)
    lives = [
        ({**terms(kind, epsilon, window), "options": {**MORE, "delta": delta} if i >= pure else {}}, length)
        for i, (kind, epsilon, window, length, delta) in enumerate(changes)
    ]
    life = Lifetime(**lives[0][0])
    life.decisions = iter(lambda: generator.random() < 0.5, None)
    life.release(lives[0][1])
    for one, length in lives[1:]:
        life.change(**one)
        life.release(length)
    check_promise(life.ledger)
    assert [report.findings for report in life.audit()] == [()]


def test_uniform_waits_until_mu_squared_of_what_it_spent_as_epsilon_is_within_the_limit() -> None:
    window = 24
    life = Lifetime(**terms(window=window))
    life.release(window)
    life.change(options=MORE)
    life.release(window)
    allowed = gaussian.mu_squared(ONE, DELTA)
    spent = Fraction(pi) / 2 / window**2
    # Each timestamp that leaves the window gives back more than a new one takes.
    waits = next(gone for gone in range(window) if (window - 1 - gone) * spent + allowed / window <= allowed)
    assert waits == 4
    fresh = [orjson.loads(record)["fresh"] for record in life.sink]
    assert fresh == [True] * window + [False] * waits + [True] * (window - waits)


@pytest.mark.parametrize(
    ("unit", "caught"), [(gaussian.PURE, False), (gaussian.PURE * Fraction(99, 100), True)]
)
def test_the_audit_prices_pure_epsilon_by_itself(
    unit: Fraction, caught: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge that takes pi / 2 for less lets through what the audit does not."""
    life = Lifetime(**terms("sample", Fraction(1, 10), 4))
    life.release(1)
    monkeypatch.setattr(gaussian, "PURE", unit)
    life.change(**terms("uniform", TWO, 4), options=MORE)
    monkeypatch.undo()
    state = orjson.loads(life.checkpoint.state.mechanism)
    # What the bridge says is left is spent on one timestamp.
    (bridge,) = state["ledger"]["bridges"]
    left = bridge["units"] - sum(length * (test + publish) for length, test, publish in bridge["runs"])
    limit = ChangeLimit(0, 4, TWO, DELTA)
    before = Terms("sample", Fraction(1, 10), 4, 8 * 2**20)
    after = Terms("uniform", TWO, 4, 8 * 2**20, DELTA)
    assert (limit.cost(before.units, before) + limit.cost(left, after) > limit.most) is caught


@pytest.mark.parametrize("delta", ["0", "much", "1/2", 7])
def test_an_entry_with_a_delta_that_no_noise_has_stops_a_migration(delta: object) -> None:
    life = Lifetime(**terms(), options=GAUSSIAN)
    life.release(2)
    life.ledger[-1] = orjson.dumps({**orjson.loads(life.ledger[-1]), "delta": delta})
    with pytest.raises(StateRefused, match="the ledger of stream visits cannot be continued"):
        _ = life.history


@pytest.mark.parametrize("seed", range(60))
def test_any_history_of_changes_sinks_and_generations_keeps_its_promise_and_audits_clean(seed: int) -> None:
    choice = random.Random(seed)
    normal = choice.random() < 0.3

    def settings_() -> dict[str, Any]:
        kind = choice.choice(NORMAL_KINDS if normal else W_EVENT_KINDS)
        epsilon = choice.choice([ONE, TWO, THIRD, Fraction(1, 50)])
        delta = choice.choice([DELTA, Fraction(1, 10**9), Fraction(1, 10**5)])
        return {
            **terms(kind, epsilon, choice.randint(1, 7)),
            "options": {"noise": "gaussian", "delta": delta} if normal else {},
        }

    life, generations = Lifetime(**settings_()), [0]
    life.decisions = iter(lambda: choice.random() < 0.6, None)
    for _ in range(choice.randint(3, 10)):
        match choice.choice(["release", "release", "terms", "terms", "sink", "reset"]):
            case "release":
                life.release(choice.randint(0, 6))
            case "terms":
                normal = normal or choice.random() < 0.5
                life.change(**settings_())
            case "sink":
                life.change(sink_id=f"sink-{choice.random()}")
            case "reset" if life.checkpoint.state.next > FIRST:
                life.reset(FIRST)
                generations.append(len(life.ledger))
    life.release(choice.randint(3, 12))
    for begin, end in zip(generations, [*generations[1:], len(life.ledger)], strict=True):
        check_promise(life.ledger[begin:end])
    assert [finding for report in life.audit() for finding in report.findings] == []


def test_a_past_that_is_far_above_the_limit_fits_into_a_state() -> None:
    """In units of a tiny mu squared: more than the limit is as good as just above it."""
    life = Lifetime(**terms("uniform", Fraction(1000), 3))
    life.release(4)
    tiny = {"noise": "gaussian", "delta": Fraction(1, 10**9)}
    life.change(**terms("uniform", Fraction(1, 10**6), 3), options=tiny)
    life.release(4)
    assert [orjson.loads(record)["fresh"] for record in life.sink[-2:]] == [True, True]
    assert [report.findings for report in life.audit()] == [()]


def test_a_limit_has_the_larger_delta_of_the_terms_before_and_after_and_no_other() -> None:
    """What `migrate` says is what holds, also where an earlier delta is still within a window."""
    life = Lifetime(**terms(window=6), options={**MORE, "delta": Fraction(1, 10**5)})
    life.release(6)
    for delta in (DELTA, Fraction(1, 10**9)):
        life.change(options={**MORE, "delta": delta})
        life.release(2)
    first, second = change_limits(life.history.changes, life.history.first)
    assert (first.delta, second.delta) == (Fraction(1, 10**5), DELTA)
    assert [report.findings for report in life.audit()] == [()]


def test_a_change_of_the_sink_has_no_limit_also_after_one_of_terms() -> None:
    """And changes without a release between them have one together."""
    life = Lifetime(**terms(window=6))
    life.release(4)
    assert life.history.changes == []
    life.change(**terms(window=6, epsilon=TWO))
    (terms_,) = life.history.changes
    sink = replace(terms_, fields={"sink.topic_id": Difference("a", "b")}, before=terms_.after)
    assert life.history.limit(sink) is None
    back = replace(terms_, before=terms_.after, after=terms_.before)
    limit = life.history.limit(back)
    assert limit is not None
    assert (limit.start, limit.epsilon) == (FIRST + 4, ONE)
    fresh = Lifetime(**terms())
    assert fresh.history.limit(terms_) is None


def test_the_audit_finds_terms_that_change_beside_the_sink() -> None:
    """Else their windows would not be added up across the change."""
    life = Lifetime(**terms())
    life.release(4)
    manifest, before = life.checkpoint.manifest, life.checkpoint.terms
    life.ledger.append(
        Change(
            "visits", "migration", FIRST + 4, {"sink.topic": Difference("a", "b")},
            before, before._replace(window=10), manifest.instance, manifest.instance,
        ).encode()
    )  # fmt: skip
    told = [str(finding) for report in life.audit() for finding in report.findings]
    assert any("the terms change, but no field records it" in one for one in told), told


@pytest.mark.parametrize(
    ("old", "new"),
    [("seasonal", "sample"), ("seasonal", "fast"), ("sample", "seasonal"), ("paced", "sample")],
)
def test_a_change_between_kinds_of_which_one_remembers_periods_is_sound(old: str, new: str) -> None:
    life = Lifetime(**terms(old, ONE, 4), options={"periods": "3"})
    life.release(6)
    life.change(**terms(new, ONE, 5), options={"periods": "3"})
    life.release(8)
    assert [report.findings for report in life.audit()] == [()]


def said_of_a_change(life: Lifetime, before: Terms, after: Terms) -> list[str]:
    """What the audit says of a change of lateness, which names no terms, and nothing after it."""
    instance = life.checkpoint.manifest.instance
    fields = {"timeline.lateness": Difference(5, 4)}
    start = life.checkpoint.state.next
    life.ledger.append(
        Change("visits", "migration", start, fields, before, after, instance, instance).encode()
    )
    return [str(finding) for report in life.audit() for finding in report.findings]


def test_the_audit_finds_units_that_no_window_has() -> None:
    life = Lifetime(**terms("uniform", ONE, 4))
    life.release(4)
    before = life.checkpoint.terms
    told = said_of_a_change(life, before, before._replace(units=10 * before.units))
    assert any("the units of epsilon do not follow the window" in one for one in told), told


def test_the_audit_finds_a_horizon_that_begins_anew_by_a_migration() -> None:
    life = Lifetime(**terms("shp-point", ONE, 4), labels=("a",))
    life.release(5)
    before = life.checkpoint.terms
    told = said_of_a_change(life, before, before)
    assert any("no migration can change terms or inputs at user level" in one for one in told), told


def test_a_delta_of_many_digits_is_read_from_a_ledger_as_it_is_written_there() -> None:
    """As Python writes 1 / (1000 * 1234567); as a fraction it has more digits than a file may have."""
    delta = Fraction("8.100005913004317e-10")
    life = Lifetime(**terms("uniform", ONE, 3), options={"noise": "gaussian", "delta": delta})
    life.release(3)
    assert [report.findings for report in life.audit()] == [()]
    life.change(**terms("uniform", ONE, 4))
    life.release(3)
    assert [report.findings for report in life.audit()] == [()]


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("mechanism.epsilon", Difference("1", "9")),
        ("mechanism.window", Difference(4, 10)),
        ("mechanism.kind", Difference("paced", "uniform")),
    ],
)
def test_the_audit_finds_fields_that_tell_of_other_terms(field: str, told: Difference) -> None:
    """What a reader of the ledger takes for the promise is in the fields; what is summed up, in the terms."""
    life = Lifetime(**terms(window=6))
    life.release(4)
    life.change(**terms(window=6, epsilon=TWO))
    record = orjson.loads(life.ledger[-1])
    assert record["fields"]["mechanism.epsilon"] == {"old": "1", "new": "2"}
    record["fields"][field] = told._asdict()
    life.ledger[-1] = orjson.dumps(record)
    life.release(2)
    found = [str(finding) for report in life.audit() for finding in report.findings]
    assert any(f"its fields and its terms differ in {field}" in one for one in found), found


def test_generations_with_gaussian_noise_are_audited_each_by_itself() -> None:
    life = Lifetime(**terms())
    life.release(4)
    life.change(options=MORE)
    life.release(4)
    life.reset()
    life.release(3)
    life.change(options={**MORE, "delta": Fraction(1, 10**9)})
    life.release(3)
    first, second = life.audit()
    assert first.findings == second.findings == ()
    assert (first.delta, second.delta) == (DELTA, Fraction(1, 10**9))


def test_an_epsilon_that_no_gaussian_noise_has_is_left_behind() -> None:
    life = Lifetime(**terms("uniform", Fraction(5000), 3))
    life.release(4)
    life.change(**terms(), options=MORE)
    life.release(4)
    fresh = [orjson.loads(record)["fresh"] for record in life.sink[4:]]
    assert fresh == [False, False, True, True]
    assert [report.findings for report in life.audit()] == [()]


def test_gaussian_noise_does_not_become_laplace_noise_again() -> None:
    before, after = (
        Lifetime(**terms(), options=options).checkpoint.manifest.fields for options in (GAUSSIAN, {})
    )
    differences = {
        name: Difference(before.get(name), after.get(name))
        for name in {*before, *after}
        if before.get(name) != after.get(name)
    }
    with pytest.raises(StateRefused) as refusal:
        check_sound(Lifetime(**terms(), options=GAUSSIAN).checkpoint, differences)
    assert "mechanism.noise was 'gaussian' and is not set now" in refusal.value.what
    assert REFUSED_TO_PURE["mechanism.noise"] in refusal.value.what


def test_sound_changes_pass() -> None:
    differences = {field: Difference("a", "b") for field in SOUND}
    differences["mechanism.noise"] = Difference(None, "gaussian")
    check_sound(Lifetime(**terms()).checkpoint, differences)


def test_a_partition_that_was_missing_must_have_caught_up_and_is_missed_no_longer() -> None:
    life = Lifetime(**terms())
    life.release(4)
    state = life.checkpoint.state
    life.tables[BUDGET, 0][b"visits"] = state.replace(missing=((1, FIRST + 2, FIRST + 3),)).encode()
    life.count(TopicPartition(COUNTING, 1), FIRST + 2)
    with pytest.raises(StateRefused, match="Run the worker with the former topology"):
        life.change(epsilon=TWO, epsilon_text="2")
    life.settings = terms()
    life.count(TopicPartition(COUNTING, 1), state.next)
    life.change(epsilon=TWO, epsilon_text="2")
    assert life.checkpoint.state.missing == ()


def test_with_boundaries_the_rules_that_they_rest_on_cannot_change() -> None:
    life = Lifetime(**terms(), append_time="boundary").checkpoint
    sound = SOUND.keys() - REFUSED_BY_BOUNDARY.keys()
    check_sound(life, {field: Difference("a", "gaussian") for field in sound})
    for field, why in REFUSED_BY_BOUNDARY.items():
        with pytest.raises(StateRefused, match=re.escape(refused_change(field, why))):
            check_sound(life, {field: Difference(1, 2)})


def test_a_default_that_other_append_times_bring_is_not_named_beside_them() -> None:
    life = Lifetime(**terms(), append_time="boundary").checkpoint
    changes = {
        "source.append_time": Difference("boundary", None),
        "timeline.max_ahead": Difference(259_200_000, 3_600_000),
    }
    with pytest.raises(StateRefused, match=r"source\.append_time was") as refusal:
        check_sound(life, changes)
    assert "max_ahead" not in str(refusal.value)


def test_a_migration_takes_boundaries_along() -> None:
    life = Lifetime(**terms(), append_time="boundary")
    life.release(4)
    for place in life.places[:-1]:
        _, state = life.checkpoint.counting[place]
        counted = state.replace(boundaries=(Boundary(state.next - 1, 5), Boundary(state.next + 1, 8)))
        life.tables[place][b"visits"] = counted.encode()
    before = [state.boundaries for _, state in life.checkpoint.counting.values()]
    life.change(epsilon=TWO, epsilon_text="2")
    after = [state.boundaries for _, state in life.checkpoint.counting.values()]
    assert before == after == [(Boundary(FIRST + 3, 5), Boundary(FIRST + 5, 8))] * PARTITIONS


@pytest.mark.parametrize(
    ("kind", "differences"),
    [
        ("shp-point", {"mechanism.epsilon": Difference("1", "2")}),
        ("retroactive-grouping", {"mechanism.kind": Difference("retroactive-grouping", "uniform")}),
        ("uniform", {"mechanism.kind": Difference("uniform", "time-unit")}),
    ],
)
def test_only_windows_carry_over(kind: str, differences: dict[str, Difference]) -> None:
    life = Lifetime(**terms(kind)).checkpoint
    with pytest.raises(StateRefused, match="does not carry over"):
        check_sound(life, differences)
    check_sound(life, {"sink.topic": Difference("a", "b")})


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].level != "w-event"])
def test_a_mechanism_of_another_level_inherits_nothing(kind: str) -> None:
    mechanism = make(kind, ZeroNoise())
    with pytest.raises(ValueError, match="cannot begin where another mechanism stopped"):
        mechanism.inherit(make("uniform", ZeroNoise()).snapshot(), [])


# Resets


def test_a_reset_begins_a_generation_with_a_fresh_budget_which_is_audited_apart() -> None:
    life = Lifetime(**terms("sample", ONE, 3))
    life.release(4)
    life.reset(FIRST + 1)
    assert {state.next for state in states(life.checkpoint)} == {FIRST + 1}
    assert [state.resume for state in states(life.checkpoint)] == [1, 1, 100]
    life.release(5)
    first, second = life.audit()
    assert (first.findings, second.findings) == ((), ())
    assert (first.releases, first.matched_from) == (4, None)
    assert (second.first, second.releases, second.matched_from) == (FIRST + 1, 5, FIRST + 1)
    assert (first.stream, second.stream) == ("visits, generation 1", "visits, generation 2")
    assert len(life.history.generations) == 2


def test_a_generation_can_be_migrated_and_reset_again() -> None:
    life = Lifetime(**terms("sample", ONE, 3))
    life.release(4)
    life.change(**terms("uniform", TWO, 2))
    life.release(4)
    life.reset()
    life.release(3)
    life.change(**terms("uniform", ONE, 5))
    life.release(6)
    life.reset(FIRST + 2)
    life.release(4)
    assert [report.findings for report in life.audit()] == [(), (), ()]
    assert [[one.epsilon for one in terms] for terms in life.history.generations] == [
        [ONE, TWO],
        [TWO, ONE],
        [ONE],
    ]


def test_a_release_that_was_decided_before_a_reset_is_charged_but_not_in_the_new_sink() -> None:
    life = Lifetime(**terms())
    life.release(3)
    life.release(1, publish=False)
    life.reset()
    life.release(2)
    first, second = life.audit()
    assert (first.releases, first.findings, second.findings) == (4, (), ())
    assert len(life.sink) == 2


def test_a_record_of_an_old_generation_in_the_new_sink_is_a_violation() -> None:
    life = Lifetime(**terms())
    life.release(3)
    old = orjson.loads(life.sink[0])
    life.reset()
    life.release(3)
    life.sink.append(orjson.dumps({**old, "counts": {"a": -1, "b": -1}}))
    assert {one.invariant for one in life.audit()[-1].findings} == {"I1", "I2"}


def test_a_budget_that_begins_anew_without_a_reset_is_a_violation() -> None:
    life = Lifetime(**terms())
    life.release(3)
    life.reset(FIRST + 1)
    life.release(3)
    del life.ledger[3]
    assert any("began anew" in one.what for one in life.audit()[-1].findings)


@pytest.mark.parametrize(
    ("fields", "start", "what"),
    [
        (["sink.topic_id", "mechanism.epsilon"], FIRST, "mechanism.epsilon changed"),
        ([], FIRST, "its sink holds the releases"),
        (["sink.topic_id"], FIRST + 3, "was not released yet"),
        (["sink.topic_id"], 0, "was not released yet"),
    ],
)
def test_a_reset_that_is_more_or_less_than_that_is_refused(fields: list[str], start: int, what: str) -> None:
    life = Lifetime(**terms())
    life.release(3)
    with pytest.raises(StateRefused, match=what):
        check_reset(life.checkpoint, {name: Difference("a", "b") for name in fields}, start)


def test_a_reset_of_a_stream_with_boundaries_is_refused() -> None:
    life = Lifetime(**terms(), append_time="boundary")
    life.release(3)
    with pytest.raises(StateRefused, match="append_time: boundary") as refusal:
        check_reset(life.checkpoint, {"sink.topic_id": Difference("a", "b")}, FIRST)
    assert "new name" in refusal.value.remedy


def test_a_reset_of_a_re_keyed_stream_begins_no_earlier_than_re_keying_did() -> None:
    life = Lifetime(**terms(), raw="keyed otherwise")
    life.release(3)
    sink = {"sink.topic_id": Difference("a", "b")}
    check_reset(life.checkpoint, sink, FIRST)
    with pytest.raises(StateRefused, match=f"re-keyed only from timestamp {FIRST} on"):
        check_reset(life.checkpoint, sink, FIRST - 1)


def with_change(life: Lifetime, **fields: tuple[str | None, str | None]) -> list[str]:
    """What the audit finds in a ledger to which somebody added a change of the mechanism."""
    manifest = life.checkpoint.manifest
    terms = life.checkpoint.terms
    told = {f"mechanism.{name}": Difference(*one) for name, one in fields.items()}
    start = life.checkpoint.state.next
    life.ledger.append(
        Change("visits", "migration", start, told, terms, terms, "another", manifest.instance).encode()
    )
    return [str(finding) for report in life.audit() for finding in report.findings]


def test_the_audit_finds_a_change_that_migrate_refuses() -> None:
    """Somebody wrote it in spite of that: windows across it have a delta of which the file says nothing."""
    life = Lifetime(**terms(), options=GAUSSIAN)
    life.release(6)
    told = with_change(life, noise=("gaussian", None), delta=(str(GAUSSIAN["delta"]), None))
    assert any("no migration can change mechanism.noise" in one for one in told), told


@pytest.mark.parametrize("delta", ["0", "a half", "1/2"])
def test_the_audit_finds_a_change_to_what_no_noise_has(delta: str) -> None:
    life = Lifetime(**terms(), options=GAUSSIAN)
    life.release(6)
    told = with_change(life, delta=(str(GAUSSIAN["delta"]), delta))
    assert any("no Gaussian noise has such terms" in one for one in told), told
    with pytest.raises(StateRefused, match="cannot be continued"):
        _ = life.history


# Plug-ins

STRIDE = "docs.examples.stride:Stride"
PLUGIN = {"plugin.class", "plugin.distribution", "plugin.source", "plugin.level"}


@pytest.mark.parametrize(("before", "after"), [("uniform", STRIDE), (STRIDE, "sample"), (STRIDE, STRIDE)])
def test_a_stream_goes_over_to_a_plug_in_and_back_with_what_it_spent(before: str, after: str) -> None:
    life = Lifetime(**terms(before))
    life.release(5)
    life.change(**terms(after, TWO, 4))
    life.release(9)
    check_promise(life.ledger)
    assert not any(report.findings for report in life.audit())


def test_another_source_of_a_plug_in_is_refused_by_name_and_can_be_migrated() -> None:
    life = Lifetime(**terms(STRIDE))
    fields = {**life.checkpoint.manifest.fields, "plugin.source": "0" * 64}
    with pytest.raises(StateRefused, match=r"plugin\.source was '\w{64}' and is '0{64}' now"):
        life.checkpoint.manifest.check(fields, "t", "id", 0, "here")
    check_sound(life.checkpoint, {"plugin.source": Difference("1", "0")})


class Events(TimeUnit):
    """A plug-in at event level."""

    kind = "events"


def test_a_plug_in_at_another_level_cannot_be_migrated() -> None:
    life = Lifetime(**terms(f"{__name__}:Events", window=1))
    with pytest.raises(StateRefused) as refusal:
        check_sound(life.checkpoint, {"mechanism.epsilon": Difference("1", "2")})
    assert refusal.value.what.endswith("what is held back or left of the budget does not carry over")


@pytest.mark.parametrize(
    ("changes", "recalled"),
    [
        ({"epsilon": TWO, "epsilon_text": "2"}, True),
        ({"window": 5}, True),
        ({"filter": (Condition("/type", "in", ("buy",)),)}, False),
        ({"contributions": 2}, False),
        ({"epsilon": TWO, "epsilon_text": "2", "unknown": "ignore"}, False),
    ],
)
def test_a_forecast_is_continued_only_where_events_count_as_before(
    changes: dict[str, Any], recalled: bool
) -> None:
    life = Lifetime(**terms("seasonal"))
    life.release(6)
    life.change(**changes)
    state = life.checkpoint.state.mechanism
    assert state is not None
    assert (len(orjson.loads(state)["published"]) == 3) == recalled
