"""Building blocks of Grafana's dashboards: panels with their queries, placed from left to right, and shared settings.

Only panels that every Grafana has. An alert that a panel is about is a link to its runbook.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Panel = dict[str, Any]
Query = tuple[str, str]  # in PromQL, and the legend; "": none

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
ADMIN = "http://127.0.0.1:8080"  # the service of docker-compose.yml
MANUAL = "http://127.0.0.1:8000"  # of `make docs-serve`
WIDE = 24
RED, ORANGE, GREEN = "red", "orange", "green"
METRIC = re.compile(r"\b(holdfast_(topic_)?\w+)(?:\{(.*?)\})?")


class Threshold(NamedTuple):
    """The panel has the colour from this value on."""

    value: float
    colour: str


def row(title: str) -> Panel:
    """A heading."""
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "width": WIDE, "height": 1}


def stat(
    title: str,
    unit: str,
    query: Query,
    *,
    limits: Sequence[Threshold] = (),
    good_from: float | None = None,
    words: Mapping[int, str] | None = None,
    about: str = "",
    alerts: Sequence[str] = (),
) -> Panel:
    """The newest value in large type. Values below `good_from` are red. `words` replace values."""
    mappings = [{"type": "value", "options": {str(value): {"text": text} for value, text in (words or {}).items()}}]
    steps = _steps(limits)
    if good_from is not None:
        steps = [{"color": RED, "value": None}, {"color": GREEN, "value": good_from}]
    return {
        **_panel("stat", title, about, alerts, [query], width=4, height=4),
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "noValue": "0" if unit == "short" and words is None else "none",
                "mappings": mappings if words else [],
                "color": {"mode": "thresholds"},
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": {
            "colorMode": "value" if limits or good_from is not None else "none",
            "graphMode": "none" if words else "area",
            "justifyMode": "auto",
            "textMode": "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    }


def timeseries(
    title: str,
    unit: str,
    *queries: Query,
    width: int = 8,
    stacked: bool = False,
    limits: Sequence[Threshold] = (),
    about: str = "",
    alerts: Sequence[str] = (),
) -> Panel:
    """Lines over time, and dashed lines at `limits`."""
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 30 if stacked else 5,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
    }
    return {
        **_panel("timeseries", title, about, alerts, queries, width=width, height=8),
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "min": 0,
                "custom": custom,
                "color": {"mode": "palette-classic"},
                "thresholds": {"mode": "absolute", "steps": _steps(limits)},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def table(title: str, key: str, columns: Mapping[str, tuple[str, str]], *, sort: str, link: str) -> Panel:
    """A row for each value of the label `key`, with a link. `columns`: heading to query and unit."""
    panel = _panel("table", title, "", (), [(query, "") for query, _ in columns.values()], width=WIDE, height=9)
    names = {f"Value #{target['refId']}": name for target, name in zip(panel["targets"], columns, strict=True)}
    for target in panel["targets"]:
        target |= {"format": "table", "instant": True, "range": False}

    def override(name: str, option: str, value: object) -> dict[str, Any]:
        matcher = {"id": "byName", "options": name}
        return {"matcher": matcher, "properties": [{"id": option, "value": value}]}

    return {
        **panel,
        "fieldConfig": {
            "defaults": {"custom": {"align": "auto", "filterable": True}},
            "overrides": [
                override(key, "links", [{"title": "Its dashboard", "url": link}]),
                *(override(name, "unit", unit) for name, (_, unit) in columns.items()),
            ],
        },
        "options": {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": sort, "desc": True}]},
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}},
        ],
    }


def dashboard(name: str, title: str, panels: Sequence[Panel], *, by_topic: bool = False, page: str = "") -> Panel:
    """The dashboard. `by_topic`: of one topic, chosen by a variable. `page`: a page of the admin pages to link to."""
    filters = {"holdfast_": 'job="$job"', "holdfast_topic_": 'job="$job"' + (', topic="$topic"' if by_topic else "")}
    page = "topics/${topic}" if by_topic else page
    return {
        "uid": f"holdfast-{name}",
        "title": title,
        "tags": ["holdfast"],
        "schemaVersion": 41,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables(by_topic))},
        "annotations": {"list": [_alerts()]},
        "links": [
            {"title": "Holdfast", "type": "dashboards", "tags": ["holdfast"], "asDropdown": True, "includeVars": True,
             "keepTime": True},
            _link("Admin pages", f"${{admin}}/admin/{page}"),
            _link("Runbooks", "${manual}/operations/runbooks.html"),
        ],
        "panels": list(_placed(panels, filters)),
    }  # fmt: skip


def _variables(by_topic: bool) -> Iterator[Panel]:
    def asked(name: str, label: str, metric: str) -> Panel:
        query = {"qryType": 1, "query": f"label_values({metric}, {name})", "refId": name}
        return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "definition": query["query"],
                "query": query, "refresh": 2, "sort": 1, "multi": False, "includeAll": False}  # fmt: skip

    def typed(name: str, label: str, text: str) -> Panel:
        current = {"text": text, "value": text}
        return {"name": name, "label": label, "type": "textbox", "query": text, "current": current,
                "options": [current]}  # fmt: skip

    yield {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1}
    yield asked("job", "Job", "holdfast_build_info")
    if by_topic:
        yield asked("topic", "Topic", 'holdfast_topic_head_seq{job="$job"}')
    yield typed("admin", "Service", ADMIN)
    yield typed("manual", "Manual", MANUAL)


def _alerts() -> Panel:
    expr = 'ALERTS{alertname=~"Holdfast.+", alertstate="firing", job=~"$job|"}'
    return {
        "name": "Alerts",
        "datasource": SOURCE,
        "enable": True,
        "iconColor": "red",
        "expr": expr,
        "titleFormat": "{{alertname}}",
        "textFormat": "{{topic}} {{instance}}",
        "step": "60s",
    }


def _placed(panels: Sequence[Panel], filters: Mapping[str, str]) -> Iterator[Panel]:
    x = y = tallest = 0
    for number, one in enumerate(panels, 1):
        panel = {"id": number, **one}
        width, height = panel.pop("width"), panel.pop("height")
        if x + width > WIDE:
            x, y, tallest = 0, y + tallest, 0
        panel["gridPos"] = {"x": x, "y": y, "w": width, "h": height}
        x, tallest = x + width, max(tallest, height)
        if "targets" in panel:  # a copy, because several dashboards may share the panel
            panel["targets"] = [target | {"expr": _filtered(target["expr"], filters)} for target in panel["targets"]]
        yield panel


def _panel(
    kind: str, title: str, about: str, alerts: Sequence[str], queries: Sequence[Query], *, width: int, height: int
) -> Panel:
    targets = [
        {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend or "__auto"}
        for i, (expr, legend) in enumerate(queries)
    ]
    # The description: `about`, and links to the panel's alerts.
    words = " ".join(filter(None, [about, "Alerts: " + ", ".join(alerts) + "." if alerts else ""]))
    links = [_link(alert, f"${{manual}}/operations/runbooks.html#{alert.lower()}") for alert in alerts]
    return {
        "type": kind,
        "title": title,
        "description": words,
        "datasource": SOURCE,
        "targets": targets,
        "links": links,
        "width": width,
        "height": height,
    }


def _link(title: str, url: str) -> Panel:
    return {"title": title, "type": "link", "url": url, "targetBlank": True}


def _steps(limits: Sequence[Threshold]) -> list[dict[str, Any]]:
    return [
        {"color": GREEN, "value": None},
        *({"color": limit.colour, "value": limit.value} for limit in limits),
    ]


def _filtered(query: str, filters: Mapping[str, str]) -> str:
    def metric(found: re.Match[str]) -> str:
        name, of_topic, own = found.groups()
        given = filters["holdfast_topic_" if of_topic else "holdfast_"]
        return f"{name}{{{', '.join(filter(None, [given, own]))}}}"

    return METRIC.sub(metric, query).replace("[]", "[$__rate_interval]")
