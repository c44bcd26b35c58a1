"""``python -m tests.fuzz.guided``: the compiled kernel under AddressSanitizer, led by its coverage.

libFuzzer (by Atheris) mutates bytes towards code of the kernel that no input has reached yet. They are taken
as values and as whole fetches; the kernel may say "not sure", but nothing else than the rules and aiokafka
say. It is built with checks of memory (AddressSanitizer), of overflow and of every debug assertion, and a
panic ends the process, as a wrong access does. `make fuzz-kernel` builds it, which needs a nightly Rust.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from itertools import cycle
from pathlib import Path

from tests.fuzz.decoding import STREAMS, Comparison
from tests.fuzz.fetching import compare_readings, with_checksum
from tests.fuzz.values import crafted
from tests.fuzz.ways import read_by
from tests.unit.worker.faust.test_fetches import make_log

#: What values are split at. It stands in no JSON.
_SEPARATOR = b"\x1e"


def target() -> Callable[[bytes], None]:
    """What is called with each input; raises AssertionError at a difference."""
    with read_by("kernel"):
        comparisons = cycle([Comparison(one) for one in STREAMS])

    def check(data: bytes) -> None:
        if data[:1] < b"\x80":
            next(comparisons).check(data[1:].split(_SEPARATOR))
        else:
            compare_readings(with_checksum(data[1:]))

    return check


def corpus() -> list[bytes]:
    """Inputs to begin with."""
    values = [b"\0" + value for value in crafted() if value is not None and len(value) < 300]
    joined = [b"\0" + _SEPARATOR.join(one[1:] for one in values[at : at + 20]) for at in range(0, 400, 20)]
    return [
        *values[::7],
        *joined,
        *(b"\xff" + batch for seed in range(40) for _, batch in make_log(seed).batches),
    ]


def main() -> None:
    """Run with the arguments of libFuzzer; the last is the folder of the corpus."""
    atheris = import_module("atheris")  # in no environment but that of `make fuzz-kernel`
    folder = Path(sys.argv[-1])
    for number, one in enumerate(corpus()):
        (folder / f"crafted-{number}").write_bytes(one)
    atheris.Setup(sys.argv, target(), internal_libfuzzer=False)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
