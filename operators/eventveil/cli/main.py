"""``eventveil``: the command line."""

from __future__ import annotations

import click

from eventveil import __version__
from eventveil.cli.announce import announce
from eventveil.cli.check import check
from eventveil.cli.ledger import ledger
from eventveil.cli.mechanisms import mechanisms
from eventveil.cli.metrics import metrics
from eventveil.cli.migrate import migrate
from eventveil.cli.replay import replay
from eventveil.cli.reset import reset
from eventveil.cli.run import run
from eventveil.cli.schema import schema
from eventveil.cli.topics import topics


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="eventveil")
def main() -> None:
    """Differentially private counts of user events, released from Kafka once per timestamp.

    Exit codes: 0 good, 1 failed, 2 wrong usage, 75 the memory limit is reached, 78 the topology is invalid.
    """


for command in (announce, check, ledger, mechanisms, metrics, migrate, replay, reset, run, schema, topics):
    main.add_command(command)
