"""Records are written as they were, byte for byte, and those that were written are read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from eventveil import __version__
from eventveil.counting.counter import CounterState, Partial
from eventveil.formats.announcement import Announcement
from eventveil.formats.change import Change
from eventveil.formats.witness import Witness
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import StateRefused
from eventveil.privacy.noise import SeededNoise
from eventveil.tasks.pan_private import Exposure
from eventveil.tasks.release import ReleaseState
from eventveil.tasks.repartition import RekeyerState
from eventveil.tasks.values import PerturberState
from tests.golden.making import EARLIER, STATES, Record, counts, is_state, kept, made, states
from tests.unit.support import INSTANCE

KEPT = kept()
VERSIONS = sorted(STATES.glob("*.jsonl"))
ALL = [*KEPT, *kept(EARLIER), *(one for file in VERSIONS for one in kept(file))]
SCHEMAS = Path(__file__).parents[2] / "schemas"


def again(record: Record) -> bytes | None:
    """A record, read and written again; None for what is never read back as a whole."""
    value, key = (record.value or "").encode(), record.key or ""
    if record.topic.startswith("genesis"):
        return ManifestRecord.find({key.encode(): value}, "visits", "here").encode()
    if record.case.startswith("pan-private") and record.topic == "changelog":
        return in_one_place(key)(value, "here").encode()
    if record.topic in READ:
        return READ[record.topic](value, "here").encode()
    return None


def in_one_place(key: str) -> Callable[[bytes, str], Any]:
    """What a pan-private stream keeps under a key of its one changelog partition."""
    if key == Exposure.key("visits").decode():
        return Exposure.decode
    return CounterState.decode if key == "visits" else ReleaseState.decode


READ: dict[str, Callable[[bytes, str], Any]] = {
    "app-counting-changelog": CounterState.decode,
    "app-ledger-changelog": ReleaseState.decode,
    "app-state-changelog": PerturberState.decode,
    "app-repartition-changelog": RekeyerState.decode,
    "app-partials": Partial.decode,
    "announcement": lambda value, _: Announcement.read(value),
    "change": lambda value, _: Change.read(json.loads(value)),
    "witness": Witness.decode,
}
#: By topic, the schema of what is public.
PUBLIC = {
    "visits.sanitized": "release",
    "app-ledger": "ledger-entry",
    "ledger": "ledger-entry",
    "minutes.sink": "reading",
    "app-control": "control",
    "change": "ledger-change",
    "witness": "witness",
}


def test_every_record_is_written_as_it_was() -> None:
    found = list(made())
    assert [one.case for one in found] == [one.case for one in KEPT]
    for now, before in zip(found, KEPT, strict=True):
        assert now == before, f"{before.case}, {before.topic}"


def test_every_version_has_its_states_and_a_section_of_the_changelog() -> None:
    changelog = (SCHEMAS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = {*re.findall(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)}
    versions = {file.stem for file in VERSIONS}
    assert states() in VERSIONS, "run `python -m tests.golden.making`"
    # What the program is now may be unreleased; whatever was before has been released.
    assert versions - {__version__} <= sections <= versions


def test_the_newest_numbered_section_of_the_changelog_is_this_version_with_its_date() -> None:
    changelog = (SCHEMAS.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
    numbered = [one for one in sections if one != "Unreleased"]
    assert "Unreleased" not in sections[1:]
    assert re.fullmatch(rf"{re.escape(__version__)} - \d{{4}}-\d\d-\d\d", numbered[0])


def test_the_states_of_this_version_are_those_that_it_writes() -> None:
    assert kept(states()) == [one for one in KEPT if is_state(one)]
    assert all(again(one) is not None for file in VERSIONS for one in kept(file))


def test_every_state_is_read_and_is_written_again_as_it_was() -> None:
    read = [(one, value) for one in ALL if (value := again(one)) is not None]
    assert {one.topic for one, _ in read} >= READ.keys()
    assert [one for one, value in read if value.decode() != one.value] == []


def test_every_mechanism_goes_on_from_its_state() -> None:
    streams, restored = counts(), 0
    for one in ALL:
        if one.topic == "app-ledger-changelog" and one.case in streams:
            state = ReleaseState.decode((one.value or "").encode(), "here")
            if state.mechanism is not None:
                mechanism = mechanism_of(one.case)
                mechanism.restore(state.mechanism.encode())
                assert mechanism.snapshot().decode() == state.mechanism, one.case
                restored += 1
    assert restored > 3 * len(streams)


def mechanism_of(case: str) -> Mechanism:
    return of_stream(counts()[case], SeededNoise(1))


def test_public_records_are_what_their_schemas_say() -> None:
    seen = set()
    for one in ALL:
        name = (
            "ledger-span"
            if one.case.startswith(("tops", "pak")) and one.topic == "app-ledger"
            else PUBLIC.get(one.topic)
        )
        if name is not None:
            schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
            Draft202012Validator(schema).validate(json.loads(whole(one.value or "")))
            seen.add(name)
    assert seen == {*PUBLIC.values(), "ledger-span"}


def whole(text: str) -> str:
    """With an instance as long as real ones are."""
    return text.replace(f'"{INSTANCE}"', f'"{INSTANCE * 2}"')


def a_version_later(text: str) -> str:
    return re.sub(r'"version":(\d)', lambda found: f'"version":{int(found[1]) + 1}', text)


@pytest.mark.parametrize("damage", [a_version_later, lambda text: text[:-2]])
def test_a_state_of_a_newer_version_and_one_that_was_cut_short_are_refused(
    damage: Callable[[str], str],
) -> None:
    tried = 0
    for one in ALL:
        if one.topic.endswith("-changelog") and one.value is not None:
            broken = damage(one.value)
            assert broken != one.value
            with pytest.raises(StateRefused):
                again(Record(one.case, one.topic, one.key, broken, one.headers))
            tried += 1
    assert tried > 100
