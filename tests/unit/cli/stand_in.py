"""Work of ``test_several``: a module of its own that imports next to nothing, for each process imports it."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 60


@dataclass(frozen=True)
class Work:
    """Writes down its process, and works until SIGTERM.

    Some end at once with a status, those of ``later`` from their second start on. With ``interrupted``
    SIGINT follows SIGTERM, before anything handles it.
    """

    folder: Path
    ends: tuple[tuple[int, int], ...] = ()
    later: tuple[tuple[int, int], ...] = ()
    interrupted: bool = False

    def __call__(self, number: int) -> None:
        if status := dict(self.ends).get(number):
            sys.exit(status)
        if dict(self.later).get(number) and list(self.folder.glob(f"{number}-*")):
            sys.exit(dict(self.later)[number])
        asked = signal.SIGINT if self.interrupted else None
        signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), asked) if asked else sys.exit(0))
        here = self.folder / f"{number}-{os.getpid()}"
        here.with_suffix(".part").touch()
        here.with_suffix(".part").rename(here)
        while True:
            time.sleep(PATIENCE)
