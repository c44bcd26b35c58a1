"""The verifier of ``test_chaos.py`` sees what a broken worker does on brokers."""

from __future__ import annotations

import pytest

from tests.chaos import mutations
from tests.chaos.mutations import TRIALS, Outcome, Trial
from tests.kafka.jars import missing_tools

#: The defects of the others are caught on the log in memory (tests/unit/chaos/test_histories.py).
ON_BROKERS = [trial for trial in TRIALS if not trial.in_memory]


@pytest.fixture(scope="module")
def outcomes(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> dict[Trial, tuple[Outcome, Outcome]]:
    return mutations.run(kafka, tmp_path_factory.mktemp("mutations"), ON_BROKERS)


# The first of them waits for all scenarios.
@pytest.mark.timeout(2400)
@pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))
@pytest.mark.parametrize("trial", ON_BROKERS, ids=lambda trial: trial.mutant)
def test_the_verifier_catches_the_mutant_and_lets_the_worker_as_it_is_pass(
    outcomes: dict[Trial, tuple[Outcome, Outcome]], trial: Trial
) -> None:
    assert mutations.mistakes(trial, *outcomes[trial]) == []
