"""Progress of long commands: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Told = Callable[[int, int], None]
#: Between two lines where there is no terminal, as in the log of a job.
_SECONDS = 30.0


@contextmanager
def progress(label: str, beside: Callable[[], str] | None = None) -> Iterator[Told]:
    """A bar or lines on standard error; what is yielded is told how much is done of what.

    Of what may be an estimate that changes, 0 while nothing is known. ``beside`` gives a text to the right.
    """
    if not sys.stderr.isatty():
        yield _lines(label, beside)
        return
    show = None if beside is None else lambda _: beside()
    with click.progressbar(length=1, label=label, file=sys.stderr, item_show_func=show) as bar:

        def told(done: int, total: int) -> None:
            bar.length = max(done, total or done + 1)
            bar.update(done - bar.pos)
            bar.render_progress()

        yield told
        bar.length = max(bar.pos, 1)
        bar.update(bar.length - bar.pos)
        bar.render_progress()


def _lines(label: str, beside: Callable[[], str] | None) -> Told:
    last = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last < _SECONDS:
            return
        last = time.monotonic()
        of = f" of {total:,}" if total else ""
        click.echo(f"{label}: {done:,}{of}{'' if beside is None else f', {beside()}'}", err=True)

    return told
