"""The pages of docs/mechanisms: every kind has one, its settings work, and it says what it has to say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventveil.mechanisms.registry import KINDS
from tests.unit.topology.examples import ROOT, changed, load_text

PAGES = ROOT / "docs" / "mechanisms"
NO_BUDGET = ("budget: {epsilon: 5, span: 5d}\n", "")
EVERY_KIND = pytest.mark.parametrize("kind", sorted(KINDS))
SAID = ("**What it protects.**", "**When to use it.**")
HOW_PRINTED = r"\*\*(As printed\*\*|Where the printed version was not private\*\*) \(.*(19|20)\d\d"


def page_of(kind: str) -> str:
    return (PAGES / f"{kind}.md").read_text(encoding="utf-8")


@EVERY_KIND
def test_the_settings_of_a_page_are_valid_and_its_state_is_described(kind: str, tmp_path: Path) -> None:
    text = page_of(kind)
    (example,) = re.findall(r"^```yaml\n(mechanism: .*)\n```$", text, re.MULTILINE)
    columns = [("[ATL, BOS]", "[ATL]")] if KINDS[kind].level == "user" else []
    mechanism = "mechanism:\n      kind: budget-absorption\n      epsilon: 1.0\n      window: 120"
    file = changed((mechanism, example), NO_BUDGET, *columns)
    assert load_text(tmp_path, file).streams[0].mechanism.kind == kind
    assert ("**Its state is raw.**" in text) == bool(KINDS[kind].raw)


def test_the_settings_of_the_page_on_pan_privacy_are_valid(tmp_path: Path) -> None:
    (counts, mechanism) = re.findall(r"^(counts: .*|mechanism: .*)$", page_of("pan-private"), re.MULTILINE)
    before = "counts:\n      columns: [ATL, BOS]\n    mechanism:\n      kind: budget-absorption\n"
    file = changed(
        (f"{before}      epsilon: 1.0\n      window: 120", f"{counts}\n    {mechanism}"), NO_BUDGET
    )
    assert load_text(tmp_path, file).streams[0].kind == "pan-private"


@EVERY_KIND
def test_a_page_says_what_is_protected_when_to_use_it_and_how_the_printed_version_does(kind: str) -> None:
    text = page_of(kind)
    assert text.startswith(f"# {kind}: ")
    assert [part for part in SAID if part not in text] == []
    assert re.search(HOW_PRINTED, text)


@EVERY_KIND
def test_a_page_says_what_it_costs_that_a_user_does_something_else(kind: str) -> None:
    text = page_of("time-unit" if kind == "retroactive-grouping" else kind)
    protected = text[text.index("**What it protects.**") :].split("\n")[0]
    said = "[two steps](README.md): 2 epsilon, or epsilon with `adjacency: substitute`"
    if KINDS[kind].level == "user":
        said = (
            "in a single column nothing that a user does there moves a count by more than staying away does"
        )
    assert said in protected
    assert "hatever a user d" not in protected


@EVERY_KIND
def test_every_option_of_a_kind_is_described_on_its_page_or_on_one_that_it_names(kind: str) -> None:
    text = page_of(kind)
    linked = re.findall(r"\]\(([a-z-]+)\.md\)", text)
    described = text + "".join(page_of(other) for other in linked)
    assert [option for option in KINDS[kind].options if f"`{option}" not in described] == []


LEVELS = {"w-event level": "w-event", "event level": "event", "user level": "user"}


def test_the_index_links_every_page_once_and_puts_kinds_under_their_level() -> None:
    index = page_of("README")
    pages = re.findall(r"^\| \[([a-z-]+)\]\(\1\.md\) \| \S.* \|$", index, re.MULTILINE)
    assert sorted(pages) == sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README")
    counts = index[index.index("## Counts") : index.index("## Values")]
    parts = re.split(r"\((w-event level|event level|user level); add-remove or substitute\):", counts)[1:]
    levels = {
        kind: LEVELS[level]
        for level, table in zip(parts[::2], parts[1::2], strict=True)
        for kind in re.findall(r"^\| \[([a-z-]+)\]", table, re.MULTILINE)
        if kind not in ("pan-private", "gaussian")
    }
    assert levels == {kind: mechanism.level for kind, mechanism in KINDS.items()}


def test_every_picture_is_shown_on_a_page() -> None:
    pages = [*PAGES.glob("*.md"), ROOT / "docs" / "utility.md", *(ROOT / "docs" / "utility").glob("*.md")]
    shown = "".join(page.read_text() for page in pages)
    pictures = [*PAGES.glob("pictures/*.png"), *(ROOT / "benchmarks" / "results").glob("*.png")]
    assert [path.name for path in pictures if f"/{path.name})" not in shown] == []


def test_kinds_with_raw_state_are_named_where_one_reads_who_may_see_what() -> None:
    text = (ROOT / "docs" / "privacy.md").read_text()
    limits = text[text.index("**State with true counts.**") :].split("\n")[0]
    assert {kind for kind in KINDS if f"`{kind}`" in limits} == {kind for kind in KINDS if KINDS[kind].raw}
