"""The table of versions tells what the tests did, and the jars are those that were asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kafka.jars import BrokerError, _check_jars, at_least, kafka_version, newest_version
from tests.kafka.versions import ROOT, SUITES, VERSIONS, Tally, complete, head, row, tallies

PASSED = '<testcase classname="tests.integration.test_{}" name="a" />'
GOOD = "".join(PASSED.format(module.removeprefix("test_")) for module in SUITES.values())
PAGE = (ROOT / "docs" / "kafka-versions.md").read_text(encoding="utf-8")


def report(cases: str) -> str:
    return f"<testsuites><testsuite>{cases}</testsuite></testsuites>"


def test_a_report_in_which_every_suite_passed_is_complete() -> None:
    found = tallies(report(GOOD))
    assert complete(found)
    assert row("3.6.0", found, 61.4, "1a2b3c4") == "| 3.6.0 |" + " 1 passed |" * 5 + " 61 s | 1a2b3c4 |"


@pytest.mark.parametrize("outcome", ["failure", "error"])
def test_a_test_that_failed_or_could_not_start_or_end_is_a_failure_once(outcome: str) -> None:
    bad = f'<testcase classname="tests.integration.test_fenced" name="b"><{outcome}/></testcase>'
    found = tallies(report(GOOD + bad + bad))
    assert found["fencing"] == Tally(1, 0, ["b"])
    assert str(found["fencing"]) == "1 passed, **1 failed**"
    assert not complete(found)


def test_a_suite_that_cannot_be_imported_is_a_failure() -> None:
    broken = '<testcase classname="" name="tests.integration.test_ledger"><error/></testcase>'
    found = tallies(report(GOOD.replace(PASSED.format("ledger"), broken)))
    assert not complete(found)
    assert "failed" in row("3.6.0", found, 1, "1a2b3c4")


def test_a_suite_that_did_not_run_or_was_skipped_is_not_complete() -> None:
    skipped = PASSED.format("ledger").replace(" />", "><skipped/></testcase>")
    for cases in (GOOD.replace(PASSED.format("ledger"), other) for other in ("", skipped)):
        assert not complete(tallies(report(cases)))
    assert str(tallies("<none/>")["ledger"]) == "**did not run**"


def test_the_newest_version_is_the_default_and_ends_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_VERSION", raising=False)
    assert kafka_version() == newest_version() == VERSIONS[-1]
    monkeypatch.setenv("KAFKA_VERSION", "3.10.1")
    assert kafka_version() == "3.10.1"
    assert (at_least("3.9.2"), at_least("3.10.1"), at_least("4.0.0")) == (True, True, False)


@pytest.mark.parametrize("version", ["3.9", "newest", "4.0.0-rc1", "../4.0.0"])
def test_what_is_not_a_whole_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_VERSION", version)
    with pytest.raises(BrokerError, match="say a whole version, such as"):
        kafka_version()


@pytest.mark.parametrize(
    "names",
    [
        ["kafka_2.13-3.9.1.jar", "slf4j-api-1.7.36.jar", "slf4j-simple-1.7.36.jar"],
        ["kafka_2.13-3.9.2.jar", "slf4j-api-2.0.9.jar", "slf4j-simple-1.7.36.jar"],
        [
            "kafka_2.13-3.9.2.jar",
            "slf4j-api-1.7.36.jar",
            "slf4j-simple-1.7.36.jar",
            "slf4j-reload4j-1.7.36.jar",
        ],
    ],
    ids=["another version", "another api", "a second binding"],
)
def test_jars_that_are_not_what_was_asked_for_are_refused(
    names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_VERSION", "3.9.2")
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(BrokerError, match=r"jars of Apache Kafka 3\.9\.2 are kafka_2"):
        _check_jars(tmp_path)


def test_the_page_has_a_row_for_every_version_of_the_list_and_no_other() -> None:
    for line in head():
        assert line in PAGE
    assert tuple(re.findall(r"^\| (\d+\.\d+\.\d+) \|", PAGE, re.MULTILINE)) == VERSIONS
