"""``eventveil mechanisms`` lists every kind with what a user needs to choose."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.mechanisms import plugins
from eventveil.mechanisms.registry import KINDS, LOCAL_KINDS
from eventveil.topology.values import OPTIONS
from eventveil.values.kinds import VALUE_KINDS
from tests.unit.topology.examples import BASE

commands = import_module("eventveil.cli.mechanisms")

GUARANTEES = {
    "w-event": "  guarantee: w-event: epsilon for any `window` consecutive timestamps of a user;",
    "event": "  guarantee: event level: epsilon for any one timestamp of a user; it covers whether a",
    "user": "  guarantee: user level: epsilon for a `horizon` of timestamps of a user; it covers",
}


def paragraphs() -> dict[str, list[str]]:
    result = CliRunner().invoke(main, ["mechanisms"])
    assert (result.exit_code, result.stderr) == (0, "")
    blocks = result.stdout.strip().split("\n\n")
    assert blocks[-1].startswith("`eventveil check` says")
    return {block.split(":")[0]: block.splitlines() for block in blocks[:-1]}


def test_every_kind_is_listed_with_its_summary_and_guarantee() -> None:
    found = paragraphs()
    assert list(found) == [*KINDS, *VALUE_KINDS, *LOCAL_KINDS]
    for kind in KINDS:
        assert found[kind][0] == f"{kind}: {KINDS[kind].summary}"
        assert found[kind][1].startswith(GUARANTEES[KINDS[kind].level])
    for kind in VALUE_KINDS:
        assert found[kind][0] == f"{kind}: {VALUE_KINDS[kind].summary}"
        assert "event level: epsilon for any one value, replaced in its place" in found[kind][1]
        assert [line.split()[1] for line in found[kind][2:]] == [option.name for option in OPTIONS[kind]]
    for kind in LOCAL_KINDS:
        assert found[kind][0] == f"{kind}: {LOCAL_KINDS[kind].summary}"
        assert "local, epsilon for any one report" in found[kind][1]
        assert [line.split()[1] for line in found[kind][2:]] == ["estimate_after", "range"]


@pytest.mark.parametrize(
    ("kind", "noise"),
    [
        ("uniform", "scale 100"),
        ("sample", "scale 1"),
        ("budget-absorption", "scale 2 at best, 200 at worst"),
        ("fast", "scale 50"),
        ("budget-distribution", "scale 4 at best, 3.2768e+06 at worst"),
    ],
)
def test_the_noise_is_that_of_the_worked_scales(kind: str, noise: str) -> None:
    assert paragraphs()[kind][2].endswith(f"epsilon 1, window 100, one contribution: {noise}")


def test_options_are_listed_where_a_kind_has_some() -> None:
    for kind in KINDS:
        lines = paragraphs()[kind]
        options = [line.split()[1] for line in lines if line.startswith("  option ")]
        assert options == sorted(KINDS[kind].options)
        assert ("  options: none" in lines) == (not options)
    assert "  option factor (default 1): Counts are published anew" in "\n".join(
        paragraphs()["budget-absorption"]
    )


# The suite of the contract, from the command line

STRIDE = "docs.examples.stride:Stride"


def tried(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["mechanisms", "test", *arguments])
    return result.exit_code, result.output


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the property that takes seconds; tests/contract has it."""
    few = [one for one in commands.PROPERTIES if one.name not in {"distinguishing", "budget-long"}]
    monkeypatch.setattr(commands, "PROPERTIES", few)


@pytest.mark.usefixtures("quick")
def test_a_plug_in_that_keeps_the_contract_passes_and_is_not_called_private() -> None:
    code, output = tried(STRIDE, "--option", "stride=3")
    assert code == 0
    lines = output.splitlines()
    assert (
        lines[0] == "docs.examples.stride:Stride: publishes every n-th timestamp with its part of the budget"
    )
    verdicts = [line for line in lines if line.startswith("ok ")]
    assert [line.split()[1].rstrip(":") for line in verdicts] == [one.name for one in commands.PROPERTIES]
    assert output.count("tried: ") == len(verdicts)
    assert lines[-1].startswith("Passed. What this shows: ")
    assert "What it cannot show: that the mechanism is private." in lines[-1]


