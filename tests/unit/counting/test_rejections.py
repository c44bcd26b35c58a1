"""Details of unknown columns that the kernel writes are those of the rule, or left to it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eventveil.decoding.bulk import BulkReader
from eventveil.decoding.rules import LONGEST_DETAIL, NOT_PUBLIC, Decoder
from tests.fuzz.ways import read_by
from tests.unit.support import stream

PLAIN = ["z", "", " ", "a b", 'say "so"', "~!@#$%^&*()", "x" * LONGEST_DETAIL]


@pytest.mark.parametrize("odd", ["it's", "a\\b", "tab\t", "\x7f", "é", "\u2028", "x" * (LONGEST_DETAIL + 1)])
def test_one_text_that_python_would_write_otherwise_leaves_all_to_the_rule(odd: str) -> None:
    assert quoted([*PLAIN, odd]) is None


def test_plain_texts_are_quoted_as_by_the_rule() -> None:
    decoder = Decoder(stream().source, stream().counts)
    assert decoder.shows_columns
    assert quoted(PLAIN) == [decoder.unknown_column(one).encode() for one in PLAIN]


def quoted(labels: list[str]) -> list[bytes | None] | None:
    with read_by("kernel"):
        (fields,) = BulkReader({"/c": "string"}, 1000).read(
            [json.dumps({"c": one}).encode() for one in labels]
        )
        found = fields.quoted("/c", np.arange(len(fields.rows)), NOT_PUBLIC, LONGEST_DETAIL)
    return None if found is None else [*found]
