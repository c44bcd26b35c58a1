"""What a file of records becomes, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eventveil import read
from eventveil.read.records import Record
from eventveil.read.sources import stream_of
from eventveil.topology.columns import columns_digest
from tests.unit.read.making import HOUR, ORIGIN, record, written
from tests.unit.replay.history import stream, topology

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas" / "release.schema.json").read_text())


def test_the_reader_knows_every_field_of_the_schema() -> None:
    assert set(SCHEMA["properties"]) <= set(Record.__struct_fields__)


def test_releases_come_as_arrays_in_the_order_of_time(tmp_path: Path) -> None:
    second = record(2, fresh=False, missing=[3, 1], noise_scale=None, error={"home": 7, "basket": 0.5})
    found = read.file(written(tmp_path, [second, record(1)]))
    assert (found.stream, found.columns, found.interval) == ("views", ("home", "basket"), HOUR)
    assert found.timestamps.tolist() == [1, 2]
    assert found.starts.tolist() == np.array([ORIGIN, ORIGIN + HOUR], "datetime64[ms]").tolist()
    assert found.counts.dtype == np.int64
    assert found.counts.tolist() == [[10, -1], [20, -2]]
    assert found.errors.tolist() == [[5.5, 5.5], [7, 0.5]]
    assert found.fresh.tolist() == [True, False]
    assert found.missing == ((), (3, 1))
    assert found.scales.tolist()[0] == 4
    assert np.isnan(found.scales[1])
    assert (found.mechanism, found.epsilon, found.window, found.span) == ("uniform", "1", 24, 1)


def test_a_packed_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "releases.jsonl.gz"
    path.write_bytes(gzip.compress(record(1) + b"\n" + record(2) + b"\n"))
    assert len(read.file(path)) == 2


@pytest.mark.parametrize("spoilt", ["cut off", "changed"])
def test_a_packed_file_that_is_damaged_is_refused(tmp_path: Path, spoilt: str) -> None:
    path, packed = tmp_path / "releases.jsonl.gz", gzip.compress(record(1) + b"\n")
    path.write_bytes(packed[:-5] if spoilt == "cut off" else packed[:20] + b"\xff" * 40 + packed[60:])
    with pytest.raises(read.ReadingError, match="cannot be unpacked"):
        read.file(path)


def test_a_record_without_an_error_has_an_error_that_is_not_known(tmp_path: Path) -> None:
    found = read.file(written(tmp_path, [record(error=None, noise_scale=None)]))
    low, high = found.bounds()
    assert np.isnan(found.errors).all()
    assert np.isnan([low, high]).all()


def test_the_same_record_twice_is_one_release(tmp_path: Path) -> None:
    assert len(read.file(written(tmp_path, [record(1), record(2), record(1)]))) == 2


def test_two_different_releases_of_a_timestamp_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [record(1), record(2), record(1, counts={"home": 1, "basket": 1})])
    with pytest.raises(read.ReadingError, match=r"line 3: timestamp 1.*line 1.*`eventveil ledger`"):
        read.file(path)


def test_a_missing_timestamp_is_a_gap_and_no_zero(tmp_path: Path) -> None:
    found = read.file(written(tmp_path, [record(1), record(4), record(5), record(7)]))
    assert found.timestamps.tolist() == [1, 4, 5, 7]
    assert found.gaps == ((2, 3), (6, 6))


def test_of_several_streams_one_has_to_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, [record(1), record(1, stream="other"), record(2)])
    with pytest.raises(read.ReadingError, match="views, other"):
        read.file(path)
    assert len(read.file(path, "views")) == 2
    assert len(read.file(path, "other")) == 1
    with pytest.raises(read.ReadingError, match="no release of third"):
        read.file(path, "third")


def test_of_several_streams_of_a_topology_one_has_to_be_named_by_its_option() -> None:
    with pytest.raises(read.ReadingError, match=r"Name one \(--stream, in Python stream=\): a, b$"):
        stream_of(topology(stream("a"), stream("b")), None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"stream": "views", "timest', "line 2: no whole JSON object"),
        (b"", "line 2: an empty line"),
        (record(2, counts={"home": 1, "basket": "3"}), "counts, column basket"),
        (record(2, counts={"home": 2**40 + 1, "basket": 3}), "counts, column home"),
        (record(2, error={"home": 1, "basket": -1}), "error, column basket"),
        (record(2, error={"home": 1}), "error has other columns"),
        (record(0), "timestamp"),
        (record(2, fresh=None), "fresh"),
        (record(2, start="yesterday"), "start: 'yesterday' is not an RFC 3339 time"),
        (record(2, interval=HOUR // 2), "timestamp 2 lies at"),
        (record(2, counts={"home": 1, "away": 3}), "other columns than those before: away, basket"),
        (record(2, counts={"basket": 1, "home": 3}), "another order"),
        (record(2, flavour="odd"), "unknown field `flavour`.*later version"),
        (b'{"stream": "views", "partition": 0, "position": 1, "reading": 3}', "reading of one value"),
        (b'{"stream": "views", "timestamp": 2, "counts": {}, "events": {}}', "but a line of `--truth`. Give"),
        (b'{"customer": "c-1", "at": 3}', "not a release: it has neither stream nor counts. Give"),
        (b'{"stream": "views", "timestamp": 2, "test": 0}', "not a release: it has no counts. Give"),
    ],
)
def test_a_bad_record_is_refused_with_its_line_and_field(tmp_path: Path, line: bytes, words: str) -> None:
    with pytest.raises(read.ReadingError, match=words) as refused:
        read.file(written(tmp_path, [record(1), line, record(3)]))
    assert "releases.jsonl, line 2: " in str(refused.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(read.ReadingError, match="there is no release"):
        read.file(written(tmp_path, []))


def test_columns_that_a_file_has_renamed_are_no_damage(tmp_path: Path) -> None:
    path = written(tmp_path, [record(1)])
    with pytest.raises(read.ReadingError) as refused:
        read.file(path, columns=["home", "korb"])
    assert (
        "only the releases have the column basket, and only this file has korb. Is it the file that"
        in str(refused.value)
    )
    assert "damaged" not in str(refused.value)


def test_arrays_of_counts_need_the_names_of_the_columns(tmp_path: Path) -> None:
    digest = columns_digest(["a", "b"])
    path = written(tmp_path, [record(counts=[3, 4], error=[1, 2], columns_digest=digest)])
    assert read.file(path, columns=["a", "b"]).columns == ("a", "b")
    with pytest.raises(read.ReadingError, match="without names"):
        read.file(path)
    with pytest.raises(read.ReadingError, match="the names of the columns, or their order, differ"):
        read.file(path, columns=["b", "a"])


def test_a_range_of_time_keeps_the_timestamps_that_lie_in_it(tmp_path: Path) -> None:
    path = written(tmp_path, map(record, range(1, 9)))
    ranged = {"start": "2026-03-01T01:30:00Z", "end": np.datetime64("2026-03-01T05:00")}
    assert read.file(path, **ranged).timestamps.tolist() == [3, 4, 5]
    assert read.file(path).between(**ranged).timestamps.tolist() == [3, 4, 5]
    with pytest.raises(read.ReadingError, match="no release lies in that range"):
        read.file(path, start="2030-01-01")


def test_a_migrated_stream_has_parts_to_choose_from(tmp_path: Path) -> None:
    changed: dict[str, Any] = {"mechanism": "seasonal", "epsilon": "2", "noise_scale": None}
    found = read.file(written(tmp_path, [record(1), record(2), record(3, **changed)]))
    assert found.part_of.tolist() == [0, 0, 1]
    assert found.part(1).mechanism == "seasonal"
    assert found.part(1).timestamps.tolist() == [3]
    with pytest.raises(read.ReadingError, match=r"0: uniform, epsilon 1; 1: seasonal.*\.part\(number\)"):
        _ = found.mechanism


def test_releases_that_were_clipped_are_told_by_their_terms(tmp_path: Path) -> None:
    clipped: dict[str, Any] = {"counts": {"home": 1, "basket": 0}, "noise_scale": None, "minimum": 0}
    found = read.file(written(tmp_path, [record(1), record(2, **clipped)]))
    assert [part.minimum for part in found.parts] == [None, 0]
    with pytest.raises(read.ReadingError, match="minimum"):
        read.file(written(tmp_path, [record(1, minimum=1)]))


def test_local_reports_are_sums_from_when_there_are_sums(tmp_path: Path) -> None:
    counts = {"sum": 12, "reports": 5, "unused": 0}
    local: dict[str, Any] = {"counts": counts, "mechanism": "topl", "noise_scale": None, "error": None}
    lines = [record(1, phase="distribution", **local), record(2, phase="sums", threshold=40, **local)]
    found = read.file(written(tmp_path, lines))
    assert found.timestamps.tolist() == [2]
    with pytest.raises(read.ReadingError, match="none has sums yet"):
        read.file(written(tmp_path, lines[:1]))


def test_the_counts_of_a_window_at_user_level_are_kept(tmp_path: Path) -> None:
    window: dict[str, Any] = {"span": 2, "mechanism": "shp-window", "groups": [{"length": 2, "total": 7}]}
    found = read.file(written(tmp_path, [record(1, counts={"home": 4}, history=[3, 4], **window)]))
    assert found.history == ((3, 4),)
    assert found.totals().values.tolist() == [[4]]


def test_terms_that_changed_are_told_with_what_differs(tmp_path: Path) -> None:
    gaussian = {"noise": "gaussian", "delta": "1/1000000"}
    records = [record(1), record(2, epsilon="2"), record(3, epsilon="2", window=48, **gaussian)]
    with pytest.raises(read.ReadingError) as refused:
        _ = read.file(written(tmp_path, records)).epsilon
    assert refused.value.what == (
        "its terms changed (0: uniform, epsilon 1, window 24, noise None; 1: uniform, epsilon 2, window 24,"
        " noise None; 2: uniform, epsilon 2, window 48, noise gaussian)"
    )
