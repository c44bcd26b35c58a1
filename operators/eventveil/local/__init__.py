"""Local privacy: values are perturbed by their producer, before anybody else sees them.

For producers, ``control`` and ``reports`` need nothing but Python's standard library: no Kafka, no numpy.

    from fractions import Fraction
    from eventveil.local import Control

    asked = Control.read(record, epsilon=Fraction(1))    # the stream's record of the control topic
    asked.report(37)                                     # such as "sums/1/1000/120/17"

Each report costs its epsilon. A person who sends k reports is protected by the sum of their epsilons only: in
particular, who reports in both phases pays both. ``server`` and ``eventveil.mechanisms.topl`` are the other
side.
"""

from eventveil.local.control import Control
from eventveil.local.reports import Hybrid, SquareWave

__all__ = ["Control", "Hybrid", "SquareWave"]
