from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from eventveil.model.topology import Sink
from eventveil.replay.outputs import Paths, open_outputs, truth_line
from eventveil.replay.releasing import Released
from tests.unit.replay.history import HOUR, ORIGIN, event, replay_file, stream


def one_release(tmp_path: Path) -> Released:
    return next(iter(replay_file(tmp_path, [event("u", "BOS", ORIGIN)], end=ORIGIN + HOUR)))


def paths(folder: Path) -> Paths:
    return Paths(str(folder / "out"), str(folder / "ledger"), str(folder / "truth"))


def test_each_file_has_a_line_per_release(tmp_path: Path) -> None:
    released = one_release(tmp_path)
    with open_outputs(paths(tmp_path)) as outputs:
        outputs.write(released)
        outputs.write(released)
    assert (tmp_path / "out").read_bytes() == (released.record + b"\n") * 2
    ledger = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert ledger == [
        {
            "stream": "destinations", "timestamp": 1, "test": 0, "publish": 2 * 2**20,
            "window_spent": 2 * 2**20, "units": 6 * 2**20,
        }
    ] * 2  # fmt: skip
    truth = [json.loads(line) for line in (tmp_path / "truth").read_text().splitlines()]
    assert truth == [
        {"stream": "destinations", "timestamp": 1, "counts": {"ATL": 0, "BOS": 1, "ORD": 0}}
    ] * 2  # fmt: skip


def test_the_truth_has_the_form_that_the_sink_has(tmp_path: Path) -> None:
    made = replace(one_release(tmp_path), stream=replace(stream(), sink=Sink("out", "array")))
    assert json.loads(truth_line(made))["counts"] == [0, 1, 0]


def test_nothing_has_changed_after_an_exception(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")
    released = one_release(tmp_path)
    before = sorted(tmp_path.iterdir())

    def interrupted() -> None:
        with open_outputs(paths(tmp_path)) as outputs:
            outputs.write(released)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "out").read_text() == "before"


def test_no_file_is_there_before_it_is_complete(tmp_path: Path) -> None:
    with open_outputs(paths(tmp_path)):
        assert not {"out", "ledger", "truth"} & {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {"out", "ledger", "truth"}


def test_the_truth_is_for_its_owner_only_and_the_rest_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with open_outputs(paths(tmp_path)):
            pass
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "ledger", "truth")}
    assert modes == {"out": 0o640, "ledger": 0o640, "truth": 0o600}


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with open_outputs(Paths(str(tmp_path / "link"))) as outputs:
        outputs.write(one_release(tmp_path))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes().startswith(b'{"stream"')


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    released = one_release(tmp_path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with open_outputs(Paths(str(pipe))) as outputs:
        outputs.write(released)
    reader.join()
    assert read == [released.record + b"\n"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["no/such/folder", "."])
def test_a_place_that_cannot_be_written_is_an_error_before_anything_is_read(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(OSError, match="directory"), open_outputs(Paths(str(tmp_path / name))):
        pytest.fail("it was opened")
