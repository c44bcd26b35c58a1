"""What runs workers for years fits the image, the command line and the schemas of those that read it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import kubernetes_validate
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from eventveil.cli.loading import EXIT_INVALID
from eventveil.topology.loading import load
from eventveil.worker.observe.endpoint import Endpoint
from eventveil.worker.observe.observation import Observation
from tests.unit.cli.commands import made

ROOT = Path(__file__).parents[2]
MANIFESTS: list[dict[str, Any]] = [*yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())]
UNIT = (ROOT / "deploy" / "eventveil@.service").read_text(encoding="utf-8")
POD = MANIFESTS[0]["spec"]["template"]["spec"]
(WORKER,) = POD["containers"]
_DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
EXTRAS = frozenset(re.findall(r"'eventveil\[([a-z,]+)\]'", _DOCKERFILE)[0].split(","))
_VERSION = re.findall(r"^ARG PYTHON=python:(\d+\.\d+)", _DOCKERFILE, re.MULTILINE)[0]
#: The Python of the image, for markers.
PYTHON = {"python_version": _VERSION, "python_full_version": f"{_VERSION}.0"}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: one["kind"])
def test_a_manifest_is_what_the_schemas_of_kubernetes_say(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.31", strict=True)
    broken = {**manifest, "spec": {**manifest["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.31", strict=True)


def test_pods_run_as_the_user_of_the_image_on_a_disk_that_cannot_be_written() -> None:
    (user,) = re.findall(r"^USER (\d+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    assert POD["securityContext"]["runAsUser"] == int(user)
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert WORKER["securityContext"]["readOnlyRootFilesystem"] is True
    writable = {mount["mountPath"] for mount in WORKER["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/tmp"}


def test_the_image_is_that_of_the_newest_version_that_was_released() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## (\d\S*) - ", changelog, re.MULTILINE)[0]
    assert WORKER["image"] == f"eventveil:{newest}"


def test_probes_ask_for_what_a_worker_serves_and_its_arguments_are_known() -> None:
    endpoint = Endpoint("127.0.0.1", 0, raw=False)
    seen = Observation(load(str(ROOT / "topologies" / "flights.yaml"), {}))
    seen.assigned = frozenset()
    endpoint.watch(seen)
    for name in ("startup", "liveness", "readiness"):
        asked = WORKER[f"{name}Probe"]["httpGet"]
        assert asked["port"] == "metrics"
        with urlopen(endpoint.url + asked["path"]) as answer:
            assert answer.status == 200
    endpoint.close()
    command, *arguments = WORKER["args"]
    assert (
        made(command).make_context(command, arguments, resilient_parsing=True).params["metrics"] is not None
    )


def test_the_unit_does_not_start_an_invalid_topology_again() -> None:
    assert re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT, re.MULTILINE) == [str(EXIT_INVALID)]


def test_the_unit_goes_on_when_the_kernel_kills_one_of_its_processes_for_memory() -> None:
    assert re.findall(r"^OOMPolicy=(.*)$", UNIT, re.MULTILINE) == ["continue"]


def test_the_name_in_the_group_that_is_advised_for_systemd_differs_by_host_and_is_taken() -> None:
    """``%i`` is the topology, in the unit itself; two hosts that run it would shut each other out."""
    assert "run /etc/eventveil/%i.yaml" in UNIT
    advice = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (name,) = re.findall(r"`([^`]*)` in the unit of systemd", advice)
    names = {name.replace("%H", host).replace("%i", "shop") for host in ("kafka-1.example.com", "b" * 64)}
    assert len(names) == 2
    for one in names:
        made("run").make_context("run", ["--member", one, "shop.yaml"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_the_unit_is_what_systemd_reads(tmp_path: Path) -> None:
    path = tmp_path / "eventveil@.service"
    path.write_text(UNIT.replace("/opt/eventveil/bin/eventveil", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def pins() -> dict[str, str]:
    lines = (ROOT / "docker" / "constraints.txt").read_text().splitlines()
    named = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in named}


def needed_by(name: str, extras: frozenset[str], seen: dict[tuple[str, frozenset[str]], None]) -> None:
    """Put all that a package of the image needs into ``seen``, as far as the same versions are here."""
    if (name, extras) in seen:
        return
    seen[name, extras] = None
    with suppress(PackageNotFoundError):
        found = distribution(name)
        if name != "eventveil" and found.version != pins().get(name):
            return  # Another version may need something else.
        for one in map(Requirement, found.requires or ()):
            asked = one.marker is None or any(
                one.marker.evaluate({**PYTHON, "extra": extra}) for extra in (*extras, "")
            )
            if asked:
                needed_by(canonicalize_name(one.name), frozenset(one.extras), seen)


def test_what_dependencies_of_the_image_need_is_pinned_too() -> None:
    seen: dict[tuple[str, frozenset[str]], None] = {}
    needed_by("eventveil", EXTRAS, seen)
    assert len(seen) > 10
    assert {name for name, _ in seen} - {"eventveil"} <= pins().keys()


def test_every_dependency_of_the_image_is_pinned_to_a_version_that_the_package_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    pinned = pins()
    for text in (*project["dependencies"], *(one for extra in EXTRAS for one in extras[extra])):
        needed = Requirement(text)
        assert needed.specifier.contains(pinned[canonicalize_name(needed.name)]), text
