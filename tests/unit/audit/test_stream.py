"""The audit finds each violation, and nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson
import pytest

from eventveil.audit.records import FoundRecord
from eventveil.audit.stream import stranger
from eventveil.mechanisms.registry import KINDS, find
from eventveil.model.records import TopicPartition
from eventveil.model.topology import MechanismSettings, Option, Sink
from eventveil.privacy.ledger import Spend
from tests.unit.audit.story import (
    FIRST,
    HORIZON,
    LAST,
    PARTITION,
    RELEASES,
    SETTINGS,
    TIMELINE,
    UNITS,
    WINDOW,
    Item,
    Names,
    Story,
    audit_of,
    entry_of,
    named,
    other_draw,
    settings_of,
    stream_of,
)
from tests.unit.audit.violations import AT, VIOLATIONS, second_draw_aborted

# A clean run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sink", [Sink("sink", "object"), Sink("sink", "array")], ids=["object", "array"])
def test_a_real_run_of_every_mechanism_is_clean(kind: str, sink: Sink) -> None:
    settings = settings_of(kind)
    report = Story.clean(stream_of(settings, sink)).audit(settings)
    assert report.findings == ()
    windows = {"w-event": RELEASES - WINDOW + 1, "event": RELEASES, "user": 1}[KINDS[kind].level]
    assert (report.releases, report.first, report.windows) == (RELEASES, FIRST, windows)
    assert 0 < report.largest <= report.units == 2 * settings.window * 2**20
    assert report.matched_from == FIRST
    assert (report.repeated, report.aborted, report.undecided, report.foreign) == (0, 0, 0, 0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].level == "user"])
def test_a_real_run_over_horizons_that_renew_is_clean(kind: str) -> None:
    settings = settings_of(kind, on_horizon="renew")
    report = Story.clean(stream_of(settings), 2 * HORIZON + 1).audit(settings)
    assert (report.findings, report.windows) == ((), 3)


def beyond_the_horizon(story: Story) -> None:
    before = story.ledger[-1].fields
    spent = {"test": 0, "publish": 1}
    story.charge(-1, spent=spent, window_spent=before["window_spent"] + 1, fresh=True)


def silently_exhausted(story: Story) -> None:
    value = story.sink[-1].fields
    del value["exhausted"]
    story.sink[-1].value = orjson.dumps(value)
    story.charge(-1)


def exhausted_early(story: Story) -> None:
    story.charge(2, exhausted=True)


def another_prediction_after_the_horizon(story: Story) -> None:
    story.charge(-1, counts={"a": 10**6})


@pytest.mark.parametrize(
    ("break_it", "at", "what"),
    [
        (beyond_the_horizon, LAST, "it spent after its horizon had passed"),
        (silently_exhausted, LAST, "exhausted does not agree with the horizon"),
        (exhausted_early, FIRST + 2, "exhausted does not agree with the horizon"),
        (another_prediction_after_the_horizon, LAST, "it does not repeat the one before it"),
    ],
)
def test_what_a_horizon_forbids_is_found(break_it: Callable[[Story], None], at: int, what: str) -> None:
    settings = settings_of("shp-adaptive")
    story = Story.clean(stream_of(settings))
    break_it(story)
    report = story.audit(settings)
    assert ("I7", at) in named(report)
    assert any(what in finding.what for finding in report.findings)


@pytest.mark.parametrize(
    "kind", ["time-unit", "retroactive-grouping", "totals", "shp-point", "shp-window", "shp-adaptive"]
)
def test_what_a_kind_of_another_level_cannot_have_spent_is_found(kind: str) -> None:
    settings = settings_of(kind)
    story = Story.clean(stream_of(settings))
    index = next(i for i in range(1, HORIZON) if story.ledger[i].fields["fresh"])
    before = story.ledger[index].fields
    spent = {"test": before["spent"]["test"], "publish": before["spent"]["publish"] - 1}
    story.charge(index, spent=spent, window_spent=before["window_spent"] - 1)
    assert any("cannot have spent this" in finding.what for finding in story.audit(settings).findings)


def test_a_timestamp_above_epsilon_is_found_at_event_level() -> None:
    settings = settings_of("time-unit")
    story = Story.clean(stream_of(settings))
    story.charge(3, spent={"test": 1, "publish": 2 * 2**20}, window_spent=2 * 2**20 + 1)
    assert named(story.audit(settings)) == {("I7", FIRST + 3)}


def test_horizons_are_not_windows_the_sum_of_a_horizon_counts_from_its_beginning() -> None:
    settings = settings_of("shp-point", on_horizon="renew")
    story = Story.clean(stream_of(settings))
    units = 2 * HORIZON * 2**20
    story.charge(HORIZON - 1, spent={"test": 0, "publish": units}, window_spent=2 * units - 2 * 2**20)
    assert named(story.audit(settings)) == {("I7", FIRST + HORIZON - 1)}


def test_the_largest_window_is_the_largest_that_any_entry_says() -> None:
    story = Story.clean()
    assert story.audit().largest == max(item.fields["window_spent"] for item in story.ledger)


def drawn_twice(timestamps: int = WINDOW) -> Story:
    """The last timestamps were drawn and published a second time, from a state that was rewound."""
    story = Story.clean()
    again = [other_draw(item) for item in story.sink[-timestamps:]]
    story.ledger += [entry_of(item) for item in again]
    story.sink += again
    return story


def test_two_charged_versions_of_a_timestamp_both_count_in_the_sum_of_every_window() -> None:
    story = drawn_twice()
    spent = [sum(item.fields["spent"].values()) for item in story.ledger[:RELEASES]]
    spent = [one * (1 + (at >= RELEASES - WINDOW)) for at, one in enumerate(spent)]
    windows = [sum(spent[max(0, end - WINDOW) : end]) for end in range(1, RELEASES + 1)]
    report = story.audit()
    assert report.largest == max(windows) > UNITS
    assert report.largest > Story.clean().audit().largest
    above = {FIRST + at for at, total in enumerate(windows) if total > UNITS}
    assert above == {
        one.timestamp for one in report.findings if one.what.startswith("with what was charged twice")
    }


def test_two_charged_versions_are_named_both_and_neither_is_called_uncharged() -> None:
    story = drawn_twice(1)
    first, second = (item.fields["digest"][:16] for item in (story.ledger[-2], story.ledger[-1]))
    whats = [one.what for one in story.audit().findings]
    assert (
        f"an earlier entry charged another release: {first} at offset {RELEASES - 1}, {second} here; "
        "both are added up" in whats
    )
    assert "different records were visible for this timestamp" in whats
    assert not any("published without a charge" in what for what in whats)


def test_a_second_charge_that_is_repeated_counts_once() -> None:
    story = drawn_twice(1)
    once = story.audit()
    story.ledger.append(replace(story.ledger[-1]))
    again = story.audit()
    assert (again.largest, again.repeated) == (once.largest, once.repeated + 1)


def test_a_stream_that_has_released_nothing_is_clean() -> None:
    report = Story().audit()
    assert (report.releases, report.windows, report.violations, report.matched_from) == (0, 0, 0, None)


def test_fewer_releases_than_a_window_are_one_window() -> None:
    report = Story.clean(timestamps=WINDOW - 1).audit()
    assert (report.releases, report.windows, report.violations) == (WINDOW - 1, 1, 0)


# One violation each


@pytest.mark.parametrize(("mutate", "expected"), VIOLATIONS, ids=lambda value: getattr(value, "__name__", ""))
def test_each_violation_is_found_and_named(mutate: Callable[[Story], None], expected: Names) -> None:
    story = Story.clean()
    mutate(story)
    report = story.audit()
    assert expected <= named(report), report.findings
    # What follows from it may be named too, where it shows: the windows that hold the timestamp.
    others = {
        finding.what for finding in report.findings if (finding.invariant, finding.timestamp) not in expected
    }
    assert all(what.startswith("window_spent is not the sum") for what in others), report.findings
    assert report.violations == len(report.findings)


SHARE = UNITS // WINDOW // 2


@pytest.mark.parametrize(
    ("kind", "test", "publish"),
    [
        ("uniform", 0, UNITS // WINDOW - 1),
        ("uniform", 1, UNITS // WINDOW),
        ("sample", 0, UNITS // 2),
        ("fast", 0, UNITS // 4),
        ("fast", 1, UNITS // 2),
        ("budget-distribution", SHARE - 1, 0),
        ("budget-distribution", SHARE, UNITS // 4 + 1),
        ("budget-distribution", 0, 64),
        ("budget-distribution", SHARE, 63),
        ("budget-absorption", SHARE, SHARE + 1),
        ("budget-absorption", SHARE, (WINDOW + 1) * SHARE),
        ("budget-absorption", 0, SHARE),
    ],
)
def test_a_spend_that_the_kind_cannot_have_made_is_found(kind: str, test: int, publish: int) -> None:
    settings = replace(SETTINGS, kind=kind)
    story = Story.clean(stream_of(settings), timestamps=1)
    story.charge(0, spent={"test": test, "publish": publish}, fresh=publish > 0, window_spent=test + publish)
    story.sink[0].edit(counts={"a": 0, "b": 0})
    story.charge(0)
    whats = [finding.what for finding in story.audit(settings).findings]
    assert whats == [f"{kind} cannot have spent this: {test} and {publish} units"]


LOOKS: Mapping[str, Option] = {"pan_private": "single"}
PAN_PRIVATE = [
    replace(SETTINGS, kind=kind, options=LOOKS) for kind in ("budget-distribution", "budget-absorption")
]
#: What publications may spend in a window: the tests have half.
CAPS = {"budget-distribution": UNITS // 2 * 2 // 3, "budget-absorption": UNITS // 4}


@pytest.mark.parametrize("settings", PAN_PRIVATE, ids=lambda settings: settings.kind)
def test_a_real_run_of_a_pan_private_stream_is_clean(settings: MechanismSettings) -> None:
    story = Story.clean(stream_of(settings))
    assert any(item.fields["fresh"] for item in story.ledger)
    assert story.audit(settings).findings == ()


@pytest.mark.parametrize("settings", PAN_PRIVATE, ids=lambda settings: settings.kind)
def test_what_a_look_that_nobody_notices_may_cost_is_left_over_in_every_window(
    settings: MechanismSettings,
) -> None:
    """Publications of what a single timestamp may spend, one after the other: together above the cap."""
    kind = find(settings.kind, LOOKS)
    cap = kind.most_published(WINDOW, UNITS, 2, LOOKS)
    assert cap == CAPS[settings.kind]
    each = max(
        units
        for units in range(0, cap + 1, SHARE // 2)
        if kind.can_spend(Spend(SHARE, units), WINDOW, UNITS, 2, LOOKS)
    )
    assert 2 * each > cap // 2
    story = Story.clean(stream_of(settings), timestamps=WINDOW)
    spent = 0
    for index in range(WINDOW):
        spent += SHARE + each
        story.charge(index, spent={"test": SHARE, "publish": each}, fresh=True, window_spent=spent)
    whats = {finding.what for finding in story.audit(settings).findings}
    assert f"the publications of the window that ends here cost more than {cap} units" in whats


def test_a_timestamp_that_was_given_up_is_charged_whole_and_only_of_a_pan_private_stream() -> None:
    settings = PAN_PRIVATE[0]

    def findings(options: Mapping[str, Option], *, fresh: bool, test: int, publish: int) -> list[str]:
        story = Story.clean(stream_of(settings), timestamps=1)
        spent = {"test": test, "publish": publish}
        story.charge(0, spent=spent, fresh=fresh, forfeited=True, window_spent=test + publish)
        story.sink[0].edit(counts={"a": 0, "b": 0})
        story.charge(0)
        return [finding.what for finding in story.audit(settings, options=options).findings]

    offer = CAPS["budget-distribution"] // 2
    assert findings(LOOKS, fresh=False, test=SHARE, publish=offer) == []
    forfeited = "forfeited is for repeated releases of pan-private streams"
    assert findings(LOOKS, fresh=True, test=SHARE, publish=offer) == [forfeited]
    assert findings(LOOKS, fresh=False, test=SHARE, publish=0) == [forfeited]
    assert findings({}, fresh=False, test=SHARE, publish=offer) == [forfeited]


LABELS = tuple(f"column {number:02}" for number in range(20))
SHIFTED_TEST = UNITS // 20


@pytest.mark.parametrize("kind", ["budget-distribution", "budget-absorption"])
@pytest.mark.parametrize(("options", "test"), [({}, SHIFTED_TEST), ({"groups": 2}, 2 * SHIFTED_TEST)])
def test_what_tests_cost_follows_from_the_options(
    kind: str, options: Mapping[str, Option], test: int
) -> None:
    settings = replace(SETTINGS, kind=kind, options={"shift": "true", **options})
    story = Story.clean(stream_of(settings, labels=LABELS))
    assert {item.fields["spent"]["test"] for item in story.ledger} <= {0, test}
    assert story.audit(settings, columns=len(LABELS)).findings == ()
    others = [
        {},
        {"shift": "true", "groups": 4},
        {"shift": "true", "groups": 0},
        {"shift": "true", "groups": "?"},
    ]
    for other in others:
        findings = story.audit(settings, columns=len(LABELS), options=other).findings
        assert findings
        assert all(finding.what.startswith(f"{kind} cannot have spent this") for finding in findings)


@pytest.mark.parametrize("options", [{}, {"max_samples": 3}])
def test_what_a_sample_costs_follows_from_the_options(options: Mapping[str, Option]) -> None:
    settings = replace(SETTINGS, kind="fast", options=options)
    story = Story.clean(stream_of(settings))
    assert story.audit(settings).findings == ()
    for samples in (2, 0, WINDOW + 1, "?"):
        findings = story.audit(settings, options={"max_samples": samples}).findings
        assert findings
        assert all(finding.what.startswith("fast cannot have spent this") for finding in findings)


@pytest.mark.parametrize(
    ("kind", "test", "publish", "can"),
    [
        ("budget-distribution", SHIFTED_TEST, (UNITS - WINDOW * SHIFTED_TEST) // 2, True),
        ("budget-distribution", SHIFTED_TEST, (UNITS - WINDOW * SHIFTED_TEST) // 2 + 1, False),
        ("budget-distribution", SHARE, 0, False),
        ("budget-absorption", SHIFTED_TEST, WINDOW * (UNITS // WINDOW - SHIFTED_TEST), True),
        ("budget-absorption", SHIFTED_TEST, (WINDOW + 1) * (UNITS // WINDOW - SHIFTED_TEST), False),
        ("budget-absorption", SHIFTED_TEST, SHARE, False),
    ],
)
def test_what_a_shifted_budget_leaves_to_publications(kind: str, test: int, publish: int, can: bool) -> None:
    spend, options = Spend(test, publish), {"shift": "true"}
    assert KINDS[kind].can_spend(spend, WINDOW, UNITS, len(LABELS), options) == can


def test_a_timestamp_beyond_the_year_9999_is_no_reason_to_stop() -> None:
    story = Story.clean()
    story.charge(5, timestamp=2**62)
    assert ("I7", 2**62) in named(story.audit())


def test_a_sink_in_reverse_order_is_found_for_every_release_but_the_last() -> None:
    story = Story.clean()
    story.sink.reverse()
    report = story.audit()
    assert report.violations == RELEASES - 1
    assert {finding.what for finding in report.findings} == {
        "the release comes after a later one in its partition"
    }


def test_counts_that_nothing_paid_for_are_found_beyond_a_record_that_retention_removed() -> None:
    story = Story.clean()
    fresh = [item.fields["fresh"] for item in story.sink]
    index = next(at for at in range(2, RELEASES) if not fresh[at] and not fresh[at - 1])
    story.charge(index, counts={"a": 123, "b": 456})
    del story.sink[: index - 1]
    assert ("I7", FIRST + index) in named(story.audit(kept="newest"))
    # Without the record before it nobody can tell what had to be repeated.
    del story.sink[0]
    assert ("I7", FIRST + index) not in named(story.audit(kept="newest"))


def test_a_finding_names_invariant_stream_timestamp_place_and_fault() -> None:
    story = Story.clean()
    second_draw_aborted(story)
    assert [str(finding) for finding in story.audit().findings] == [
        f"I2 visits, timestamp {AT}, sink, partition 0, offset 5 (aborted): "
        "no ledger entry has the digest of this record: it was published without a charge",
        f"I1 visits, timestamp {AT}, sink, partition 0, offset 6: "
        "different records were visible for this timestamp",
    ]


def test_several_other_draws_of_a_timestamp_are_one_violation_of_one_draw_and_each_is_uncharged() -> None:
    story = Story.clean()
    for count in (-1, -2, -3):
        story.sink.append(replace(story.sink[5]))
        story.sink[-1].edit(counts={"a": count, "b": 0})
    assert [finding.invariant for finding in story.audit().findings] == ["I2", "I1", "I2", "I2"]


def test_the_windows_of_an_entry_out_of_order_are_not_judged() -> None:
    story = Story.clean()
    ledger = story.ledger
    ledger[3], ledger[4] = ledger[4], ledger[3]
    ordered = {finding.timestamp for finding in story.audit().findings if "not consecutive" in finding.what}
    summed = {finding.timestamp for finding in story.audit().findings if "window_spent" in finding.what}
    assert ordered == {FIRST + 3, FIRST + 4}
    # The windows that lack the spend of the entry that came too late, but not that entry's own.
    assert summed == {FIRST + 4, FIRST + 5, FIRST + 6}


def test_no_finding_tells_a_count() -> None:
    secret = 987654321
    story = Story.clean()
    story.sink.append(other_draw(story.sink[3]))
    for index in (2, 5, 6):
        story.sink[index].edit(counts={"a": secret, "b": secret})
    story.sink[8].edit(counts=secret)
    report = story.audit()
    assert report.violations > 4
    assert not any(str(secret) in str(finding) for finding in report.findings)


def test_terms_of_another_topology_are_found_for_every_entry_but_listed_once() -> None:
    report = Story.clean().audit(replace(SETTINGS, epsilon=Fraction(2), epsilon_text="2"))
    asked, *entries = report.findings
    assert report.violations == RELEASES + 1
    assert len(entries) == 1
    assert entries[0].what == "epsilon is not that of the topology: '1.0', not '2'"
    assert asked.what == _asked("budget-distribution with epsilon 2, window 4")


@pytest.mark.parametrize(
    ("changes", "terms"),
    [
        ({"window": WINDOW + 3}, "budget-distribution with epsilon 1, window 7"),
        ({"kind": "fast", "options": {"max_samples": 2}}, "fast with epsilon 1, window 4"),
    ],
    ids=["window", "kind"],
)
def test_whether_a_file_is_that_of_the_workers_is_asked_also_before_a_migration(
    changes: dict[str, Any], terms: str
) -> None:
    asked, *_ = Story.clean().audit(replace(SETTINGS, **changes)).findings
    assert (asked.timestamp, asked.what) == (None, _asked(terms))


def _asked(file: str) -> str:
    return (
        "it ends with other terms than this file has: budget-distribution with epsilon 1, window 4 in the"
        f" ledger, {file} in this file. Is it the file that the workers run? It may be from before a"
        " migration, or not migrated to yet."
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"interval": TIMELINE.interval // 2}, "this file has the interval 500ms and the origin"),
        ({"origin": TIMELINE.origin + 1000}, "this file has the interval 1s and the origin"),
    ],
)
def test_of_another_timeline_the_file_is_asked_about_first(changes: dict[str, Any], told: str) -> None:
    report = Story.clean().audit(timeline=replace(TIMELINE, **changes))
    asked, *others = report.findings
    assert asked.timestamp is None
    assert asked.what.startswith(
        "the timeline of its releases differs from that of this file: the releases have the interval 1s"
        " and the"
    )
    assert told in asked.what
    assert asked.what.endswith("Is it the file that the workers run?")
    # Each release is a violation, and one line shows what kind it is.
    assert len(others) == 1
    assert report.violations == RELEASES + 1


def test_of_other_columns_the_file_is_asked_about() -> None:
    (asked,) = Story.clean().audit(names=("a", "karte")).findings
    assert asked.what == (
        "the columns of its releases differ from those of this file: "
        "only the releases have the column b, and only this file has"
        " karte. Is it the file that the workers run?"
    )
    assert Story.clean().audit(names=("a", "b")).violations == 0


def test_the_digest_of_columns_without_names_is_compared() -> None:
    story = Story.clean(stream_of(SETTINGS, Sink("sink", "array")))
    assert story.audit(names=("a", "b")).violations == 0
    (asked,) = story.audit(names=("a", "karte")).findings
    assert "the names of the columns, or their order, differ between the releases and this file" in asked.what


def test_epsilon_may_be_written_differently() -> None:
    assert Story.clean().audit(replace(SETTINGS, epsilon_text="1")).violations == 0


@pytest.mark.parametrize("text", ["1/02", "0.5", ".5", "5e-1", "2/4"])
def test_every_spelling_that_a_topology_could_have_is_read(text: str) -> None:
    settings = replace(SETTINGS, epsilon=Fraction(1, 2), epsilon_text=text)
    assert Story.clean(stream_of(settings)).audit(settings).violations == 0


# What is no violation


def test_identical_records_and_entries_are_counted() -> None:
    story = Story.clean()
    story.sink.append(story.sink[5])
    story.ledger.append(story.ledger[5])
    report = story.audit()
    assert (report.violations, report.repeated) == (0, 2)


def test_an_aborted_publication_that_was_repeated_with_the_same_bytes_is_counted() -> None:
    story = Story.clean()
    story.sink.insert(5, replace(story.sink[5], committed=False))
    story.ledger.insert(5, replace(story.ledger[5], committed=False))
    report = story.audit()
    assert (report.violations, report.aborted, report.undecided) == (0, 2, 0)


def test_an_aborted_publication_whose_repetition_is_still_to_come_is_undecided() -> None:
    story = Story.clean()
    story.ledger[-1].committed = story.sink[-1].committed = False
    report = story.audit()
    assert (report.violations, report.undecided, report.releases) == (0, 2, RELEASES - 1)


def test_a_record_that_may_be_newer_than_the_ledger_is_undecided_only_beyond_its_last_timestamp() -> None:
    story = Story.clean()
    story.ledger.pop()
    story.sink[-1].newer = True
    report = story.audit()
    assert (report.violations, report.undecided) == (0, 1)
    story.sink.append(other_draw(story.sink[5], newer=True))
    assert named(story.audit()) == {("I1", AT), ("I2", AT)}


def test_an_aborted_record_of_the_ledger_that_is_no_entry_is_passed_over() -> None:
    story = Story.clean()
    story.ledger.append(Item(b"?", committed=False, partition=PARTITION))
    assert story.audit().violations == 0


def test_where_other_partitions_of_the_ledger_begin_does_not_matter() -> None:
    audit = audit_of()
    audit.ledger_begins("ledger", PARTITION + 1, 40)
    assert audit.report().violations == 0


def test_records_of_somebody_else_in_the_sink_are_counted() -> None:
    story = Story.clean()
    story.sink += [Item(b"hello", key=None), Item(b'{"stream": "others"}'), Item(None, key=b"others")]
    report = story.audit()
    assert (report.violations, report.foreign) == (0, 3)


def test_records_that_retention_removed_are_not_missed_but_later_ones_are() -> None:
    story = Story.clean()
    del story.sink[:6]
    report = story.audit(kept="newest")
    assert (report.violations, report.matched_from) == (0, AT + 1)
    del story.sink[1]
    report = story.audit(kept="newest")
    assert named(report) == {("I7", AT + 2)}


def test_what_retention_left_begins_with_the_first_charged_record_in_the_log() -> None:
    story = Story.clean()
    del story.sink[:6]
    story.sink.append(Story.clean().sink[2])  # an old record repeated late does not bring the others back
    story.sink.insert(0, replace(story.sink[0]))
    story.sink[0].edit(timestamp=FIRST - 1)
    report = story.audit(kept="newest")
    assert (named(report), report.matched_from) == ({("I2", FIRST - 1)}, AT + 1)


def test_a_release_out_of_order_is_found_in_what_retention_left() -> None:
    story = Story.clean()
    del story.sink[:6]
    story.sink[2], story.sink[3] = story.sink[3], story.sink[2]
    for kept in ("newest", "last"):
        assert named(story.audit(kept=kept)) == {("I7", AT + 3)}


def test_repetitions_and_aborted_copies_may_stand_anywhere() -> None:
    story = Story.clean()
    story.sink += [story.sink[5], replace(story.sink[3], committed=False)]
    story.sink.insert(2, replace(story.sink[9], committed=False))
    report = story.audit()
    assert (report.violations, report.repeated, report.aborted) == (0, 1, 2)


def test_without_retention_the_same_records_are_missed() -> None:
    story = Story.clean()
    del story.sink[:6]
    assert named(story.audit()) == {("I7", timestamp) for timestamp in range(FIRST, AT + 1)}


def test_a_sink_whose_records_all_went_is_matched_with_nothing() -> None:
    story = Story.clean()
    story.sink.clear()
    report = story.audit(kept="newest")
    assert (report.violations, report.matched_from) == (0, None)


def test_a_compacted_sink_must_still_have_the_last_record() -> None:
    story = Story.clean()
    del story.sink[:-1]
    assert story.audit(kept="last").violations == 0
    story.sink.clear()
    assert named(story.audit(kept="last")) == {("I7", LAST)}


def test_the_form_of_the_counts_may_change_between_repetitions() -> None:
    story = Story.clean()
    arrays = Story.clean(stream_of(sink=Sink("sink", "array")))
    story.ledger[5:], story.sink[5:] = arrays.ledger[5:], arrays.sink[5:]
    assert not story.sink[5].fields["fresh"]
    assert story.audit().violations == 0


# Records of the ledger that are of no stream of the file


def test_an_entry_of_another_stream_is_no_violation_but_garbage_is() -> None:
    entry = Story.clean().ledger[0]
    other = FoundRecord.read(TopicPartition("ledger", 0), 7, b"x", entry.value)
    assert stranger(other) is None
    garbage = FoundRecord.read(TopicPartition("ledger", 0), 7, b"\xff", b"[]")
    finding = stranger(garbage)
    assert finding is not None
    assert (finding.invariant, finding.place) == ("I7", "ledger, partition 0, offset 7")
    assert stranger(replace(garbage, committed=False)) is None
