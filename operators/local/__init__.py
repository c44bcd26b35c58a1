"""Local privacy: values are perturbed by their producer, before anybody else sees them.

For producers ``reports`` needs nothing but Python's standard library: no Kafka, no numpy.

    from fractions import Fraction
    from operators.local import Hybrid, SquareWave

    SquareWave(Fraction(1), maximum=1000).report(37)    # while a threshold is looked for
    Hybrid(Fraction(1), threshold=120).report(37)       # once the server has published one

Each report is an integer, and costs its epsilon. A person who sends k reports is protected by the sum of
their epsilons only: in particular, who reports in both phases pays both. ``server`` is the other side.
"""

from operators.local.reports import Hybrid, SquareWave

__all__ = ["Hybrid", "SquareWave"]
