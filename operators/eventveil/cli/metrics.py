"""``eventveil metrics``: the metrics of the worker, as a page."""

from __future__ import annotations

import click

from eventveil.worker.observe.metrics import describe_metrics


@click.command()
def metrics() -> None:
    """Print a reference of the metrics and health checks of a worker, in Markdown."""
    click.echo(describe_metrics(), nl=False)
