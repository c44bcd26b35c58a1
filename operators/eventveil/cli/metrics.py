"""``eventveil metrics``: the metrics of the worker, as a page."""

from __future__ import annotations

import click

from eventveil.worker.observe.metrics import describe_metrics


@click.command()
def metrics() -> None:
    """Print the metrics and health checks of a worker (Markdown)."""
    click.echo(describe_metrics(), nl=False)
