"""What the README shows is true: its topology is valid, its event counts, its release has the real fields."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.decoding.rules import Reason
from tests.unit.cli.commands import made

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


FIRST_STEPS = (ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    (block,) = blocks("yaml")
    path = tmp_path / "shop.yaml"
    path.write_text(block, encoding="utf-8")
    return path


def test_the_topology_of_the_readme_passes_check(topology: Path) -> None:
    checked = CliRunner().invoke(main, ["check", str(topology)])
    assert checked.exit_code == 0, checked.output


def test_the_event_of_the_readme_is_counted_in_a_release_like_the_readmes(topology: Path) -> None:
    event, release = (json.loads(block) for block in blocks("json"))
    folder = topology.parent
    (folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    files = {option: str(folder / f"{option}.jsonl") for option in ("output", "truth")}
    arguments = [word for option, path in files.items() for word in (f"--{option}", path)]
    replayed = CliRunner().invoke(
        main, ["replay", str(topology), "--input", str(folder / "events.jsonl"), "--to", "last", *arguments]
    )
    assert replayed.exit_code == 0, replayed.output
    last = json.loads(Path(files["output"]).read_text().splitlines()[-1])
    truth = json.loads(Path(files["truth"]).read_text().splitlines()[-1])
    assert last.keys() - {"error", "noise_scale"} == release.keys() - {"error", "noise_scale"}
    assert last.keys() <= release.keys()
    assert last["counts"].keys() == release["counts"].keys()
    same = ("stream", "timestamp", "start", "end", "mechanism", "epsilon", "window", "units")
    assert {field: last[field] for field in same} == {field: release[field] for field in same}
    assert truth["counts"]["search"] == 1


def test_the_topology_of_the_first_steps_passes_check(tmp_path: Path) -> None:
    path = tmp_path / "first.yaml"
    path.write_text(blocks("yaml", FIRST_STEPS)[0], encoding="utf-8")
    checked = CliRunner().invoke(main, ["check", str(path)])
    assert checked.exit_code == 0, checked.output


def test_the_page_of_dead_letters_has_every_reason_and_no_other() -> None:
    page = (ROOT / "docs" / "dead-letters.md").read_text(encoding="utf-8")
    table = page.partition("\n## Reasons\n")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert sorted(told) == sorted(reason.value for reason in Reason)


def page_of(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "least"),
    [
        (README, 7),
        (FIRST_STEPS, 5),
        (page_of("deploy"), 3),
        (page_of("audit"), 4),
        (page_of("replay"), 3),
        (page_of("advise"), 3),
    ],
    ids=["README", "first steps", "deploy", "audit", "replay", "advise"],
)
def test_every_eventveil_command_of_a_page_exists_with_its_options(page: str, least: int) -> None:
    lines = page.replace("\\\n", " ").replace("--from START", "--from 2026-01-01T00:00:00Z")
    commands = re.findall(r"^(?:\.venv/bin/)?eventveil ([a-z]+) (.*?)(?: +#.*)?$", lines, re.M)
    assert len(commands) >= least
    for name, arguments in commands:
        made(name).make_context(name, arguments.split())


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")], ids=lambda path: path.stem
)
def test_files_and_headings_that_a_page_links_exist(path: Path) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    if path.stem == "README":
        assert "docs/privacy.md" in targets
    for target in targets:
        name, _, heading = target.partition("#")
        if name.startswith("http"):
            continue
        linked = path.parent / name if name else path
        assert linked.exists(), target
        if heading:
            assert heading in headings(linked), target


def headings(path: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_commands_of_the_readme_that_need_no_broker_work(
    topology: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(topology.parent)
    for line in ("generate site", "replay generated.yaml"):
        (command,) = re.findall(rf"^eventveil ({line} .*?)(?: +#.*)?$", README, re.MULTILINE)
        tried = CliRunner().invoke(main, command.split())
        assert tried.exit_code == 0, tried.output
    assert (topology.parent / "truth.jsonl").stat().st_size > 0
