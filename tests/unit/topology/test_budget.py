"""What the cap of a file says when it is exceeded: why, and what keeps it, which is then tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventveil.topology.loading import load
from eventveil.topology.problems import TopologyInvalid

FILE = """\
version: 1
name: shop
kafka: {{bootstrap: localhost:9092}}
budget: {{epsilon: {cap}, delta: {delta}, span: {span}, users: customers}}
streams:
  views:
    source: {{topic: views, user: /user, column: /page, time: /at, users: customers}}
    counts: {{columns: {columns}, contributions: 1}}
    timeline: {{interval: 1h, origin: 2026-01-01T00:00:00Z}}
    mechanism: {{kind: seasonal, epsilon: 1, window: {views}}}
    sink: {{topic: views.sanitized}}
    dead_letter: views.dead
  sales:
    source: {{topic: views, user: /user, column: /page, time: /at, users: customers}}
    counts: {{columns: [a, b], contributions: 1}}
    timeline: {{interval: 1h, origin: 2026-01-01T00:00:00Z}}
    mechanism: {{kind: seasonal, epsilon: 1, window: {sales}}}
    sink: {{topic: sales.sanitized}}
    dead_letter: views.dead
"""
MEETS = (
    "a span of 1d that begins within a timestamp overlaps 25 timestamps of views, which are 2 windows of 24,"
    " and 25 timestamps of sales, which are 2 windows of 24; "
)
MEETS_VIEWS = MEETS.partition(", and")[0] + "; "
LOWER = "lower their epsilon, widen their windows, or raise the cap"
USUAL = {"span": "24h", "views": 24, "sales": 24, "columns": "[a, b]", "delta": "1e-9"}
FOUND = {"columns": "{discover: {delta: 1e-9}}", "cap": 4}


def problems(folder: Path, **settings: object) -> list[str]:
    path = folder / "shop.yaml"
    path.write_text(FILE.format(**USUAL | settings))
    try:
        load(str(path), {})
    except TopologyInvalid as error:
        return [one.message for one in error.problems]
    return []


@pytest.mark.parametrize(
    ("settings", "told", "remedies"),
    [
        (
            {"cap": 2},
            MEETS + f"window: 25 of views and 25 of sales or span: 23h keeps the cap, or {LOWER}",
            [{"views": 25, "sales": 25}, {"span": "23h"}],
        ),
        (
            {"cap": 3},
            MEETS + f"window: 25 of views or span: 23h keeps the cap, or {LOWER}",
            [{"views": 25}, {"span": "23h"}],
        ),
        ({"cap": 1}, MEETS + LOWER, []),
        (FOUND, MEETS_VIEWS + "span: 23h keeps the cap, or lower them, or raise the cap", [{"span": "23h"}]),
        ({"cap": 1, "span": "1h", "views": 2, "sales": 2}, f"expected at most 1; {LOWER}", []),
    ],
)
def test_a_cap_that_is_exceeded_names_the_reason_and_what_keeps_it(
    settings: dict[str, object], told: str, remedies: list[dict[str, object]], tmp_path: Path
) -> None:
    (message,) = problems(tmp_path, **settings)
    assert message.endswith(told)
    for remedy in remedies:
        assert problems(tmp_path, **settings | remedy) == []


def test_a_longer_span_than_the_one_that_keeps_the_cap_exceeds_it(tmp_path: Path) -> None:
    assert problems(tmp_path, cap=2, span="82800s") == []
    assert len(problems(tmp_path, cap=2, span="82801s")) == 1
