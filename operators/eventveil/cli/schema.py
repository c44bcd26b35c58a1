"""``eventveil schema``: the JSON Schemas of topology files and of their tests, for editors."""

from __future__ import annotations

import click

from eventveil.testing import spec as tests
from eventveil.topology.schema import json_schema_text


@click.command()
@click.argument("what", metavar="[topology|topology-test]", default="topology", type=click.Choice(
    ["topology", "topology-test"]
))  # fmt: skip
def schema(what: str) -> None:
    """Print the JSON Schema (draft 2020-12) of topology files, or of files of tests."""
    text = json_schema_text() if what == "topology" else tests.json_schema_text()
    click.echo(text, nl=False)
