"""``eventveil mechanisms`` lists every kind with what a user needs to choose."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from operators.cli.main import main
from operators.mechanisms import KINDS

GUARANTEES = {
    "w-event": "  guarantee: w-event: epsilon for whatever a user does within any `window`",
    "event": "  guarantee: event level: epsilon for whatever a user does within any one timestamp",
    "user": "  guarantee: user level: epsilon for whatever a user does within a `horizon` of timestamps",
}


def paragraphs() -> dict[str, list[str]]:
    result = CliRunner().invoke(main, ["mechanisms"])
    assert (result.exit_code, result.stderr) == (0, "")
    blocks = result.stdout.strip().split("\n\n")
    assert blocks[-1].startswith("`eventveil check` says")
    return {block.split(":")[0]: block.splitlines() for block in blocks[:-1]}


def test_every_kind_is_listed_with_its_summary_and_guarantee() -> None:
    found = paragraphs()
    assert list(found) == list(KINDS)
    for kind, lines in found.items():
        assert lines[0] == f"{kind}: {KINDS[kind].summary}"
        assert lines[1].startswith(GUARANTEES[KINDS[kind].level])


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
    for kind, lines in paragraphs().items():
        options = [line.split()[1] for line in lines if line.startswith("  option ")]
        assert options == sorted(KINDS[kind].options)
        assert ("  options: none" in lines) == (not options)
    assert "  option factor (default 1): Counts are published anew" in "\n".join(
        paragraphs()["budget-absorption"]
    )
