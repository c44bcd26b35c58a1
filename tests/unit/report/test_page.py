"""The page: self-contained, whatever names are in it, and on three sides of A4."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, sync_playwright

from eventveil.audit.periods import ChargedPeriod
from eventveil.audit.versions import StreamVersions, VersionSpan
from eventveil.report.content import document
from eventveil.report.page import page
from tests.unit.browser import CONTRASTS, launched
from tests.unit.report.test_content import ALL, CLEAN, loaded, page_views

pytestmark = pytest.mark.slow

Scheme = Literal["light", "dark"]
Open = Callable[[str, int, Scheme], tuple[Page, list[str]]]
BAD = replace(
    CLEAN,
    findings=tuple(f"I2 sections, timestamp {one}, <b>sink</b>: no ledger entry" for one in range(20)),
    violations=40,
)


def row(stream: str, year: int) -> ChargedPeriod:
    return ChargedPeriod(
        stream, 1, str(year), "seasonal", "1.0", 144, "0" * 32, 52_560, 4_000,
        f"{year}-01-01T00:00:00Z", f"{year + 1}-01-01T00:00:00Z", Fraction(4183, 12), 52_560, "ab" * 32,
    )  # fmt: skip


def text_of(path: Path) -> str:
    """A page with an audit of five years."""
    topology = loaded(path)
    lines = (
        "{}: 262800 releases, 262657 windows checked, largest 1 of epsilon 1",
        "  up to timestamp 262800",
    )
    streams = tuple(
        replace(CLEAN.streams[0], stream=one.name, lines=tuple(line.format(one.name) for line in lines))
        for one in topology.all_streams
    )
    life = tuple(row(one.name, year) for one in topology.all_streams for year in range(2026, 2031))
    versions = tuple(released(one.name, 2) for one in topology.all_streams)
    found = replace(CLEAN, streams=streams, life=life, versions=versions)
    return page(document(topology, "0" * 64, "2031-01-01T00:00:00Z", found))


def released(stream: str, unnamed: int) -> StreamVersions:
    """What five versions have decided, a year each."""
    spans = (
        VersionSpan(
            f"1.{one}.0", 52_560, 52_560 * one + 1, 52_560 * (one + 1),
            f"{2026 + one}-01-01T00:00:00Z", f"{2027 + one}-01-01T00:00:00Z",
        )
        for one in range(5)
    )  # fmt: skip
    return StreamVersions(stream, tuple(spans), unnamed)


def test_the_page_needs_nothing_but_itself() -> None:
    text = page(document(page_views(), "0" * 64, "now", None))
    assert not re.search(r"https?:|\ssrc=|\shref=|url\(|@import|<script|<link|\son[a-z]+=", text)
    assert re.findall(r"__[A-Z]+__", text) == []


def test_violations_are_at_the_top_as_text_and_counted() -> None:
    text = page(document(page_views(), "0" * 64, "now", BAD))
    top, _, rest = text.partition("<h2>")
    assert "Violated: the audit found 40 violations" in top
    assert "&lt;b&gt;sink&lt;/b&gt;" in top
    assert "and 28 more" in top
    assert "no ledger entry" not in rest


def test_a_row_says_when_under_which_terms_what_was_charged_and_the_digest() -> None:
    text = page(document(page_views(), "0" * 64, "now", replace(CLEAN, life=(row("sections", 2026),))))
    for told in ("2026-01-01 00:00", "seasonal, 1.0, 144", "52560 (4000 fresh)", "348.6", "abababababababab"):
        assert f">{told}" in text


def test_the_newest_versions_of_each_stream_are_told_and_the_others_counted() -> None:
    versions = (released("sections", 2), StreamVersions("daily", (), 0))
    text = page(document(page_views(), "0" * 64, "now", replace(CLEAN, versions=versions)))
    assert (
        "<li>Versions of eventveil that released: sections by 2 earlier (in --json),"
        " 1.2.0 (timestamps 105121 to 157680, 2028-01-01 to 2029-01-01),"
        " 1.3.0 (timestamps 157681 to 210240, 2029-01-01 to 2030-01-01),"
        " 1.4.0 (timestamps 210241 to 262800, 2030-01-01 to 2031-01-01); daily by none yet</li>"
    ) in text
    assert "that an earlier one has run meanwhile: 2 of sections</li>" in text


def test_a_version_that_is_not_recorded_and_spans_without_times_are_told() -> None:
    spans = (VersionSpan(None, 1, None, None, None, None), VersionSpan("0.2.0", 3, None, None, None, None))
    versions = (StreamVersions("minutes", spans, 0), StreamVersions("sections", (), 0))
    text = page(document(page_views(), "0" * 64, "now", replace(CLEAN, versions=versions)))
    assert "minutes by a version not recorded (1 span), 0.2.0 (3 spans); sections by none yet</li>" in text
    assert "has run meanwhile" not in text


def test_rows_beyond_the_page_are_counted() -> None:
    life = tuple(row("sections", 2026 + year) for year in range(20))
    text = page(document(page_views(), "0" * 64, "now", replace(CLEAN, life=life)))
    assert text.count("ab" * 8) == 12
    assert "8 earlier rows are in `eventveil report --json`; the digests cover them." in text


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Opens a page in a browser of some width and scheme: the tab, and what it asked for, or complained."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    with sync_playwright() as playwright:
        browser = launched(playwright)

        def show(text: str, width: int, scheme: Scheme) -> tuple[Page, list[str]]:
            path.write_text(text, encoding="utf-8")
            tab = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            ).new_page()
            heard: list[str] = []
            tab.on("console", lambda message: heard.append(message.text))
            tab.on("request", lambda request: heard.append(request.url))
            tab.goto(path.as_uri())
            return tab, [one for one in heard if one != path.as_uri()]

        yield show
        browser.close()


#: With two streams, with every setting, and with seven streams of every kind.
PRINTED = [path for path in ALL if path.stem in {"page-views", "web-shop", "every-kind"}]


@pytest.mark.parametrize("path", PRINTED, ids=lambda path: path.stem)
def test_printed_on_a4_it_has_at_most_three_sides(opened: Open, path: Path) -> None:
    tab, _ = opened(text_of(path), 1280, "dark")
    printed = tab.pdf(prefer_css_page_size=True)
    assert re.search(rb"/MediaBox\s*\[0 0 59[45][.0-9]* 84[12]", printed)
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_can_be_read_on_a_phone_and_a_desk_by_day_and_by_night(
    opened: Open, width: int, scheme: Scheme
) -> None:
    tab, heard = opened(text_of(ALL[-1]), width, scheme)
    assert heard == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert min(tab.evaluate(CONTRASTS)) >= 4.5
