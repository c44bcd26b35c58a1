"""Results of tests as JUnit XML, as continuous integration reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from xml.etree import ElementTree

from eventveil.testing.running import Result

#: Characters that XML has no way to write.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(results: Sequence[Result]) -> bytes:
    """The document: a test suite for each file, a test case for each test."""
    suites = ElementTree.Element("testsuites", _totals(results))
    for path, group in groupby(results, lambda result: result.file.path):
        tests = list(group)
        suite = ElementTree.SubElement(suites, "testsuite", {"name": _clean(path), **_totals(tests)})
        for result in tests:
            _case(suite, result)
    ElementTree.indent(suites)
    document: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(suite: ElementTree.Element, result: Result) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {
            "name": _clean(result.case.name),
            "classname": f"{result.file.topology.name}.{result.case.stream.name}",
            "file": _clean(result.file.path),
            "line": str(result.case.position.line),
            "time": f"{result.seconds:.3f}",
        },
    )
    if not result.passed:
        lines = [*result.lines()]
        kind = "failure" if result.broken is None else "error"
        ElementTree.SubElement(case, kind, {"message": _clean(lines[0])}).text = _clean("\n".join(lines))


def _totals(results: Iterable[Result]) -> dict[str, str]:
    results = list(results)
    return {
        "tests": str(len(results)),
        "failures": str(sum(bool(one.differences) for one in results)),
        "errors": str(sum(one.broken is not None for one in results)),
        "time": f"{sum(one.seconds for one in results):.3f}",
    }


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\ufffd", text)
