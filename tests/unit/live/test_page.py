"""The page: what it says, what it may load, and how it looks in a browser."""

from __future__ import annotations

import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page, expect, sync_playwright

from eventveil.cli.main import main
from eventveil.cli.run import _has_page
from eventveil.live.page import headers, page
from eventveil.live.recent import Recent
from eventveil.live.serving import Shown
from eventveil.model.topology import Topology
from eventveil.read.following import Followed
from eventveil.worker.observe.observation import Observation
from tests.unit.browser import CONTRASTS, CUT_OFF, OVERLAPS, launched
from tests.unit.live import shop as made
from tests.unit.live.test_recent import VIEWS, release
from tests.unit.read.making import HOUR, ORIGIN
from tests.unit.support import stream, topology

pytestmark = pytest.mark.slow

Scheme = Literal["light", "dark"]
EVIL = ("<script>alert(1)</script>", "__TITLE__", "\"'><img src=x onerror=alert(1)>" + "long-" * 30)


def text_of(number: int, late: int = 0, obstacles: tuple[str, ...] = (), **fields: object) -> str:
    """The page of one stream with this number of releases, ``late`` seconds after the next one was due."""
    kept = Recent(VIEWS)
    for at in range(1, number + 1):
        kept.take(release(at, **fields), "here")
    due = ORIGIN + (number + 1) * HOUR + 61_000
    seen = {"views": kept.seen()}
    return page(topology(VIEWS), seen, "", obstacles, {}, due + 1000 * late)


