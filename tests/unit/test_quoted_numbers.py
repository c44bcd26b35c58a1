"""Numbers that README and docs quote are those of the code."""

from __future__ import annotations

import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from eventveil.cli import loading
from eventveil.cli import run as run_command
from eventveil.describe.guarantee import void_from
from eventveil.kafka import barrier, changelog, log
from eventveil.local import control, reports
from eventveil.mechanisms.base import RELEASE_LIMIT
from eventveil.mechanisms.publishing import SHARE
from eventveil.process import memory
from eventveil.replay import processes
from eventveil.topology import counts, local, options, values
from eventveil.values.pak import PakSettings
from eventveil.values.stream import HELD_LIMIT
from eventveil.values.tops import TopsSettings
from eventveil.values.tree import LEAF_LIMIT
from eventveil.worker import assignment
from eventveil.worker.faust import fetches
from eventveil.worker.observe import observation
from tests.kafka.broker import main as broker_command
from tests.kafka.jars import newest_version

ROOT = Path(__file__).parents[2]
MEGABYTE = 1_000_000
PORT = run_command._METRICS.rpartition(":")[2]
REPORTS = {option.name: option.default for option in local.OPTIONS["topl"]}
TOPS, PAK = ({one.name: one.default for one in fields(kind)} for kind in (TopsSettings, PakSettings))
BROKER_PORT = next(option.default for option in broker_command.params if option.name == "port")
README, DEPLOY, DECISIONS, MECHANISMS = "README.md", "docs/deploy.md", "docs/decisions", "docs/mechanisms"

#: File, a sentence with one group, and what the group has to be. A power of two may be written as one.
QUOTED: list[tuple[str, str, object]] = [
    (README, r"health checks are on 127\.0\.0\.1:(\d+), or the next free port", PORT),
    (DEPLOY, r"health checks on 127\.0\.0\.1:(\d+), or the next free port", PORT),
    (DEPLOY, r"each take a port for their metrics: (\d+) if it is free", PORT),
    (DEPLOY, r"curl localhost:(\d+)/metrics", PORT),
    ("docs/metrics.md", r"serves HTTP on 127\.0\.0\.1:(\d+) or", PORT),
    ("docs/metrics.md", r"the next free one of the (\d+) after it", run_command._FURTHER_PORTS),
    ("docs/metrics.md", r"made no progress for (\d+) seconds", observation.STALL_SECONDS),
    (DEPLOY, r"Exit status of every command: .* (\d+) memory limit reached", loading.EXIT_MEMORY),
    (DEPLOY, r"(\d+) invalid topology", loading.EXIT_INVALID),
    (DEPLOY, r"RestartPreventExitStatus=(\d+)", loading.EXIT_INVALID),
    (DEPLOY, r"A worker stops with status (\d+) when it holds", loading.EXIT_MEMORY),
    (DEPLOY, r"when it holds (three quarters) of what the machine", memory.DEFAULT_SHARE),
    ("docs/reliability.md", r"by default (three quarters) of the least", memory.DEFAULT_SHARE),
    ("docs/replay.md", r"from a topic of (five million) events or more", processes._PAYS),
    (README, r"All tests that need a broker run against Apache Kafka ([\d.]+);", newest_version()),
    ("docs/architecture.md", r"## What Apache Kafka does \(([\d.]+)\)", newest_version()),
    (DEPLOY, r"which listens on port (\d+)", BROKER_PORT),
    ("docs/first-steps.md", r"in the foreground, on port (\d+)", BROKER_PORT),
    ("docs/privacy.md", r"epsilon is 2 \* window \* (2\^\d+) units", SHARE),
    ("docs/reliability.md", r"each of up to ([\d,]+) events may open", fetches._MOST_RECORDS),
    ("docs/reliability.md", r"two chunks of a partition, of up to (\d+) MB", fetches._MOST_BYTES / MEGABYTE),
    ("docs/reliability.md", r"the transaction timeout \((\d+) s\)", changelog._TRANSACTION_SECONDS),
    ("docs/reliability.md", r"in blocks of ([\d,]+) records and more", log._CHUNK_RECORDS),
    ("docs/architecture.md", r"for (a quarter of a second) at most \(`Assignment", assignment._REST_MS),
    ("docs/architecture.md", r"learn of another leader, for up to (\d+) s", barrier.BARRIER_SECONDS),
    (f"{DECISIONS}/0003-chunks.md", r"gives up to ([\d,]+) records at a time", fetches._MOST_RECORDS),
    (f"{DECISIONS}/0008-repartition.md", r"\(above (\d+) MB\)", counts.LARGEST_REKEYED / MEGABYTE),
    (f"{DECISIONS}/0009-value-streams.md", r"at most some ([\d,]+) records", fetches._MOST_RECORDS),
    (f"{DECISIONS}/0009-value-streams.md", r"at most (2\^\d+) values held back", HELD_LIMIT),
    (f"{DECISIONS}/0009-value-streams.md", r"at most (2\^\d+) leaves of one tree", LEAF_LIMIT),
    (f"{MECHANISMS}/pak.md", r"`held` \(default ([\d,]+):", PAK["held"]),
    (f"{MECHANISMS}/pak.md", r"their ([\d.]+) % quantile", PAK["quantile"] * 100),
    (
        f"{MECHANISMS}/pak.md",
        r"at epsilon 1 and delta 1e-9 from (\d+) values on",
        void_from(Fraction(1), Fraction(1, 10**9)),
    ),
    (f"{MECHANISMS}/tops.md", r"\| `held` \(m\) \| (\S+) \|", TOPS["held"]),
    (f"{MECHANISMS}/tops.md", r"\| `chunk` \(r\) \| (\S+) \|", TOPS["chunk"]),
    (f"{MECHANISMS}/tops.md", r"\| `fanout` \(b\) \| (\S+) \|", TOPS["fanout"]),
    (f"{MECHANISMS}/tops.md", r"\| `length`, `alpha` \| (\d+), ", TOPS["length"]),
    (f"{MECHANISMS}/tops.md", r"\| `length`, `alpha` \| \d+, (\S+) \|", TOPS["alpha"]),
    (f"{MECHANISMS}/tops.md", r"\| `excess` \(c\) \| (\S+) \|", TOPS["excess"]),
    (f"{MECHANISMS}/topl.md", r"\| `estimate_after` \| (\S+) \|", REPORTS["estimate_after"]),
    (f"{MECHANISMS}/topl.md", r"\| `range` \(r\) \| (\S+) \|", REPORTS["range"]),
    (f"{MECHANISMS}/topl.md", r"the largest value, at most (a million) \|", control.LARGEST),
    (f"{MECHANISMS}/topl.md", r"expectation maximisation over ([\d,]+) cells", reports.CELLS),
    (f"{MECHANISMS}/topl.md", r"within ±(2\^\d+);", RELEASE_LIMIT),
    ("docs/plugins.md", r"int64, of the right shape, within \+-(2\^\d+)", RELEASE_LIMIT),
]
WORDS: dict[str, object] = {
    "three quarters": (3, 4),
    "a quarter of a second": 250,  # in milliseconds
    "a million": 1_000_000,
    "five million": 5_000_000,
}


