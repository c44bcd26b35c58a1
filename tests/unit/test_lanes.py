"""Which tests run in one process, one after another, and in which order processes take them."""

from __future__ import annotations

from pathlib import Path

from tests import lanes
from tests.lanes import CLUSTERS, OWN, on_kafka, scope

INTEGRATION = Path(__file__).parents[1] / "integration"
SUBJECTS = {path.stem.removeprefix("test_") for path in INTEGRATION.glob("test_*.py")}


def test_every_file_of_a_lane_is_there_and_in_no_other() -> None:
    of_lanes = [subject for subjects in lanes._LANES.values() for subject in subjects]
    named = [*of_lanes, *lanes._LONG]
    assert len(named) == len({*named})
    assert SUBJECTS.issuperset(named)


def test_every_file_of_integration_is_collected_by_its_name() -> None:
    """One that is not would run nowhere, and nobody would miss it."""
    helpers = {"__init__.py", "conftest.py"}
    assert [one.name for one in INTEGRATION.glob("*.py") if not one.name.startswith("test_")] == sorted(
        helpers
    )


def test_files_of_a_lane_have_one_scope_and_every_other_file_one_of_its_own() -> None:
    assert scope("tests/integration/test_chaos.py::test_a") == scope(
        "tests/integration/test_cluster.py::test_b"
    )
    assert scope("tests/integration/test_chaos.py::test_a") == CLUSTERS
    assert scope("tests/integration/test_longrun.py::test_a") == OWN
    assert scope("tests/integration/test_held.py::test_a[x::y]") == "tests/integration/test_held.py"
    assert scope("tests/unit/test_bench.py::test_a") == "tests/unit/test_bench.py"


def test_lanes_begin_before_long_files_and_these_before_others_and_what_needs_no_broker_is_last() -> None:
    files = ["unit/test_bench", "contract/test_suite", "integration/test_held", "integration/test_migrate",
             "integration/test_flink", "integration/test_demo", "integration/test_unclean"]  # fmt: skip
    places = [lanes._place(f"tests/{file}.py::test_a") for file in files]
    assert places == sorted(places, reverse=True)
    assert len({*places}) == len(places)


def test_a_lane_needs_a_broker() -> None:
    assert on_kafka(CLUSTERS)
    assert on_kafka(OWN)
    assert on_kafka("tests/integration/test_held.py")
    assert not on_kafka("tests/unit/test_bench.py::test_a")
