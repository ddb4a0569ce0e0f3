"""deploy/grafana: dashboards of metrics that there are, with links that lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.main import ALL_PAGES
from tests.monitoring import sources
from tests.monitoring.sources import GRAFANA, ROOT, Parsed

ALERTS = sources.alerts()
BOARDS = sources.boards()
CORE = {"row", "stat", "timeseries", "table"}
VARIABLES = {"$__rate_interval": "30s"}
BUILT_IN = {"__rate_interval", "__url_time_range", "__value.text", "datasource"}


def test_grafana_finds_them_and_their_source_of_data() -> None:
    """The dashboards are written from the folder that is mounted, before Grafana starts and where it looks."""
    services = sources.parsed(ROOT / "docker-compose.yml")["services"]
    writes, grafana = services["dashboards"], services["grafana"]
    assert writes["volumes"] == ["./deploy/grafana:/grafana:ro", "dashboards:/dashboards"]
    assert f"FROM {writes['image']} AS packages\n" in (ROOT / "Dockerfile").read_text(), "an image that is there anyway"
    assert grafana["depends_on"]["dashboards"] == {"condition": "service_completed_successfully"}
    [provider] = sources.parsed(GRAFANA / "provisioning/dashboards/holdfast.yml")["providers"]
    assert f"dashboards:{provider['options']['path']}:ro" in grafana["volumes"]
    assert "./deploy/grafana/provisioning:/etc/grafana/provisioning:ro" in grafana["volumes"]
    assert set(BOARDS) == {f"holdfast-{name}" for name in ("overview", "topic", "postgresql", "workers")}
    [source] = sources.parsed(GRAFANA / "provisioning/datasources/prometheus.yml")["datasources"]
    assert source["isDefault"], "it is what the variable datasource begins with"


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_a_panel_says_what_it_shows(board: Parsed) -> None:
    assert [panel["id"] for panel in board["panels"]] == list(range(1, len(board["panels"]) + 1))
    variables = {one["name"] for one in board["templating"]["list"]}
    for panel in board["panels"]:
        assert panel["type"] in CORE
        assert panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        used = set(re.findall(r"\$\{?([\w.]+)", str(panel)))
        assert used <= variables | BUILT_IN, panel["title"]
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"].get("unit") or panel["type"] == "table", panel["title"]
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len({(x, y) for x, y, _, _ in places}) == len(places), "a panel covers another"


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_prometheus_understands_the_queries_and_has_what_they_name(board: Parsed, tmp_path: Path) -> None:
    queries = [target["expr"] for panel in sources.panels(board) for target in panel["targets"]]
    assert len(queries) > 20
    filled = [re.sub(r"\$\w+", lambda name: VARIABLES.get(name[0], "x"), query) for query in queries]
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(filled)]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    sources.promtool("check", "rules", "--lint=none", tmp_path / "panels.yml")
    assert {query: wrong for query in queries if (wrong := sources.unknown(query))} == {}
    mine = [query for query in queries if sources.metrics(query)]
    assert [query for query in mine if query.count('job="$job"') < len(sources.metrics(query))] == []


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_links_lead_somewhere(board: Parsed) -> None:
    paths = {page.path for page in ALL_PAGES if page.method == "GET"}
    for link in board["links"]:
        if link["title"] == "Admin pages":
            page = link["url"].removeprefix("${admin}/admin").replace("${topic}", "{topic}")
            assert page in paths
    for panel in sources.panels(board):
        for link in panel["links"]:
            assert link["url"] == f"${{manual}}/operations/runbooks.html#{link['title'].lower()}"
            assert link["title"] in ALERTS
    linked = re.findall(r"/d/([\w-]+)", str(board))
    assert set(linked) <= set(BOARDS)


def test_every_alert_is_on_a_panel_that_shows_what_it_looks_at() -> None:
    shown: dict[str, set[str]] = {}
    for board in BOARDS.values():
        for panel in sources.panels(board):
            for link in panel["links"]:
                looked_at = set().union(*(sources.metrics(target["expr"]) for target in panel["targets"]))
                shown.setdefault(link["title"], set()).update(looked_at)
    assert set(shown) == set(ALERTS)
    blind = {name for name, rule in ALERTS.items() if (of := sources.metrics(rule["expr"])) and not of & shown[name]}
    assert blind == set()
