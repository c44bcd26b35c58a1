"""Files that are complete or not there: written under another name, and renamed at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

#: Instead of a path: standard output.
STANDARD_OUTPUT = "-"
#: The mode of a file of raw data.
OWNER_ONLY = 0o600


@contextmanager
def appearing(name: str, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file that gets its name when the ``with`` block ends well; after an exception nothing has changed.

    A device or a pipe takes the bytes as they come, STANDARD_OUTPUT is standard output. Raises OSError.
    """
    if name == STANDARD_OUTPUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name).resolve()
    if Path(name).exists() and not Path(name).is_file():
        # A folder is an error of open.
        with open(name, "wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {path.parent}", name) from None
    except BaseException:
        # A signal came just when it had been made.
        temporary.unlink(missing_ok=True)
        raise
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
