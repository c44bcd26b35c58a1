"""The page: one file of HTML that needs nothing else, and prints on A4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from eventveil.audit.periods import ChargedPeriod
from eventveil.audit.versions import StreamVersions, VersionSpan
from eventveil.describe.guarantee import count, number
from eventveil.describe.page import filled, items, paragraphs, table
from eventveil.report.budget import SPANS, Population
from eventveil.report.content import Document, Promise
from eventveil.report.facts import AuditFacts

_TEMPLATE = Path(__file__).with_name("page.html")
#: How many rows of ledgers' lives (at least one of each stream), and findings, the page has.
_ROWS, _FINDINGS = 12, 12
#: Above this many streams it is printed smaller.
_FEW = 4
#: How much of a hash is on the page; --json has all of it.
_SHOWN = 16
#: How many versions (at least one of each stream) are on the page, the newest.
_VERSIONS = 6


def page(document: Document) -> str:
    """The page of a document."""
    text = {
        "TITLE": f"Privacy report: {document.topology}",
        "STATE": document.state,
        "VERDICT": document.verdict,
        "SIZE": "many" if len(document.parameters) > _FEW else "few",
        "MADE": (
            f"{document.path} (SHA-256 {document.sha256}). Written {document.created} by eventveil"
            f" {document.eventveil}."
        ),
    }
    markup = {
        "FINDINGS": _findings(document.audit),
        "PROMISES": "".join(map(_promise, document.promises)),
        "PARAMETERS": _parameters(document),
        "BUDGET": "".join(map(_population, document.populations)),
        "RIGHTS": table(
            ("role", "topics", "holds", "may read", "may write"),
            (
                (one.role, ", ".join(one.topics), one.holds, one.readers, one.writers)
                for one in document.rights
            ),
        ),
        "AUDIT": "".join(_audit(document.audit)),
        "LIMITS": items(document.limits),
        "TASKS": items(document.tasks),
    }
    return filled(_TEMPLATE, text, markup)


def _findings(audit: AuditFacts | None) -> str:
    if audit is None or audit.clean:
        return ""
    more = audit.violations - len(audit.findings[:_FINDINGS])
    rest = (f"and {more} more; `eventveil ledger` lists them",) if more else ()
    return f"<ul>{items((*audit.findings[:_FINDINGS], *rest))}</ul>"


def _promise(one: Promise) -> str:
    return f"<p><b>{escape(', '.join(one.streams))}.</b> {escape(one.sentence)}</p>"


def _parameters(document: Document) -> str:
    """A row for each setting that any stream has, a column for each stream; turned where streams are many."""
    heads = list(dict.fromkeys(name for one in document.parameters.values() for name in one))
    rows = [
        (stream, *(given.get(head, "-") for head in heads)) for stream, given in document.parameters.items()
    ]
    return table(("stream", *heads), rows)


def _population(one: Population) -> str:
    parts = [f"<h3>Population {escape(one.name)}</h3>"]
    if one.lines:
        rows = [(line.stream, line.promise, *line.epsilons) for line in one.lines]
        rows.append(("together", "", *one.together))
        if one.deltas is not None:
            rows.append(("", "with delta", *one.deltas))
        if one.instead is not None:
            rows.append(("what they did instead", "and not only whether they were there", *one.instead))
        if one.instead_deltas is not None:
            rows.append(("", "with delta", *one.instead_deltas))
        parts.append(table(("stream", "epsilon promised", *SPANS), rows, numbers=range(2, 2 + len(SPANS))))
    parts.append(paragraphs((one.cap, *(f"In no sum: {line}." for line in one.beside))))
    return "".join(parts)


def _audit(audit: AuditFacts | None) -> Iterator[str]:
    if audit is None:
        yield paragraphs(("Nothing was read from the brokers (--without-audit).",))
        return
    how = "up to what the brokers proved (--barrier)" if audit.barrier else "up to what the brokers showed"
    yield paragraphs((f"Done {audit.at} on cluster {audit.cluster}, {how}.",))
    yield f"<ul>{items((*_told(audit), *_versions(audit.versions)))}</ul>"
    if not audit.life:
        return
    rows = [_period(one) for one in _newest(audit.life)]
    heads = ("stream", "from", "to", "kind, epsilon, window", "releases", "charged", "records", "digest")
    yield table(heads, rows, numbers=range(4, 7))
    if left := len(audit.life) - len(rows):
        yield paragraphs((f"{left} earlier rows are in `eventveil report --json`; the digests cover them.",))


def _newest(life: Sequence[ChargedPeriod]) -> list[ChargedPeriod]:
    """The newest rows of each stream, in their order."""
    by_stream: dict[str, list[ChargedPeriod]] = {}
    for one in life:
        by_stream.setdefault(one.stream, []).append(one)
    each = max(1, _ROWS // len(by_stream))
    return [one for periods in by_stream.values() for one in periods[-each:]]


def _told(audit: AuditFacts) -> Iterator[str]:
    for one in audit.streams:
        yield "; ".join(line.strip() for line in one.lines)
    if audit.others:
        yield f"not in this file, so not checked: {', '.join(audit.others)}"
    yield from audit.notes


def _versions(found: Sequence[StreamVersions]) -> Iterator[str]:
    """Which versions have decided the releases of each stream, and when, the newest last."""
    told = []
    for one in found:
        shown = one.versions[-max(1, _VERSIONS // len(found)) :]
        left = len(one.versions) - len(shown)
        earlier = [f"{left} earlier (in --json)"] if left else []
        told.append(f"{one.stream} by {', '.join([*earlier, *map(_version, shown)]) or 'none yet'}")
    if told:
        yield f"Versions of eventveil that released: {'; '.join(told)}"
    if unnamed := [f"{one.unnamed} of {one.stream}" for one in found if one.unnamed]:
        yield (
            f"Releases between these that name no version, so that an earlier one has run meanwhile:"
            f" {', '.join(unnamed)}"
        )


def _version(one: VersionSpan) -> str:
    by = "a version not recorded" if one.version is None else one.version
    if one.first is None:
        return f"{by} ({count(one.entries, 'span')})"
    return f"{by} (timestamps {one.first} to {one.last}, {_day(one.begin)} to {_day(one.end)})"


def _day(time: str | None) -> str:
    """The day of a time, in UTC."""
    return "-" if time is None else time[:10]


def _period(one: ChargedPeriod) -> tuple[str, ...]:
    again = f", generation {one.generation}" if one.generation > 1 else ""
    window = "" if one.window is None else f", {one.window}"
    entries = f"{one.entries} ({one.fresh} fresh)" if one.begin else f"{one.entries} spans"
    charged = (
        "-" if one.charged is None else number(one.charged) if _short(one) else f"{float(one.charged):.4g}"
    )
    kind = f"{one.mechanism}, {one.epsilon}{window}; instance {one.instance[:8]}"
    return (
        f"{one.stream}{again}", _when(one.begin), _when(one.end), kind, entries, charged, str(one.records),
        one.digest[:_SHOWN],
    )  # fmt: skip


def _when(time: str | None) -> str:
    """A time without its seconds, in UTC."""
    return "-" if time is None else time[:16].replace("T", " ")


def _short(one: ChargedPeriod) -> bool:
    return one.charged is not None and len(number(one.charged)) <= 6
