"""``eventveil export`` from a file of releases."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from eventveil import read
from eventveil.cli.main import main
from tests.unit.read.making import record, written


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return written(tmp_path, [record(at, fresh=at % 2 == 1) for at in range(1, 50)])


def export(source: Path, output: Path | str, *options: str) -> Result:
    return CliRunner().invoke(main, ["export", str(source), "--output", str(output), *options])


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_csv_file_has_a_row_for_each_time_and_column(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "releases.csv"
    exported = export(source, output)
    assert exported.exit_code == 0, exported.output
    first, second, *_ = rows(output)
    assert first["time"] == "2026-03-01T00:00:00Z"
    assert (first["column"], first["count"], first["error"], first["fresh"]) == ("home", "10", "5.5", "true")
    assert (second["column"], second["count"]) == ("basket", "-1")
    assert float(first["low"]) < 10 < float(first["high"])
    assert len(first["low"].partition(".")[2]) == 6
    assert len(rows(output)) == 98


def test_sums_that_are_empty_are_told(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "days.csv"
    exported = export(source, output, "--every", "1d", "--columns", "home")
    whole = [row["complete"] for row in rows(output)]
    assert whole.count("false") == 1
    assert "1 of them is empty: no release for a part of the span; see --partial" in exported.output
    assert [row["total"] == "" for row in rows(output)] == [one == "false" for one in whole]
    assert "of them" not in export(source, output, "--every", "1d", "--partial", "--force").output


def test_an_output_that_nobody_reads_any_more_is_no_error(tmp_path: Path) -> None:
    many = written(tmp_path, [record(at) for at in range(1, 20_000)])
    program = "from eventveil.cli.main import main; main()"
    command = [sys.executable, "-c", program, "export", str(many), "--output", "-", "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"time,")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_a_parquet_file_has_what_the_reader_gives(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "releases.parquet"
    assert export(source, output).exit_code == 0
    table = pq.read_table(output)
    expected = read.file(source).to_pandas()
    assert table.column_names == list(expected)
    assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]"
    found = table.to_pandas()
    for name in expected:
        assert found[name].tolist() == expected[name].tolist(), name


def test_days_are_summed_up_and_a_day_that_is_not_over_has_no_total(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "days.csv"
    assert export(source, output, "--every", "1d", "--columns", "home").exit_code == 0
    first, _, third = rows(output)
    assert float(first["total"]) == 10 * sum(range(1, 25))
    assert (third["total"], third["low"], third["complete"]) == ("", "", "false")
    assert third["timestamps"] == "1"


def test_averages_of_groups_in_wide_form(source: Path, tmp_path: Path) -> None:
    groups, output = tmp_path / "groups.yaml", tmp_path / "days.csv"
    groups.write_text("shop: [home, basket]\n")
    assert export(
        source, output, "--every", "1d", "--groups", str(groups), "--average", "--wide", "--partial"
    ).exit_code == 0  # fmt: skip
    first, *_, last = rows(output)
    assert float(first["shop"]) == pytest.approx(9 * 12.5)
    assert float(last["shop"]) == 49 * 9


def test_a_range_a_level_and_counts_that_are_not_negative(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "releases.csv"
    options = ["--from", "2026-03-01T02:00:00Z", "--to", "2026-03-01T04:00:00Z", "--non-negative"]
    assert export(source, output, *options, "--level", "0.5").exit_code == 0
    found = rows(output)
    assert [one["count"] for one in found] == ["27.0", "0.0", "36.0", "0.0"]
    half = float(found[2]["high"]) - 36
    assert half == pytest.approx(0.6745 * 5.5, abs=0.01)


@pytest.mark.parametrize("sums", [("--every", "1d"), ("--groups", "groups.yaml")])
def test_counts_made_non_negative_are_not_summed(source: Path, tmp_path: Path, sums: tuple[str, str]) -> None:
    exported = export(source, tmp_path / "days.csv", "--non-negative", *sums)
    assert exported.exit_code == 2
    assert "biased (upwards in small columns)" in exported.output
    assert "Leave out --non-negative" in exported.output


def test_standard_output_gets_the_table_alone(source: Path) -> None:
    exported = export(source, "-", "--every", "all", "--partial")
    assert exported.stdout.startswith("time,end,column,total,")
    assert len(exported.stdout.splitlines()) == 3


def test_a_file_that_exists_is_replaced_only_by_force(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "releases.csv"
    output.write_text("mine")
    assert export(source, output).exit_code == 2
    assert output.read_text() == "mine"
    assert export(source, output, "--force").exit_code == 0


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_bad_record_is_told_and_no_file_is_left(tmp_path: Path, kind: str) -> None:
    source = written(tmp_path, [record(1), record(2, counts={"home": 1.5, "basket": 0})])
    exported = export(source, tmp_path / f"out.{kind}")
    assert exported.exit_code == 1
    assert f"{source}, line 2: no release" in exported.stderr
    assert "counts, column home" in exported.stderr
    assert os.listdir(tmp_path) == [source.name]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--average"], 2, "add --every or --groups"),
        (["--every", "fortnight"], 1, "not a length of time"),
        (["--columns", "away"], 1, "no column away"),
        (["--stream", "other"], 1, "no release of other"),
        (["--groups", "nowhere.yaml"], 1, "nowhere.yaml"),
        (["--level", "1"], 2, "--level"),
    ],
)
def test_what_cannot_be_exported_is_told(
    source: Path, tmp_path: Path, options: list[str], code: int, words: str
) -> None:
    exported = export(source, tmp_path / "out.csv", *options)
    assert exported.exit_code == code
    assert words in exported.stderr


def test_the_format_is_told_by_the_name_or_the_option(source: Path, tmp_path: Path) -> None:
    assert "add --format" in export(source, tmp_path / "table").stderr
    assert export(source, tmp_path / "table", "--format", "csv").exit_code == 0


def test_a_source_that_is_not_there_is_told(tmp_path: Path) -> None:
    exported = export(tmp_path / "no.jsonl", tmp_path / "out.csv")
    assert exported.exit_code == 1
    assert "no.jsonl: No such file" in exported.stderr


def test_groups_that_are_none_are_refused(source: Path, tmp_path: Path) -> None:
    groups = tmp_path / "groups.yaml"
    groups.write_text("- home\n")
    assert "not a mapping" in export(source, tmp_path / "out.csv", "--groups", str(groups)).stderr


@pytest.mark.parametrize("rows_of_a_piece", [1, 2**16])
@pytest.mark.parametrize("form", ["wide", "long"])
def test_columns_that_are_found_on_the_way_are_there_from_the_first_line_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, rows_of_a_piece: int
) -> None:
    names = ("other", "time", 'a,"b', "fresh")
    cost = {"epsilon": "0.1", "delta": "1/1000000000"}
    source = written(
        tmp_path,
        [
            record(at, counts={name: 10 * at + of for of, name in enumerate(names[:at])}, discovery=cost)
            for at in range(1, 5)
        ],
    )
    pieces = read.Releases.pieces
    monkeypatch.setattr(
        read.Releases, "pieces", lambda self, form, level: pieces(self, form, level, rows_of_a_piece)
    )
    assert export(source, tmp_path / "x.csv", f"--{form}").exit_code == 0
    assert export(source, tmp_path / "x.parquet", f"--{form}").exit_code == 0
    text, table = rows(tmp_path / "x.csv"), pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert [*text[0]] == [*table[0]]
    if form == "wide":
        shown = ["other", "column:time", 'a,"b', "column:fresh"]
        assert [*text[0]] == ["time", "fresh", *shown]
        told, found = ([[row[name] for name in shown] for row in each] for each in (text, table))
    else:
        assert [row["column"] for row in text] == [row["column"] for row in table] == [*names] * 4
        told, found = (
            [[row["count"] for row in each[at : at + 4]] for at in range(0, 16, 4)] for each in (text, table)
        )
    expected = [[10 * at + of if of < at else None for of in range(4)] for at in range(1, 5)]
    assert found == expected
    assert [[float(one) if one else None for one in row] for row in told] == expected
