"""Releases as arrays and frames, summed up with what the sums err by: docs/reading.md.

``file`` reads what `eventveil replay` wrote, ``topic`` reads a sink; both give ``Releases``. ``consistent``
makes releases of several levels, such as sections and their pages, add up.
"""

from eventveil.read.levels import consistent
from eventveil.read.problems import ReadingError
from eventveil.read.releases import Part, Releases
from eventveil.read.sources import file, topic
from eventveil.read.summing import Sums

__all__ = ["Part", "ReadingError", "Releases", "Sums", "consistent", "file", "topic"]
