"""A part of a run: crafted values, random chunks, damaged fetches and users, compared in every way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from random import Random

from tests.fuzz.counting import compare
from tests.fuzz.decoding import STREAMS, Comparison
from tests.fuzz.fetching import compare_damaged, compare_letters, compare_wild
from tests.fuzz.passing import compare as compare_passing
from tests.fuzz.users import compare as compare_users
from tests.fuzz.values import crafted, mutated, similar
from tests.fuzz.ways import WAYS, read_by


def fuzz(share: tuple[int, int]) -> Counter[str]:
    """Compare about as many values as ``share`` says behind its seed, and all else in proportion.

    What was found, by kind. Raises AssertionError at the first difference.
    """
    seed, values = share
    found: Counter[str] = Counter()
    comparisons: dict[str, list[Comparison]] = {}
    for way in WAYS:
        with read_by(way):
            comparisons[way] = [Comparison(one) for one in STREAMS]
    try:
        for chunk in _chunks(Random(seed), values):
            found["values"] += len(chunk)
            for comparison in chain(*comparisons.values()):
                comparison.check(chunk)
        for number in range(max(1, values // 40_000)):
            for way in WAYS:
                with read_by(way):
                    found.update({f"verdict {name}": n for name, n in compare(seed + number).items()})
        for number in range(max(1, values // 1_000)):
            found.update({f"fetch {name}": n for name, n in compare_damaged(seed + number).items()})
        for number in range(max(1, values // 10_000)):
            found.update(
                {f"letters, bad values: {name}": n for name, n in compare_letters(seed + number).items()}
            )
            found.update({f"letters, crafted: {name}": n for name, n in compare_wild(seed + number).items()})
        for number in range(max(1, values // 1_000)):
            for way in WAYS:
                with read_by(way):
                    passed = compare_passing(seed + number)
                found.update({f"passed on, {name}": n for name, n in passed.items()})
        for number in range(max(1, values // 20_000)):
            for way in WAYS:
                with read_by(way):
                    found.update({f"one user, {name}": n for name, n in compare_users(seed + number).items()})
    except AssertionError as error:
        raise AssertionError(f"part with seed {seed}: {error}") from error
    for way, of_way in comparisons.items():
        found[f"sure, by the way {way}"] += sum(comparison.sure for comparison in of_way)
        found[f"surely no JSON, by the way {way}"] += sum(comparison.refused for comparison in of_way)
    return found


def _chunks(chance: Random, values: int) -> Iterator[list[bytes | None]]:
    """At least this many values; at first all crafted ones."""
    source, done = mutated(chance), 0
    chunk: list[bytes | None] = list(crafted())
    while done < values:
        yield chunk
        done += len(chunk)
        size = min(chance.choice((1, 10, 1000, 5000)), max(0, values - done))
        chunk = similar(chance, size) if chance.random() < 0.5 else list(islice(source, size))
