"""Dashboard and alert rules ask for metrics that a worker really serves; every file that compose mounts is there."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from mempair_db.ledger.record import Outcome
from mempair_db.worker.metrics import FIGURES, LAG, Metrics

DOCKER = Path(__file__).parents[2] / "docker"
BOARD = json.loads((DOCKER / "grafana" / "mempair.json").read_text(encoding="utf-8"))
RULES = [rule for group in yaml.safe_load((DOCKER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """The names that a worker serves, with their labels, as Prometheus sees them."""
    metrics = Metrics(0)
    try:
        metrics.count("churn", Outcome(figures=dict.fromkeys(FIGURES, 1.0)), 0.1)
        for name in LAG:
            metrics._gauges[name].labels("churn").set(1)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        metrics.close()
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(mempair_\w+)\{(.*?)\}", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r"(\w+)=", labels))
    return found


def expressions() -> list[str]:
    asked = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    asked += [variable["query"]["query"] for variable in BOARD["templating"]["list"]]
    return [*asked, *(rule["expr"] for rule in RULES)]


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_that_is_asked_for_is_served_with_its_labels(expression: str, served: dict[str, set[str]]) -> None:
    for name, labels in re.findall(r"\b(mempair_\w+)(?:\{([^}]*)\})?", expression):
        assert name in served
        assert set(re.findall(r"(\w+)\s*[=!]~?", labels)) <= served[name]
    assert expression.count("(") == expression.count(")")


def test_the_dashboard_is_whole() -> None:
    names = {name for each in expressions() for name in re.findall(r"mempair_\w+", each)}
    assert {f"mempair_{name}" for name in FIGURES | LAG} <= names
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    (source,) = yaml.safe_load((DOCKER / "grafana" / "datasource.yaml").read_text())["datasources"]
    assert {panel["datasource"]["uid"] for panel in BOARD["panels"]} == {source["uid"]}


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert len(rule["annotations"]["summary"]) > 10
        assert len(rule["annotations"]["description"]) > 20


def test_compose_mounts_what_is_there_and_scrapes_where_workers_serve() -> None:
    services: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    mounted = [m for s in services.values() for m in s.get("volumes", ()) if m.startswith("./")]
    assert len(mounted) >= 5
    assert all((DOCKER / mount.split(":")[0]).is_file() for mount in mounted)
    (job,) = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["scrape_configs"]
    (place,) = job["dns_sd_configs"]
    command = services["worker"]["command"]
    assert place["names"] == ["worker"]
    assert str(place["port"]) == command[command.index("--metrics-port") + 1]
    assert f'job="{job["job_name"]}"' in RULES[1]["expr"]
