"""The file of a witness: read whole, replaced whole, and never by an older one."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from eventveil.formats.witness import Witness
from eventveil.model.errors import StateRefused, Unsettled


def read_witness(path: Path) -> tuple[bytes, Witness] | None:
    """The bytes of a file and the witness in them; None if there is none.

    Raises StateRefused if it is not a witness, OSError if it cannot be read.
    """
    try:
        value = path.read_bytes()
    except FileNotFoundError:
        return None
    return value, Witness.decode(value, str(path))


@dataclass(frozen=True, slots=True)
class WitnessFile:
    """The file that a worker compares the ledger with, at each take-over as it is then; never written."""

    path: Path
    topology: str

    def read(self, cluster: str) -> Witness:
        """The witness of this topology on a cluster.

        Raises StateRefused if there is none, or another one, and Unsettled if it cannot be read now.
        """
        try:
            found = read_witness(self.path)
        except OSError as error:
            what = f"it cannot be read: {error.strerror}"
            raise Unsettled(str(self.path), what, self._refusal(what)) from None
        if found is None:
            raise self._refusal("there is no such file")
        found[1].check(self.topology, cluster, str(self.path))
        return found[1]

    def _refusal(self, what: str) -> StateRefused:
        return StateRefused(
            str(self.path),
            what,
            "`eventveil ledger --witness` creates and updates the file. If there was one, restore it first: "
            "a new one has no record of earlier releases",
        )


def replace_witness(path: Path, before: bytes | None, witness: Witness) -> None:
    """Replace the file, whose bytes were ``before`` (None: there was none), durably and at once.

    Raises StateRefused, and leaves it as it is, if somebody else has replaced it meanwhile: what this program
    has seen may be older. Raises OSError if it cannot be written.
    """
    path = path.resolve()
    with _locked(path.parent) as directory:
        found = read_witness(path)
        if (None if found is None else found[0]) != before:
            raise StateRefused(
                str(path), "it was replaced while the ledger was read", "Run the command again"
            )
        new = path.with_name(f"{path.name}.new")
        try:
            _write(new, witness.encode())
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                new.unlink()
            raise
        os.fsync(directory)


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """A descriptor of a folder that no other process has locked in this way."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(path: Path, value: bytes) -> None:
    with path.open("wb") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())
