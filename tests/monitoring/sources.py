"""What deploy/ has for Prometheus and Grafana, as it is read here: rules, panels, and the metrics that they name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ruamel.yaml import YAML

from app.base.metrics.catalogue import FAMILIES, MetricType
from tests.programs import program

ROOT: Final = Path(__file__).parents[2]
PROMETHEUS: Final = ROOT / "deploy/prometheus"
RULES: Final = sorted((PROMETHEUS / "rules").glob("*.yml"))
UNIT_TESTS: Final = sorted((PROMETHEUS / "tests").glob("*.yml"))
GRAFANA: Final = ROOT / "deploy/grafana"

Parsed = dict[str, Any]
_METRIC = re.compile(r"\b(holdfast_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_OF_SCRAPES = {"job", "instance"}


def parsed(path: Path) -> Parsed:
    found: Parsed = YAML(typ="safe").load(path.read_text())
    return found


def rules() -> list[Parsed]:
    """What is recorded, and the alerts."""
    return [rule for path in RULES for group in parsed(path)["groups"] for rule in group["rules"]]


def alerts() -> dict[str, Parsed]:
    """The alerts by name."""
    found = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in found}) == len(found), "two of a name are hard to tell apart"
    return {rule["alert"]: rule for rule in found}


def boards() -> dict[str, Parsed]:
    """The dashboards by uid, as docker-compose.yml has them written."""
    service = parsed(ROOT / "docker-compose.yml")["services"]["dashboards"]
    with TemporaryDirectory() as folder:
        places = {
            "python": sys.executable,
            "/grafana/dashboards.py": str(GRAFANA / "dashboards.py"),
            "/dashboards": folder,
        }
        subprocess.run([places[word] for word in service["command"]], check=True)
        found = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    return {board["uid"]: board for board in found}


def panels(board: Parsed) -> list[Parsed]:
    """Its panels, without headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def unknown(query: str) -> list[str]:
    """What a query names that no metric of Holdfast is called, or has as a label."""
    wrong, labels = [], set(_OF_SCRAPES)
    for name, selectors in _METRIC.findall(query):
        own = _labels(name)
        if own is None:
            wrong.append(name)
            continue
        labels |= own
        wrong += [f"{name}: {label}" for label in _LABEL.findall(selectors) if label not in own | _OF_SCRAPES]
    grouped = {label.strip() for group in _GROUPED.findall(query) for label in group.split(",")} - {""}
    return wrong + sorted(grouped - labels)


def promtool(*words: str | Path) -> None:
    """It must take what it is given."""
    ran = subprocess.run([program("promtool"), *map(str, words)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def metrics(query: str) -> set[str]:
    """The metrics of Holdfast that it names, as samples are called."""
    return {name for name, _ in _METRIC.findall(query)}


def _labels(name: str) -> set[str] | None:
    for family in FAMILIES.values():
        if family.kind is MetricType.HISTOGRAM:
            if name in {f"{family.exposed_name}_{part}" for part in ("bucket", "sum", "count")}:
                return set(family.labels) | ({"le"} if name.endswith("_bucket") else set())
        elif family.exposed_name == name:
            return set(family.labels)
    return None
