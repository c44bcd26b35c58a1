"""``eventveil test``: tests of topologies, without a broker and with the noise off."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from eventveil.cli.loading import EXIT_FAILED, EXIT_INVALID, EXIT_USAGE
from eventveil.cli.words import fail
from eventveil.testing.document import TestsInvalid, load_tests
from eventveil.testing.junit import junit
from eventveil.testing.model import TestFile
from eventveil.testing.running import NoTests, Result, find, run
from eventveil.topology.problems import TopologyInvalid


@click.command()
@click.argument("topologies", metavar="[TOPOLOGY|FOLDER]...", nargs=-1, type=click.Path())
@click.option("--junit", "report", metavar="FILE", help="Write the results as JUnit XML too.")
@click.option("-k", "part", metavar="TEXT", help="Run only tests with TEXT in their name, ignoring case.")
@click.option("--list", "listing", is_flag=True, help="List the tests without running them.")
def test(topologies: tuple[str, ...], report: str | None, part: str | None, listing: bool) -> None:
    """Run the tests of topologies: page-views_test.yaml beside page-views.yaml, or all in a folder.

    A test states what is appended to the source topic and what the result should be: true counts, dead
    letters, when each timestamp is closed, what the mechanism releases with the noise off, and what it
    spends. No broker is needed, no budget is spent, and no release is written. Without an
    argument, the tests in this folder are run.

    Exit status 1 if a test fails, 2 if a file of tests is invalid, 78 if a topology is.
    """
    files = _load(topologies or (".",))
    chosen = [
        (file, case)
        for file in files
        for case in file.cases
        if part is None or part.casefold() in case.name.casefold()
    ]
    if not chosen:
        raise click.UsageError("there is no test" if part is None else f"no test has {part!r} in its name")
    if listing:
        for file, case in chosen:
            click.echo(f"{file.path}:{case.position.line}: {case.name}")
        return
    results = []
    for file, case in chosen:
        results.append(run(file, case))
        _tell(results[-1])
    if report is not None:
        _write(report, junit(results))
    _conclude(results)


def _load(places: tuple[str, ...]) -> list[TestFile]:
    """All files, or exit with every mistake of all of them."""
    files, mistakes, worst = [], [], 0
    try:
        paths = find(places)
    except NoTests as error:
        raise click.UsageError(str(error)) from None
    for path in paths:
        try:
            files.append(load_tests(path, os.environ))
        except TestsInvalid as error:
            mistakes.append(str(error))
            worst = EXIT_USAGE
        except TopologyInvalid as error:
            mistakes.append(str(error))
            worst = worst or EXIT_INVALID
    if mistakes:
        click.echo("\n".join(mistakes), err=True)
        sys.exit(worst)
    return files


def _tell(result: Result) -> None:
    if result.passed:
        return
    click.echo(f"FAILED {result.file.path}:{result.case.position.line}: {result.case.name}")
    for line in result.lines():
        click.echo(f"  {line}")


def _write(path: str, document: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(document)
    except OSError as error:
        fail("test", f"{path} cannot be written ({error.strerror}); check the path")


def _conclude(results: Sequence[Result]) -> None:
    failed, number = sum(not one.passed for one in results), len(results)
    if not failed:
        click.echo(f"{number} tests passed" if number > 1 else "1 test passed")
        return
    click.echo(f"{failed} of {number} tests failed" if number > 1 else "1 test failed")
    sys.exit(EXIT_FAILED)
