"""Mechanisms from outside: found where modules are installed, refused by place, remembered by state."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from eventveil.mechanisms import plugins, registry
from eventveil.topology.changes import MIGRATE, remedy
from eventveil.topology.fingerprints import fingerprint_fields
from eventveil.topology.loading import load_with_defaults
from eventveil.topology.schema import json_schema
from tests.unit.topology.examples import BASE, as_data, changed, load_text, problems_of

STRIDE = "docs.examples.stride:Stride"
NUMBERS = itertools.count()
Install = Callable[..., str]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a module of this text, with entry points of a distribution; gives its name."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(plugins, "_loaded", {})

    def write(text: str, name: str = "", points: str = "", distribution: str = "acme-dp") -> str:
        name = name or f"installed_{next(NUMBERS)}"
        (site / f"{name}.py").write_text(text)
        if points:
            info = site / f"{distribution.replace('-', '_')}-1.2.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
            (info / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{points.replace('MODULE', name)}\n")
            (info / "top_level.txt").write_text(name)
        return name

    return write


def of(kind: str, more: str = "", window: str = "window: 120") -> str:
    """BASE with another mechanism."""
    return changed(("kind: budget-absorption", f"kind: {kind}"), ("window: 120", window + more))


OWN = """
from eventveil.mechanisms.uniform import Uniform
class Own(Uniform):
    kind = "own"
