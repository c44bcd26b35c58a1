"""``python -m tests.fuzz``: crafted values, random chunks and damaged fetches, by the kernel, in plain Python
and one by one; and random histories with and without the events of one user.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import time
from collections import Counter

from eventveil.process import kernel
from tests.fuzz.decoding import STREAMS
from tests.fuzz.parts import fuzz

#: Values of a part.
_SHARE = 100_000
_PROGRESS_SECONDS = 30


def main() -> None:
    """Exit with a traceback at the first difference; the seed of its part repeats it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--values", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if kernel.NATIVE is None:
        # A process of the pool would end, and be replaced, again and again.
        raise SystemExit(f"there is no kernel to compare with: {kernel.WAY}")
    print(f"seed {options.seed}, {options.processes} processes", flush=True)
    begun = told = time.monotonic()
    found: Counter[str] = Counter()
    sizes = [_SHARE] * (options.values // _SHARE) + [options.values % _SHARE]
    # The first part has the seed of the run, so that it can be repeated alone.
    parts = [(options.seed + 1_000_003 * number, size) for number, size in enumerate(sizes) if size]
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for done, one in enumerate(pool.imap_unordered(fuzz, parts), 1):
            found += one
            if time.monotonic() > told + _PROGRESS_SECONDS:
                told = time.monotonic()
                print(f"{done} of {len(parts)} parts after {told - begun:.0f} s", flush=True)
    print(f"{found['values']:,} values, decoded alike for {len(STREAMS)} streams")
    print(f"{time.monotonic() - begun:.0f} s")
    for what, number in sorted(found.items()):
        print(f"{what}: {number:,}")


if __name__ == "__main__":
    main()
