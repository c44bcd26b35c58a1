from __future__ import annotations

import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventveil.cli.main import main
from eventveil.process import memory
from tests.unit.topology.examples import BASE, two_streams

EVENTS = """\
{"tailnum": "N1", "dest": "ATL", "time": "2013-01-01T00:10:00Z"}
{"tailnum": "N2", "dest": "BOS", "time": "2013-01-01T02:59:59.999Z"}
garbage
{"tailnum": "N1", "dest": "ATL", "time": 1356998400000}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a topology and events."""
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(BASE)
    Path("events.jsonl").write_text(EVENTS)
    return tmp_path


def run(*options: str, to: str = "2013-01-01T04:00:00Z", source: str = "events.jsonl") -> Result:
    return CliRunner().invoke(
        main, ["replay", "t.yaml", "--input", source, "--output", "out.jsonl", "--to", to, *options]
    )


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_replay_writes_releases_ledger_and_truth_and_prints_to_standard_error_only(folder: Path) -> None:
    result = run("--truth", "truth.jsonl", "--ledger", "ledger.jsonl", "--seed", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert [line["timestamp"] for line in lines(folder / "out.jsonl")] == [1, 2, 3, 4]
    assert [line["counts"] for line in lines(folder / "truth.jsonl")] == [
        {"ATL": 1, "BOS": 0}, {"ATL": 0, "BOS": 0}, {"ATL": 0, "BOS": 1}, {"ATL": 0, "BOS": 0},
    ]  # fmt: skip
    assert [list(line) for line in lines(folder / "ledger.jsonl")] == [
        ["stream", "timestamp", "test", "publish", "window_spent", "units"]
    ] * 4
    assert "truth.jsonl will hold true counts: raw data" in result.stderr


def test_the_same_seed_writes_the_same_files(folder: Path) -> None:
    options = ("--seed", "7", "--ledger", "ledger.jsonl", "--force")
    run(*options)
    first = (folder / "out.jsonl").read_bytes(), (folder / "ledger.jsonl").read_bytes()
    result = run(*options)
    assert "the noise is seeded: anybody who knows the seed can remove it" in result.stderr
    assert ((folder / "out.jsonl").read_bytes(), (folder / "ledger.jsonl").read_bytes()) == first


def test_every_replay_says_what_it_adds(folder: Path) -> None:
    expected = "for destinations it adds epsilon 1.0 over any 120 consecutive timestamps"
    assert expected in run().stderr
    result = run("--from", "2013-01-01T01:00:00Z", "--force")
    assert "--from starts with a fresh budget" in result.stderr
    assert [line["timestamp"] for line in lines(folder / "out.jsonl")] == [2, 3, 4]


def test_a_replay_with_gaussian_noise_says_what_delta_it_adds_and_so_do_its_releases(folder: Path) -> None:
    path = folder / "t.yaml"
    gaussian = "noise: gaussian\n      delta: 1e-9\n      kind: uniform"
    path.write_text(path.read_text().replace("kind: budget-absorption", gaussian))
    assert "it adds epsilon 1.0 with delta 1e-09 over any 120 consecutive timestamps" in run().stderr
    first = lines(folder / "out.jsonl")[0]
    assert (first["noise"], first["delta"], "noise_scale" in first) == ("gaussian", "1/1000000000", False)
    assert first["error"] == pytest.approx(60.2, abs=0.1)


def test_last_lets_the_data_decide_and_says_so(folder: Path) -> None:
    result = run(to="last")
    assert len(lines(folder / "out.jsonl")) == 3
    assert "the raw data decided the end: destinations ends with timestamp 3, at 2013-01-01T03:00:00Z" in (
        result.stderr
    )


def test_timestamps_of_the_range_that_are_not_over_yet_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_357_003_800_000 * 1_000_000)  # 2013-01-01T01:30:00Z
    told = run().stderr
    assert (
        "warning: timestamps of destinations from 2 on are not over yet, so events of them are missing; "
        "--to 2013-01-01T01:00:00Z leaves them out"
    ) in told
    assert "from 4 on are not over yet" in run("--from", "2013-01-01T03:00:00Z", "--force").stderr
    assert "not over yet" not in run("--force", to="2013-01-01T01:00:00Z").stderr
    assert "not over yet" not in run("--force", to="last").stderr


