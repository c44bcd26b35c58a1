"""What the papers say of errors, as comparisons of two contenders that the results confirm or do not.

K: Kellaris et al. (PVLDB 2014); R: Chen et al. (CIKM 2015); S: Zhang and Meng (2016); T: Wang et al. (CCS
2021). Where the printed mechanism is not private, what is measured is the sound version.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.utility.event_level import BASELINE, FIRST_CUTS, RG
from benchmarks.utility.measuring import Results
from benchmarks.utility.user_level import POINT
from benchmarks.utility.values import PLAIN, PRUNED, TOPS
from benchmarks.utility.w_event import OURS


@dataclass(frozen=True)
class Claim:
    """In cases of a part, the error of ``label`` is at most ``limit`` times that of ``reference``."""

    part: str
    source: str
    text: str
    label: str
    reference: str
    limit: float = 1.0
    epsilon: str | None = None

    def ratios(self, results: Results) -> list[float]:
        """By case the median over the seeds; cases in which the two are the same mechanism are left out."""
        cases = [case for case in results.of(self.part) if self.epsilon in (None, case.epsilon)]
        return [
            float(np.median(case.ratios(self.label, self.reference)))
            for case in cases
            if case.errors[self.label] != case.errors[self.reference]
        ]

    def verdict(self, ratios: list[float]) -> str:
        """In how many cases it holds."""
        holds = sum(ratio <= self.limit for ratio in ratios)
        if not ratios:
            return "not measured"
        return {0: "no", len(ratios): "yes"}.get(holds, f"in {holds} of {len(ratios)}")


RIVALS = ("Zero", "Sample", "BD, factor 2", "BA, factor 2", "FAST")

CLAIMS = (
    Claim("w-event", "K 5, figures 6, 7", "BA is better than Uniform", "BA", "Uniform"),
    Claim("w-event", "K 5, figures 6, 7", "BA is better than Sample", "BA", "Sample"),
    Claim("w-event", "K 5, figures 6, 7", "BA is better than FAST", "BA", "FAST"),
    Claim("w-event", "K 5, figures 6, 7", "BA is better than BD", "BA", "BD"),
    Claim("w-event", "K 5, figures 6, 7", "BD is better than Uniform", "BD", "Uniform"),
    Claim("w-event", "K 5, figure 6", "FAST is better than Uniform", "FAST", "Uniform"),
    Claim("w-event", "K 5, figure 10", "20 groups make BD better", "BD, 20 groups", "BD"),
    Claim("w-event", "K 5, figure 10", "20 groups make BA better", "BA, 20 groups", "BA"),
    Claim("w-event", "K 4.5", "budget shift makes BD better (where d > 2w)", "BD, shift", "BD"),
    Claim("w-event", "K 4.5", "budget shift makes BA better (where d > 2w)", "BA, shift", "BA"),
    Claim("w-event", "ours", "factor 2 makes BD better", "BD, factor 2", "BD"),
    Claim("w-event", "ours", "factor 2 makes BA better", "BA, factor 2", "BA"),
    Claim("w-event", "ours", "BD is no worse when pan-private (single)", "BD, pan-private, single", "BD"),
    Claim("w-event", "ours", "BA is no worse when pan-private (single)", "BA, pan-private, single", "BA"),
    *(Claim("w-event", "ours", f"Paced is better than {other}", OURS, other) for other in RIVALS),
    Claim("event-level", "R 7, figure 3", "RG is better than Baseline", RG, BASELINE),
    Claim("event-level", "R 7, figure 3", "RG is better than BA, adapted", RG, "BA, adapted"),
    Claim("event-level", "R 7, figure 3", "RG is better than FAST, adapted", RG, "FAST, adapted"),
    Claim("event-level", "R 4.2", "Baseline is better than windows by sensitivity", BASELINE, FIRST_CUTS[1]),
    Claim("user-level", "S 3, theorem 4", "SHP2 is better than SHP1", POINT, "SHP1 (window)"),
    Claim("user-level", "S 4", "SHP3 is better than SHP2", "SHP3 (adaptive)", POINT),
    Claim("user-level", "S 3.2", "groups make SHP2 better", f"{POINT}, in groups", POINT),
    Claim(
        "values",
        "T 5, figure 3",
        "ToPS is better than PAK with the clamp, 1,000 times at ε 0.05",
        TOPS,
        "PAK with the clamp",
        1 / 1000,
        "0.05",
    ),
    Claim("values", "T 5, figure 3", "the same at ε 1, at all", TOPS, "PAK with the clamp", 1, "1"),
    Claim(
        "values",
        "T 5, figure 3",
        "the threshold alone is better than PAK's",
        TOPS,
        "PAK's threshold with the clamp, ToPS's tree",
    ),
    Claim("hierarchy", "T 5, figure 6", "`recent` is the best smoother", TOPS, "smoother: mean"),
    Claim(
        "hierarchy",
        "T 5, figure 5",
        "fan-out 16 is better than 2",
        "no smoother, fan-out 16",
        "no smoother, fan-out 2: PAK's tree",
    ),
    Claim(
        "hierarchy",
        "T 5, figure 5",
        "consistency makes it better",
        "no smoother (s = 0), fan-out 16, consistent",
        "no smoother, fan-out 16",
    ),
    Claim(
        "hierarchy", "T 5, figure 6", "so does smoothing", TOPS, "no smoother (s = 0), fan-out 16, consistent"
    ),
    Claim("local", "T 5, figure 8", "the prune makes Square Wave better", PRUNED, PLAIN),
)
