"""Under every fault that we can make no promise breaks; and if one did, the verifier would see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventveil.process.faults import FAULT_POINTS
from tests.chaos import mutations
from tests.chaos.mutations import TRIALS, Outcome, Trial
from tests.chaos.run import run
from tests.chaos.schedule import CLUSTER_KINDS
from tests.kafka.jars import missing_tools

SEED = 1
SECONDS = 60
FAULTS = 10
#: Of three brokers, so that it takes about 90 s in all.
CLUSTER_SECONDS = 30


@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))
def test_a_minute_of_chaos_breaks_no_promise(tmp_path: Path) -> None:
    # It kills brokers, so it has one of its own whatever KAFKA says.
    result = run(tmp_path, SEED, SECONDS, least=FAULTS)
    print(result)
    assert result.violations == []
    assert result.reached == set(FAULT_POINTS)
    assert result.faults.total() >= FAULTS
    assert result.events > 5_000
    assert result.timestamps > 1_000


@pytest.mark.timeout(1800)
@pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))
def test_a_moment_of_chaos_on_three_brokers_breaks_no_promise(tmp_path: Path) -> None:
    result = run(tmp_path, SEED, CLUSTER_SECONDS, brokers=3, least=1)
    print(result)
    assert result.violations == []
    assert set(result.faults) & set(CLUSTER_KINDS)
    assert set(result.faults) - set(CLUSTER_KINDS)
    assert result.events > 2_000
    assert result.timestamps > 500
    assert result.readings > 200


#: The defects of the others are caught on the log in memory (tests/unit/chaos/test_histories.py).
ON_BROKERS = [trial for trial in TRIALS if not trial.in_memory]


@pytest.fixture(scope="module")
def outcomes(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> dict[Trial, tuple[Outcome, Outcome]]:
    return mutations.run(kafka, tmp_path_factory.mktemp("mutations"), ON_BROKERS)


# The first of them waits for all scenarios.
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("trial", ON_BROKERS, ids=lambda trial: trial.mutant)
def test_the_verifier_catches_the_mutant_and_lets_the_worker_as_it_is_pass(
    outcomes: dict[Trial, tuple[Outcome, Outcome]], trial: Trial
) -> None:
    assert mutations.mistakes(trial, *outcomes[trial]) == []
