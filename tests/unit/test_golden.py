"""Records are written as they were, byte for byte, and those that were written are read."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from packaging.version import Version

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
from tests.golden.making import (
    EARLIER,
    PROGRAM,
    STATES,
    Record,
    counts,
    digests,
    digests_now,
    is_dated,
    is_state,
    kept,
    made,
    states,
)
from tests.unit.support import INSTANCE

KEPT = kept()
VERSIONS = sorted(STATES.glob("*.jsonl"))
ALL = [*KEPT, *kept(EARLIER), *(one for file in VERSIONS for one in kept(file))]
SCHEMAS = Path(__file__).parents[2] / "schemas"
#: Of the changelog, newest first.
SECTIONS = re.findall(
    r"^## (.*)$", (SCHEMAS.parent / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
)


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


def test_every_dated_version_has_its_states_and_a_section_of_the_changelog() -> None:
    assert [file.stem for file in VERSIONS] == sorted(dated())
    assert is_dated() == (__version__ in dated())


def test_a_program_is_of_the_version_of_the_newest_section_or_of_a_later_one_while_that_is_unreleased() -> (
    None
):
    assert "Unreleased" not in SECTIONS[1:]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", one) for one in SECTIONS[1:])
    assert is_dated() == (SECTIONS[0] != "Unreleased"), "what is unreleased has a version with .dev0"
    if is_dated():
        assert dated()[0] == __version__
    else:
        assert re.fullmatch(r"\d+\.\d+\.\d+\.dev0", __version__)
        assert Version(__version__) > Version(dated()[0])


def dated() -> list[str]:
    """The versions that have been released, newest first."""
    return [one.partition(" ")[0] for one in SECTIONS if one != "Unreleased"]


@pytest.mark.parametrize("version", [file.stem for file in VERSIONS])
def test_the_states_of_a_dated_version_are_as_they_were(version: str) -> None:
    assert digests(version)[states(version).name] == digests_now(version)[states(version).name]


@pytest.mark.skipif(not is_dated(), reason="this version has not been released")
def test_a_program_that_has_a_dated_version_is_that_version() -> None:
    assert digests(__version__) == digests_now(__version__), "give it the version that comes next, with .dev0"
    assert kept(states()) == [one for one in KEPT if is_state(one)]


def test_the_digest_of_the_program_sees_every_source_file_and_nothing_that_is_built(tmp_path: Path) -> None:
    def digest() -> str:
        return digests_now(dated()[0], tmp_path)["operators"]

    def write(path: str, text: str) -> str:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return digest()

    seen = [write("a/b.py", "1"), write("a/b.py", "2"), write("a/c.css", "2"), write("kernel/src/lib.rs", "")]
    assert len({*seen}) == len(seen)
    assert write("kernel/target/x.rs", "") == write("a.egg-info/x.txt", "") == seen[-1]
    assert write("a/__pycache__/b.pyc", "") == seen[-1]
    (tmp_path / "a" / "c.css").rename(tmp_path / "a" / "d.css")
    assert digest() not in seen


def test_the_kernel_has_the_version_of_the_program() -> None:
    crate = tomllib.loads((PROGRAM / "kernel" / "Cargo.toml").read_text(encoding="utf-8"))["package"]
    lock = tomllib.loads((PROGRAM / "kernel" / "Cargo.lock").read_text(encoding="utf-8"))["package"]
    project = tomllib.loads((SCHEMAS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    spelled = __version__.replace(".dev0", "-dev.0")
    assert crate["version"] == spelled
    assert [one["version"] for one in lock if one["name"] == crate["name"]] == [spelled]
    assert project["optional-dependencies"]["kernel"] == [f"{crate['name']}=={__version__}"]


def test_every_state_can_be_written_again() -> None:
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
                mechanism = mechanism_of(one.case, state.found)
                mechanism.restore(state.mechanism.encode())
                assert mechanism.snapshot().decode() == state.mechanism, one.case
                restored += 1
    assert restored > 3 * len(streams)


def mechanism_of(case: str, found: Sequence[str] = ()) -> Mechanism:
    return of_stream(counts()[case].having(found), SeededNoise(1))


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
