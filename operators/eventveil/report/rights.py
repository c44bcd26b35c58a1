"""Who may read and write which topic: what docs/deploy.md and docs/privacy.md ask for, for one topology."""

from __future__ import annotations

from dataclasses import dataclass

from eventveil.lifecycle.topics import plan_topics
from eventveil.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Right:
    """Topics of one role: what they hold, and who may read and write them."""

    role: str
    topics: tuple[str, ...]
    holds: str
    readers: str
    writers: str


_WORKER = "the worker only"
_RULES: dict[str, tuple[str, str, str]] = {
    "source": ("raw events", "the worker; others as raw data", "producers"),
    "dead letters": ("raw events that could not count", "as raw data", _WORKER),
    "re-keyed events": ("raw events", _WORKER, _WORKER),
    "re-keying changelog": ("positions in the raw events", _WORKER, _WORKER),
    "counting changelog": ("positions in the raw events, decided releases", _WORKER, _WORKER),
    "partials": ("exact counts", _WORKER, _WORKER),
    "ledger changelog": ("releases before they are public, for some kinds true sums", _WORKER, _WORKER),
    "state changelog": ("true values that are held back", _WORKER, _WORKER),
    "ledger": ("charges and digests of releases", "anybody, also auditors", _WORKER),
    "control": ("what producers of reports are asked for", "anybody", _WORKER),
    "announcements": ("announced looks at counters", "the worker, and who announces", "who announces"),
    "sink": ("what is released", "anybody it is meant for", _WORKER),
}


def rights(topology: Topology) -> tuple[Right, ...]:
    """What should hold, raw data first; nothing here has asked the brokers for their ACLs."""
    names: dict[str, list[str]] = {}
    for plan in plan_topics(topology, {}):
        names.setdefault(plan.role, []).append(plan.name)
    group = Right(
        "consumer group", (topology.name,), "positions in the raw events: exact counts", _WORKER, _WORKER
    )
    found = [Right(role, tuple(names[role]), *rule) for role, rule in _RULES.items() if role in names]
    assert len(found) == len(names), "every role of a topic has a rule"
    return (*found, group)
