"""Reads a topology file and finds all its mistakes at once."""

from __future__ import annotations

import os
from collections.abc import Mapping

from eventveil.model.topology import Topology
from eventveil.topology.build import build, fill
from eventveil.topology.checks import check
from eventveil.topology.document import SIZE_LIMIT, compose
from eventveil.topology.fields import Default, ReadingPass, Section
from eventveil.topology.interpolation import expand
from eventveil.topology.limits import check_limits
from eventveil.topology.problems import NOWHERE, START, Problems
from eventveil.topology.spec import layout

SECRET_LIMIT = 64 * 1024


def load(path: str, environ: Mapping[str, str]) -> Topology:
    """The topology of a file, with ``${...}`` taken from ``environ``.

    Raises TopologyInvalid with every mistake of the file.
    """
    return load_with_defaults(path, environ)[0]


def load_with_defaults(path: str, environ: Mapping[str, str]) -> tuple[Topology, tuple[Default, ...]]:
    """Like ``load``, with the settings that the file leaves out and the values that they have."""
    problems = Problems(path)
    return _load(path, _read(path, problems), environ, problems)


def load_text(path: str, text: str, environ: Mapping[str, str]) -> Topology:
    """Like ``load``, of a file that has this text and is perhaps not written yet."""
    return _load(path, text.encode(), environ, Problems(path))[0]


def _load(
    path: str, data: bytes | None, environ: Mapping[str, str], problems: Problems
) -> tuple[Topology, tuple[Default, ...]]:
    directory = os.path.dirname(os.path.abspath(path))
    root = compose(data, problems) if data is not None else None
    if root is None:
        problems.raise_if_any()
        raise AssertionError("a file without a tree has a problem")
    expanded = expand(root, environ, lambda name: read_secret(os.path.join(directory, name)), problems)
    reading = ReadingPass(problems, directory)
    file = layout().read(expanded, "", reading)
    if isinstance(file, Section):
        reading.defaults += fill(file)
        check(file)
    problems.raise_if_any()
    assert isinstance(file, Section)
    topology = build(file, path, directory)
    check_limits(topology, file)
    problems.raise_if_any()
    return topology, tuple(sorted(reading.defaults))


def _read(path: str, problems: Problems) -> bytes | None:
    try:
        with open(path, "rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        problems.add(NOWHERE, f"the file cannot be read ({why}); check the path and its permissions")
        return None
    if len(data) > SIZE_LIMIT:
        problems.add(
            START, "the file is larger than 1 MiB; move long lists of columns to {file: columns.txt}"
        )
        return None
    return data


def read_secret(path: str) -> str:
    """A secret from a file: its text without the last line break. Raises OSError or ValueError."""
    with open(path, "rb") as file:
        data = file.read(SECRET_LIMIT + 1)
    if len(data) > SECRET_LIMIT:
        raise ValueError("is larger than 64 KiB; give a file that holds the secret alone")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8; give a file that holds the secret as text") from None
    return text.removesuffix("\n").removesuffix("\r")
