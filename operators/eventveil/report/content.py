"""All that the page says of a topology, before it is laid out. Pure; nothing in it is raw data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import eventveil
from eventveil.describe.guarantee import count
from eventveil.kinds.registry import kind_of
from eventveil.model.topology import AnyStream, Topology
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
            "Not audited. This page says what the file promises; the releases were not checked."
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


def parameters(stream: AnyStream) -> dict[str, str]:
    """The settings that the promise rests on, by name."""
    topics = {"from": stream.source.topic_of_events, "to": stream.sink_topic}
    return topics | kind_of(stream).settings(stream)
