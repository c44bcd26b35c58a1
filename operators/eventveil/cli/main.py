"""``eventveil``: the command line. A command is imported when it is run, so that help comes at once."""

from __future__ import annotations

import sys
from importlib import import_module
from signal import SIGTERM, signal
from threading import current_thread, main_thread

import click

from eventveil import __version__

COMMANDS = {
    "advise": "Try topologies on given events and recommend one.",
    "announce": "Announce a look at the counters of a pan-private stream.",
    "check": "Validate topology files and print what they promise.",
    "dead": "Show why events did not count: dead letters by reason, with samples.",
    "doctor": "Read the newest events of the sources and report what would count.",
    "export": "Write releases as a table, in Parquet or CSV.",
    "generate": "Generate events that look like the traffic of a web site.",
    "ledger": "Audit what was released and what it was charged.",
    "mechanisms": "List the kinds of mechanism, their guarantees and options.",
    "metrics": "List the metrics and health checks of a worker.",
    "migrate": "Change the settings of streams and keep what they have spent.",
    "replay": "Release streams over historical events, from files or topics.",
    "report": "Write a page for a privacy officer: promise, budget, rights, audit.",
    "reset": "Release a stream again from an earlier timestamp.",
    "run": "Run a worker until SIGTERM or SIGINT.",
    "schema": "Print the JSON Schema of topology files or of their tests.",
    "status": "Show the state of each stream, from public topics only.",
    "tail": "Print releases as they arrive, with intervals.",
    "test": "Run the tests of topologies, without a broker or noise.",
    "topics": "Show, check and create the topics of a topology.",
}
"""What the help says of each command, which is the function of that name in ``eventveil.cli.<name>``."""
#: What people try first, and the command that does it.
_MEANT = {"audit": "ledger", "validate": "check", "lint": "check", "start": "run"}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"eventveil.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # Not loaded by those who know what they want.
            from difflib import get_close_matches

            if close := [_MEANT[args[0]]] if args[0] in _MEANT else get_close_matches(args[0], COMMANDS, 1):
                error.message += f" Did you mean {close[0]}?"
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="eventveil")
@click.pass_context
def main(context: click.Context) -> None:
    """Differentially private counts of user events, released from Kafka once per timestamp.

    Exit status: 0 success, 1 failed, 2 wrong usage, 3 a problem was found (doctor, replay, status),
    75 memory limit reached, 78 invalid topology.
    """
    if context.invoked_subcommand != "run" and current_thread() is main_thread():
        before = signal(SIGTERM, _end)
        context.call_on_close(lambda: signal(SIGTERM, before))


def _end(number: int, _: object) -> None:
    # As an exception, so that files which are not complete are removed on the way out.
    sys.exit(128 + number)
