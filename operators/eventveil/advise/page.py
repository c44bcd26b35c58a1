"""The advice as one HTML page that needs nothing else: raw data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import numpy as np

from eventveil.advise import report
from eventveil.advise.choices import Candidate
from eventveil.advise.reading import ReadEvents
from eventveil.advise.report import ErrorRow, bound_words, kind_words, percent, unit_words
from eventveil.advise.scoring import HOPELESS
from eventveil.advise.searching import Findings
from eventveil.advise.trials import Outcome
from eventveil.describe.guarantee import duration_words
from eventveil.describe.page import filled, items, paragraphs
from eventveil.describe.picture import Lines, svg
from eventveil.model.timeline import start_of
from eventveil.model.topology import Timeline

_TEMPLATE = Path(__file__).with_name("page.html")
#: How many timestamps fit into a picture, columns into a list, and choices are shown at first.
_POINTS, _COLUMNS, _FIRST = 336, 24, 8
#: 95 % of normal errors are within this many standard deviations.
TWO_SIDED = 1.96
_HEADS = ("large", "middle", "small", "all columns", "left out")


def page(findings: Findings, read: ReadEvents, topology: str, promise: Sequence[str], whole: Outcome) -> str:
    """The page; ``topology`` is the text of the recommended one, ``whole`` a run of it."""
    question = findings.question
    lines = report.rows(findings)
    parts = {
        "TITLE": f"Totals of {report.a_unit(question.unit)} at epsilon {question.epsilon}",
        "LEAKS": report.LEAKS,
        "RAW": report.RAW,
        "EVENTS": report.events(findings, read),
        "TRIED": report.tried(findings),
        "UNIT": report.a_unit(question.unit),
        "EPSILON": question.epsilon,
        "ACCURACY": percent(question.accuracy),
        "TOPOLOGY": topology,
    }
    markup = {
        "TILES": _tiles(findings),
        "RECOMMENDED": paragraphs(report.recommendation(findings)),
        "PICTURES": "".join(_pictures(findings, whole)),
        "COLUMNS": "".join(_columns(findings)),
        "BOUNDS": "".join(_bounds(findings)),
        "CHOICES": "".join(map(_choice, lines[:_FIRST])),
        "MORE": "".join(map(_choice, lines[_FIRST:])),
        "PROMISE": items(promise),
        "IMPOSSIBLE": items(report.impossible(findings)),
    }
    return filled(_TEMPLATE, parts, markup, verbatim=("TOPOLOGY",))


def _tiles(findings: Findings) -> str:
    """The three numbers that matter most."""
    best, question = findings.best, findings.question
    one, totals = findings.scores[best], findings.totals(best)
    largest = report.largest(findings, best)
    error, left = float(one.columns[largest]), findings.lost(best)
    within = int(np.count_nonzero(one.columns <= question.accuracy))
    numbers = [
        (percent(error), f"mean error of the largest column, {findings.labels(best)[largest]}"),
        (f"{within} of {totals.shape[1]}", f"columns within {percent(question.accuracy)}"),
        (percent(left), "of all events left out by bounding"),
    ]
    return "".join(
        f'<div class="tile"><b>{escape(number)}</b><span>{escape(what)}</span></div>'
        for number, what in numbers
    )


def _pictures(findings: Findings, whole: Outcome) -> Iterator[str]:
    """One of the largest column, and a few smaller ones."""
    assert whole.released is not None
    assert whole.errors is not None
    choice = findings.best
    labels, first = findings.labels(choice), max(0, len(whole.released) - _POINTS)
    timeline = Timeline(choice.interval, findings.tally.origin)
    events, counted = findings.events(choice)[first:], findings.counts(choice)[first:]
    for column in _shown(findings, choice):
        lines = Lines(
            labels[column],
            start_of(timeline, first + 1),
            choice.interval,
            released := whole.released[first:, column].astype(np.float64),
            released - TWO_SIDED * whole.errors[first:, column],
            released + TWO_SIDED * whole.errors[first:, column],
            events=events[:, column].astype(np.float64),
            counted=counted[:, column].astype(np.float64),
        )
        error = percent(float(findings.scores[choice].columns[column]))
        picture = svg(lines, f"events in {duration_words(choice.interval)}")
        yield (
            f"<figure><figcaption><b>{escape(labels[column])}</b>: the {unit_words(findings.question.unit)}'s"
            f" total is off by {error}</figcaption>{picture}</figure>"
        )


def _shown(findings: Findings, choice: Candidate) -> list[int]:
    """The largest, one in the middle, the smallest that is not hopeless, and what is rolled up or is."""
    order = np.argsort(-findings.totals(choice).sum(axis=0), kind="stable").tolist()
    errors = findings.scores[choice].columns
    readable = [column for column in order if errors[column] <= HOPELESS] or order[:1]
    rolled = [len(order) - 1] if choice.rolled else []
    chosen = [order[0], readable[len(readable) // 2], readable[-1], *(rolled or [order[-1]])]
    return list(dict.fromkeys(chosen))[:4]


def _columns(findings: Findings) -> Iterator[str]:
    """Errors of the columns under the best choice, as bars on a scale that ends at 100 %."""
    choice = findings.best
    one, totals, labels = (
        findings.scores[choice],
        findings.totals(choice).sum(axis=0),
        findings.labels(choice),
    )
    order = np.argsort(-totals, kind="stable").tolist()
    for column in order[:_COLUMNS]:
        error = float(one.columns[column])
        verdict = (
            "bad" if not error <= HOPELESS else "good" if error <= findings.question.accuracy else "fair"
        )
        yield (
            f'<li><span class="name">{escape(labels[column])}</span>'
            f'<span class="size">{totals[column] / findings.tally.units:,.0f}</span>'
            f'<span class="bar"><i class="{verdict}" style="width:{_width(error)}"></i></span>'
            f'<span class="number">{percent(error)}</span></li>'
        )
    if len(order) > _COLUMNS:
        rest = len(order) - _COLUMNS
        yield f"<li class=rest>and {rest} smaller column{'s' * (rest > 1)}</li>"


def _width(error: float) -> str:
    return "100%" if math.isnan(error) else f"{min(100.0, max(0.6, 100 * error)):.1f}%"


def _bounds(findings: Findings) -> Iterator[str]:
    """What every bound leaves out at the best interval, and the least error that any kind has with it."""
    best = findings.best
    here = [one for one in findings.scores if (one.interval, one.rolled) == (best.interval, best.rolled)]
    for bounding in sorted({one.bounding for one in here}):
        tried = [one for one in here if one.bounding == bounding]
        left, error = findings.lost(tried[0]), min(findings.scores[one].pooled for one in tried)
        chosen = ' class="chosen"' if bounding == best.bounding else ""
        yield (
            f'<li{chosen}><span class="name">{bound_words(bounding)}</span>'
            f'<span class="bar"><i class="left" style="width:{_width(left)}"></i></span>'
            f'<span class="number">{percent(left)}</span>'
            f'<span class="bar"><i class="fair" style="width:{_width(error)}"></i></span>'
            f'<span class="number">{percent(error)}</span></li>'
        )


def _choice(row: ErrorRow) -> str:
    """A row of the table, which a narrow window shows as a block of its own."""
    numbers = (row.large, row.middle, row.small, row.every, row.left_out)
    cells = "".join(
        f'<td data-head="{head}" class="n">{percent(number)}</td>'
        for head, number in zip(_HEADS, numbers, strict=True)
    )
    chosen = ' class="chosen"' if row.best else ""
    return (
        f"<tr{chosen}><th scope=row>{escape(row.interval)}</th>"
        f"<td data-head=kind>{escape(kind_words(row.choice))}</td>"
        f'<td data-head="events per user" class="n">{bound_words(row.choice.bounding)}</td>'
        f'<td data-head="window" class="n">{row.window}</td>{cells}</tr>'
    )
