"""deploy/prometheus: what promtool says of it, and that no alert is without its words, its runbook and its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.monitoring import sources
from tests.monitoring.sources import PROMETHEUS, ROOT, RULES, UNIT_TESTS, promtool

ALERTS = sources.alerts()


def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)


@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_each_alert_fires_in_its_own_trouble_and_none_where_all_is_well(path: Path) -> None:
    promtool("test", "rules", path)


def test_promtool_takes_the_configuration_with_the_rules(tmp_path: Path) -> None:
    text = (PROMETHEUS / "prometheus.yml").read_text()
    (tmp_path / "key").write_text("k")
    places = {
        "/etc/prometheus/rules/*.yml": str(PROMETHEUS / "rules/*.yml"),
        "/run/secrets/metrics_key": str(tmp_path / "key"),
    }
    for was, now in places.items():
        assert text.count(was) == 1, was
        text = text.replace(was, now)
    (tmp_path / "prometheus.yml").write_text(text)
    promtool("check", "config", "--lint=all", "--lint-fatal", tmp_path / "prometheus.yml")


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_it_saw_and_where_its_runbook_is(name: str) -> None:
    rule = ALERTS[name]
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert anchor == name.lower()
    headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
    assert headings.count(name) == 1
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]):
        assert label in rule["expr"] or label in {"instance", "slot"}, f"{label} may be gone from what fires"


def test_the_runbooks_are_those_of_the_alerts() -> None:
    page = (ROOT / "docs/operations/runbooks.md").read_text()
    assert sorted(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == sorted(ALERTS)
    assert f"has {len(ALERTS)} alerts." in (ROOT / "docs/operations/monitoring.md").read_text()


def test_what_rules_name_there_is() -> None:
    wrong = {rule.get("alert", rule.get("record")): sources.unknown(rule["expr"]) for rule in sources.rules()}
    assert {name: found for name, found in wrong.items() if found} == {}
    assert sources.unknown('sum by (nobody) (holdfast_topic_ready{colour="red"}) + holdfast_none') == [
        "holdfast_topic_ready: colour",
        "holdfast_none",
        "nobody",
    ]


def test_every_alert_has_a_test_that_it_fires_and_one_that_it_does_not() -> None:
    fires: set[str] = set()
    silent: set[str] = set()
    for path in UNIT_TESTS:
        for case in sources.parsed(path)["tests"]:
            for look in case.get("alert_rule_test", ()):
                (fires if look.get("exp_alerts") else silent).add(look["alertname"])
    assert fires == set(ALERTS)
    assert silent == set(ALERTS)