def test_an_event_of_the_future_does_not_decide_the_end(folder: Path) -> None:
    with (folder / "events.jsonl").open("a") as events:
        events.write('{"tailnum": "N3", "dest": "ATL", "time": 4294967295000}\n')
    result = run(to="last")
    assert result.exit_code == 1
    assert (
        "the last event of destinations is in the timestamp that begins at 2106-02-07T06:00:00Z, in the"
        " future, so --to last would release 816,103 timestamps. Correct the time of that event, or set the"
        " end with --to TIME"
    ) in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "t.yaml"]
    assert run().exit_code == 0


def test_it_says_beforehand_which_timestamps_it_releases(folder: Path) -> None:
    assert (
        "destinations is released from 2013-01-01T00:00:00Z (timeline.origin) to 2013-01-01T04:00:00Z: "
        "4 timestamps\n"
    ) in run().stderr
    later = run("--force", "--from", "2013-01-01T03:00:00Z").stderr
    assert "is released from 2013-01-01T03:00:00Z to 2013-01-01T04:00:00Z: 1 timestamp\n" in later
    assert "(timeline.origin) to the timestamp of its last event\n" in run("--force", to="last").stderr


def test_many_timestamps_until_now_are_announced(folder: Path) -> None:
    path = folder / "t.yaml"
    path.write_text(path.read_text().replace("interval: 1h", "interval: 30s").partition("budget:")[0])
    told = run("--from", "2013-01-01T03:00:00Z", to="last").stderr
    assert re.search(r"its last event, up to \d+,\d{3},\d{3} timestamps until now; --from TIME leaves", told)


def test_sigterm_leaves_nothing_behind(folder: Path) -> None:
    command = [sys.executable, "-c", "from eventveil.cli.main import main; main()", "replay", "t.yaml"]
    command += ["--output", "out.jsonl", "--input", "/dev/stdin", "--to", "2013-01-01T04:00:00Z"]
    # The end of its input never comes, so it is waited for.
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        while not any(path.name.startswith(".out.jsonl") for path in folder.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "t.yaml"]


def test_how_many_events_did_not_count_is_printed_on_request_only(folder: Path) -> None:
    assert "not-json" not in run().stderr
    shown = run("--force", "--show-drops", to="2013-01-01T02:00:00Z").stderr
    assert "not to be published: destinations read 1 after-range, 1 bounded, 1 counted, 1 not-json" in shown


def test_what_the_search_for_columns_found_is_told_and_how_far_the_next_one_was(folder: Path) -> None:
    text = BASE.replace("[ATL, BOS]", "{discover: {delta: 1e-9}}").replace("budget-absorption", "uniform")
    Path("t.yaml").write_text(
        text.replace("window: 120", "window: 12").replace("{epsilon: 5,", "{epsilon: 50,")
    )
    told = run(to="2013-01-06T00:00:00Z").stderr
    assert "warning: destinations has found no column, so all events are in other: a column needs" in told
    assert "raw data, not to be published: the largest column that a block did not find had 1\n" in told
    many = "".join(
        f'{{"tailnum": "N{user}", "dest": "ATL", "time": "2013-01-01T{hour:02}:10:00Z"}}\n'
        for hour in range(24)
        for user in range(3000)
    )
    Path("events.jsonl").write_text(many)
    told = run("--force", to="2013-01-06T00:00:00Z").stderr
    assert "destinations: columns found at the end: 1; a column needs" in told
    assert "did not find" not in told


def test_its_speed_is_told_as_the_raw_data_that_it_is(folder: Path) -> None:
    assert re.search(
        r"\neventveil replay: raw data, not to be published: 4 events in \d+\.\d s, [\d,]+ a second\n",
        run().stderr,
    )


def test_a_file_of_which_nothing_counts_is_told_with_the_reasons(folder: Path) -> None:
    Path("events.jsonl").write_text("garbage\n{}\n{}\n")
    result = run()
    assert result.exit_code == 3
    told = "counted for destinations; raw data, not to be published: 2 missing-field, 1 not-json"
    assert told in result.stderr
    assert "epoch milliseconds" not in result.stderr
    Path("events.jsonl").write_text("")
    told = "no event was counted for destinations; raw data, not to be published: no event\n"
    for force in (["--force"], []):  # an empty output holds nothing that could be lost
        again = run("--to", "last", *force)
        assert told in again.stderr
        assert again.exit_code == 3
        assert Path("out.jsonl").read_bytes() == b""


