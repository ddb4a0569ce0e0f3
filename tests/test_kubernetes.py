"""deploy/kubernetes: it is what Kubernetes takes, and means what the service and its routes mean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from app.base.metrics import catalogue
from app.features.health.routes import READY_SECONDS
from app.settings import Settings
from tests.deployment import ROOT, Manifest, documents, entry_point, environ
from tests.routes import document

FOLDER: Final = ROOT / "deploy/kubernetes"
VERSION: Final = "1.33"  # of the versions that are maintained, an old one
PLANS: Final = {path.parent: documents(path)[0] for path in FOLDER.rglob("kustomization.yaml")}
FILES: Final = {path: documents(path) for path in FOLDER.rglob("*.yaml") if path.name != "kustomization.yaml"}
ALL: Final = [one for found in FILES.values() for one in found]
# What is made apart from these manifests; the operator makes the last one.
SECRETS: Final = {"holdfast-database", "holdfast-keys", "holdfast-reaper", "holdfast-worker", "holdfast-postgres-app"}
# Of operators, whose definitions kubernetes-validate doesn't bring.
OTHERS: Final = {
    "ScaledObject": "keda.sh/v1alpha1",
    "TriggerAuthentication": "keda.sh/v1alpha1",
    "Cluster": "postgresql.cnpg.io/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
}
CLUSTER: Final = FOLDER / "overlays/cloudnative-pg"


def one(kind: str, name: str, made: list[Manifest] = ALL) -> Manifest:
    [found] = [it for it in made if (it["kind"], it["metadata"]["name"]) == (kind, name)]
    return found


def template(manifest: Manifest) -> Manifest | None:
    """Of the pods that a manifest makes."""
    spec = manifest.get("spec", {})
    spec = spec["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else spec
    found: Manifest | None = spec.get("template") if manifest["kind"] in ("CronJob", "Deployment", "Job") else None
    return found


PODS: Final[dict[str, Manifest]] = {it["metadata"]["name"]: made["spec"] for it in ALL if (made := template(it))}
MAPS: Final[dict[str, Manifest]] = {it["name"]: it for it in PLANS[FOLDER / "base"]["configMapGenerator"]}


def secrets_of(pod: Manifest) -> set[tuple[str, str]]:
    every = (env for container in pod["containers"] for env in container.get("env", []))
    refs = (env["valueFrom"]["secretKeyRef"] for env in every if "valueFrom" in env)
    return {(ref["name"], ref["key"]) for ref in refs}


@pytest.mark.parametrize("it", ALL, ids=lambda it: f"{it['kind']} {it['metadata']['name']}")
def test_kubernetes_takes_it(it: Manifest) -> None:
    if it["kind"] in OTHERS:
        assert it["apiVersion"] == OTHERS[it["kind"]]
    else:
        kubernetes_validate.validate(it, VERSION, strict=True)


def test_every_file_is_used_and_every_patch_has_what_it_changes() -> None:
    used = {(folder / name).resolve() for folder, plan in PLANS.items() for name in plan["resources"]}
    assert {path for path in used if not path.exists()} == set()
    assert set(FILES) - used == set()
    for plan in PLANS.values():
        assert plan["namespace"] == "holdfast"
        for patch in plan.get("patches", []):
            for step in YAML(typ="safe").load(patch["patch"]):
                assert step["op"] == "replace"
                place: Any = one(patch["target"]["kind"], patch["target"]["name"])
                for name in step["path"].removeprefix("/").split("/"):
                    place = place[int(name) if isinstance(place, list) else name]


def test_pods_are_as_the_restricted_standard_wants_them() -> None:
    for name, pod in PODS.items():
        assert pod["enableServiceLinks"] is False, f"{name}: HOLDFAST_PORT would be set to an address"
        assert pod["automountServiceAccountToken"] is False
        security = pod["securityContext"]
        assert security["runAsNonRoot"]
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
            assert container["resources"]["limits"]["memory"]
            assert re.search("^holdfast$|:(?!latest)", container["image"]), "which one?"


def test_secrets_are_named_and_not_told() -> None:
    assert [it for it in ALL if it["kind"] == "Secret"] == []
    assert {name for pod in PODS.values() for name, _ in secrets_of(pod)} <= SECRETS
    for pod in PODS.values():
        for env in (env for container in pod["containers"] for env in container.get("env", [])):
            assert "value" not in env or not re.search(r"KEY|PASSWORD|SECRET|DATABASE", env["name"]), env


def test_names_lead_somewhere() -> None:
    labels = [made["metadata"]["labels"] for made in map(template, ALL) if made]
    for pod in PODS.values():
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume} <= set(MAPS)
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert {ref["configMapRef"]["name"] for ref in container.get("envFrom", [])} <= set(MAPS)
    for it in ALL:
        selector = it["spec"].get("podSelector") or it["spec"].get("selector") or {} if "spec" in it else {}
        wanted = selector.get("matchLabels", {} if "matchExpressions" in selector else selector)
        if "cnpg.io/cluster" not in wanted:
            assert any(wanted.items() <= those.items() for those in labels), it["metadata"]["name"]
        if it["kind"] == "ScaledObject":
            assert it["spec"]["scaleTargetRef"]["name"] in PODS
            for ref in (trigger.get("authenticationRef") for trigger in it["spec"]["triggers"]):
                assert ref is None or one("TriggerAuthentication", ref["name"])


def test_probes_ask_what_the_routes_tell() -> None:
    deployment = one("Deployment", "holdfast")
    [container] = PODS["holdfast"]["containers"]
    probes = {name: container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    assert paths == {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}
    assert set(paths.values()) <= set(document()["paths"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {probe["httpGet"]["port"] for probe in probes.values()} <= set(ports)
    assert probes["readiness"]["timeoutSeconds"] > READY_SECONDS
    assert str(ports["http"]) == environ()["HOLDFAST_PORT"]
    [port] = one("Service", "holdfast")["spec"]["ports"]
    assert port["targetPort"] in ports
    assert deployment["spec"]["replicas"] > one("PodDisruptionBudget", "holdfast")["spec"]["maxUnavailable"]


def test_a_pod_has_the_time_that_its_stop_takes() -> None:
    settings = Settings.from_env(dict(line.split("=") for line in MAPS["holdfast-settings"]["literals"]))
    pod = PODS["holdfast"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= pause + settings.stop_seconds + 5


def test_who_talks_to_the_database_has_its_address_and_may() -> None:
    address, key = ("holdfast-database", "url"), ("holdfast-reaper", "key")
    assert {name: secrets_of(pod) for name, pod in PODS.items() if name != "mail-worker"} == {
        "holdfast": {address, ("holdfast-keys", "api-keys")},
        "holdfast-migrate": {address},
        "holdfast-sweeps": {address},
        "holdfast-reaper": {key},
        "holdfast-archive-reaper": {key},
    }
    addressed = {name for name, pod in PODS.items() if address in secrets_of(pod)}
    cluster = one("Cluster", "holdfast-postgres")["metadata"]["name"]
    for patch in PLANS[CLUSTER]["patches"]:
        [step] = YAML(typ="safe").load(patch["patch"])
        if patch["target"]["kind"] != "NetworkPolicy":
            assert step["path"].endswith("/containers/0/env/0/valueFrom/secretKeyRef")
            assert step["value"] == {"name": f"{cluster}-app", "key": "uri"}
            addressed.remove(patch["target"]["name"])
    assert addressed == set()
    policy = one("NetworkPolicy", "holdfast-database")["spec"]
    assert policy["podSelector"]["matchExpressions"][0]["values"] == ["api", "migration", "reaper"]


def test_its_reaper_does_what_that_of_compose_does() -> None:
    [ours] = PODS["holdfast-sweeps"]["containers"]
    [compose] = documents(ROOT / "docker-compose.yml")
    theirs = compose["services"]["reaper"]
    assert (ours["command"], ours["args"]) == (theirs["entrypoint"], theirs["command"])
    check = ours["readinessProbe"]["exec"]["command"][-1]
    assert theirs["healthcheck"]["test"][-1].replace("$$", "$") == check
    assert f"if {' '.join(entry_point())} reap; then" in ours["args"][0]


def test_cronjobs_call_reapers_that_there_are() -> None:
    assert MAPS["holdfast-reap"]["files"] == ["reap.sh"]
    script = (FOLDER / "base/reap.sh").read_text()
    assert "/api/admin/$reaper-reaper/run" in script
    called = []
    for it in ALL:
        if it["kind"] == "CronJob":
            [container] = PODS[it["metadata"]["name"]]["containers"]
            assert container["command"] == ["sh", "-eu", "/reap/reap.sh"]
            called += container["args"]
    assert sorted(called) == ["archive", "delete", "expiry"]
    assert {f"/api/admin/{name}-reaper/run" for name in called} <= set(document()["paths"])


def test_the_cluster_has_the_settings_of_the_manual() -> None:
    spec = one("Cluster", "holdfast-postgres")["spec"]
    parameters = spec["postgresql"]["parameters"]
    page = (ROOT / "docs/operations/postgres.md").read_text()
    for name, value in {"checkpoint_timeout": "15 min", "autovacuum_naptime": "15 s", "jit": "off"}.items():
        assert re.search(rf"\| `{name}` \| {value}", page), name
        assert parameters[name] == value.replace(" ", "")
    assert {"max_wal_size", "max_connections", "max_slot_wal_keep_size"} <= set(parameters)
    assert {"fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names"} & set(parameters) == set()
    assert spec["postgresql"]["synchronous"]["number"] < spec["instances"]
    assert spec["bootstrap"]["initdb"] == {"database": "holdfast", "owner": "holdfast", "encoding": "UTF8"}


def test_scalers_ask_for_numbers_that_there_are() -> None:
    shown = document()["components"]["schemas"]["ScaleAnswer"]["properties"]
    triggers = _triggers(FOLDER / "workers/keda-metrics-api")
    asked = [trigger["metadata"] for trigger in triggers]
    assert [one["valueLocation"] for one in asked] == ["depth", "oldest_claimable_age_ms"]
    for one in asked:
        assert shown[one["valueLocation"]]["type"] == "integer", "a scaler takes no null"
        assert re.fullmatch(r"http://holdfast\.holdfast\.svc:8080/v0/topics/mail/scale", one["url"])
        assert float(one["targetValue"]) > 0
    assert "/v0/topics/{topic}/scale" in document()["paths"]
    told = {f"holdfast_{family.name}" for family in vars(catalogue).values() if isinstance(family, catalogue.Family)}
    for trigger in _triggers(FOLDER / "workers/keda-prometheus"):
        names = set(re.findall(r"holdfast_\w+", trigger["metadata"]["query"]))
        assert names
        assert names <= told
    assert any(trigger["metricType"] == "AverageValue" for trigger in triggers), "or its fallback is not taken"


def test_prometheus_finds_the_pods_and_the_alerts_know_their_job() -> None:
    monitor = one("PodMonitor", "holdfast")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    deployment = one("Deployment", "holdfast")
    assert wanted.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    [container] = PODS["holdfast"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert endpoint["path"] in document()["paths"]
    assert (
        f"| `{endpoint['authorization']['credentials']['name']}` | `key` |"
        in (ROOT / "docs/operations/deployment.md").read_text()
    )
    job = f"holdfast/{monitor['metadata']['name']}"
    matchers = re.findall(r'up\{job=~"([^"]+)"', (ROOT / "deploy/prometheus/rules/holdfast-service.yml").read_text())
    assert [bool(re.fullmatch(matcher, job)) for matcher in matchers] == [True, True]


def _triggers(folder: Path) -> list[Manifest]:
    triggers: list[Manifest] = one("ScaledObject", "mail-worker", FILES[folder / "scaler.yaml"])["spec"]["triggers"]
    return triggers