def value_of(text: str) -> object:
    """What a number in a text means."""
    if text in WORDS:
        return WORDS[text]
    base, _, exponent = text.partition("^")
    if exponent:
        return int(base) ** int(exponent)
    return Fraction(text.replace(",", "")) if re.fullmatch(r"[\d,]+(\.\d+)?", text) else text


def same(quoted: str, constant: Any) -> bool:
    """Whether a number in a text is a constant of the code."""
    meant = value_of(quoted)
    return bool(meant == (value_of(constant) if isinstance(constant, str) else constant))


@pytest.mark.parametrize(("file", "sentence", "constant"), QUOTED, ids=lambda part: str(part)[-30:])
def test_a_quoted_number_is_that_of_the_code(file: str, sentence: str, constant: object) -> None:
    found = re.findall(sentence, (ROOT / file).read_text(encoding="utf-8"))
    assert found, f"{file} has no sentence like {sentence}: change the table, too"
    assert [text for text in found if not same(text, constant)] == [], f"the code has {constant}"


def test_a_number_that_is_not_that_of_the_code_is_found() -> None:
    assert same("65,536", 65_536)
    assert same("2^16", 65_536)
    assert same("2^20", "1048576")
    assert same("0.5", TOPS["alpha"])
    assert same("4.3.1", "4.3.1")
    assert not same("8,192", 65_536)
    assert not same("2^15", 65_536)
    assert not same("4.3.0", "4.3.1")
    assert not same("three quarters", (1, 2))


def test_defaults_that_a_topology_may_leave_out_are_those_of_the_settings() -> None:
    assert options.OPTIONS["factor"].default == "1"
    for kind, settings in (("tops", TOPS), ("pak", PAK)):
        for option in values.OPTIONS[kind]:
            if option.default is not None and isinstance(settings.get(option.name), int):
                assert value_of(option.default) in (settings[option.name], str(settings[option.name]).lower())
