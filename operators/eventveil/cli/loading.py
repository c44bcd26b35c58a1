"""Loading the topology that a command was given, and the exit codes of commands."""

from __future__ import annotations

import os
import sys

import click

from eventveil.model.topology import Topology
from eventveil.topology.loading import load
from eventveil.topology.problems import TopologyInvalid

EXIT_FAILED = 1
EXIT_USAGE = 2
#: The command did what it was asked, and found that something is wrong.
EXIT_UNWELL = 3
EXIT_MEMORY = 75
EXIT_INVALID = 78


def is_topology(path: str) -> bool:
    """Whether a file is a topology, by its name."""
    return path.endswith((".yaml", ".yml"))


def load_or_exit(path: str) -> Topology:
    """The topology in a file; exits with 78 and every mistake on standard error if it is invalid."""
    try:
        return load(path, os.environ)
    except TopologyInvalid as error:
        click.echo(str(error), err=True)
        sys.exit(EXIT_INVALID)
