"""A shop's streams and what their sinks hold, made up; `python -m tests.unit.live.shop` draws the page.

The pictures go to docs/: the page as a phone and a desk show it, by day and by night. Needs Chromium, and
Pillow (which matplotlib brings) to make them small.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from math import pi, sin
from pathlib import Path
from random import Random

from eventveil.live.serving import Shown
from eventveil.model.topology import Stream, Topology
from eventveil.read.following import Followed
from eventveil.worker.observe.endpoint import Endpoint
from eventveil.worker.observe.observation import Observation
from tests.unit.browser import launched
from tests.unit.read.making import record
from tests.unit.support import stream, topology

MINUTE, HOUR = 60_000, 3_600_000
DOCS = Path(__file__).parents[3] / "docs"
SIZES = {"page-phone.png": (360, 1130, "dark"), "page-desk.png": (1200, 860, "light")}


def shop() -> Topology:
    """Two streams of counts; the newest timestamp of each is just over."""
    now = time.time_ns() // 1_000_000
    origin = now // HOUR * HOUR - 100 * 24 * HOUR
    made = [
        stream(name, interval=interval, origin=origin, lateness=30_000, clock_skew=1000, window=window,
               labels=labels)
        for name, interval, window, labels in (
            ("sections", HOUR, 24, ("news", "sport", "culture", "weather", "travel", "games")),
            ("checkouts", 10 * MINUTE, 144, ("card", "invoice", "wallet")),
        )
    ]  # fmt: skip
    streams = [replace(one, sink=replace(one.sink, topic=one.name)) for one in made]
    return replace(topology(*streams), name="shop")


def newest(one: Stream) -> int:
    """The last timestamp that is due."""
    now = time.time_ns() // 1_000_000
    rules = one.timeline
    return int((now - rules.origin - rules.lateness - rules.clock_skew) // rules.interval)


def releases(one: Stream, number: int, seed: int = 1, last: int | None = None) -> Iterator[bytes]:
    """``number`` of them up to ``last``: busy days, quiet nights, and two of three are repeated."""
    draw, counts = Random(seed), dict.fromkeys(one.columns, 0)
    last = newest(one) if last is None else last
    for timestamp in range(last - number + 1, last + 1):
        fresh = timestamp % 3 == 0
        if fresh:
            hour = (timestamp * one.timeline.interval / HOUR) % 24
            busy = 1 + sin((hour - 8) / 24 * 2 * pi)
            counts = {
                name: round(2000 * busy / (at + 1) + draw.gauss(0, 60)) for at, name in enumerate(one.columns)
            }
        yield record(
            timestamp, interval=one.timeline.interval, origin=one.timeline.origin, stream=one.name,
            counts=counts, error=60.0 if fresh else 110.0, noise_scale=None, fresh=fresh,
            mechanism="seasonal", window=one.mechanism.window, window_spent=62,
        )  # fmt: skip


def sinks(shown: Topology) -> Generator[Followed | None, None, None]:
    """As they are; nothing comes after."""
    for one in shown.streams:
        for value in releases(one, 48):
            yield Followed(one, value, one.sink.topic)
    while True:
        yield None
        time.sleep(0.2)


@contextmanager
def served(shown: Shown, seen: Observation | None = None) -> Iterator[str]:
    """Where the page is served."""
    endpoint = Endpoint("127.0.0.1", 0, raw=True, shown=shown)
    try:
        if seen is not None:
            endpoint.watch(seen)
        assert endpoint.page is not None
        yield endpoint.page
    finally:
        endpoint.close()


def main() -> None:
    """Draw the pictures of docs/."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    seen = Observation(shop())
    seen.assigned = frozenset()
    with served(Shown(shop(), sinks), seen) as url, sync_playwright() as playwright:
        browser = launched(playwright)
        for name, (width, height, scheme) in SIZES.items():
            seen.beat = time.monotonic()
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(url)
            picture = Image.open(BytesIO(tab.screenshot())).convert(
                "P", palette=Image.Palette.ADAPTIVE, colors=64
            )
            picture.save(DOCS / name, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