"""


def test_a_plug_in_is_a_mechanism_with_options_of_its_own(tmp_path: Path) -> None:
    stream = load_text(tmp_path, of(STRIDE, "\n      stride: 3")).streams[0]
    assert stream.mechanism.kind == STRIDE
    assert stream.mechanism.options == {"stride": 3}
    _, defaults = load_with_defaults(_written(tmp_path, of(STRIDE)), {})
    assert {d.setting: d.value for d in defaults}["streams.destinations.mechanism.stride"] == (
        "what the plug-in decides"
    )


def _written(folder: Path, text: str) -> str:
    path = folder / "other.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("7", 7),
        ("-7", -7),
        ("0.5", Fraction(1, 2)),
        ("1/3", Fraction(1, 3)),
        ("1e-3", Fraction(1, 1000)),
        ("often", "often"),
        ("'7'", "7"),
        ("true", "true"),
    ],
)
def test_options_of_a_plug_in_are_read_exactly(
    install: Install, tmp_path: Path, written: str, read: object
) -> None:
    name = install(f"{OWN}    options = frozenset({{'rate'}})\n")
    stream = load_text(tmp_path, of(f"{name}:Own", f"\n      rate: {written}")).streams[0]
    assert stream.mechanism.options == {"rate": read}


@pytest.mark.parametrize(
    ("kind", "more", "place", "what"),
    [
        (STRIDE, "\n      strude: 3", "22:7", "unknown key 'strude' in streams.destinations.mechanism; did"),
        (STRIDE, "\n      factor: 3", "22:15", f"factor: {STRIDE} has no option factor; remove it"),
        (STRIDE, "\n      stride: 0", "22:15", "mechanism.stride: found 0, expected a whole number"),
        (STRIDE, "\n      stride: []", "22:15", "mechanism.stride: found an empty list, expected a whole"),
        (STRIDE, "\n      horizon: 3", "22:16", "its epsilon covers a window; remove it"),
        ("no_such.module:Class", "\n      rate: 3", "19:13", "cannot be imported (ModuleNotFoundError"),
        (".relative:Class", "", "19:13", ".relative:Class is not of the form module:Class, such as"),
        (
            "json:JSONDecoder",
            "",
            "19:13",
            "json:JSONDecoder is not a Mechanism; it has to be a class derived",
        ),
        ("json:nothing", "", "19:13", "json:nothing is not a Mechanism"),
        ("json:dumps", "", "19:13", "json:dumps is not a Mechanism"),
        ("eventveil.mechanisms.w_event:WEventMechanism", "", "19:13", "lacks _allot, _scales, can_spend"),
        ("eventveil.mechanisms.uniform:Uniform", "", "19:13", "uses the name of a built-in kind"),
    ],
)
def test_what_is_wrong_is_told_with_its_place_and_a_remedy(
    tmp_path: Path, kind: str, more: str, place: str, what: str
) -> None:
    (problem,) = problems_of(tmp_path, of(kind, more))
    assert f"{problem.line}:{problem.column}" == place
    assert what in problem.message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("raise RuntimeError('boom')", "cannot be imported (RuntimeError: boom)"),
        ("raise SystemExit(0)", "cannot be imported (SystemExit: 0)"),
        (f"{OWN}    kind = ''\n", "kind and summary of"),
        (f"{OWN}    level = 'mine'\n", "should be one of w-event, event, user"),
        (f"{OWN}    level = 'local'\n", "should be one of w-event, event, user"),
        (f"{OWN}    options = {{'a'}}\n", "should be a frozenset of names"),
        (f"{OWN}    options = frozenset({{'window'}})\n", "cannot have an option 'window'"),
        (f"{OWN}    options = frozenset({{'A B'}})\n", "cannot have an option 'A B'"),
        (
            f"{OWN}    def __init__(self, *a):\n        raise TypeError('no')\n",
            "cannot be made: TypeError('no')",
        ),
        (
            f"{OWN}    def __init__(self, *a):\n        pass\n",
            "its guarantee is missing; its constructor has to",
        ),
        (
            f"{OWN}    def __init__(self, *a):\n        super().__init__(*a)\n        self.units = 7\n",
            "needs 2 * window * 2**20 units, 251658240; correct the class",
        ),
        (
            f"{OWN}    def __init__(self, s, *a):\n        from dataclasses import replace\n"
            "        super().__init__(replace(s, epsilon=s.epsilon / 2), *a)\n",
            "its guarantee says epsilon 1/2, where 1 was asked for",
        ),
        (
            # Sums know a horizon that renews by its option alone, and would count it once.
            f"{OWN}    def __init__(self, *a):\n        from dataclasses import replace\n"
            "        super().__init__(*a)\n"
            "        self.guarantee = replace(self.guarantee, renews=True)\n",
            "its guarantee says renews True, where False was asked for",
        ),
        (
            f"{OWN}    @classmethod\n    def numbers(cls, *a):\n        return 1 / 0\n",
            "failed: ZeroDivisionError",
        ),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_at_its_kind(
    install: Install, tmp_path: Path, text: str, what: str
) -> None:
    (problem,) = problems_of(tmp_path, of(f"{install(text)}:Own"))
    assert (problem.line, problem.column) == (19, 13)
    assert what in problem.message


GAUSSIAN = "\n      noise: gaussian\n      delta: 1e-6"


@pytest.mark.parametrize(
    ("promised", "more", "what"),
    [
        # Laplace noise, and options by which the units would be added up as those of Gaussian noise.
        ("None", GAUSSIAN, "its guarantee says delta None, where 1/1000000 was asked for"),
        ("Fraction(1, 10)", GAUSSIAN, "its guarantee says delta 1/10, where 1/1000000 was asked for"),
        ("Fraction(1, 10)", "", "its guarantee says delta 1/10, where None was asked for"),
    ],
)
def test_a_plug_in_promises_the_delta_that_its_budget_is_counted_by(
    install: Install, tmp_path: Path, promised: str, more: str, what: str
) -> None:
    text = f"""{OWN}    options = frozenset({{'noise', 'delta'}})
    def __init__(self, settings, *others):
        from dataclasses import replace
        from fractions import Fraction
        super().__init__(replace(settings, options={{}}), *others)
        self.guarantee = replace(self.guarantee, delta={promised})
