"""A topology with one stream, as a file that ``eventveil check`` accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from eventveil.model import fields
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import Condition, NameMap, Source
from eventveil.topology.scalars import duration_text

#: More columns than these are better off in a file of their own.
LONGEST_LIST = 200
_DEFAULTS = Source("", "", "", "")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,30}[A-Za-z0-9]")
#: A field of a record around its value, which needs neither quotes nor a second dollar sign.
_AROUND = re.compile(r"\$(key|time|headers/[A-Za-z0-9_.-]+)")
#: Words that YAML, or a reader of it, takes for something else than text.
_RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "inf", "nan"})


@dataclass(frozen=True, slots=True)
class TopologyPlan:
    """What a topology with one stream says.

    ``origin`` and ``interval`` are in milliseconds, ``unknown`` as in a topology. ``columns`` are labels, or
    whole numbers as texts if ``column_type`` is integer. ``user``, ``column`` and ``time`` are as in the
    model. ``rules`` and ``times`` are further lines of the source and of the timeline, ``minimum`` is the
    sink's, ``remarks`` are comments of one line each. ``sections`` are those that say where the brokers are
    and how topics are created, as they are written; None: those of a file that is new. ``sink`` and
    ``dead_letter`` are topics; None: as the topic is called.
    """

    name: str
    stream: str
    topic: str
    user: str
    column: str
    time: str
    interval: int
    origin: int
    columns: Sequence[str]
    kind: str
    epsilon: str
    window: int
    unknown: str = "dead-letter"
    contributions: int = 1
    per_column: int = 0
    user_type: str = "string"
    column_type: str = "string"
    partitioner: str | None = "murmur2"
    adjacency: str = "add-remove"
    options: Mapping[str, str] = field(default_factory=dict)
    minimum: int | None = None
    rules: Sequence[str] = ()
    remarks: Sequence[str] = ()
    times: Sequence[str] = ()
    sections: str | None = None
    sink: str | None = None
    dead_letter: str | None = None


_NEW_SECTIONS = """kafka:
  bootstrap: ${KAFKA_BOOTSTRAP:localhost:9092}
topics:
  replication: ${KAFKA_REPLICATION:3}
  min_insync: ${KAFKA_MIN_INSYNC:2}
"""


def topology_text(plan: TopologyPlan, columns_file: str | None = None) -> str:
    """The text of the file; the columns are in ``columns_file``, one a line, if it is given."""
    remarks = "".join(f"# {remark}\n" for remark in plan.remarks)
    types = f"\n      user_type: {plan.user_type}" if plan.user_type != "string" else ""
    types += "".join(f"\n      {rule}" for rule in plan.rules)
    types += "" if plan.partitioner is None else f"\n      partitioner: {plan.partitioner}"
    times = "".join(f"\n      {line}" for line in plan.times)
    adjacency = {"adjacency": plan.adjacency} if plan.adjacency != "add-remove" else {}
    options = "".join(f"\n      {name}: {value}" for name, value in {**adjacency, **plan.options}.items())
    per_column = f"\n      per_column: {plan.per_column}" if plan.per_column else ""
    minimum = "" if plan.minimum is None else f"\n      minimum: {plan.minimum}"
    return f"""{remarks}version: 1
name: {scalar(plan.name)}
{_NEW_SECTIONS if plan.sections is None else plan.sections}streams:
  {plan.stream}:
    source:
      topic: {plan.topic}
      user: {_places(plan.user)}
      column: {_places(plan.column)}
      time: {_places(plan.time)}{types}
    timeline:
      interval: {duration_text(plan.interval)}
      origin: {format_rfc3339(plan.origin)}{times}
    counts:
      columns: {_columns(plan, columns_file)}
      contributions: {plan.contributions}{per_column}
      unknown: {scalar(plan.unknown)}
    mechanism:
      kind: {scalar(plan.kind)}
      epsilon: {plan.epsilon}
      window: {plan.window}{options}
    sink:
      topic: {plan.sink or f"{plan.topic}.sanitized"}{minimum}
    dead_letter: {plan.dead_letter or f"{plan.topic}.dead"}
"""


def rules_of(source: Source, labels: Sequence[str], other: str) -> list[str]:
    """Further lines of a source: all that ``TopologyPlan`` has no place for.

    What a map names otherwise than any of ``labels`` has the name ``other``.
    """
    rules = [f"format: {source.format}"] if source.format != "json" else []
    if source.raw is not None:
        rules.append("repartition: true")
    if source.append_time != "broker":
        rules.append(f"append_time: {source.append_time}")
    if source.max_bytes != _DEFAULTS.max_bytes:
        rules.append(f"max_bytes: {source.max_bytes}")
    if source.population != _DEFAULTS.population:
        rules.append(f"users: {scalar(source.population)}")
    if source.time_unit != "ms":
        rules.append(f"time_unit: {source.time_unit}")
    if source.time_zone is not None:
        rules.append(f"time_zone: {scalar(source.time_zone)}")
    if source.filter:
        rules.append(f"filter: {_flow({one.field: _asked(one) for one in source.filter})}")
    if source.maps:
        parts = {*labels, *chain.from_iterable(label.split(fields.BETWEEN) for label in labels)}
        rules.append(f"maps: {_flow({one.field: _names(one, parts, other) for one in source.maps})}")
    return rules


def _asked(condition: Condition) -> Any:
    if condition.test in ("present", "absent"):
        return {"present": condition.test == "present"}
    return [*condition.values] if condition.test == "in" else {"not": [*condition.values]}


def _names(one: NameMap, parts: Collection[str], other: str) -> dict[str, Any]:
    def known(name: str) -> str:
        return name if name in parts else other

    tables = {"values": one.values, "prefixes": one.prefixes}
    named = {key: {text: known(name) for text, name in table} for key, table in tables.items() if table}
    return {**named, **({} if one.otherwise is None else {"otherwise": known(one.otherwise)})}


def _flow(value: Any) -> str:
    """YAML on one line; nothing is put in for a dollar sign in a key."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_quoted(key)}: {_flow(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return scalar(value) if isinstance(value, str) else json.dumps(value)


def _places(text: str) -> str:
    several = fields.listed(text)
    return scalar(text) if len(several) == 1 else _flow([*several])


def _columns(plan: TopologyPlan, file: str | None) -> str:
    if file is not None:
        types = ", type: integer" if plan.column_type == "integer" else ""
        return f"{{file: {scalar(file)}{types}}}"
    if plan.column_type == "integer":
        return f"[{', '.join(plan.columns)}]"
    return f"[{', '.join(map(scalar, plan.columns))}]"


def scalar(text: str, *, is_key: bool = False) -> str:
    """A text as YAML has it, in quotes where it needs them; ``$`` stands for itself, as it does in keys."""
    if _PLAIN.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    if text.startswith("/") and _PLAIN.fullmatch(text[1:].replace("/", "x") or " "):
        return text
    if _AROUND.fullmatch(text):
        return text
    return _quoted(text if is_key else text.replace("$", "$$"))


def _quoted(text: str) -> str:
    escaped = json.dumps(text, ensure_ascii=False)
    # YAML breaks lines, and refuses characters, where JSON does not.
    return "".join(one if " " <= one <= "~" else f"\\U{ord(one):08x}" for one in escaped)


def listed_apart(columns: Sequence[str]) -> bool:
    """Whether columns are many, and such that a file with one a line can have them."""
    lines = all(one == one.strip() and not one.startswith("#") and one.isprintable() for one in columns)
    return len(columns) > LONGEST_LIST and lines
