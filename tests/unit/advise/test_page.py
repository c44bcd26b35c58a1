"""The page: self-contained, whatever columns are called, and its pictures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import Page, sync_playwright

from eventveil.advise.choices import Question
from eventveil.advise.generating import HOUR, Traffic, draw
from eventveil.advise.page import page
from eventveil.advise.planning import plan_of
from eventveil.advise.reading import ReadEvents
from eventveil.advise.searching import search
from eventveil.advise.tally import Tally
from eventveil.advise.trials import alone, perform
from eventveil.advise.writing import topology_text
from eventveil.describe.picture import HEIGHT, WIDTH, Lines, nice_step, short, svg
from eventveil.topology.periods import DAY
from tests.unit.browser import CONTRASTS, CUT_OFF, OVERLAPS, launched
from tests.unit.replay.history import stream

pytestmark = pytest.mark.slow

Scheme = Literal["light", "dark"]
Show = Callable[[int, Scheme], tuple[Page, list[str]]]
MONDAY = 1_767_571_200_000
LABELS = ("<script>alert(1)</script>", "__TITLE__", 'a "quoted" & long name that goes on and on-' * 3, "d")


@pytest.fixture(scope="module")
def text() -> str:
    """A page whose table, lists and pictures are all full; totals of an hour, so lines are long."""
    question = Question(LABELS, HOUR, "100", DAY, bound=4, seed=1)
    events = draw(Traffic(MONDAY, 2, 3_000, len(LABELS), 400))
    tally = Tally(events, len(LABELS), MONDAY, HOUR)
    *_, (_, _, findings) = search(question, tally, alone)
    topology = topology_text(plan_of(findings, stream(), "shop", findings.tally.origin, ("why",)))
    whole = perform(findings.trial(findings.best, 0, whole=True))
    return page(
        findings, ReadEvents(events, Counter(read=4_000)), topology, ("What it promises. <b>",), whole
    )


def test_the_page_needs_nothing_but_itself(text: str) -> None:
    assert not re.search(r"https?:|\ssrc=|\shref=|url\(|@import|<script|<link|\son[a-z]+=", text)
    assert "reveals something about them" in text
    assert "raw data" in text


def test_whatever_columns_are_called_is_text(text: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "What it promises. &lt;b&gt;" in text
    # A column may have the name of a place in the template, which is not filled in again.
    assert ">__TITLE__<" in text
    assert re.findall(r"__[A-Z]+__", text.replace("__TITLE__", "")) == []


def lines(number: int = 5, interval: int = DAY) -> Lines:
    counts = np.linspace(0, 80, number)
    errors = np.full(number, 10.0)
    errors[1:3] = np.nan
    low, high = counts - 3 - 1.96 * errors, counts - 3 + 1.96 * errors
    return Lines("a<b", MONDAY, interval, counts - 3, low, high, events=counts + 5, counted=counts)


def drawn(picture: Lines) -> ElementTree.Element:
    return ElementTree.fromstring(svg(picture, "events in 1 day"))


def points(element: ElementTree.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in element.attrib["points"].split())]


def test_lines_and_bands_are_where_the_numbers_are() -> None:
    root = drawn(lines())
    ticks = {one.text: float(one.attrib["y"]) - 4 for one in root.iter("text") if one.text in {"0", "100"}}
    released = next(points(one) for one in root.iter("polyline") if one.attrib["class"] == "released")
    scale = (ticks["0"] - ticks["100"]) / 100
    assert [(ticks["0"] - y) / scale for _, y in released] == pytest.approx([-3, 17, 37, 57, 77], abs=0.2)
    (band,) = root.iter("polygon")
    heights = [(ticks["0"] - y) / scale for _, y in points(band)]
    # Of the last two, which are next to each other: 57 and 77, with 1.96 times 10 above and below.
    assert heights == pytest.approx([76.6, 96.6, 57.4, 37.4], abs=0.2)
    (alone_one,) = (one for one in root.iter("line") if one.attrib["class"] == "alone")
    top, bottom = ((ticks["0"] - float(alone_one.attrib[name])) / scale for name in ("y1", "y2"))
    assert (top, bottom) == pytest.approx((16.6, -20), abs=0.2)


def test_everything_is_inside_and_axes_say_what_they_are() -> None:
    unknown = replace(lines(), low=np.full(5, np.nan), high=np.full(5, np.nan))
    for picture in (lines(), lines(1), lines(300, HOUR), unknown):
        root = drawn(picture)
        every = [point for one in root.iter("polyline") for point in points(one)]
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in every)
        texts = [one.text or "" for one in root.iter("text")]
        assert {"events in 1 day", "day (UTC)"} <= {*texts}
        assert "5 Jan" in texts
        assert sum(bool(re.fullmatch(r"\d+ [A-Z][a-z]{2}", one)) for one in texts) <= 7


def test_the_last_label_is_not_cut_off() -> None:
    root = drawn(replace(lines(120, 1000), begin=MONDAY + 1000))
    last = next(one for one in root.iter("text") if one.text == "00:02:00")
    # In 13 pixels such a text is 51 wide.
    assert WIDTH - 30 < float(last.attrib["x"]) <= WIDTH - 51 / 2


def test_what_is_counted_has_a_line_each_beside_the_numbers() -> None:
    root = ElementTree.fromstring(svg(lines(), "events in 1 day,", "at most 1 per user"))
    places = [float(one.attrib["x"]) for one in root.iter("text") if one.get("transform")]
    numbers = [float(one.attrib["x"]) for one in root.iter("text") if one.get("text-anchor") == "end"]
    assert len(places) == 2
    assert places[0] + 13 < places[1] < min(numbers) - 25


@pytest.mark.parametrize(
    ("highest", "step"), [(0, 1), (3, 1), (7, 2), (60, 10), (61, 20), (99, 20), (5_300, 1_000), (1e6, 2e5)]
)
def test_steps_are_round(highest: float, step: float) -> None:
    assert nice_step(highest) == step


def test_numbers_of_an_axis_are_short() -> None:
    assert [short(value) for value in (0, -20, 999, 1_500, 20_000, 2.5e6)] == [
        "0", "-20", "999", "1.5k", "20k", "2.5M",
    ]  # fmt: skip


LEGIBLE = """() => [...document.querySelectorAll('svg text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b))"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, text: str) -> Iterator[Show]:
    """Opens the page in a browser of some width and scheme: the tab, and what it asked for, or complained."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(text, encoding="utf-8")
    with sync_playwright() as playwright:
        browser = launched(playwright)

        def show(width: int, scheme: Scheme) -> tuple[Page, list[str]]:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            tab, heard = context.new_page(), []
            tab.on("console", lambda message: heard.append(message.text))
            tab.on("pageerror", lambda error: heard.append(str(error)))
            tab.on("request", lambda request: heard.append(request.url))
            tab.goto(path.as_uri())
            return tab, [one for one in heard if one != path.as_uri()]

        yield show
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_can_be_read_on_a_phone_and_a_desk_by_day_and_by_night(
    shown: Show, width: int, scheme: Scheme
) -> None:
    tab, heard = shown(width, scheme)
    assert heard == []
    for closed in tab.query_selector_all("summary"):
        closed.click()
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate("[...document.querySelectorAll('svg')].length") >= 4
    assert min(tab.evaluate(LEGIBLE)) >= 11
    assert min(tab.evaluate(CONTRASTS)) >= 4.5
    assert tab.evaluate(OVERLAPS) == 0
    assert tab.evaluate(CUT_OFF) == []
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", background)[:3])) < 80) == (scheme == "dark")
