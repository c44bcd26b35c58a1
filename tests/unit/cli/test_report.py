"""``eventveil report`` without a broker; with one it is in the tests of the ledger."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventveil.cli.main import main
from tests.kafka.ports import reserve
from tests.unit.topology.examples import ROOT, changed

SHOP = ROOT / "topologies" / "web-shop.yaml"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["report", *arguments])


def test_without_a_broker_a_page_is_written_that_says_so(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run(str(SHOP), "--without-audit", "--output", str(page))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{page}: Not audited.")
    text = page.read_text(encoding="utf-8")
    assert "Not audited." in text
    assert hashlib.sha256(SHOP.read_bytes()).hexdigest() in text


def test_a_page_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("signed")
    arguments = (str(SHOP), "--without-audit", "--output", str(page))
    refused = run(*arguments)
    assert (refused.exit_code, page.read_text()) == (2, "signed")
    assert f"--output: {page} exists; --force replaces it" in refused.stderr
    assert run(*arguments, "--force").exit_code == 0
    assert page.read_text() != "signed"


def test_a_page_that_was_not_asked_for_by_an_option_is_named_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("web-shop-report.html").write_text("signed")
    refused = run(str(SHOP), "--without-audit")
    assert refused.exit_code == 2
    assert "Error: the page: web-shop-report.html exists; --force replaces it" in refused.stderr
    assert "--output" not in refused.stderr


def test_json_has_what_the_page_has() -> None:
    fields = json.loads(run(str(SHOP), "--without-audit", "--json").stdout)
    assert (fields["state"], fields["audit"]) == ("not-audited", None)
    assert {"promises", "parameters", "populations", "rights", "limits", "tasks", "sha256"} <= set(fields)


def test_a_broker_that_does_not_answer_leaves_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventveil.kafka.cluster._REACH_SECONDS", 1.0)
    nobody, page = reserve(), tmp_path / "page.html"
    try:
        path = tmp_path / "topology.yaml"
        path.write_text(changed(("localhost:9092", f"127.0.0.1:{nobody.port}")))
        result = run(str(path), "--output", str(page))
    finally:
        nobody.release()
    assert (result.exit_code, page.exists()) == (1, False)
    assert result.stderr.startswith("eventveil report: ")
    assert "--without-audit" in result.stderr


@pytest.mark.parametrize("option", [("--barrier",), ("--witness", "file")])
def test_what_audits_does_not_go_without_an_audit(option: tuple[str, ...]) -> None:
    assert run(str(SHOP), "--without-audit", "--json", *option).exit_code == 2


def test_a_page_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    result = run(str(SHOP), "--without-audit", "--output", str(tmp_path / "missing" / "page.html"))
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr
    assert "--without-audit" not in result.stderr