"""
    (problem,) = problems_of(tmp_path, of(f"{install(text)}:Own", more))
    assert what in problem.message


def test_a_plug_in_may_have_gaussian_noise(install: Install, tmp_path: Path) -> None:
    kind = f"{install(OWN)}:Own"
    assert load_text(tmp_path, of(kind, GAUSSIAN)).streams[0].mechanism.delta == Fraction(1, 10**6)


def test_a_module_that_fails_is_not_run_again(install: Install, tmp_path: Path) -> None:
    log = tmp_path / "log"
    name = install(f"open({str(log)!r}, 'a').write('ran ')\nraise RuntimeError")
    problems_of(tmp_path, of(f"{name}:Own", "\n      rate: 3"))
    assert log.read_text() == "ran "


def test_a_module_beside_the_topology_file_is_neither_found_nor_run(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(f"open('ran', 'w').close()\n{OWN}")
    (tmp_path / "topology.yaml").write_text(of("beside:Own"))
    command = Path(sys.executable).parent / "eventveil"
    done = subprocess.run([command, "check", "topology.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 78
    assert "modules beside the topology file are not found" in done.stderr
    assert not (tmp_path / "ran").exists()


# What the state records of it


def fields_of(tmp_path: Path, text: str) -> dict[str, object]:
    return dict(fingerprint_fields(load_text(tmp_path, text).streams[0], 2, 1))


def test_the_fingerprint_names_class_distribution_and_source(install: Install, tmp_path: Path) -> None:
    name = install(OWN, points="acme-own = MODULE:Own")
    fields = fields_of(tmp_path, of("acme-own"))
    assert fields["mechanism.kind"] == "acme-own"
    assert fields["plugin.class"] == f"{name}:Own"
    assert fields["plugin.distribution"] == "acme-dp 1.2"
    assert len(str(fields["plugin.source"])) == 64
    assert "plugin.level" not in fields
    assert not [field for field in fields_of(tmp_path, BASE) if "plugin" in field]


def test_a_change_of_the_source_or_of_its_base_changes_the_fingerprint(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fields(base: str, own: str) -> dict[str, object]:
        install(base, "changing_base")
        install(own, "changing_own")
        for name in ("changing_base", "changing_own"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(plugins, "_loaded", {})
        return fields_of(tmp_path, of("changing_own:Child"))

    child = "from changing_base import Own\nclass Child(Own):\n    kind = 'child'\n"
    first = fields(OWN, child)
    assert first == fields(OWN, child)
    for base, own in ((OWN, f"{child}# more\n"), (f"{OWN}# more\n", child)):
        other = fields(base, own)
        assert {name for name in first if first[name] != other[name]} == {"plugin.source"}
    assert remedy("plugin.source") == MIGRATE


def test_a_level_that_no_migration_knows_is_remembered(install: Install, tmp_path: Path) -> None:
    name = install(
        "from eventveil.mechanisms.time_unit import TimeUnit\nclass Own(TimeUnit):\n    kind = 'own'\n"
    )
    text = of(f"{name}:Own", window="").replace("budget: {epsilon: 5, span: 5d}\n", "")
    fields = fields_of(tmp_path, text)
    assert fields["plugin.level"] == "event"


# Entry points


def test_two_distributions_that_quarrel_about_a_name_are_refused(install: Install, tmp_path: Path) -> None:
    install(OWN, points="acme-own = MODULE:Own")
    install(OWN, points="acme-own = MODULE:Own", distribution="other-dp")
    (problem,) = problems_of(tmp_path, of("acme-own"))
    assert "acme-own is an entry point of several: acme-dp 1.2, other-dp 1.2; write" in problem.message


def test_a_kind_of_eventveil_is_never_another_ones(install: Install, tmp_path: Path) -> None:
    install(OWN, points="uniform = MODULE:Own")
    load_text(tmp_path, of("uniform"))
    assert registry.find("uniform") is registry.KINDS["uniform"]


def test_the_schema_takes_plug_ins_and_their_options_and_still_refuses_slips_elsewhere(
    install: Install,
) -> None:
    validator = Draft202012Validator(json_schema())
    assert validator.is_valid(as_data(of(STRIDE, "\n      stride: 3")))
    assert not validator.is_valid(as_data(of(STRIDE, "\n      stride: [3]")))
    assert not validator.is_valid(as_data(of("not/a:Class")))
    assert not validator.is_valid(as_data(of("budget-absorption", "\n      stride: 3")))
    assert not validator.is_valid(as_data(of("acme-own")))
    install(OWN, points="acme-own = MODULE:Own")
    assert Draft202012Validator(json_schema()).is_valid(as_data(of("acme-own")))


def test_no_record_makes_a_process_import_anything() -> None:
    assert registry.known("this:Mechanism") is None
    assert "this" not in sys.modules
    assert registry.known("uniform") is registry.KINDS["uniform"]
