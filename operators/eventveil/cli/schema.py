"""``eventveil schema``: the JSON Schema of topology files, for editors."""

from __future__ import annotations

import click

from eventveil.topology.schema import json_schema_text


@click.command()
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of topology files."""
    click.echo(json_schema_text(), nl=False)
