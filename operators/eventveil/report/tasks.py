"""What is left to decide or to check by a person, as a list to tick off."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from eventveil.kinds.registry import KINDS, kind_of
from eventveil.model.fields import in_words
from eventveil.model.topology import Stream, Topology
from eventveil.report.facts import AuditFacts


def tasks(topology: Topology, audit: AuditFacts | None) -> Iterator[str]:
    """The open points; what the audit leaves open first."""
    yield from _of_audit(topology, audit)
    users = sorted({_user(stream) for stream in topology.streams if stream.source.keyed_by == "user"})
    if users:
        yield f"Identity: is one value of {'; '.join(users)} one person, and does it stay the same for years?"
    yield (
        "Budget: are the epsilons over a year acceptable for people who are always there? Who decided"
        " that, and why?"
    )
    if topology.budget is None:
        yield "Cap: the file has none. Set `budget`, or say why the sum of its streams needs no limit."
    if any(stream.mechanism.adjacency == "add-remove" for stream in topology.streams):
        yield (
            "Neighbours: add-remove covers whether people were there. If it is what they did that has to be"
            " hidden, twice the epsilon counts, or `adjacency: substitute`."
        )
    yield "Other releases: is anything else published about the same people? Its epsilon adds to these."
    yield (
        "Choice: were intervals, columns and kinds chosen on older or made-up events, and not on those that"
        " are released? Are the columns public knowledge?"
    )
    expected = [stream.name for stream in topology.streams if stream.counts.expected is not None]
    if expected:
        yield f"counts.expected of {', '.join(expected)}: is it public knowledge, not taken from the events?"
    yield from _trusted(topology)
    yield "Rights: do the brokers' ACLs match the table? They were not read for this page."
    if topology.kafka.security.protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        yield (
            f"Connections ({topology.kafka.security.protocol}): events reach the worker unencrypted. Is the"
            " network protected by other means?"
        )
    yield "Raw events and dead letters: how long are they kept, and does that fit the records of processing?"


def _trusted(topology: Topology) -> Iterator[str]:
    """What others have to guarantee, kind by kind."""
    for kind in KINDS.values():
        names = [one.name for one in topology.all_streams if kind_of(one) is kind]
        if names and kind.to_check is not None:
            who, question = kind.to_check
            yield f"{who} of {', '.join(names)}: {question}"


def _of_audit(topology: Topology, audit: AuditFacts | None) -> Iterator[str]:
    if audit is None:
        command = f"`eventveil report {quote(topology.path)}`"
        yield f"Audit: not done. Run {command} where the brokers can be reached."
        return
    if not audit.clean:
        yield "Audit: it found violations. Find their cause before anything else is released or signed."
    late = [one.stream for one in audit.streams if one.overdue]
    if late:
        yield f"Audit: releases of {', '.join(late)} are overdue. Is a worker running? --barrier shows more."
    if not audit.barrier:
        yield "Audit: it relied on the brokers for the end of the ledger. --barrier proves it."
    if not audit.witness:
        yield "Restored backups: nothing outside Kafka would show one. Keep a file with --witness."
    if audit.others:
        yield f"Streams in the ledger that the file does not have: {', '.join(audit.others)}. Whose are they?"


def _user(stream: Stream) -> str:
    return in_words(stream.source.user, "or")
