"""Progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

Told = Callable[[int, int], None]


@contextmanager
def progress(label: str, beside: Callable[[], str] | None = None) -> Iterator[Told]:
    """A bar on standard error, if that is a terminal; what is yielded is told how much is done of what.

    Of what may be an estimate that changes, 0 while nothing is known. ``beside`` gives a text to the right.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
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
