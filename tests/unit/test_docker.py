"""The image and the compose file fit the package, the command line and the broker of the tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution, requires, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from packaging.requirements import Requirement

from eventveil.topology.loading import load
from eventveil.worker.observe.endpoint import Endpoint
from eventveil.worker.observe.observation import Observation
from tests.kafka.jars import newest_version
from tests.unit.cli.commands import made

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OURS = ["topics", "worker"]


def command(service: str) -> list[str]:
    """The words of a service's command, with the default of every variable."""
    text = COMPOSE["services"][service]["command"]
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).split()


def test_the_entry_point_of_the_image_is_the_command_that_the_package_installs() -> None:
    assert re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE) == ['["eventveil"]']
    assert PROJECT["project"]["scripts"] == {"eventveil": "eventveil.cli.main:main"}


def findings(dockerfile: str) -> str:
    """What hadolint reports, without its advice on style."""
    command = [Path(sys.executable).with_name("hadolint"), "--no-color", "-"]
    return subprocess.run(command, input=dockerfile, capture_output=True, text=True).stdout


def test_hadolint_has_nothing_to_report_of_the_image() -> None:
    assert findings(DOCKERFILE) == ""
    assert "DL3008" in findings(DOCKERFILE.replace("'cargo=1.85.*'", "cargo"))


def test_the_image_does_not_run_as_root() -> None:
    """A number, or Kubernetes could not see it."""
    (user,) = re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)
    assert int(user) >= 10_000
    assert f"--uid {user} " in DOCKERFILE


def test_what_the_wheel_is_made_of_is_copied_into_the_build_and_not_ignored() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = {path.split("/")[0] for path in (*wheel["packages"], *wheel["force-include"])}
    needed = {"pyproject.toml", PROJECT["project"]["readme"], *folders}
    build = DOCKERFILE.split("FROM ")[1]
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", build, re.MULTILINE) for word in line.split()}
    kept = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    assert needed <= copied == kept
    assert all((ROOT / name).exists() for name in copied)


def test_the_python_of_the_image_is_one_that_the_package_allows() -> None:
    """Told once for all stages, with its patch version and the release of Debian, and a digest if wanted."""
    tag = r"^ARG PYTHON=python:(\d+)\.(\d+)\.\d+-slim-[a-z]+(?:@sha256:[0-9a-f]{64})?$"
    (version,) = re.findall(tag, DOCKERFILE, re.MULTILINE)
    allowed = PROJECT["project"]["requires-python"].strip(">=").split(".")
    assert tuple(map(int, version)) >= tuple(map(int, allowed))
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    stages = re.findall(r"^FROM \S+ AS (\w+)$", DOCKERFILE, re.MULTILINE)
    assert {*bases} - {*stages} == {"${PYTHON}"}


