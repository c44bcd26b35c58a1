"""The key and the headers of records are fields like those in values; CloudEvents may have theirs there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from eventveil.doctor.pointers import FoundField, event_ids, fields_of, likely
from eventveil.doctor.proposal import commented
from eventveil.doctor.sample import SampledRecord, SourceSample
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import ValueSource
from tests.unit.doctor.making import FILE, NOW, event, sample
from tests.unit.doctor.test_proposal import counting, report, settings

Headers = Sequence[tuple[str, bytes]]


def binary(
    headers: Callable[[int], Headers], *without: str, lacks: Callable[[int], bool] = lambda _: True
) -> SourceSample:
    """Events whose values lack some fields, and have what ``headers`` gives around them."""
    found = sample()

    def moved(one: SampledRecord) -> SampledRecord:
        value = json.loads(one.value or b"")
        gone = without if lacks(one.offset) else ()
        value = {name: field for name, field in value.items() if name not in gone}
        return one._replace(value=json.dumps(value).encode(), headers=headers(one.offset))

    return replace(found, records=[*map(moved, found.records)])


def with_user_in_key(made: Callable[[int], dict[str, Any]], key: Callable[[int], str]) -> SourceSample:
    number = iter(range(600))
    return sample(made=made, key=lambda _: key(next(number)))


def anonymous(number: int) -> dict[str, Any]:
    return {name: field for name, field in event(number).items() if name != "customer"}


def test_a_user_that_is_in_the_key_alone_is_proposed() -> None:
    made = report(with_user_in_key(anonymous, lambda number: f"c-{number % 200}"))
    assert counting(made.before["views"]) == 0
    assert settings(made.proposal) == {"source.user": "$key"}
    assert counting(made.after["views"]) == 600
    assert "most records have: /section (text), /at (time), $key (text)\n" in "\n".join(made.lines())
    assert "# Epsilon protects the user: make sure that this field names a person" in commented(made.proposal)


@pytest.mark.parametrize(
    "key",
    [
        lambda number: f"e-{number}",
        lambda number: f"c-{number % 9}",
        lambda number: f"c-{number}" if number < 450 else f"c-{number % 100}",
        lambda _: "",
    ],
    ids=["ids of events", "nine keys", "most come once", "empty"],
)
def test_keys_that_are_hardly_users_are_not_proposed(key: Callable[[int], str]) -> None:
    assert "source.user" not in settings(report(with_user_in_key(anonymous, key)).proposal)


def test_a_key_that_has_another_name_in_the_value_is_not_taken_for_the_user() -> None:
    def session(number: int) -> dict[str, Any]:
        return {"session": f"s-{number % 100}", **anonymous(number)}

    made = report(with_user_in_key(session, lambda number: f"s-{number % 100}"))
    assert "source.user" not in settings(made.proposal)
    assert "most records have: /session (text), " in "\n".join(made.lines())


def with_account(made: dict[str, Any]) -> dict[str, Any]:
    """The user is at a place that has nothing in common with the one of the file."""
    return {name if name != "customer" else "account": field for name, field in made.items()}


def asking(pointer: str, text: str = FILE) -> str:
    return text.replace("user: /customer ", f"user: {pointer} ")


@pytest.mark.parametrize("pointer", ["/user/id", "/id", "$headers/id", "$headers/x-id"])
@pytest.mark.parametrize("header", ["ce_id", "ce-id", "CE_ID"])
@pytest.mark.parametrize("number_of_ids", [600, 200], ids=["come once", "come again"])
def test_the_id_of_a_cloud_event_in_binary_mode_is_not_taken_for_the_user(
    pointer: str, header: str, number_of_ids: int
) -> None:
    found = sample(made=lambda number: with_account(event(number)), key=lambda _: "")
    records = [
        one._replace(headers=[(header, b"e-%d" % (one.offset % number_of_ids))]) for one in found.records
    ]
    made = report(replace(found, records=records), asking(pointer))
    assert settings(made.proposal) == {}
    assert counting(made.after["views"]) == 0
    # It is still named among the fields that are there.
    assert f"$headers/{header} (text)" in "\n".join(made.lines())


@pytest.mark.parametrize("pointer", ["/user/id", "/visitor/id", "$headers/ce_id"])
@pytest.mark.parametrize("place", ["", "envelope"])
@pytest.mark.parametrize("number_of_ids", [600, 200], ids=["come once", "come again"])
def test_the_id_of_a_cloud_event_in_structured_mode_is_not_taken_for_the_user(
    pointer: str, place: str, number_of_ids: int
) -> None:
    def structured(number: int) -> dict[str, Any]:
        head = {"specversion": "1.0", "id": f"e-{number % number_of_ids}", "source": "/web"}
        return with_account(event(number)) | ({place: head} if place else head)

    made = report(sample(made=structured, key=lambda _: ""), asking(pointer))
    assert settings(made.proposal) == {}
    assert counting(made.after["views"]) == 0


def test_beside_the_id_of_a_cloud_event_the_field_that_comes_again_is_proposed() -> None:
    def structured(number: int) -> dict[str, Any]:
        one = event(number)
        data = {"visitor": {"id": one.pop("customer")}}
        return {"specversion": "1.0", "id": f"e-{number}", "data": data, **one}

    found = sample(made=structured, key=lambda one: str(one["data"]["visitor"]["id"]))
    made = report(found, asking("/user/id"))
    assert settings(made.proposal) == {"source.user": "/data/visitor/id"}
    assert counting(made.after["views"]) == 600


def test_beside_the_id_of_a_cloud_event_the_key_that_comes_again_is_proposed() -> None:
    found = with_user_in_key(anonymous, lambda number: f"c-{number % 200}")
    records = [one._replace(headers=[("ce_id", b"e-%d" % one.offset)]) for one in found.records]
    made = report(replace(found, records=records), asking("/user/id"))
    assert settings(made.proposal) == {"source.user": "$key"}
    assert counting(made.after["views"]) == 600


@pytest.mark.parametrize(
    ("pointers", "ids"),
    [
        (["/specversion", "/id", "/data/id"], ["/id"]),
        (["/a/specVersion", "/a/id", "/id"], ["/a/id"]),
        (["/spec_version", "/id", "/user_id"], ["/id"]),
        (["/id", "/type", "$headers/ce_specversion", "$headers/ce_id"], ["$headers/ce_id"]),
        (["$headers/x-id", "$headers/id", "$headers/specversion"], []),
        (["$key", "$headers/CE-Id"], ["$headers/CE-Id"]),
    ],
)
def test_ids_of_cloud_events_are_known_by_their_places(pointers: list[str], ids: list[str]) -> None:
    assert event_ids([FoundField(one, 9, 0, 0) for one in pointers]) == set(ids)


def test_user_time_and_column_in_headers_are_proposed() -> None:
    def headers(number: int) -> Headers:
        at = format_rfc3339(NOW - number).encode()
        user, section = f"c-{number % 200}".encode(), (b"home", b"search")[number % 2]
        return [("ce_time", at), ("x-customer", user), ("Section", section), ("ce_id", b"%d" % number)]

    found = binary(headers, "customer", "section", "at")
    made = report(found, FILE.replace("time: /at", "time: /time"))
    assert settings(made.proposal) == {
        "source.user": "$headers/x-customer",
        "source.column": "$headers/Section",
        "source.time": "$headers/ce_time",
    }
    assert counting(made.after["views"]) == 600


def test_structured_mode_where_the_file_expects_binary_mode_is_found() -> None:
    text = FILE.replace("time: /at", "time: $headers/ce_at").replace("/section", "$headers/section")
    made = report(sample(), text)
    assert settings(made.proposal) == {"source.time": "/at", "source.column": "/section"}
    assert counting(made.after["views"]) == 600


def is_order(number: int) -> bool:
    return number % 4 == 3


def kinds(number: int) -> Headers:
    kind = b"shop.ordered" if is_order(number) else b"shop.viewed"
    return [("ce_type", kind), ("ce_dataschema", kind + b".v1"), ("ce_id", b"%d" % number)]


def test_kinds_that_are_in_a_header_alone_are_filtered() -> None:
    made = report(binary(kinds, "section", lacks=is_order))
    assert counting(made.before["views"]) == 450
    assert settings(made.proposal) == {"source.filter": '{$headers/ce_type: ["shop.viewed"]}'}
    after = made.after["views"].verdicts
    assert (after.lost, after.outcomes["filtered"]) == (0, 150)


def test_a_kind_of_few_users_gets_into_no_file() -> None:
    def headers(number: int) -> Headers:
        rare = number % 200 in (0, 1, 2, 4, 5)
        kind = b"shop.rare" if rare else b"shop.viewed"
        return [("ce_type", b"shop.ordered" if is_order(number) else kind)]

    made = report(binary(headers, "section", lacks=is_order))
    text = commented(made.proposal)
    assert "shop.rare" not in text
    assert "shop.ordered" not in text


def test_the_name_of_a_header_of_few_users_gets_into_no_file() -> None:
    def headers(number: int) -> Headers:
        return [("Section", b"home")] if number % 200 < 9 else []

    # Nine users have it, in most of the records that there are.
    found = binary(headers, "section")
    few = replace(found, records=[one for one in found.records if one.headers])
    assert "source.column" not in settings(report(few).proposal)


@pytest.mark.parametrize(
    ("header", "pointer", "is_like"),
    [
        ("x-user-id", "/user/id", True),
        ("ce_time", "/time", True),
        ("user_id", "/data/user/id", True),
        ("id", "/user/id", True),
        ("user", "/user/id", False),
        ("suserid", "/user/id", False),
    ],
)
def test_names_of_headers_are_compared_with_ends_of_pointers(
    header: str, pointer: str, is_like: bool
) -> None:
    field = FoundField(f"$headers/{header}", 9, 0, 0)
    assert likely([field, FoundField("$key", 9, 0, 0)], pointer) == ([field.pointer] if is_like else [])
    assert bool(likely([FoundField(pointer, 9, 0, 0)], field.pointer)) == is_like


def test_bytes_that_are_no_text_and_records_without_a_key_are_no_fields() -> None:
    records = [
        SampledRecord(0, number, b'{"a": 1}', None, [("blob", b"\xff"), ("at", b"1767300000000")])
        for number in range(3)
    ]
    assert [(one.pointer, one.kind) for one in fields_of(records, ValueSource("raw", "/a"))] == [
        ("/a", "number"),
        ("$headers/at", "time"),
    ]