def test_times_in_seconds_are_told_from_milliseconds(folder: Path) -> None:
    Path("events.jsonl").write_text(EVENTS.splitlines()[3].replace("000}", "}"))
    told = ": 1 before-origin\neventveil replay: times that are numbers are epoch milliseconds"
    assert told in run().stderr


def test_many_timestamps_before_the_first_event_are_told(folder: Path) -> None:
    told = (
        "raw data, not to be published: the first event of destinations so far is in the timestamp that"
        " begins at 2013-01-06T00:00:00Z; the 120 timestamps before it are released too, unless --from leaves"
        " them out"
    )
    Path("events.jsonl").write_text(EVENTS.splitlines()[0].replace("2013-01-01", "2013-01-06"))
    assert told in run(to="last").stderr
    assert "--from TIME" not in run("--force", "--from", "2013-01-06T00:00:00Z", to="last").stderr


def test_nothing_is_overwritten_unless_told(folder: Path) -> None:
    (folder / "out.jsonl").write_text("precious")
    result = run()
    assert result.exit_code == 2
    assert "--output: out.jsonl exists; --force replaces it" in result.stderr
    assert (folder / "out.jsonl").read_text() == "precious"
    assert run("--force").exit_code == 0


@pytest.mark.parametrize("clash", ["out.jsonl", "./out.jsonl", "events.jsonl", "link"])
def test_no_two_options_name_one_file(folder: Path, clash: str) -> None:
    (folder / "link").symlink_to("events.jsonl")
    result = run("--truth", clash, "--force")
    assert result.exit_code == 2
    assert "are the same file" in result.stderr
    assert (folder / "events.jsonl").read_text() == EVENTS


@pytest.mark.parametrize(
    ("options", "to", "message"),
    [
        (("--from", "2013-01-01T00:30:00Z"), "last", "are 2013-01-01T00:00:00Z and 2013-01-01T01:00:00Z"),
        (("--from", "2012-12-31T00:00:00Z"), "last", "the first one begins at 2013-01-01T00:00:00Z"),
        ((), "2013-01-01T00:59:00Z", "the first one of destinations ends at 2013-01-01T01:00:00Z"),
        ((), "2013-01-02", "not an RFC 3339 time with a zone"),
        ((), "soon", "nor the word last"),
        (("--from", "last"), "last", "Invalid value for '--from'"),
        (("--stream", "other"), "last", "there is no stream other, only destinations"),
        (
            ("--input", "topic:other"),
            "last",
            "no stream reads topic other; those of the file are flights.events",
        ),
        (("--input", "topic:"), "last", "--input topic: lacks the name of the topic: flights.events"),
        (("--processes", "2"), "last", "a file cannot be divided among processes: leave out --processes"),
        (("--memory-limit", "1MiB"), "last", "'1MiB' should be more than the "),
        (("--seed", "x"), "last", "Invalid value for '--seed'"),
    ],
)  # fmt: skip
def test_wrong_usage_is_exit_2_with_what_would_be_right(
    folder: Path, options: tuple[str, ...], to: str, message: str
) -> None:
    result = run(*options, to=to)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (folder / "out.jsonl").exists()


def test_an_end_must_be_given(folder: Path) -> None:
    arguments = ["replay", "t.yaml", "--input", "events.jsonl", "--output", "out.jsonl"]
    assert CliRunner().invoke(main, arguments).exit_code == 2


def test_an_invalid_topology_is_exit_78(folder: Path) -> None:
    (folder / "t.yaml").write_text(BASE.replace("epsilon: 1.0", "epsilon: 0"))
    result = run()
    assert result.exit_code == 78
    assert "t.yaml:20:16:" in result.stderr


@pytest.mark.parametrize(
    ("source", "why"), [("none.jsonl", "No such file or directory"), (".", "Is a directory")]
)
def test_a_file_that_cannot_be_read_is_exit_1(folder: Path, source: str, why: str) -> None:
    result = run(source=source)
    assert result.exit_code == 1
    told = f"eventveil replay: {source} cannot be opened ({why}); check the path and its permissions\n"
    assert result.stderr.endswith(told)
    assert not (folder / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (gzip.compress(EVENTS.encode()), "packed by gzip, not an event per line: gzip -dc events.jsonl | "),
        (b"\x28\xb5\x2f\xfd\x24", "packed by zstd"),
        (EVENTS.encode("utf-16"), "UTF-16 text"),
        (f" \n[{EVENTS}]".encode("utf-8-sig"), "one JSON array, not an event per line: jq -c '.[]' events.j"),
    ],
)
def test_a_file_without_lines_is_refused_with_what_makes_lines_of_it(
    folder: Path, data: bytes, what: str
) -> None:
    (folder / "events.jsonl").write_bytes(data)
    result = run()
    assert result.exit_code == 2
    assert f"--input: events.jsonl is {what}" in result.stderr
    assert not (folder / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("weeks.csv", "1,2\n3,4\n"),
        ("weeks.TSV", "u\tATL\n"),
        ("weeks", "customer_id,page.section,at\r\nc-1,home,2026-03-02T00:00:00Z\r\n"),
        ("weeks", '\ufeff"customer id";"at"\n"c-1";3\n'),
    ],
)
def test_csv_is_refused_with_what_can_be_read(folder: Path, name: str, data: str) -> None:
    (folder / name).write_text(data)
    result = run(source=name)
    assert result.exit_code == 2
    assert f"--input: {name} looks like CSV; use JSON lines, Parquet or Arrow" in result.stderr