def build_pins() -> dict[str, str]:
    lines = (ROOT / "docker" / "build-constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(re.fullmatch(r"([a-z-]+)==([\w.]+)", line).groups() for line in lines[1:])  # type: ignore[union-attr, misc]


@pytest.mark.parametrize("project", [".", "operators/kernel"])
def test_wheels_are_built_with_exactly_what_the_image_builds_them_with(project: str) -> None:
    file = tomllib.loads((ROOT / project / "pyproject.toml").read_text(encoding="utf-8"))
    (needed,) = file["build-system"]["requires"]
    name, version = needed.split("==")
    assert build_pins()[name] == version
    if project == "operators/kernel":
        assert file["tool"]["maturin"]["locked"]
        assert (ROOT / project / "Cargo.lock").is_file()


def test_what_builds_wheels_needs_nothing_that_is_not_pinned() -> None:
    """As far as the same versions are here. The one requirement of maturin is for a Python that is older."""
    pinned, seen = build_pins(), {"hatchling"}
    assert version("hatchling") == pinned["hatchling"]
    for name in (following := ["hatchling"]):
        if version(name) != pinned.get(name):
            continue  # Another version may need something else.
        for one in map(Requirement, requires(name) or ()):
            if one.marker is None or one.marker.evaluate({"python_version": "3.13", "extra": ""}):
                following += {one.name} - seen
                seen.add(one.name)
    assert seen | {"maturin"} == pinned.keys()


def test_every_build_of_a_wheel_has_the_constraints_and_a_pip_that_knows_them() -> None:
    (pip,) = re.findall(r"^RUN pip install --no-cache-dir pip==(\d+\.\d+)", DOCKERFILE, re.MULTILINE)
    assert tuple(map(int, pip.split("."))) >= (25, 3)
    builds = [one for one in DOCKERFILE.replace("\\\n", " ").splitlines() if "pip wheel" in one]
    assert len(builds) == 2
    assert all("--build-constraint docker/build-constraints.txt" in one for one in builds)
    # Whatever else is installed comes out of these wheels.
    installs = [one for one in DOCKERFILE.splitlines() if "pip install" in one and "pip==" not in one]
    assert len(installs) == 2
    assert all("--no-index" in one for one in installs)


def test_the_compose_file_fits_the_specification() -> None:
    # The file alone: the command that comes with it is not made for the click that Faust allows.
    folder = distribution("check-jsonschema").locate_file("check_jsonschema/builtin_schemas/vendor")
    schema = Draft202012Validator(
        json.loads(Path(str(folder), "compose-spec.json").read_text(encoding="utf-8"))
    )
    assert [*schema.iter_errors(COMPOSE)] == []
    broken = {**COMPOSE, "services": {**COMPOSE["services"], "worker": {"image": "eventveil", "port": []}}}
    (error,) = schema.iter_errors(broken)
    assert "'port'" in error.message


def test_compose_runs_the_broker_that_the_tests_run() -> None:
    assert COMPOSE["services"]["kafka"]["image"] == f"apache/kafka:{newest_version()}"


def test_compose_gives_the_worker_a_broker_that_listens_under_that_name() -> None:
    listeners = COMPOSE["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    for service in OURS:
        assert f"INSIDE://{COMPOSE['services'][service]['environment']['KAFKA_BOOTSTRAP']}" in listeners


@pytest.mark.parametrize("service", OURS)
def test_the_commands_of_compose_are_commands_with_these_options(service: str) -> None:
    name, *arguments = command(service)
    made(name).make_context(name, arguments)


@pytest.mark.parametrize("service", OURS)
def test_the_topology_of_compose_is_valid_where_and_with_what_the_container_has(service: str) -> None:
    given = COMPOSE["services"][service]
    (mount,) = given["volumes"]
    source, target, mode = mount.split(":")
    assert (target, mode) == (re.findall(r"^WORKDIR (.*)$", DOCKERFILE, re.MULTILINE)[-1], "ro")
    checked = subprocess.run(
        [Path(sys.executable).with_name("eventveil"), "check", command(service)[-1]],
        cwd=ROOT / "docker" / source,
        env={"PATH": os.environ["PATH"], **{key: str(value) for key, value in given["environment"].items()}},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr
    assert "destinations" in checked.stdout


@pytest.mark.parametrize("service", OURS)
def test_the_disk_of_a_container_cannot_be_written_but_for_temporary_files(service: str) -> None:
    given = COMPOSE["services"][service]
    assert (given["read_only"], given["tmpfs"]) == (True, ["/tmp"])


def test_only_this_machine_reaches_a_port() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert len(published) == 4
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_health_of_the_worker_is_that_of_its_endpoint() -> None:
    endpoint = Endpoint("127.0.0.1", 0, raw=False)
    _, *check = COMPOSE["services"]["worker"]["healthcheck"]["test"]
    listening = command("worker")[command("worker").index("--metrics") + 1]
    assert check[0] == "python"
    assert f":{listening.rpartition(':')[2]}/health/ready" in check[-1]
    assert COMPOSE["services"]["worker"]["ports"] == ["127.0.0.1:9464:9464"]
    probe = [sys.executable, "-c", check[-1].replace("http://127.0.0.1:9464", endpoint.url)]
    seen = Observation(load(str(ROOT / "topologies" / "flights.yaml"), {}))
    endpoint.watch(seen)
    assert subprocess.run(probe, stderr=subprocess.DEVNULL).returncode == 1
    seen.assigned = frozenset()
    assert subprocess.run(probe).returncode == 0
    endpoint.close()


def test_the_worker_is_restarted_and_given_time_to_stop() -> None:
    worker = COMPOSE["services"]["worker"]
    assert worker["restart"] == "unless-stopped"
    assert worker["stop_grace_period"] == "15s"
    assert worker["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}


def test_the_wheel_holds_eventveil_alone(tmp_path: Path) -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--no-build-isolation",
            "--quiet",
            "--wheel-dir",
            str(tmp_path),
            str(ROOT),
        ],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        assert {name.split("/")[0].split("-")[0] for name in wheel.namelist()} == {"eventveil"}


def test_a_foreign_package_named_operators_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "__init__.py").write_text("raise ImportError('not ours')")
    command = [str(Path(sys.executable).with_name("eventveil")), "--version"]
    shown = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "eventveil" in shown.stdout


def mounted(service: str) -> dict[str, Path]:
    """What a service has of this repository, by its place in the container; all of it cannot be written."""
    mounts = [one.split(":") for one in COMPOSE["services"][service]["volumes"]]
    files = {target: ROOT / "docker" / source for source, target, *_ in mounts if source.startswith(".")}
    assert all(mode == ["ro"] for source, _, *mode in mounts if source.startswith("."))
    assert all(path.resolve().is_relative_to(ROOT) and path.is_file() for path in files.values())
    return files


def document(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_monitoring_is_left_out_unless_asked_for_and_its_images_are_pinned() -> None:
    for name in ("prometheus", "grafana"):
        service = COMPOSE["services"][name]
        assert service["profiles"] == ["monitoring"]
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", service["image"])
    named = {one.partition(":")[0] for s in COMPOSE["services"].values() for one in s.get("volumes", [])}
    assert {one for one in named if not one.startswith(".")} == {*COMPOSE["volumes"]}
    known = {"image", "build", "environment", "volumes", "ports", "healthcheck", "command", "depends_on"}
    known |= {"restart", "stop_grace_period", "profiles", "read_only", "tmpfs"}
    assert {key for service in COMPOSE["services"].values() for key in service} <= known


def test_prometheus_collects_from_the_worker_and_knows_the_public_rules() -> None:
    files = mounted("prometheus")
    settings = document(files["/etc/prometheus/prometheus.yml"])
    (job,) = settings["scrape_configs"]
    listening = command("worker")[command("worker").index("--metrics") + 1]
    assert job["static_configs"] == [{"targets": [f"worker:{listening.rpartition(':')[2]}"]}]
    endpoint = Endpoint("127.0.0.1", 0, raw=False)
    assert endpoint.answer(job["metrics_path"]).status == 200
    endpoint.close()
    (rules,) = settings["rule_files"]
    assert files[rules].resolve() == ROOT / "monitoring" / "alerts.yaml"


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    files = mounted("grafana")
    (source,) = document(files["/etc/grafana/provisioning/datasources/eventveil.yaml"])["datasources"]
    (port,) = COMPOSE["services"]["prometheus"]["ports"]
    assert (source["type"], source["url"]) == ("prometheus", f"http://prometheus:{port.rpartition(':')[2]}")
    (provider,) = document(files["/etc/grafana/provisioning/dashboards/eventveil.yaml"])["providers"]
    (dashboard,) = (path for place, path in files.items() if place.endswith(".json"))
    assert f"{provider['options']['path']}/eventveil.json" in files
    assert dashboard.resolve() == ROOT / "monitoring" / "dashboard.json"
    assert COMPOSE["services"]["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