@pytest.mark.usefixtures("quick")
def test_a_plug_in_that_breaks_it_fails_with_the_property_and_a_counterexample() -> None:
    code, output = tried("tests.contract.unsound:HalfNoise")
    assert code == 1
    assert "FAILED noise: noise is drawn for what was granted, and enough of it\n" in output
    assert "counterexample: timestamp 1: noise of scale " in output
    assert "FAILED loss: " in output
    assert "changes the likelihood of the noisy values" in output
    assert output.splitlines()[-1].startswith("FAILED. What this shows: ")


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["no.such:Class"], 1, "no.such:Class cannot be imported"),
        (["json:JSONDecoder"], 1, "is not a Mechanism"),
        (["unifrom"], 1, "there is no mechanism 'unifrom', only budget-absorption, "),
        (["unifrom"], 1, "and module:Class; did you mean uniform?"),
        (["whatever"], 1, "and module:Class\n"),
        ([STRIDE, "--option", "strde=1"], 2, "stride has no option 'strde'; did you mean stride?"),
        ([STRIDE, "--option", "pace=1"], 2, "stride has no option 'pace'; known: stride"),
        (
            [STRIDE, "--option", "stride=0"],
            2,
            "--option stride: found 0, expected a whole number from 1 on (the",
        ),
        (
            ["fast", "--option", "max_samples=50"],
            2,
            "number from 1 to 3 (the suite tries windows of 1, 3 and 4)",
        ),
        (
            ["fast", "--option", "max_samples=3"],
            2,
            "--option max_samples: found 3, expected 1 (the suite tries windows of 1, 3 and 4)",
        ),
        (["budget-absorption", "--option", "regroup=3"], 2, "has no effect on a single group; add groups"),
        (["shp-point", "--option", "span=5"], 2, "from 1 to 3 (the suite tries horizons of 3, 4, 10 and 30)"),
        (
            ["uniform", "--option", "factor=1"],
            2,
            "uniform has no option 'factor'; known: delta, noise, rollups",
        ),
        (["sample", "--option", "x"], 2, "sample has no option 'x'"),
        (["budget-absorption", "--option", "factor=-1"], 2, "found '-1', expected an exact number above 0"),
    ],
)
def test_what_cannot_be_tested_is_said(arguments: list[str], code: int, what: str) -> None:
    found, output = tried(*arguments)
    assert (found, what in output) == (code, True), output
    assert "FAILED" not in output


def test_plug_ins_are_listed_after_the_kinds_and_a_bad_one_does_not_hide_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [
        EntryPoint(name, target, plugins.GROUP)
        for name, target in (("acme-stride", STRIDE), ("broken", "no.such:Class"), ("uniform", STRIDE))
    ]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    monkeypatch.setattr(plugins, "_loaded", {})
    output = CliRunner().invoke(main, ["mechanisms"]).output
    own = len(KINDS) + len(VALUE_KINDS) + len(LOCAL_KINDS)
    blocks = dict(block.split(": ", 1) for block in output.split("\n\n")[own:-1])
    assert list(blocks) == ["acme-stride", "broken", "uniform"]
    assert f"plug-in: {STRIDE} of unknown; its guarantee is its author's to prove" in blocks["acme-stride"]
    assert "option stride (default what the plug-in decides)" in blocks["acme-stride"]
    assert blocks["broken"].startswith("cannot be used: no.such:Class cannot be imported")
    assert blocks["uniform"].startswith("a plug-in of this name is installed but not used")


def test_check_says_whose_promise_it_is(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(BASE.replace("kind: budget-absorption", f"kind: {STRIDE}\n      stride: 3"))
    result = CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("  Plug-in ")]
    assert line.startswith(f"  Plug-in {STRIDE} (")
    assert line.endswith(f"promise; `eventveil mechanisms test {STRIDE}` tries what can be tried.")
