"""``python -m tests.fuzz``: crafted values and random chunks, in bulk, both ways, and one by one."""

from __future__ import annotations

import argparse
import secrets
from collections import Counter
from itertools import chain, islice
from random import Random

from tests.fuzz.counting import compare
from tests.fuzz.decoding import STREAMS, Comparison
from tests.fuzz.values import crafted, mutated, similar
from tests.fuzz.ways import WAYS, read_by


def main() -> None:
    """Exit with a traceback at the first difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--values", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    comparisons: dict[str, list[Comparison]] = {}
    for way in WAYS:
        with read_by(way):
            comparisons[way] = [Comparison(one) for one in STREAMS]
    chance = Random(options.seed)
    done, source = 0, mutated(chance)
    chunk = list(crafted())
    while chunk:
        for comparison in chain(*comparisons.values()):
            comparison.check(chunk)
        done += len(chunk)
        size = min(chance.choice((1, 10, 1000, 5000)), max(0, options.values - done))
        chunk = similar(chance, size) if chance.random() < 0.5 else list(islice(source, size))
    outcomes: Counter[str] = Counter()
    for number in range(options.values // 40_000):
        for way in WAYS:
            with read_by(way):
                outcomes += compare(options.seed + number)
    print(
        f"{outcomes.total():,} verdicts of whole chunks, the same one by one: {dict(outcomes.most_common())}"
    )
    print(f"{done:,} values, decoded alike for {len(STREAMS)} streams")
    for way, of_way in comparisons.items():
        print(f"{way} was sure of {', '.join(f'{comparison.sure:,}' for comparison in of_way)}")


if __name__ == "__main__":
    main()
