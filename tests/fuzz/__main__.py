"""``python -m tests.fuzz``: decode crafted values and count random chunks, in bulk and one by one."""

from __future__ import annotations

import argparse
import secrets
from collections import Counter
from itertools import islice
from random import Random

from tests.fuzz.counting import compare
from tests.fuzz.decoding import STREAMS, Comparison
from tests.fuzz.values import crafted, mutated, similar


def main() -> None:
    """Exit with a traceback at the first difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    comparisons = [Comparison(one) for one in STREAMS]
    chance = Random(options.seed)
    done, source = 0, mutated(chance)
    chunk = list(crafted())
    while chunk:
        for comparison in comparisons:
            comparison.check(chunk)
        done += len(chunk)
        size = min(chance.choice((1, 10, 1000, 5000)), max(0, options.values - done))
        chunk = similar(chance, size) if chance.random() < 0.5 else list(islice(source, size))
    outcomes: Counter[str] = Counter()
    for number in range(options.values // 4000):
        outcomes += compare(options.seed + number)
    print(
        f"{outcomes.total():,} verdicts of whole chunks, the same one by one: {dict(outcomes.most_common())}"
    )
    sure = ", ".join(f"{comparison.sure:,}" for comparison in comparisons)
    print(f"{done:,} values, decoded alike for {len(comparisons)} streams; bulk decoding was sure of {sure}")
    print(f"by their shapes: {', '.join(f'{comparison.shaped:,}' for comparison in comparisons)}")


if __name__ == "__main__":
    main()
