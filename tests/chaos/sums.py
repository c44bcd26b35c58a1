"""Releases of local reports, held against the reports that were sent. Pure; no code of the program.

Reports are those of an epsilon up to 0.6: whether a value, cut at the threshold and rounded at random to
nothing or all of it, was told with the right sign.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any


@dataclass(frozen=True, slots=True)
class LocalRules:
    """``epsilon`` is a decimal or a fraction, as in the topology; values are whole numbers to ``maximum``."""

    epsilon: str
    maximum: int

    def fits(self, report: str) -> bool:
        """Whether a text is a report of this stream; the traffic sends none beyond the grid."""
        return report.startswith((self.waves, f"sums/{self.epsilon}/{self.maximum}/"))

    @property
    def waves(self) -> str:
        """How reports for the distribution begin."""
        return f"distribution/{self.epsilon}/{self.maximum}/"

    def sums(self, threshold: int) -> str:
        """How reports for the sum begin."""
        return f"sums/{self.epsilon}/{self.maximum}/{threshold}/"

    def estimate(self, report: str, threshold: int) -> float:
        """What a report for the sum says of its value, on average."""
        dividend, _, divisor = self.epsilon.partition("/")
        odds = exp(float(dividend) / float(divisor or 1))
        lift = (odds + 1) / (odds - 1)
        return threshold * (1 + lift * {"0": -1, "1": 1}[report.rpartition("/")[2]]) / 2


def check_sums(
    rules: LocalRules, releases: Sequence[Mapping[str, Any]], truth: Mapping[int, Counter[str]]
) -> list[str]:
    """Every violation in words: of counts, of sums, and of the one threshold."""
    violations: list[str] = []
    chosen: int | None = None
    for release in releases:
        timestamp, counts = release["timestamp"], release["counts"]
        sent = truth.get(timestamp, Counter())
        phase = "distribution" if chosen is None else "sums"
        if release.get("phase") != phase:
            violations.append(f"timestamp {timestamp} is of phase {release.get('phase')}, not {phase}")
        if chosen is not None and release.get("threshold") != chosen:
            violations.append(
                f"timestamp {timestamp} has threshold {release.get('threshold')} after {chosen}"
            )
        begin = rules.waves if chosen is None else rules.sums(chosen)
        own = {report: number for report, number in sent.items() if report.startswith(begin)}
        used, unused = sum(own.values()), sent.total() - sum(own.values())
        if (counts["reports"], counts["unused"]) != (used, unused):
            violations.append(
                f"timestamp {timestamp} counts {counts}, not {used} reports and {unused} others"
            )
        total = 0.0
        if chosen is not None:
            total = sum(rules.estimate(report, chosen) * number for report, number in own.items())
        if abs(counts["sum"] - total) > 1:
            violations.append(f"timestamp {timestamp} sums up to {counts['sum']}, not {total}")
        if chosen is None:
            chosen = release.get("threshold")
    return violations
