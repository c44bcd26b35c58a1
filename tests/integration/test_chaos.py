"""Under every fault that we can make no promise breaks; ``test_mutants.py`` shows that it would be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.points import FAULT_POINTS
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
    result = run(tmp_path, SEED, SECONDS, least=FAULTS, everywhere=True)
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
