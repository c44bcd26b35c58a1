"""A thread that looks at something from time to time, whatever the event loop and the other threads do."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Watch:
    """Calls ``look`` again and again, until it is stopped.

    ``look`` returns after how many seconds it wants to be called again; ``wake`` makes that now. What it
    raises is given to ``failed``, in the thread of the watch, which then ends.
    """

    def __init__(self, name: str, look: Callable[[], float], failed: Callable[[BaseException], None]) -> None:
        self._look, self._failed = look, failed
        self._woken, self._stopped = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def wake(self) -> None:
        """Look again at once; from any thread."""
        self._woken.set()

    def stop(self) -> None:
        """Look no more; returns at once, while a last look may be under way."""
        self._stopped = True
        self.wake()

    def _run(self) -> None:
        try:
            while not self._stopped:
                seconds = self._look()
                self._woken.wait(max(0.0, seconds))
                self._woken.clear()
        except BaseException as error:
            self._failed(error)
