"""TLS certificates that are renewed while a process runs."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from eventveil.model.errors import EventveilError

log = logging.getLogger(__name__)


class Renewing(ssl.SSLContext):
    """Begins each connection with the certificates that ``files`` hold then; any thread may use it.

    A context keeps what it has read. One that is made once shuts a process out when its certificate has
    expired, although the file was renewed long before. ``make`` makes a context of the files as they are, or
    raises EventveilError: then they may be half written, so the former certificates are used once more, and
    the files are read again for the next connection.
    """

    def __new__(cls, make: Callable[[], ssl.SSLContext], files: Sequence[str]) -> Renewing:
        """A context that is for the methods below alone: by itself it trusts nobody."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Sequence[str]) -> None:
        self._make, self._files = make, files
        self._lock = Lock()
        # Noted before the files are read: what is written meanwhile is read another time.
        self._read = self._complained = self._state()
        self._current = make()

    @property
    def current(self) -> ssl.SSLContext:
        """What the next connection begins with."""
        with self._lock:
            state = self._state()
            if state != self._read:
                self._renew(state)
            return self._current

    def _renew(self, state: Sequence[object]) -> None:
        try:
            self._current = self._make()
        except EventveilError as error:
            if state != self._complained:
                log.warning(
                    "changed certificate files cannot be used, so the previous ones stay in use: %s", error
                )
            self._complained = state
        else:
            self._read = state
            log.info("certificates have changed: new connections use those of %s", ", ".join(self._files))

    def _state(self) -> Sequence[object]:
        """What is another after a file was written or replaced, also by a link to another folder."""
        return [_state(path) for path in self._files]

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """See ``ssl.SSLContext``."""
        return self.current.wrap_socket(*arguments, **options)

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """See ``ssl.SSLContext``; this is what asyncio calls."""
        return self.current.wrap_bio(*arguments, **options)


def _state(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