def words(text: str) -> str:
    """What is read of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text.partition("<main>")[2])).replace("&nbsp;", " ")


def test_counts_intervals_kind_budget_and_the_next_release_are_on_it() -> None:
    told = words(text_of(5, -10, error=10.0, noise_scale=None, window_spent=75))
    assert "home 500 480 to 520" in told
    assert "Timestamp 5, from 2026-03-01T04:00:00Z, fresh" in told
    assert "0.75 of 1 of epsilon spent in the window of 24 timestamps; 0.25 left (uniform)" in told
    assert "2026-03-01T06:01:01Z timestamp 6 is due" in told
    assert "On time. Counts stand out from noise; set counts.expected" in told
    assert "The worker is ready." in told


def test_the_budget_of_a_gaussian_stream_is_the_epsilon_of_its_mu_squared_at_delta() -> None:
    fields: dict[str, Any] = {"noise": "gaussian", "delta": "1/1000000000", "units": 24, "window_spent": 1}
    told = words(text_of(1, -10, error=10.0, noise_scale=None, **fields))
    assert re.search(r"0\.191\d* of 1 of epsilon at delta 1e-09 spent in the window", told)


@pytest.mark.parametrize(("contributions", "per_column", "most"), [(1, None, 1), (3, None, 3), (3, 2, 2)])
def test_pictures_say_how_many_events_of_a_user_count(
    contributions: int, per_column: int | None, most: int
) -> None:
    counts = replace(VIEWS.counts, contributions=contributions, per_column=per_column)
    one = replace(VIEWS, counts=counts)
    kept = Recent(one)
    kept.take(release(1), "here")
    told = words(page(topology(one), {"views": kept.seen()}, "", (), {}, ORIGIN + HOUR))
    assert f"events in 1 hour, at most {most} per user" in told


def test_before_the_first_release_the_worker_says_when_it_is_due() -> None:
    seen = {"views": Recent(VIEWS).seen()}
    due = ORIGIN + 8 * HOUR + 61_000
    told = words(page(topology(VIEWS), seen, "", (), {"views": 8}, due - 1000))
    assert "Waiting for its first release." in told
    assert "2026-03-01T08:01:01Z timestamp 8 is due" in told
    late = words(page(topology(VIEWS), seen, "", (), {"views": 8}, due + 61_000))
    assert "2026-03-01T08:01:01Z timestamp 8 is due; overdue for 61 s" in late


def test_repeated_releases_are_told_apart_in_words_and_by_marks() -> None:
    fresh, repeated = text_of(5), text_of(5, fresh=False)
    assert fresh.count('<circle class="mark" cx=') == repeated.count('<circle class="mark" cx=') + 2 * 5
    assert "2026-03-01T04:00:00Z repeated 500 (" in words(repeated)
    assert "2026-03-01T04:00:00Z fresh 500 (" in words(fresh)
    predicted = words(text_of(5, fresh=False, mechanism="seasonal"))
    assert "2026-03-01T04:00:00Z predicted 500 (" in predicted
    assert "from 2026-03-01T04:00:00Z, predicted" in predicted
    assert "timestamp 5, predicted" in predicted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (text_of(0), "Waiting for its first release. It comes when the first timestamp"),
        (text_of(5, 3600), "Late. The next release has been due for"),
        (text_of(5, counts={"home": 1, "basket": 0}), "Nothing counts. No count stands out from noise"),
        (text_of(2), "On time. Too few releases to say whether events count (last 2 releases)"),
        (text_of(1, obstacles=("raw <is> held",)), "The worker is waiting. raw &lt;is&gt; held"),
        (page(topology(VIEWS), {}, "no <broker>", (), {}, 0), "The sinks cannot be read. no &lt;broker&gt;"),
        (page(topology(VIEWS), {}, "", (), {}, 0), "Not known yet. The sink is being read."),
        (text_of(4, counts={"other": 1}), "Not everything can be shown. 4 of the last 48 records"),
    ],
)  # fmt: skip
def test_it_says_what_is_waited_for_and_what_is_wrong(text: str, told: str) -> None:
    assert told in words(text)


def test_whatever_columns_are_called_is_text() -> None:
    wild = stream("views", interval=HOUR, origin=ORIGIN, window=24, labels=EVIL)
    kept = Recent(wild)
    kept.take(release(1, counts=dict(zip(EVIL, (3, 2, 1), strict=True))), "here")
    text = page(topology(wild), {"views": kept.seen()}, "", (), {}, ORIGIN)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert ">__TITLE__<" in text
    assert "<img" not in text
    assert text.count("<script>") == 1
    assert "unsafe" not in headers(text)["Content-Security-Policy"]


def test_gaps_are_gaps_and_lines_do_not_cross_them() -> None:
    kept = Recent(VIEWS)
    for at in (1, 2, 5, 6):
        kept.take(release(at), "here")
    text = page(topology(VIEWS), {"views": kept.seen()}, "", (), {}, ORIGIN)
    first = text.partition("<figure>")[2].partition("</figure>")[0]
    # Four rows: the timestamps 3 to 6, of which the first two are missing.
    assert first.count('<polyline class="released"') == 1
    assert first.count('<circle class="mark"') == 2


@pytest.mark.parametrize(
    ("wanted", "host", "has"),
    [
        (None, "127.0.0.1", True),
        (None, "::1", True),
        (None, "localhost", True),
        (None, "0.0.0.0", False),
        (None, "metrics.internal", False),
        (True, "0.0.0.0", True),
        (False, "127.0.0.1", False),
    ],
)
def test_unless_asked_for_it_is_served_to_this_machine_alone(
    wanted: bool | None, host: str, has: bool
) -> None:
    assert _has_page(wanted, host) == has


def test_a_page_without_an_address_is_wrong_usage() -> None:
    called = CliRunner().invoke(main, ["run", "topology.yaml", "--page", "--metrics", "off"])
    assert called.exit_code == 2
    assert "--page needs --metrics" in called.output


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def quiet(_: Topology) -> Generator[Followed | None, None, None]:
    yield None


def test_raw_metrics_do_not_make_the_page_raw() -> None:
    seen = Observation(topology(VIEWS))
    seen.mistakes = ("topic raw: message.timestamp.type",)
    seen.assigned = frozenset()
    seen.events["views", "counted"] = 123_456_789
    with made.served(Shown(topology(VIEWS), quiet), seen) as url:
        status, text = get(url)
        metrics = get(url + "metrics")[1]
    assert 'eventveil_events_total{outcome="counted",stream="views"} 1.23456789e+08' in metrics
    assert status == 200
    assert "message.timestamp.type" in text
    assert "123456789" not in text
    assert "123,456,789" not in text


class Sink:
    """Sinks that a test writes to."""

    def __init__(self, topology: Topology) -> None:
        self._streams = {one.name: one for one in topology.streams}
        self._records: list[Followed] = []
        self._changed = threading.Condition()

    def write(self, name: str, *records: bytes) -> None:
        with self._changed:
            self._records += [Followed(self._streams[name], one, "here") for one in records]
            self._changed.notify_all()

    def read(self, _: Topology) -> Generator[Followed | None, None, None]:
        told = 0
        while True:
            with self._changed:
                found = self._records[told:]
            yield from found
            told += len(found)
            yield None
            with self._changed:
                if len(self._records) == told:
                    self._changed.wait(0.2)


Open = Callable[[str, int, Scheme], tuple[Page, list[str]]]


@pytest.fixture(scope="module")
def opened() -> Iterator[Open]:
    """Opens an address in a browser of some width and scheme: the tab, and what it said or asked for."""
    with sync_playwright() as playwright:
        browser = launched(playwright)

        def show(url: str, width: int, scheme: Scheme) -> tuple[Page, list[str]]:
            tab = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            ).new_page()
            heard: list[str] = []
            tab.on("console", lambda message: heard.append(message.text))
            tab.on("pageerror", lambda error: heard.append(str(error)))
            tab.on("request", lambda request: heard.append(request.url) if request.url != url else None)
            tab.goto(url)
            return tab, heard

        yield show
        browser.close()


@pytest.fixture
def shop() -> Iterator[tuple[str, Sink, Topology]]:
    """A page of two streams, one of which has odd names; it asks for itself four times a second."""
    topology = made.shop()
    odd = replace(topology.streams[1], counts=replace(topology.streams[1].counts, labels=EVIL))
    topology = replace(topology, streams=(topology.streams[0], odd))
    sink = Sink(topology)
    for one in topology.streams:
        sink.write(one.name, *made.releases(one, 48))
    seen = Observation(topology)
    with ExitStack() as stack:
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(0.5):
                seen.beat = time.monotonic()

        threading.Thread(target=beat, daemon=True).start()
        stack.callback(stop.set)
        seen.assigned = frozenset()
        yield stack.enter_context(made.served(Shown(topology, sink.read, 250), seen)), sink, topology


LEGIBLE = """() => [...document.querySelectorAll('figure svg text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_it_can_be_read_on_a_phone_and_a_desk_by_day_and_by_night(
    opened: Open, shop: tuple[str, Sink, Topology], width: int, scheme: Scheme
) -> None:
    tab, heard = opened(shop[0], width, scheme)
    for closed in tab.query_selector_all("summary"):
        closed.click()
    assert heard == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.locator("figure").count() == 6
    assert min(tab.evaluate(LEGIBLE)) >= 11
    assert min(tab.evaluate(CONTRASTS)) >= 4.5
    assert tab.evaluate(OVERLAPS) == 0
    assert tab.evaluate(CUT_OFF) == []
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", background)[:3])) < 80) == (scheme == "dark")
    tab.context.close()


def test_it_follows_the_sinks_and_leaves_what_is_open_and_focused_as_it_is(
    opened: Open, shop: tuple[str, Sink, Topology]
) -> None:
    url, sink, topology = shop
    tab, heard = opened(url, 1280, "light")
    # With the keyboard alone: through the links to both streams, to the numbers of the first one.
    for _ in range(3):
        tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.tagName") == "SUMMARY"
    tab.keyboard.press("Enter")
    tab.evaluate("window.mark = document.getElementById('s2-pictures').firstChild")
    (one, _) = topology.streams
    following = made.newest(one) + 1
    sink.write(one.name, *made.releases(one, 1, last=following))
    expect(tab.locator("#s1-state")).to_contain_text(f"timestamp {following},", timeout=60_000)
    assert tab.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert tab.evaluate("document.activeElement.parentElement.open")
    # What has not changed is the same element, so it does not flicker.
    assert tab.evaluate("window.mark === document.getElementById('s2-pictures').firstChild")
    assert heard == []
    tab.context.close()


def test_when_the_worker_stops_the_page_says_since_when_it_is_old(opened: Open) -> None:
    topology = made.shop()
    sink = Sink(topology)
    with made.served(Shown(topology, sink.read, 100)) as url:
        tab, _ = opened(url, 360, "light")
        assert tab.locator("#lost").is_hidden()
        assert tab.locator("#s1-state").inner_text().startswith("Waiting for its first release.")
        assert "starting" in tab.locator("#worker").inner_text()
    tab.locator("#lost").wait_for(state="visible")
    assert re.search(r"is from 20\d\d-\d\d-\d\dT", tab.locator("#lost").inner_text())
    tab.context.close()


def test_nothing_else_may_be_loaded_or_run(opened: Open, shop: tuple[str, Sink, Topology]) -> None:
    tab, heard = opened(shop[0], 1280, "light")
    tab.evaluate("""() => {
        const image = document.createElement('img'); image.src = 'http://192.0.2.1/x.png';
        const script = document.createElement('script'); script.textContent = 'window.ran = 1';
        document.body.append(image, script);
    }""")
    assert tab.evaluate("window.ran === undefined")
    refused = [one for one in heard if "Content Security Policy" in one]
    assert len(refused) == 2
    tab.context.close()
