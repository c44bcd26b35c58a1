"""All that the page says of a topology, before it is laid out. Pure; nothing in it is raw data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import eventveil
from eventveil.describe.guarantee import count, duration_words, number
from eventveil.kinds.registry import kind_of
from eventveil.model.topology import AnyStream, Discover, Stream, Topology
from eventveil.report.budget import Population, populations
from eventveil.report.facts import AuditFacts
from eventveil.report.limits import generations, limits
from eventveil.report.rights import Right, rights
from eventveil.report.tasks import tasks

State = Literal["clean", "violated", "not-audited"]


@dataclass(frozen=True, slots=True)
class Promise:
    """A sentence of ``eventveil check``, and the streams that it is said of."""

    streams: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class Document:
    """The page; ``state`` is what the audit makes of it, ``verdict`` the same in words.

    ``sha256`` is that of the topology file. ``parameters`` are the settings of each stream by name.
    """

    topology: str
    path: str
    sha256: str
    created: str
    eventveil: str
    state: State
    verdict: str
    promises: tuple[Promise, ...]
    parameters: dict[str, dict[str, str]]
    populations: tuple[Population, ...]
    rights: tuple[Right, ...]
    audit: AuditFacts | None
    limits: tuple[str, ...]
    tasks: tuple[str, ...]


def document(topology: Topology, sha256: str, created: str, audit: AuditFacts | None) -> Document:
    """The page of a topology; ``created`` is in RFC 3339, ``audit`` None if nothing was audited."""
    state, verdict = _verdict(audit)
    return Document(
        topology=topology.name,
        path=topology.path,
        sha256=sha256,
        created=created,
        eventveil=eventveil.__version__,
        state=state,
        verdict=verdict,
        promises=promises(topology),
        parameters={stream.name: parameters(stream) for stream in topology.all_streams},
        populations=populations(topology),
        rights=rights(topology),
        audit=audit,
        limits=(*limits(topology), *generations(() if audit is None else audit.life)),
        tasks=tuple(tasks(topology, audit)),
    )


def _verdict(audit: AuditFacts | None) -> tuple[State, str]:
    if audit is None:
        return "not-audited", (
            "Not audited. This page says what the file promises; nobody has looked at what was released."
        )
    if not audit.clean:
        return "violated", (
            f"Violated: the audit found {count(audit.violations, 'violation')}. What this page promises does"
            " not hold for what was released."
        )
    if not any(one.entries for one in audit.life):
        return "clean", "Audited, no violations: nothing has been released yet."
    return "clean", (
        "Audited, no violations: each release was charged, within epsilon, and none was published twice."
    )


def promises(topology: Topology) -> tuple[Promise, ...]:
    """What ``check`` says of the streams; a sentence that is the same for several is there once."""
    said: dict[str, list[str]] = {}
    for stream in topology.all_streams:
        for sentence in kind_of(stream).describe(topology, stream):
            said.setdefault(sentence, []).append(stream.name)
    alike: dict[tuple[str, ...], list[str]] = {}
    for sentence, names in said.items():
        alike.setdefault(tuple(names), []).append(sentence)
    return tuple(Promise(names, " ".join(sentences)) for names, sentences in alike.items())


def _text_of(value: object) -> str:
    """An option: a small number such as a delta to three digits, any other as it is written."""
    if isinstance(value, Fraction):
        return number(value) if value >= Fraction(1, 1000) else f"{float(value):.3g}"
    return str(value)


def parameters(stream: AnyStream) -> dict[str, str]:
    """The settings that the promise rests on, by name."""
    if not isinstance(stream, Stream):
        settings = {"step": stream.step_text, "epsilon per value": stream.mechanism.epsilon_text}
        return {**_ends(stream), "kind": stream.mechanism.kind, **settings}
    mechanism, timeline, how = stream.mechanism, stream.timeline, stream.counts.discover
    options = ", ".join(f"{name} {_text_of(value)}" for name, value in sorted(mechanism.options.items()))
    return {
        **_ends(stream),
        "kind": mechanism.kind + (f" ({options})" if options else ""),
        "epsilon": mechanism.epsilon_text if how is None else number(stream.epsilon),
        "window": str(mechanism.window),
        "timestamp": duration_words(timeline.interval),
        "columns": str(len(stream.columns)) if how is None else _found(how),
        "events per user": _bound(stream),
        "neighbours": mechanism.adjacency,
    }


def _found(how: Discover) -> str:
    return (
        f"found in the data, at most {how.most}, for epsilon {number(how.epsilon)} and delta"
        f" {float(how.delta):.3g} of these"
    )


def _bound(stream: Stream) -> str:
    if kind_of(stream).name == "pan-private":
        return "trusted"
    per_column = stream.counts.per_column
    bound = str(stream.bound) if per_column is None else f"{stream.bound}, in one column {per_column}"
    return f"{bound} (the engine's word)" if kind_of(stream).name == "engine" else bound


def _ends(stream: AnyStream) -> dict[str, str]:
    kind = kind_of(stream)
    return {"from": kind.source(stream), "to": kind.sink(stream)}
