"""The public record of a release and its ledger entry, byte by byte."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.formats.release import clipped, digest, ledger_entry, release_record, three_digits
from eventveil.mechanisms.base import RELEASE_LIMIT, Release
from eventveil.model.topology import Stream
from tests.unit.support import stream

RELEASE = Release(np.array([3, -1], np.int64), True, 0, 2097152, 4194304)


def record(one: Stream | None = None, release: Release = RELEASE, **options: Any) -> bytes:
    return release_record(one or stream(), 2, release, 4194304, **options)


OBJECT = (
    b'{"stream":"visits","timestamp":2,"start":"1970-01-01T00:00:01.010Z","end":"1970-01-01T00:00:01.020Z",'
    b'"counts":{"a":3,"b":-1},"fresh":true,"mechanism":"uniform","epsilon":"1.0","window":2,"units":4194304,'
    b'"spent":{"test":0,"publish":2097152},"window_spent":4194304}'
)


def test_a_release_with_named_counts_has_these_bytes() -> None:
    assert record() == OBJECT


def test_a_release_with_an_array_of_counts_has_these_bytes() -> None:
    columns = hashlib.sha256(b'["a","b"]').hexdigest().encode()
    expected = OBJECT.replace(b'{"a":3,"b":-1}', b'[3,-1],"columns_digest":"' + columns + b'"')
    assert record(stream(form="array")) == expected


def erring(*errors: float, scale: Fraction | None = None) -> Release:
    return replace(RELEASE, error=np.array(errors), noise_scale=scale)


def test_the_errors_of_counts_follow_them_by_column_and_in_their_form() -> None:
    error = erring(12.345, 0.0012345)
    expected = OBJECT.replace(b',"fresh"', b',"error":{"a":12.3,"b":0.00123},"fresh"')
    assert record(release=error) == expected
    assert b'],"columns_digest":"' in record(stream(form="array"), error)
    assert b'","error":[12.3,0.00123],"fresh"' in record(stream(form="array"), error)


@pytest.mark.parametrize("form", ["object", "array"])
def test_an_error_that_all_columns_share_is_one_number(form: str) -> None:
    shared = erring(5656.8, scale=Fraction(4000, 3))
    assert b',"error":5660.0,"noise_scale":1333.3333333333333,"fresh"' in record(stream(form=form), shared)


def test_errors_have_three_significant_digits_and_are_at_most_what_counts_can_differ_by() -> None:
    given = np.array([0, 1e-10, 1e-9, 0.12345, 0.9996, 1, 9.994, 9.996, 99.95, 999.6, 56789, 2.2e12, 1e30])
    found = [0, 0, 1e-9, 0.123, 1, 1, 9.99, 10, 100, 1000, 56800, 2.2e12, 2.2e12]
    assert three_digits(given).tolist() == found


def test_a_seeded_replay_says_so_at_the_end() -> None:
    assert record(seeded=True) == OBJECT[:-1] + b',"seeded":true}'


def test_a_repeated_release_is_not_fresh() -> None:
    repeated = Release(RELEASE.counts, False, 1024, 0, 2098176)
    fields = orjson.loads(record(release=repeated))
    assert fields["fresh"] is False
    assert fields["spent"] == {"test": 1024, "publish": 0}
    assert fields["window_spent"] == 2098176


def test_columns_stay_in_the_order_of_the_topology_and_their_names_are_escaped() -> None:
    labels = ("z", "a", 'quo"te', "ü", "\n", "7")
    release = Release(np.arange(6, dtype=np.int64), True, 0, 1, 1)
    value = record(stream(labels=labels), release)
    assert list(orjson.loads(value)["counts"].items()) == [(label, at) for at, label in enumerate(labels)]
    assert '"counts":{"z":0,"a":1,"quo\\"te":2,"ü":3,"\\n":4,"7":5}'.encode() in value


def test_the_largest_counts_are_written_as_integers() -> None:
    release = Release(np.array([RELEASE_LIMIT, -RELEASE_LIMIT], np.int64), True, 0, 1, 1)
    assert b'"counts":{"a":1099511627776,"b":-1099511627776}' in record(release=release)


def test_epsilon_is_published_as_it_was_written() -> None:
    assert orjson.loads(record(stream(epsilon_text="0.10")))["epsilon"] == "0.10"


def test_a_release_with_too_few_counts_is_no_release() -> None:
    with pytest.raises(ValueError, match="zip"):
        record(stream(labels=("a", "b", "c")))


def test_a_ledger_entry_has_these_bytes() -> None:
    expected = (
        b'{"stream":"visits","timestamp":2,"fresh":true,"mechanism":"uniform","epsilon":"1.0","window":2,'
        b'"units":4194304,"spent":{"test":0,"publish":2097152},"window_spent":4194304,'
        b'"digest":"' + hashlib.sha256(OBJECT).hexdigest().encode() + b'","instance":"abc"}'
    )
    assert ledger_entry(OBJECT, "abc") == expected


def test_the_ledger_entry_knows_every_byte_of_the_release_and_holds_no_counts() -> None:
    other = OBJECT.replace(b'"a":3', b'"a":4')
    assert ledger_entry(other, "abc") != ledger_entry(OBJECT, "abc")
    assert digest(OBJECT) == hashlib.sha256(OBJECT).hexdigest()
    assert b"counts" not in ledger_entry(OBJECT, "abc")


def test_a_minimum_clips_counts_and_history_and_halves_the_variance_of_what_is_cut_off() -> None:
    release = replace(erring(10.0, scale=Fraction(7)), counts=np.array([-40, 500]), history=(-3, 4))
    found = clipped(release, 0)
    assert found.counts.tolist() == [0, 500]
    assert found.history == (0, 4)
    assert found.noise_scale is None
    assert np.asarray(found.error).tolist() == pytest.approx([10 / 2**0.5, 10.0])
    assert clipped(release, None) is release


def test_the_record_of_a_sink_with_a_minimum_has_clipped_counts() -> None:
    one = stream()
    found = orjson.loads(record(replace(one, sink=replace(one.sink, minimum=0)), erring(10.0)))
    assert found["counts"] == {"a": 3, "b": 0}
    assert found["error"]["b"] == 7.07


def test_a_record_says_that_its_counts_were_clipped_so_that_sums_are_biased() -> None:
    one = stream()
    assert orjson.loads(record(replace(one, sink=replace(one.sink, minimum=0))))["minimum"] == 0
    assert "minimum" not in orjson.loads(record(one))
