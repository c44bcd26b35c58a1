"""The file of a witness: replaced whole or not at all, never by somebody who has not read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventveil.audit.witness_file import WitnessFile, read_witness, replace_witness
from eventveil.formats.witness import Sighting, Witness
from eventveil.model.errors import StateRefused, Unsettled


def witness(last: int = 7) -> Witness:
    one = Sighting("visits", None, "i-0", last, "00", "shop-ledger", 0, 0)
    return Witness("shop", "cluster", last, {one.line: one})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.witness"


def test_a_file_that_is_not_there_is_begun_and_later_replaced(path: Path) -> None:
    assert read_witness(path) is None
    replace_witness(path, None, witness(7))
    found = read_witness(path)
    assert found == (witness(7).encode(), witness(7))
    replace_witness(path, found[0], witness(8))
    assert read_witness(path) == (witness(8).encode(), witness(8))
    assert os.listdir(path.parent) == [path.name]


def test_who_has_not_read_the_present_file_does_not_replace_it(path: Path) -> None:
    replace_witness(path, None, witness(7))
    for before in (None, witness(6).encode()):
        with pytest.raises(
            StateRefused, match=r"it was replaced while the ledger was read\. Run the command"
        ):
            replace_witness(path, before, witness(5))
    path.unlink()
    with pytest.raises(StateRefused, match="it was replaced"):
        replace_witness(path, witness(7).encode(), witness(8))
    assert not path.exists()


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "file"
    path.symlink_to(target)
    replace_witness(path, None, witness())
    assert path.is_symlink()
    assert target.read_bytes() == witness().encode()


def test_a_failure_to_write_leaves_the_file_and_nothing_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_witness(path, None, witness(7))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eventveil.audit.witness_file.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_witness(path, witness(7).encode(), witness(8))
    assert read_witness(path) == (witness(7).encode(), witness(7))
    assert os.listdir(path.parent) == [path.name]


def test_a_worker_reads_the_file_as_it_is_each_time(path: Path) -> None:
    file = WitnessFile(path, "shop")
    replace_witness(path, None, witness(7))
    assert file.read("cluster") == witness(7)
    replace_witness(path, witness(7).encode(), witness(8))
    assert file.read("cluster") == witness(8)


def test_a_worker_refuses_to_begin_without_the_file_that_it_was_given(path: Path) -> None:
    with pytest.raises(StateRefused) as refused:
        WitnessFile(path, "shop").read("cluster")
    assert str(refused.value) == (
        f"{path}: there is no such file. `eventveil ledger --witness` creates and updates the file. If there "
        "was one, restore it first: a new one has no record of earlier releases"
    )


def test_a_worker_refuses_the_file_of_another_topology_or_cluster(path: Path) -> None:
    replace_witness(path, None, witness())
    with pytest.raises(StateRefused, match="it is the witness of the topology shop, not of bakery"):
        WitnessFile(path, "bakery").read("cluster")
    with pytest.raises(StateRefused, match="it is the witness of the Kafka cluster cluster, and this"):
        WitnessFile(path, "shop").read("elsewhere")


def test_a_file_that_cannot_be_read_now_is_a_doubt_that_becomes_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(Unsettled, match="it cannot be read: Is a directory") as doubt:
        WitnessFile(tmp_path, "shop").read("cluster")
    assert doubt.value.refusal is not None
    assert doubt.value.refusal.what == "it cannot be read: Is a directory"