@pytest.mark.parametrize(
    ("name", "data"), [("x.csv", EVENTS), ("x", f"a,b\n{EVENTS}"), ("x", "1,2\n" + EVENTS)]
)
def test_lines_of_events_are_read_whatever_they_are_called(folder: Path, name: str, data: str) -> None:
    (folder / name).write_text(data)
    assert run(source=name).exit_code == 0


def test_an_event_may_be_an_array_if_pointers_lead_into_it(folder: Path) -> None:
    topology = BASE.replace("/tailnum", "/0").replace("/dest", "/1").replace("/time", "/2")
    (folder / "t.yaml").write_text(topology)
    (folder / "events.jsonl").write_text('["N1", "ATL", "2013-01-01T00:10:00Z"]\n')
    assert run("--truth", "truth.jsonl").exit_code == 0
    assert lines(folder / "truth.jsonl")[0]["counts"] == {"ATL": 1, "BOS": 0}


def test_releases_may_go_to_standard_output(folder: Path) -> None:
    result = run("--output", "-", "--seed", "1")
    run("--seed", "1")
    assert result.stdout == (folder / "out.jsonl").read_text()
    assert not (folder / "-").exists()
    assert "--truth and --output are the same file, -" in run("--output", "-", "--truth", "-").stderr


def test_a_place_that_cannot_be_written_is_exit_1(folder: Path) -> None:
    result = run("--ledger", "no/such/folder")
    assert result.exit_code == 1
    told = f"no/such/folder cannot be opened (No such file or directory: {folder}/no/such); check the path"
    assert told in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["events.jsonl", "t.yaml"]


def test_all_streams_read_a_file_and_those_made_for_other_topics_are_told(folder: Path) -> None:
    (folder / "t.yaml").write_text(two_streams())
    result = run()
    assert "every stream reads the whole file, whether made for flights.events, other.events" in result.stderr
    assert "no event was counted for second" in result.stderr
    assert "no event was counted for destinations" not in result.stderr
    assert [line["stream"] for line in lines(folder / "out.jsonl")] == ["destinations", "second"] * 4
    result = run("--force", "--stream", "destinations")
    assert "whole file" not in result.stderr
    assert {line["stream"] for line in lines(folder / "out.jsonl")} == {"destinations"}


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(folder: Path, terminal: bool) -> None:
    command = [sys.executable, "-c", "from eventveil.cli.main import main; main()", "replay", "t.yaml"]
    command += ["--input", "events.jsonl", "--output", "out.jsonl", "--to", "last"]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # how Linux tells that the other side of a terminal is closed
            pass
        assert process.wait(60) == 0
    os.close(ours)
    assert (b"reading (bytes)" in shown) == terminal
    assert (re.search(rb"\d+ released", shown) is not None) == terminal


def test_a_replay_stops_at_the_memory_limit_and_leaves_no_output(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "resident", lambda: 2**40)
    result = run("--memory-limit", "1TiB")
    assert result.exit_code == 75
    assert "the memory limit of 1 TiB (--memory-limit) is reached. Held: destinations: " in result.stderr
    assert "a topic: a file keeps every timestamp open to its end" in result.stderr
    assert not (folder / "out.jsonl").exists()
    assert run("--memory-limit", "off").exit_code == 0


def test_a_memory_limit_that_is_no_size_is_wrong_usage(folder: Path) -> None:
    result = run("--memory-limit", "4GB")
    assert result.exit_code == 2
    assert "'4GB' should be a size, such as 4GiB or 512MiB, or off" in result.stderr
