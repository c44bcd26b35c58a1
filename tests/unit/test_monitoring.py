"""The dashboard and the alert rules name metrics, labels and values that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from eventveil.counting.counter import OUTCOMES
from eventveil.decoding.rules import Reason
from eventveil.read.health import STATES
from eventveil.worker.observe.metrics import METRICS
from eventveil.worker.observe.observation import HOLDS

FOLDER = Path(__file__).parents[2] / "monitoring"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
PUBLIC, RAW = "alerts.yaml", "alerts-raw.yaml"
BY_NAME = {metric.name: metric for metric in METRICS}
#: What Prometheus adds to every metric that it collects.
ADDED = {"instance", "job"}
VALUES = {"state": {*STATES}, "reason": {*HOLDS}, "outcome": {*OUTCOMES, "read"}}
PANELS = {"stat", "timeseries", "state-timeline", "table"}


def rules(file: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / file).read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    for file in (PUBLIC, RAW):
        yield from ((f"{file} {rule['alert']}", rule["expr"]) for rule in rules(file))
    for panel in DASHBOARD["panels"]:
        yield from ((f"dashboard {panel['title']}", target["expr"]) for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield f"dashboard variable {variable['name']}", variable["query"]["query"]


def metrics_of(expression: str) -> set[str]:
    return set(re.findall(r"\beventveil_\w+", expression))


@pytest.mark.parametrize(("place", "expression"), [*expressions()])
def test_an_expression_names_what_there_is(place: str, expression: str) -> None:
    names = metrics_of(expression)
    assert names, expression
    assert names <= set(BY_NAME), expression
    assert place.startswith(RAW) or not any(BY_NAME[name].raw for name in names), "raw metrics are apart"
    for name, matchers in re.findall(r"\b(eventveil_\w+)\{([^}]*)\}", expression):
        for label, operator, text in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
            assert label in BY_NAME[name].labels, expression
            if label in VALUES:
                told = text.split("|") if "~" in operator else [text]
                assert set(told) <= VALUES[label], expression
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        labels = {*re.split(r",\s*", grouped)}
        assert all(labels <= {*BY_NAME[name].labels, *ADDED} for name in names), expression
    # Counters are only looked at through what sees restarts, and only counters are.
    for name in names:
        through = re.search(rf"\b(rate|increase)\({name}\b", expression) is not None
        assert through == (BY_NAME[name].kind == "counter"), expression


def parse(expression: str) -> None:
    """Raises ValueError for what is no PromQL; the intervals that Grafana fills in are some."""
    promql_parser.parse(re.sub(r"\[\$\w+\]", "[5m]", expression))


@pytest.mark.parametrize(
    ("place", "expression"), [one for one in expressions() if not one[0].startswith("dashboard variable")]
)
def test_an_expression_is_what_prometheus_parses(place: str, expression: str) -> None:
    parse(expression)
    with pytest.raises(ValueError, match=r".+"):
        parse(f"rate({expression})")


def test_every_public_metric_is_on_the_dashboard() -> None:
    shown = {
        name for place, one in expressions() if place.startswith("dashboard") for name in metrics_of(one)
    }
    assert shown == {metric.name for metric in METRICS if not metric.raw}


def test_events_that_are_no_loss_are_left_out_of_the_alert_about_losses() -> None:
    (rule,) = [rule for rule in rules(RAW) if rule["alert"] == "EventveilEventsLost"]
    (left_out,) = re.findall(r'outcome!~"([^"]*)"', rule["expr"])
    assert set(left_out.split("|")) == {*OUTCOMES, "read"} - {reason.value for reason in Reason}


@pytest.mark.parametrize("file", [PUBLIC, RAW])
def test_an_alert_says_what_is_wrong_and_what_to_do(file: str) -> None:
    found = rules(file)
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
        summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
        assert summary.endswith(".")
        assert len(description) > 40
        for label in re.findall(r"\$labels\.(\w+)", summary + description):
            (grouped,) = [*re.findall(r"\bby \(([^)]*)\)", rule["expr"])][:1] or ["instance"]
            assert label in grouped, rule["alert"]


def test_the_dashboard_has_the_form_that_grafana_reads() -> None:
    assert DASHBOARD["schemaVersion"] >= 39
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in PANELS
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"]["uid"] == "${datasource}"
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, "panels do not overlap"
        taken |= cells


def test_histories_of_workers_raise_the_alerts_that_they_should() -> None:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool, of Prometheus, is not installed")
    command = [promtool, "test", "rules", "alerts_test.yaml"]
    found = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_histories_are_of_rules_that_there_are() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text(encoding="utf-8"))
    assert tests["rule_files"] == [PUBLIC]
    text = json.dumps(tests)
    assert {*re.findall(r"Eventveil[A-Z]\w+", text)} <= {rule["alert"] for rule in rules(PUBLIC)}
    assert metrics_of(text) <= set(BY_NAME)
