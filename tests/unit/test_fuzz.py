"""`make fuzz` in small, and that it finds what it looks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from eventveil.process import kernel
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.worker.faust import fetches
from tests.fuzz import fetching
from tests.fuzz.__main__ import main
from tests.fuzz.ways import read_by
from tests.unit.worker.faust.test_fetches import Log


@pytest.fixture(autouse=True)
def with_kernel() -> None:
    """Without the kernel there is nothing to compare."""
    with read_by("kernel"):
        pass


def compared(compare: Callable[[int], Counter[str]], seeds: int) -> Counter[str]:
    return sum((compare(seed) for seed in range(seeds)), Counter())


def test_damaged_fetches_are_read_alike_and_nothing_crashes() -> None:
    outcomes = compared(fetching.compare_damaged, 200)
    assert outcomes["refused"] > 50
    assert outcomes["whole"] > 50


def test_a_batch_that_is_shorter_than_its_head_is_refused() -> None:
    # The kernel once found no records in it, and said nothing.
    log = Log(Random(1))
    log.append()
    batch = fetching.with_checksum(log.batches[0][1][:54])
    assert fetching.compare_readings(batch + log.batches[0][1]) == {"refused": 1}
    # As a damaged fetch, whose offsets no checksum covers.
    assert fetching.compare_damaged(9_000_069) == {"refused": 1}


def test_each_bad_value_of_a_fetch_costs_one_dead_letter() -> None:
    found = compared(fetching.compare_letters, 10)
    assert found["letters"] > 20
    assert found["counted"] > 200


def test_a_way_that_loses_a_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = fetches._BatchRun._cut

    def lossy(*arguments: object) -> object:
        for block in cut(*arguments):  # type: ignore[arg-type]
            block.values = block.values[:0]
            yield block

    monkeypatch.setattr(fetches._BatchRun, "_cut", lossy)
    with pytest.raises(AssertionError, match="one refuses"):
        compared(fetching.compare_damaged, 20)


def test_a_dead_letter_too_few_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionAggregator, "dead_letter_batch", lambda _: None)
    with pytest.raises(AssertionError, match="dead letters"):
        compared(fetching.compare_letters, 10)


def test_without_the_kernel_there_is_nothing_to_compare_and_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "NATIVE", None)
    monkeypatch.setattr("sys.argv", ["tests.fuzz"])
    with pytest.raises(SystemExit, match="there is no kernel to compare with"):
        main()
