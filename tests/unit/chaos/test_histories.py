"""The verifier sees mutants in histories of the log in memory, and nothing wrong with the worker as it is."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.histories import ORDINARY, Circumstances, history
from tests.chaos.mutants import MUTANTS
from tests.chaos.mutations import TRIALS, Trial

#: At least one of this many seeds must show that a worker is broken.
SEEDS = 24
#: How many histories of the worker as it is must be without fault.
FAULTLESS = 12
#: Of mutants whose defect does not matter otherwise.
CIRCUMSTANCES = {
    "trusting-its-clock": Circumstances(ahead=0.3),
    "reading-uncommitted": Circumstances(forger=True),
}


def test_every_mutant_has_a_trial() -> None:
    assert sorted(trial.mutant for trial in TRIALS) == sorted(MUTANTS)


@pytest.mark.parametrize(
    "trial", [trial for trial in TRIALS if trial.in_memory], ids=lambda trial: trial.mutant
)
def test_the_verifier_catches_the_mutant_on_the_log_in_memory(trial: Trial) -> None:
    def caught(seed: int) -> bool:
        with history(seed, trial.mutant, CIRCUMSTANCES.get(trial.mutant, ORDINARY)) as made:
            return bool(trial.accuses(made.verify().violations))

    assert any(map(caught, range(SEEDS)))


@pytest.mark.parametrize("circumstances", [ORDINARY, *CIRCUMSTANCES.values()])
def test_the_verifier_finds_nothing_wrong_with_the_worker_as_it_is_on_the_log_in_memory(
    circumstances: Circumstances,
) -> None:
    seen: Counter[str] = Counter()
    for seed in range(FAULTLESS):
        with history(seed, circumstances=circumstances) as made:
            report = made.verify()
        assert report.violations == []
        seen += made.seen
        for name in ("timestamps", "counted", "bounded", "dead", "aborted"):
            seen[name] += getattr(report, name)
    # Nothing above means anything if the histories never got there.
    assert {"pause", "fenced", "take-over lost", "transaction that lasted too long", "aborted"} <= set(seen)
    assert seen["crash"] > 300
    assert seen["timestamps"] > 20 * FAULTLESS
    assert min(seen["counted"], seen["dead"]) > 500
    assert seen["bounded"] > 50
    assert seen["clock ahead"] >= 100 * circumstances.ahead
    assert (seen["forged"] > 20 * FAULTLESS // 12) == circumstances.forger
