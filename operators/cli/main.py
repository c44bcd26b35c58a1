"""``eventveil``: the command line."""

from __future__ import annotations

import click

from operators import __version__
from operators.cli.announce import announce
from operators.cli.check import check
from operators.cli.ledger import ledger
from operators.cli.mechanisms import mechanisms
from operators.cli.metrics import metrics
from operators.cli.migrate import migrate
from operators.cli.replay import replay
from operators.cli.reset import reset
from operators.cli.run import run
from operators.cli.schema import schema
from operators.cli.topics import topics


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="eventveil")
def main() -> None:
    """Differentially private counts of user events, released from Kafka once per timestamp.

    Exit codes: 0 good, 1 failed, 2 wrong usage, 75 the memory limit is reached, 78 the topology is invalid.
    """


for command in (announce, check, ledger, mechanisms, metrics, migrate, replay, reset, run, schema, topics):
    main.add_command(command)
