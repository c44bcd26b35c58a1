"""What the doctor says of a sample, and the topology that it proposes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eventveil.counting.written import WORDS
from eventveil.doctor.diagnosis import Diagnosis
from eventveil.doctor.pointers import similar
from eventveil.doctor.proposal import Proposal, commented, propose
from eventveil.doctor.report import DoctorReport, report_on
from eventveil.doctor.sample import SourceSample
from eventveil.model.timeline import format_rfc3339
from tests.unit.doctor.making import FILE, NOW, event, nested, sample, topology

Make = Callable[[int], dict[str, Any]]


def proposed(found: SourceSample, text: str = FILE) -> Proposal:
    made = propose(topology(text), text, {"shop.views": found}, {}, NOW)
    # What is handed out is valid, comments included.
    topology(commented(made))
    return made


def report(found: SourceSample, text: str = FILE) -> DoctorReport:
    return report_on(topology(text), text, {"shop.views": found}, proposed(found, text), NOW)


def counting(seen: Diagnosis) -> int:
    return seen.verdicts.counting


def settings(made: Proposal) -> dict[str, str | None]:
    return {one.setting: one.value for one in made.changes}


def test_nothing_is_proposed_for_a_source_that_is_as_the_file_says() -> None:
    made = report(sample("murmur2"))
    assert made.is_well
    assert made.proposal.text == FILE
    assert not made.proposal.changes
    assert counting(made.before["views"]) == 600


def test_keys_of_librdkafka_are_told_and_the_partitioner_is_proposed() -> None:
    made = report(sample("crc32"))
    assert not made.is_well
    assert counting(made.before["views"]) < 100
    assert settings(made.proposal) == {"source.partitioner": "crc32"}
    assert counting(made.after["views"]) == 600
    assert "partitioner: crc32" in made.proposal.text
    assert "# a comment that stays" in made.proposal.text
    told = "\n".join(made.lines())
    assert "librdkafka's default, consistent_random); the file says murmur2" in told
    assert "shop.yaml:13:7: source.partitioner" in told


@pytest.mark.parametrize("partitioner", ["fnv1a", "random"])
def test_users_that_no_partitioner_explains_are_to_be_re_keyed(partitioner: str) -> None:
    made = report(sample(partitioner))
    assert settings(made.proposal) == {"source.repartition": "true", "source.partitioner": None}
    assert counting(made.after["views"]) == 600
    assert f"written with {partitioner}: {WORDS[partitioner]}" in "\n".join(made.lines())
    assert "partitioner:" not in made.proposal.text


def test_keys_that_are_not_the_user_are_told_with_an_example() -> None:
    number = iter(range(600))
    made = report(sample("murmur2", key=lambda _: f"session-{next(number)}"))
    assert settings(made.proposal) == {"source.repartition": "true", "source.partitioner": None}
    told = "\n".join(made.lines())
    assert "keys: the user in 0 of 600 records; written with murmur2" in told
    assert "user c-0 has the key session-0" in told
    users = made.before["views"].keys
    assert users is not None
    assert users.users.scattered > 190
    assert f"users: 200, {users.users.scattered} of them" in told


def test_without_append_times_boundaries_are_proposed_and_all_would_count() -> None:
    made = report(sample("crc32", appended=False))
    assert counting(made.before["views"]) == 0
    assert settings(made.proposal) == {
        "source.partitioner": "crc32",
        "source.append_time": "boundary",
        "timeline.max_ahead": None,
    }
    # With boundaries it is the longest outage without loss; 3d unless the file says less.
    assert "max_ahead" not in made.proposal.text
    assert "then 3d: with boundary, a longer outage loses events" in "\n".join(made.lines())
    assert counting(made.after["views"]) == 600
    assert made.proposal.beside == []


def test_pointers_into_an_envelope_are_found_where_one_field_alone_can_be_meant() -> None:
    made = report(sample("crc32", made=nested, key=lambda one: str(one["data"]["customer"])))
    assert counting(made.before["views"]) == 0
    assert settings(made.proposal) == {
        "source.user": "/data/customer",
        "source.partitioner": "crc32",
        "source.column": "/data/section",
        "source.time": "/time",
    }
    assert counting(made.after["views"]) == 600


def test_pointers_of_several_columns_are_found_one_by_one() -> None:
    def made(number: int) -> dict[str, Any]:
        one = event(number)
        return {
            "customer": one["customer"],
            "at": one["at"],
            "data": {"section": one["section"], "land": "DE"},
        }

    columns = "[[home, search], [DE, AT]]"
    text = FILE.replace("column: /section", "column: [/section, /land]")
    found = report(
        sample(made=made), text.replace("columns: [home, search, other]", f"columns: {{product: {columns}}}")
    )
    assert counting(found.before["views"]) == 0
    assert settings(found.proposal) == {"source.column": "[/data/section, /data/land]"}
    assert counting(found.after["views"]) == 600


def test_a_field_that_may_name_users_but_hardly_comes_again_is_told() -> None:
    def made(number: int) -> dict[str, Any]:
        return {"data": {"customer": f"c-{number}"}, "section": "home", "at": NOW}

    few = replace(sample(made=made), held=5_000)
    told = "\n".join(report(few).lines())
    assert "/data/customer may be meant, but here most of its values occur once, as event ids do" in told
    # Not of the one that the file asks for, where some events lack it.
    lacking = replace(
        sample(made=lambda one: made(one) if one % 10 else {"section": "home", "at": NOW}), held=5_000
    )
    told = "\n".join(report(lacking, FILE.replace("user: /customer", "user: /data/customer")).lines())
    assert "no user at /data/customer" in told
    assert "may be meant" not in told
    assert "--records 6000 looks at more" in told
    assert "--records" not in "\n".join(report(sample(made=made)).lines())


def test_what_no_append_time_hides_is_told_too() -> None:
    def made(number: int) -> dict[str, Any]:
        return {"data": {"customer": f"c-{number}"}, "section": "home", "at": NOW}

    found = report(sample(made=made, appended=False))
    told = "\n".join(found.lines())
    assert "600 no-append-time" in told
    assert (
        "other problems, if the broker had stamped the records:\n  600 missing-field: no user at /customer"
        in told
    )
    assert "/data/customer may be meant" in told
    (stream,) = found.fields()["streams"]
    assert [one["reason"] for one in stream["hidden"]] == ["missing-field"]
    assert report(sample()).fields()["streams"][0]["hidden"] == []


def test_of_several_fields_that_tell_kinds_the_type_of_a_cloud_event_is_taken() -> None:
    def made(number: int) -> dict[str, Any]:
        one, is_order = event(number), number % 3 == 0
        more = {"kind": "order"} if is_order else {"kind": "view", "section": one["section"]}
        kind = "shop.ordered" if is_order else "shop.viewed"
        return {"specversion": "1.0", "type": kind, "customer": one["customer"], "at": one["at"], **more}

    found = report(sample(made=made))
    assert settings(found.proposal) == {"source.filter": '{/type: ["shop.viewed"]}'}
    assert "leave out by source.filter the kinds of events that have no column" in "\n".join(found.lines())


def test_a_user_that_is_the_id_of_an_event_is_not_well_and_one_that_comes_once_is_told() -> None:
    def made(number: int) -> dict[str, Any]:
        return {"specversion": "1.0", "id": f"e-{number}", "no": f"n-{number}", "section": "home", "at": NOW}

    def told(user: str, key: str) -> tuple[bool, str]:
        found = report(
            sample(made=made, key=lambda one: str(one[key])),
            FILE.replace("user: /customer ", f"user: {user} "),
        )
        (stream,) = found.fields()["streams"]
        assert counting(found.before["views"]) == 600
        return found.is_well, " ".join(stream["doubts"])

    well, doubt = told("/id", "id")
    assert not well
    assert "source.user: it is the id of a CloudEvent: epsilon would protect events, not persons" in doubt
    well, doubt = told("/no", "no")
    assert well
    assert "most users occur once here, as event ids do" in doubt
    assert "come again" not in doubt
    assert report(sample()).fields()["streams"][0]["doubts"] == []


def test_behind_a_user_that_comes_once_the_fields_are_named_whose_values_come_again() -> None:
    def made(number: int) -> dict[str, Any]:
        return {
            **event(number),
            "no": f"n-{number}",
            "kind": f"k-{number % 3}",
            "person": {"id": number % 50, "visit": f"v-{number}"},
        }

    seen = sample(made=made, key=lambda one: str(one["no"]))
    (stream,) = report(seen, FILE.replace("user: /customer ", "user: /no ")).fields()["streams"]
    (doubt,) = stream["doubts"]
    assert doubt.endswith("Fields whose values come again: /customer, /person/id")


def test_what_a_stream_that_has_begun_cannot_change_is_said_of_a_proposal() -> None:
    told = "\n".join(report(sample("crc32")).lines())
    assert "once a stream has begun, no migration changes source.partitioner; in that case: give the" in told
    assert "once a stream" not in "\n".join(report(sample()).lines())


def test_the_example_of_a_long_value_has_its_end() -> None:
    found = sample()
    broken = [one._replace(value=b'{"customer": "' + b"x" * 300 + b'", "section": ') for one in found.records]
    told = "\n".join(report(replace(found, records=broken)).lines())
    assert "xxx ... " in told
    assert 'xxx", "section": ' in told


def without_user(number: int) -> dict[str, Any]:
    """Nobody can say which of two fields is the user; sections and times are wrong too."""
    wrong: dict[str, Any] = ({"section": None}, {"section": "basket"}, {"at": "yesterday"})[number % 3]
    one = event(number) | wrong
    return {"buyer": {"customer": one.pop("customer")}, "agent": {"customer": "x"}, **one}


@pytest.mark.parametrize("append_time", ["broker", "boundary"])
@pytest.mark.parametrize("partitioner", ["murmur2", "random"])
def test_what_is_wrong_behind_a_user_that_cannot_be_read_is_told(partitioner: str, append_time: str) -> None:
    text = FILE.replace("time: /at", f"time: /at\n      append_time: {append_time}")
    made = report(sample(partitioner, made=without_user), text)
    assert settings(made.proposal) == {}
    told = "\n".join(made.lines())
    assert "  600 missing-field: no user at /customer\n" in told
    behind = told.partition("  other problems, if the user of each record could be read:\n")[2]
    assert "200 wrong-type: the column at /section should be a string, not null\n" in behind
    assert "200 unknown-column: 'basket' is not a public column\n" in behind
    assert "200 time-unreadable: " in behind
    assert "shop.yaml:12:7: source.time: " in behind
    assert "partition: " not in behind
    (stream,) = made.fields()["streams"]
    assert [one["reason"] for one in stream["reasons"]] == ["missing-field"]
    hidden = {one["reason"]: one["events"] for one in stream["hidden"]}
    assert hidden == {"wrong-type": 200, "unknown-column": 200, "time-unreadable": 200}


def test_of_a_missing_column_behind_a_missing_user_both_are_told() -> None:
    made = report(sample(made=lambda number: {"agent": "x", "at": NOW - number}, appended=False))
    told = "\n".join(made.lines())
    _, stamped, behind = (part.splitlines()[:2] for part in told.split("  other problems, if "))
    assert stamped == ["the broker had stamped the records:", "  600 missing-field: no user at /customer"]
    assert behind[0] == "the user of each record could be read:"
    assert behind[1] == "  600 missing-field: no column at /section"


def test_a_column_behind_a_user_that_cannot_be_read_gets_the_same_hint() -> None:
    made = report(sample(made=lambda number: {"agent": "x", "data": {"Section": "home"}, "at": NOW - number}))
    behind = "\n".join(made.lines()).partition("could be read:\n")[2]
    assert "  600 missing-field: no column at /section\n" in behind
    assert "    Did you mean /data/Section? It is in 600 of 600 records of the sample\n" in behind
    (hidden,) = made.fields()["streams"][0]["hidden"]
    assert hidden["similar"] == [["/data/Section", 600]]


def test_a_hint_is_none_of_the_names_that_single_records_have() -> None:
    """Such as the keys of a map by people."""

    def made(number: int) -> dict[str, Any]:
        return {"agent": "x", f"sektion{number}": 1, "data": {"Section": "home"}, "at": NOW - number}

    (hidden,) = report(sample(made=made)).fields()["streams"][0]["hidden"]
    assert hidden["similar"] == [["/data/Section", 600]]


@pytest.mark.parametrize(("unread", "is_told"), [(539, False), (540, True)])
def test_where_a_tenth_of_users_can_be_read_their_records_say_what_is_wrong(
    unread: int, is_told: bool
) -> None:
    def made(number: int) -> dict[str, Any]:
        return event(number) | ({"customer": "", "at": "yesterday"} if number < unread else {})

    (stream,) = report(sample(made=made)).fields()["streams"]
    assert [one["reason"] for one in stream["reasons"]] == ["empty-user"]
    assert [one["reason"] for one in stream["hidden"]] == ["time-unreadable"] * is_told


def test_behind_a_user_that_is_proposed_nothing_is_hidden() -> None:
    """What is wrong there is proposed too, or is told when the file has the user."""
    made = report(sample(made=nested, key=lambda one: str(one["data"]["customer"])))
    assert "source.user" in settings(made.proposal)
    assert made.fields()["streams"][0]["hidden"] == []


def test_of_two_fields_that_may_be_meant_none_is_taken() -> None:
    def twice(number: int) -> dict[str, Any]:
        one = nested(number)
        return {**one, "agent": {"customer": "x"}}

    made = report(sample("murmur2", made=twice, key=lambda one: str(one["data"]["customer"])))
    assert "source.user" not in settings(made.proposal)


def with_id(one: str) -> dict[str, Any]:
    """An event whose user is at a place that nothing tells, with an id."""
    return {"id": one, "account": f"c-{len(one)}", "section": "home", "at": NOW}


@pytest.mark.parametrize(
    ("made", "is_proposed"),
    [
        (lambda number: f"e-{number}", False),
        (lambda number: f"e-{number % 9}", False),
        (lambda number: f"e-{number % 10}", True),
        # Of 600, 301 or 300 come once.
        (lambda number: f"e-{number}" if number < 301 else f"e-{number % 100 - 100}", False),
        (lambda number: f"e-{number}" if number < 300 else f"e-{number % 100 - 100}", True),
    ],
    ids=["each comes once", "nine", "ten", "most come once", "half come again"],
)
@pytest.mark.parametrize("pointer", ["/user/id", "/Id"])
def test_a_field_is_proposed_for_the_user_only_if_what_it_holds_comes_again(
    pointer: str, made: Callable[[int], str], is_proposed: bool
) -> None:
    found = sample(made=lambda number: with_id(made(number)), key=lambda one: str(one["id"]))
    told = report(found, FILE.replace("user: /customer ", f"user: {pointer} "))
    assert settings(told.proposal) == ({"source.user": "/id"} if is_proposed else {})
    assert counting(told.after["views"]) == (600 if is_proposed else 0)
    assert "most records have: /id (text), /account (text), " in "\n".join(told.lines())


def test_guests_without_a_user_do_not_speak_against_users_that_come_again() -> None:
    def visit(number: int) -> dict[str, Any]:
        one = {"session": f"s-{number}", "section": "home", "at": NOW}
        return one | ({"id": f"c-{number % 100 if number < 300 else number}"} if number % 5 < 3 else {})

    found = sample(made=visit, key=lambda one: str(one.get("id")))
    assert settings(report(found, FILE.replace("/customer ", "/user/id ")).proposal) == {"source.user": "/id"}


def test_where_one_of_two_fields_comes_once_none_is_taken() -> None:
    def visit(number: int) -> dict[str, Any]:
        # In a short sample each of many persons comes once, and the few shops come again.
        return {
            "visitor": {"id": f"c-{number}"},
            "shop": {"id": f"s-{number % 20}"},
            "section": "home",
            "at": NOW,
        }

    found = sample(made=visit, key=lambda one: one["shop"]["id"])
    assert settings(report(found, FILE.replace("/customer ", "/user/id ")).proposal) == {}


def test_an_id_that_comes_again_only_in_events_that_the_filter_leaves_out_is_no_user() -> None:
    def order(number: int) -> dict[str, Any]:
        kind = ("ordered", "paid", "sent")[number % 3]
        return {"id": f"o-{number // 3}", "type": kind, "section": "home", "at": NOW}

    text = FILE.replace("/customer ", "/user/id ")
    found = sample(made=order, key=lambda one: str(one["id"]))
    asked = text.replace("column: /section", "column: /section\n      filter: {/type: [ordered]}")
    assert settings(report(found, text).proposal) == {"source.user": "/id"}
    assert settings(report(found, asked).proposal) == {}


def test_users_that_are_integers_are_told() -> None:
    def numbered(number: int) -> dict[str, Any]:
        return {**event(number), "customer": number % 200}

    made = report(sample("murmur2", made=numbered))
    assert settings(made.proposal) == {"source.user_type": "integer"}
    assert counting(made.after["views"]) == 600


@pytest.mark.parametrize("texts", [2, 3, 5])
def test_users_that_are_now_numbers_now_text_are_one_user_each(texts: int) -> None:
    def mixed(number: int) -> dict[str, Any]:
        user = number % 200
        return {**event(number), "customer": str(user) if number % texts else user}

    made = report(sample("murmur2", made=mixed))
    assert settings(made.proposal) == {"source.user_type": "either"}
    assert counting(made.after["views"]) == 600


def test_values_that_are_not_listed_are_reported_and_never_put_into_the_file() -> None:
    def secret(number: int) -> dict[str, Any]:
        return {**event(number), "section": "rare-disease" if number % 3 else "home"}

    made = report(sample("murmur2", made=secret))
    assert made.before["views"].unlisted == {"'rare-disease'": 400}
    assert "'rare-disease' (400)" in "\n".join(made.lines())
    text = commented(made.proposal)
    assert settings(made.proposal) == {"counts.unknown": "other"}
    assert "rare-disease" not in text
    assert "must come from public knowledge" in text


def test_values_are_also_reported_where_the_file_leaves_them_out() -> None:
    def secret(number: int) -> dict[str, Any]:
        return {**event(number), "section": "basket" if number % 20 else "home"}

    text = FILE.replace(
        "columns: [home, search, other]", "columns: [home, search, other]\n      unknown: ignore"
    )
    made = report(sample("murmur2", made=secret), text)
    assert made.is_well
    assert made.before["views"].unlisted == {"'basket'": 570}
    assert (
        "30 of 600 events would count (5 %), 570 have a column that `unknown: ignore` leaves out"
        in "\n".join(made.lines())
    )


@pytest.mark.parametrize(("unit", "factor"), [("s", 1e-3), ("us", 1e3), ("ns", 1e6)])
def test_times_in_other_units_are_told(unit: str, factor: float) -> None:
    def timed(number: int) -> dict[str, Any]:
        return {**event(number), "at": int((NOW - 1000 * number) * factor)}

    made = report(sample("crc32", made=timed))
    assert settings(made.proposal) == {"source.partitioner": "crc32", "source.time_unit": unit}
    assert made.after["views"].verdicts.lost == 0


@pytest.mark.parametrize(
    ("unit", "told"), [("s", "over 100 years ahead"), ("us", "close to 1970"), ("ns", "close to 1970")]
)
def test_a_time_that_nobody_can_have_meant_speaks_of_the_unit(unit: str, told: str) -> None:
    """One in ten is a number, the others are text, so that no other unit is proposed."""

    def made(number: int) -> dict[str, Any]:
        one = event(number)
        return one if number % 10 == 0 else {**one, "at": format_rfc3339(one["at"])}

    found = report(sample(made=made), FILE.replace("time: /at", f"time: /at\n      time_unit: {unit}"))
    (reason,) = found.fields()["streams"][0]["reasons"]
    assert reason["events"] == 60
    assert reason["remedy"].startswith(f"that is {told}, so the number is probably not in the unit")


def test_the_example_and_the_remedy_are_those_of_the_commonest_detail() -> None:
    def made(number: int) -> dict[str, Any]:
        customer = None if number < 40 else number % 200
        return {**event(number), "customer": customer}

    found = report(sample(made=made, key=str))
    (reason,) = found.fields()["streams"][0]["reasons"]
    assert (reason["reason"], reason["events"]) == ("wrong-type", 600)
    assert "user_type: either" in reason["remedy"]
    assert [one["detail"][-8:] for one in reason["examples"]] == [", not int"[-8:]] * 3


def test_seconds_with_decimals_are_told() -> None:
    def timed(number: int) -> dict[str, Any]:
        return {**event(number), "at": (NOW - 1000 * number) / 1000 + 0.198}

    made = report(sample(made=timed))
    assert settings(made.proposal) == {"source.time_unit": "s"}
    assert counting(made.after["views"]) == 600
    assert "source.time_unit: give time_unit: s if these are epoch seconds" in "\n".join(made.lines())

    # No unit but seconds may have decimals, so nothing helps these.
    made = report(sample(made=lambda number: {**event(number), "at": NOW - number + 0.5}))
    assert settings(made.proposal) == {}


def test_numbers_with_decimals_and_first_elements_are_among_the_fields() -> None:
    def nested_deep(number: int) -> dict[str, Any]:
        stops = [{"zone": "home", "lat": 52.5}, {"zone": "away"}]
        return {"who": f"c-{number % 200}", "ts": 1767300000.5, "stops": stops, "tags": ["a"]}

    text = FILE.replace("column: /section", "column: /zone")
    made = report(sample(made=nested_deep), text.replace("user: /customer", "user: /who"))
    told = "\n".join(made.lines())
    there = "/who (text), /ts (number), /stops/0/zone (text), /stops/0/lat (number), $key (text)\n"
    assert f"most records have: {there}" in told
    assert settings(made.proposal)["source.column"] == "/stops/0/zone"

    # What is not in an array is meant rather, and a number with decimals is no user.
    def twice(number: int) -> dict[str, Any]:
        return nested_deep(number) | {
            "place": {"zone": "home"},
            "who": {"who": 1.5, "id": f"c-{number % 200}"},
        }

    made = report(sample(made=twice), text.replace("user: /customer", "user: /who/id"))
    assert settings(made.proposal)["source.column"] == "/place/zone"
    made = report(sample(made=twice), text.replace("user: /customer", "user: /data/who"))
    assert "source.user" not in settings(made.proposal)


def test_session_keys_without_append_times_are_re_keyed_by_boundaries() -> None:
    number = iter(range(600))
    made = report(sample("crc32", key=lambda _: f"session-{next(number)}", appended=False))
    found = settings(made.proposal)
    assert (found["source.repartition"], found["source.append_time"]) == ("true", "boundary")
    assert counting(made.after["views"]) == 600
    assert made.proposal.beside == []


def test_what_a_filter_leaves_out_is_told_and_is_not_lost() -> None:
    text = FILE.replace(
        "      column: /section\n", "      column: /section\n      filter: {/section: home}\n"
    )
    made = report(sample("murmur2"), text)
    assert made.is_well
    assert "300 of 600 events would count (50 %), 300 are left out by the filter" in "\n".join(made.lines())


def filtered_by(condition: str, *more: str) -> str:
    conditions = "".join(f"        {one}\n" for one in (condition, *more))
    return FILE.replace("      time: /at\n", f"      time: /at\n      filter:\n{conditions}")


def with_headers(found: SourceSample) -> SourceSample:
    headers = [("x-tenant", b"berlin"), ("content-type", b"application/json")]
    return replace(found, records=[one._replace(headers=headers) for one in found.records])


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (
            "$headers/x_tenant: berlin",
            "$headers/x_tenant is in none of them; similar ones that are there: $headers/x-tenant. Correct",
        ),
        ("/sort: page", "/sort is in none of them. Correct the name of the field"),
        ("/Section: home", "similar ones that are there: /section."),
        ("/data/section: home", "similar ones that are there: /section."),
        ("$headers/x-tenant: [Berlin]", 'at $headers/x-tenant: "berlin" (600). Correct the value'),
        (
            "/section: Home",
            'most common at /section: "home" (300), "search" (300). Correct the value, its type',
        ),
    ],
)
def test_a_filter_that_nothing_passes_is_a_problem_with_the_line_of_the_rule(
    condition: str, words: str
) -> None:
    text = filtered_by("/customer: {present: true}", condition)
    made = report(with_headers(sample()), text)
    told = "\n".join(made.lines())
    assert not made.is_well
    assert "0 of 600 events would count (0 %), 600 are left out by the filter\n" in told
    assert words in told
    field = condition.partition(":")[0]
    line = text.partition(condition)[0].count("\n") + 1
    assert f"shop.yaml:{line}:9: source.filter.{field}: 0 of 600 records that can be read meet it" in told
    assert "source.filter./customer" not in told


def test_rules_of_a_filter_that_are_only_together_too_strict_are_all_named() -> None:
    text = filtered_by("/section: home", "/customer: [c-1, c-3, c-5]")
    made = report(sample(), text)
    assert not made.is_well
    assert [one["setting"] for one in made.fields()["streams"][0]["left_out_nearly_all"]] == [
        "source.filter./section",
        "source.filter./customer",
    ]


def test_a_filter_that_means_to_leave_out_most_events_is_well() -> None:
    made = report(sample(), filtered_by("/customer: [c-1, c-2, c-3, c-4]"))
    assert made.is_well
    assert made.fields()["streams"][0]["left_out_nearly_all"] == []


def test_hardly_any_event_in_a_listed_column_is_a_problem() -> None:
    text = FILE.replace(
        "columns: [home, search, other]", "columns: [imprint, contact]\n      unknown: ignore"
    )
    made = report(sample(), text)
    told = "\n".join(made.lines())
    assert not made.is_well
    assert "0 of 600 events would count (0 %), 600 have a column that `unknown: ignore` leaves out" in told
    assert "shop.yaml:16:7: counts.columns: list what /section holds, as far as it is known publicly" in told


def test_a_user_that_is_not_there_is_lost_among_what_passes_the_filter() -> None:
    text = filtered_by("/section: home").replace("user: /customer", "user: /rider/rf")
    stream = report(sample(), text).fields()["streams"][0]
    numbers = ("would_count", "left_out_by_filter", "in_ignored_columns", "would_not_count")
    assert [stream[one] for one in numbers] == [0, 300, 0, 300]
    # A tenth of what passes is much, however much is left out.
    rare = sample(made=lambda number: event(number) | ({"customer": None} if number < 200 else {}))
    few = report(rare, filtered_by("/customer: {not: [" + ", ".join(f"c-{one}" for one in range(190)) + "]}"))
    assert few.before["views"].verdicts.outcomes["filtered"] == 380
    assert not few.is_well


def test_late_events_get_the_shortest_lateness_that_suffices() -> None:
    def late(number: int) -> dict[str, Any]:
        # Appended twenty minutes after the hour in which they happened has ended.
        hour = 3_600_000
        return {**event(number), "at": (NOW - number) // hour * hour - 1 - (number % 2) * 10 * hour}

    made = report(sample("murmur2", made=late))
    assert made.before["views"].verdicts.reasons == {"late": 600}
    assert "timeline.lateness" in settings(made.proposal)
    assert made.after["views"].verdicts.lost == 0


def test_large_events_get_room() -> None:
    text = FILE.replace("partitioner: murmur2", "max_bytes: 60")
    made = report(sample("murmur2", made=lambda one: {**event(one), "padding": "x" * 100}), text)
    assert settings(made.proposal) == {"source.max_bytes": "256"}
    assert counting(made.after["views"]) == 600


def test_all_streams_over_a_topic_change_together() -> None:
    start = FILE.index("  views:\n")
    second = FILE[start:].replace("views:", "again:", 1).replace("shop.counts", "shop.again")
    made = proposed(sample("crc32"), FILE + second)
    assert {(one.stream, one.value) for one in made.changes} == {("views", "crc32"), ("again", "crc32")}


def test_the_report_as_json_has_what_the_lines_have() -> None:
    fields = json.loads(json.dumps(report(sample("crc32")).fields()))
    (stream,) = fields["streams"]
    assert fields["well"] is False
    assert stream["reasons"][0]["reason"] == "wrong-partition"
    assert stream["reasons"][0]["place"].endswith("shop.yaml:13:7")
    assert stream["keys"]["users"]["partitioner"] == "crc32"
    assert stream["would_count_as_proposed"] == 600
    assert fields["changes"][0]["value"] == "crc32"


def test_that_no_number_is_expected_is_told_and_none_is_taken_from_the_data() -> None:
    made = report(sample("crc32"))
    told, text = "\n".join(made.lines()), commented(made.proposal)
    assert "shop.yaml:15:5: counts.expected is not set, so nothing warns if most events stop counting" in told
    assert "# streams.views.counts.expected is not set, so nothing warns if most" in text
    assert "counts.expected" not in settings(made.proposal)
    assert made.fields()["streams"][0]["expected"] is None

    known = FILE.replace("other]\n", "other]\n      expected: 500\n")
    made = report(sample("crc32"), known)
    assert "is not set" not in "\n".join(made.lines()) + commented(made.proposal)
    assert made.fields()["streams"][0]["expected"] == 500


def test_an_empty_source_is_no_fault_and_is_told() -> None:
    made = report(sample("murmur2", number=0))
    assert made.is_well
    assert "the topic has no records" in "\n".join(made.lines())


def test_what_a_terminal_would_obey_is_not_printed() -> None:
    made = report(sample("murmur2", made=lambda one: {**event(one), "section": "\x1b[2J\u202e"}))
    assert not any(one in "\n".join(made.lines()) for one in "\x1b\u202e")


def mixed(number: int) -> dict[str, Any]:
    """Three views and an order, which has no section; half are of one shop, half of another."""
    one = event(number)
    kind = "bought" if number % 4 == 3 else ("viewed", "seen")[number % 2]
    if kind == "bought":
        del one["section"]
    return {"id": f"e-{number}", "type": kind, "shop": number % 8 // 4 * "second" or "first", **one}


def test_a_filter_is_proposed_where_one_field_tells_the_kinds_that_have_a_column() -> None:
    made = report(sample(made=mixed))
    assert counting(made.before["views"]) == 450
    assert settings(made.proposal) == {"source.filter": "{/type: [seen, viewed]}"}
    after = made.after["views"].verdicts
    assert (after.lost, after.outcomes["filtered"]) == (0, 150)
    assert "are of other kinds, which have no column" in "\n".join(made.lines())
    # The field that tells them is not there, or a second one does too: nobody can say which is meant.
    for kinds in ({"type": "any"}, {"sort": True}):

        def other(number: int, kinds: dict[str, Any] = kinds) -> dict[str, Any]:
            one = mixed(number)
            return one | ({"sort": one["type"]} if "sort" in kinds else kinds)

        assert settings(report(sample(made=other)).proposal) == {}


def test_ids_and_fields_that_both_kinds_have_alike_make_no_filter() -> None:
    def by_id(number: int) -> dict[str, Any]:
        return {name: value for name, value in mixed(number).items() if name != "type"}

    assert settings(report(sample(made=by_id)).proposal) == {}


def test_where_a_field_is_missing_the_fields_that_are_there_are_named() -> None:
    def anonymous(number: int) -> dict[str, Any]:
        one = event(number)
        return {"visitor": {"name": one["customer"]}, "section": one["section"], "at": one["at"]}

    told = "\n".join(report(sample(made=anonymous)).lines())
    assert "no user at /customer" in told
    assert "if these records have it in another field, list both: user: [/customer, ...]" in told
    assert "most records have: /visitor/name (text), /section (text), /at (time)" in told
    assert "most records have" not in "\n".join(report(sample()).lines())


@pytest.mark.parametrize(
    ("field", "pointer", "meant"),
    [
        ("user", "/custmer", "/customer"),
        ("user", "/Customer", None),
        ("column", "/page/section", None),
        ("column", "/sektion", None),
        ("time", "/att", None),
        ("user", "$headers/custmer", None),
        ("user", "/shopper", None),
    ],
)
def test_a_pointer_with_a_typo_is_told_with_the_one_that_is_there(
    field: str, pointer: str, meant: str | None
) -> None:
    """What is proposed is not told twice."""
    right = {"user": "/customer ", "column": "/section", "time": "/at"}[field]
    made = report(sample(partitions=1), FILE.replace(f"{field}: {right}", f"{field}: {pointer} "))
    lines = [line for line in made.lines() if "Did you mean" in line]
    told = [f"    Did you mean {meant}? It is in 600 of 600 records of the sample"] if meant else []
    assert lines == told
    (reason,) = made.fields()["streams"][0]["reasons"]
    assert reason["similar"] == ([[meant, 600]] if meant else [])
    assert bool(settings(made.proposal)) is (pointer in {"/Customer", "/page/section", "/sektion", "/att"})


def test_the_same_name_in_several_places_is_told_of_each() -> None:
    def placed(number: int) -> dict[str, Any]:
        one = event(number)
        return {
            "buyer": {"name": one.pop("customer")},
            **({"agent": {"name": "x"}} if number % 2 else {}),
            **one,
        }

    made = report(sample(made=placed, partitions=1), FILE.replace("user: /customer", "user: /name"))
    assert [line for line in made.lines() if "Did you mean" in line] == [
        "    Did you mean /buyer/name? It is in 600 of 600 records of the sample",
        "    Did you mean /agent/name? It is in 300 of 600 records of the sample",
    ]


def test_neither_ids_of_events_nor_doubtful_users_are_meant() -> None:
    def once(number: int) -> dict[str, Any]:
        one = event(number)
        return {"specversion": "1.0", "id": f"e-{number}", "data": {**one, "customer": f"c-{number}"}, **one}

    def wrapped(number: int) -> dict[str, Any]:
        one = event(number)
        return {"data": {"customer": f"c-{one.pop('customer')}-{number}"}, **one}

    made = report(sample(made=once, partitions=1), FILE.replace("user: /customer", "user: /user/id"))
    assert "Did you mean" not in "\n".join(made.lines())
    made = report(sample(made=wrapped))
    told = "\n".join(made.lines())
    assert "/data/customer may be meant, but here most of its values occur once" in told
    assert "Did you mean" not in told


@pytest.mark.parametrize(
    ("field", "names", "found"),
    [
        ("/user", ["/usr"], ["/usr"]),
        ("/user_id", ["/data/user_id", "/order_id"], ["/data/user_id"]),
        ("/user/id", ["/usr/id", "/order/id"], ["/usr/id"]),
        ("/user/id", ["/session/id", "/order/id"], ["/session/id", "/order/id"]),
        ("/userId", ["/user_id", "/user_ids"], ["/user_id"]),
        ("$headers/bots", ["$headers/bot", "$headers/x-bot-name"], ["$headers/bot"]),
        ("/user_id", ["/order_id", "/event_id", "/id"], []),
        ("/at", ["/id", "/to"], []),
    ],
)
def test_names_are_similar_by_few_letters_or_by_their_ends(
    field: str, names: list[str], found: list[str]
) -> None:
    assert similar(field, names) == found


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("customer", "source.user: it is null: send a value there, or correct the pointer; if these records"),
        ("section", "source.column: it is null: send a value there, or correct the pointer"),
        ("at", "source.time: it is null: send a value there, or correct the pointer; if these records"),
    ],
)
@pytest.mark.parametrize("share", [1, 3])
def test_a_null_is_told_as_one_and_no_type_is_proposed(field: str, words: str, share: int) -> None:
    def without(number: int) -> dict[str, Any]:
        return {"id": f"c-{number % 200}", **event(number)} | ({field: None} if number % share == 0 else {})

    made = report(sample(made=without, partitions=1))
    told = "\n".join(made.lines())
    assert f"{600 // share} wrong-type: the " in told
    assert ", not null\n" in told
    assert "NoneType" not in told
    assert words in told
    assert ("list both" in told) == (field != "section")
    assert "most records have: /id (text)" in told
    assert settings(made.proposal) == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"section": None},
            "or correct the pointer; or leave these events out: `filter: {/section: {present",
        ),
        ({}, "the kinds of events that have no column: `filter: {/section: {present: true}}`"),
    ],
    ids=["null", "missing"],
)
def test_the_filter_that_leaves_out_events_without_a_column_is_told(
    change: dict[str, Any], told: str
) -> None:
    def some(number: int) -> dict[str, Any]:
        one = event(number)
        if number % 3 == 0:
            del one["section"]
            one |= change
        return one

    assert told in "\n".join(report(sample(made=some, partitions=1)).lines())
    filtered = FILE.replace("column: /section", "filter: {/section: {present: true}}\n      column: /section")
    assert counting(report(sample(made=some, partitions=1), filtered).before["views"]) == 400


def test_no_filter_is_told_of_a_column_that_no_event_has() -> None:
    told = "\n".join(report(sample(), FILE.replace("column: /section", "column: /nowhere")).lines())
    assert "no column at /nowhere" in told
    assert "present: true" not in told


@pytest.mark.parametrize(("found", "words"), [([], "an array"), ({}, "an object"), (True, "true or false")])
def test_types_have_their_names_in_json(found: Any, words: str) -> None:
    made = report(sample(made=lambda number: {**event(number), "section": found}, partitions=1))
    assert f"the column at /section should be a string, not {words}\n" in "\n".join(made.lines())


@pytest.mark.parametrize(
    ("customer", "inside", "remedy"),
    [
        ({"name": "c-1"}, "/customer/name", "source.user: it is an object: point to a value inside it"),
        (["c-1"], None, "source.user: it is an array: point to one of its elements"),
    ],
)
def test_a_pointer_that_stops_before_the_value_is_told_with_what_lies_behind_it(
    customer: Any, inside: str | None, remedy: str
) -> None:
    made = report(sample(made=lambda number: {**event(number), "customer": customer}, partitions=1))
    told = "\n".join(made.lines())
    assert remedy in told
    assert f"most records have: {f'{inside} (text), ' if inside else ''}/section (text)" in told
    assert settings(made.proposal) == {}


def test_paths_to_listed_columns_get_the_maps_that_name_them() -> None:
    paths = ("/search", "/search/shoes", "/home/", "/imprint", "/searching")

    def by_path(number: int) -> dict[str, Any]:
        return event(number) | {"section": paths[number % 5]}

    text = FILE.replace("other]", "other]\n      unknown: other")
    maps = "{/section: {values: {/home: home, /search: search}, prefixes: {/home/: home, /search/: search}}}"
    assert f"source.maps: {maps}" in "\n".join(report(sample(made=by_path), text).lines())
    named = text.replace("column: /section", f"column: /section\n      maps: {maps}")
    made = report(sample(made=by_path), named)
    assert made.before["views"].unlisted == {"'/imprint'": 120, "'/searching'": 120}
    assert "source.maps" not in "\n".join(made.lines())
    # Nothing of the data is in it, and nothing is said of values that are no paths.
    assert "shoes" not in maps
    assert "source.maps" not in "\n".join(report(sample(), FILE.replace("home, ", "")).lines())


def mailed(number: int, users: int = 200, rare: str = "letter-to-Anna-Meier") -> dict[str, Any]:
    """Mails have a section and calls have none; ``rare`` is what one of the mails has."""
    one = event(number) | {"customer": f"c-{number % users}", "ref": "mail"}
    if number % 4 == 3:
        del one["section"]
        one["ref"] = "call"
    return one | ({"ref": rare} if number == 8 else {})


def test_what_one_person_alone_has_is_not_in_the_proposed_filter() -> None:
    made = report(sample(made=mailed))
    assert settings(made.proposal) == {"source.filter": "{/ref: [mail]}"}
    assert "Meier" not in commented(made.proposal)


@pytest.mark.parametrize(("users", "proposed"), [(9, {}), (10, {"source.filter": "{/ref: [mail]}"})])
def test_ten_users_make_a_value_one_of_many(users: int, proposed: dict[str, str]) -> None:
    # Every fourth is a call, so users are those of whole rounds.
    made = report(sample(made=lambda number: mailed(number) | {"customer": f"c-{number // 4 % users}"}))
    assert settings(made.proposal) == proposed


def test_a_field_that_few_users_have_is_not_proposed() -> None:
    def moved(users: int) -> Make:
        def made(number: int) -> dict[str, Any]:
            one = event(number)
            return {
                "customer": f"c-{number % users}",
                "of-Anna-Meier": {"section": one["section"]},
                "at": one["at"],
            }

        return made

    assert settings(report(sample(made=moved(9))).proposal) == {}
    assert settings(report(sample(made=moved(10))).proposal) == {"source.column": "/of-Anna-Meier/section"}


def test_the_room_for_large_events_is_that_of_many_users() -> None:
    def padded(users: int) -> Make:
        def made(number: int) -> dict[str, Any]:
            large = 100 if number % 200 < users else 0
            return {**event(number), "padding": "x" * (5000 if number == 7 else large)}

        return made

    text = FILE.replace("partitioner: murmur2", "max_bytes: 100")
    assert settings(report(sample(made=padded(9)), text).proposal) == {}
    assert settings(report(sample(made=padded(10)), text).proposal) == {"source.max_bytes": "256"}


def test_comments_of_the_proposed_file_have_no_numbers_of_the_data() -> None:
    made = report(sample(made=mailed, appended=False))
    expected = {"source.filter": "{/ref: [mail]}", "source.append_time": "boundary"}
    assert settings(made.proposal) == {**expected, "timeline.max_ahead": None}
    head = [one for one in commented(made.proposal).splitlines() if one.startswith("#")]
    assert "#   streams.views.source.filter: {/ref: [mail]}" in head
    assert not any(character.isdigit() for character in "".join(head))
    # The terminal has them.
    assert "(150 records are of other kinds" in "\n".join(made.lines())


def test_what_was_guessed_before_stays_at_the_head_and_is_said_once() -> None:
    first = commented(proposed(sample("murmur2", appended=False)))
    assert commented(proposed(sample("murmur2", appended=False), first)) == first
    second = commented(proposed(sample("crc32", appended=False), first)).splitlines()
    guessed = ["streams.views.source.partitioner: crc32", "streams.views.source.append_time: boundary"]
    assert second[1:3] == [f"#   {one}" for one in guessed]
    assert second[3:5] == first.splitlines()[2:4]
    assert len([one for one in second if one.startswith("# Proposed by")]) == 1


@pytest.mark.parametrize("append_time", ["broker", "boundary"])
def test_where_no_field_looks_like_a_time_that_of_the_records_is_proposed(append_time: str) -> None:
    def timeless(number: int) -> dict[str, Any]:
        return {name: value for name, value in event(number).items() if name != "at"}

    text = FILE.replace("time: /at", f"time: /at\n      append_time: {append_time}")
    found = sample("murmur2", made=timeless, appended=False)
    timed = replace(found, records=[one._replace(own_time=one.time) for one in found.records])
    made = report(timed, text)
    proposed = {"source.time": "$time"} | (
        {"source.append_time": "boundary", "timeline.max_ahead": None} if append_time == "broker" else {}
    )
    assert settings(made.proposal) == proposed
    assert counting(made.after["views"]) == 600
    assert "source.time" not in settings(report(found, text).proposal), "no record carries a time"

    def two_times(number: int) -> dict[str, Any]:
        return {**timeless(number), "sent": NOW, "seen": NOW}

    ambiguous = sample("murmur2", made=two_times, appended=False)
    timed = replace(ambiguous, records=[one._replace(own_time=one.time) for one in ambiguous.records])
    assert "source.time" not in settings(report(timed, text).proposal)


@pytest.mark.parametrize(("unit", "second"), [("s", 1), ("s", 1.0), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("given", ["", "\n      time_unit: s"])
def test_a_number_that_is_the_time_in_another_unit_is_proposed_with_its_unit(
    unit: str, second: float, given: str
) -> None:
    def timed(number: int) -> dict[str, Any]:
        one = event(number)
        at = one.pop("at") * second / 1000
        # An amount that is no time, and an identifier that could be one of another year.
        return {**one, "when": at if type(second) is float else int(at), "amount": 7, "order": 1_500_000_000}

    found = sample("murmur2", made=timed)
    found = replace(found, records=[one._replace(own_time=one.time) for one in found.records])
    made = report(found, FILE.replace("time: /at", f"time: /time{given}"))
    expected: dict[str, str | None] = {"source.time": "/when"}
    if not (given and unit == "s"):
        expected["source.time_unit"] = unit
    assert settings(made.proposal) == expected
    assert counting(made.after["views"]) == 600


@pytest.mark.parametrize(("users", "is_proposed"), [(9, False), (10, True)])
def test_a_time_in_another_unit_is_proposed_only_where_many_users_have_its_field(
    users: int, is_proposed: bool
) -> None:
    def timed(number: int) -> dict[str, Any]:
        at = event(number)["at"]
        return {"customer": f"c-{number % users}", "section": "home", "visit-of-anna": at // 1000}

    found = sample(made=timed)
    found = replace(found, records=[one._replace(own_time=one.time) for one in found.records])
    assert ("source.time" in settings(report(found).proposal)) is is_proposed


def with_session(number: int) -> dict[str, Any]:
    """Half of the visitors are not logged in."""
    one = {**event(number), "session": f"s-{number % 150}"}
    return one if number % 2 else {**one, "customer": None}


@pytest.mark.parametrize(("first", "is_well"), [("/customer", True), ("/custmer", False)])
def test_a_field_of_a_list_that_no_record_has_is_not_well(first: str, is_well: bool) -> None:
    """Every event would be of a session, and nothing would be missing."""
    found = sample(made=with_session, key=lambda one: one["customer"] or one["session"])
    made = report(found, FILE.replace("user: /customer ", f"user: [{first}, /session] "))
    told = "\n".join(made.lines())
    what = "/custmer is in none of 600 records, so another field always stands in for it; similar ones"
    assert made.is_well is is_well
    assert (f"source.user: {what} that are there: /customer. Correct it" in told) is not is_well
    assert (what in str(made.fields()["streams"][0]["doubts"])) is not is_well


def test_the_time_of_records_in_a_list_is_not_told_as_never_there() -> None:
    made = report(sample(), FILE.replace("time: /at", "time: [/at, $time]"))
    assert made.is_well
    assert "$time" not in "\n".join(made.lines())


def test_a_sample_in_which_nearly_everything_is_in_other_is_not_well() -> None:
    text = FILE.replace(
        "columns: [home, search, other]", "columns: [home, search, other]\n      unknown: other"
    )
    assert report(sample(), text).is_well

    def path(number: int) -> dict[str, Any]:
        return {**event(number), "section": f"/shop/{number % 7}"}

    late = report(sample(made=lambda number: {**path(number), "at": 7}), text)
    assert late.fields()["streams"][0]["left_out_nearly_all"] == [], "nothing counts at all"
    made = report(sample(made=path), text)
    assert not made.is_well
    (problem,) = made.fields()["streams"][0]["left_out_nearly_all"]
    assert problem["what"] == "nearly every event counts as other, because its column is not listed"
    assert problem["remedy"] == (
        "list what /section holds, as far as it is known publicly, or map it (source.maps)"
    )
    assert problem["place"] == "shop.yaml:16:7"


def test_a_field_that_a_filter_wants_not_to_be_there_and_never_is_is_told() -> None:
    """A misspelt header lets every robot count; a right one may be rare."""
    text = FILE.replace(
        "column: /section", "column: /section\n      filter: {$headers/bots: {present: false}}"
    )
    found = sample()
    records = [
        one._replace(headers=((("bot", b"1"),) if at % 5 == 0 else ()))
        for at, one in enumerate(found.records)
    ]
    made = report(replace(found, records=records), text)
    told = "\n".join(made.lines())
    assert made.is_well
    assert (
        "source.filter.$headers/bots: $headers/bots is in none of 600 records, so no event is left out by it"
        " here; similar ones that are there: $headers/bot. Correct it, unless it is rare"
    ) in told


@pytest.mark.parametrize("partitioner", ["fnv1a", "random"])
def test_users_that_are_keys_which_no_partitioner_explains_are_to_be_re_keyed(partitioner: str) -> None:
    made = report(sample(partitioner), FILE.replace("user: /customer", "user: $key"))
    assert settings(made.proposal) == {"source.repartition": "true", "source.partitioner": None}
    assert counting(made.after["views"]) == 600
    (wrong,) = (line for line in made.lines() if "for example partition" in line)
    assert re.search(r"offset \d+: key \S*c-\d+\S*, \{", wrong)
