"""deploy/kubernetes: what kustomize makes of it is what Kubernetes takes, and what the service and its routes mean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
import pytest

from app.base.metrics import catalogue
from app.features.health.probes import READY_SECONDS
from app.settings import Settings
from tests.dockerfile import ROOT, image
from tests.kustomize import Manifest, build, documents, pod_of
from tests.routes import document

FOLDER: Final = ROOT / "deploy/kubernetes"
DATABASES: Final = ("overlays/database-outside", "overlays/cloudnative-pg")
WORKERS: Final = ("workers/keda-metrics-api", "workers/keda-prometheus")
VERSION: Final = "1.33"  # of the versions that are maintained, an old one
# What is made apart from these manifests; the operator makes the last one.
SECRETS: Final = {"holdfast-database", "holdfast-keys", "holdfast-reaper", "holdfast-worker", "holdfast-postgres-app"}


def _of(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": required | optional,
    }


_TEXT: Final = {"type": "string", "minLength": 1}
_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}  # numbers too have to be in quotes
_TRIGGER: Final = _of(
    {"type": {"enum": ["metrics-api", "prometheus"]}, "metadata": _TEXTS},
    metricType={"enum": ["AverageValue", "Value"]},
    authenticationRef=_of({"name": _TEXT}),
)
_SIZE: Final = _of({"size": {"type": "string", "pattern": "^[0-9]+Gi$"}})
_AMOUNTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
# The parts of others' resources that are used here, as their own definitions have them.
SPECS: Final = {
    "ScaledObject": _of(
        {"scaleTargetRef": _of({"name": _TEXT}), "triggers": {"type": "array", "minItems": 1, "items": _TRIGGER}},
        pollingInterval=_COUNT,
        cooldownPeriod=_COUNT,
        minReplicaCount=_COUNT,
        maxReplicaCount=_COUNT,
        fallback=_of({"failureThreshold": _COUNT, "replicas": _COUNT}),
    ),
    "TriggerAuthentication": _of(
        {
            "secretTargetRef": {
                "type": "array",
                "items": _of({"parameter": {"enum": ["token"]}, "name": _TEXT, "key": _TEXT}),
            }
        }
    ),
    "Cluster": _of(
        {"instances": {"type": "integer", "minimum": 1}, "storage": _SIZE},
        primaryUpdateStrategy={"enum": ["supervised", "unsupervised"]},
        bootstrap=_of({"initdb": _of({"database": _TEXT, "owner": _TEXT}, encoding=_TEXT)}),
        postgresql=_of(
            {"parameters": _TEXTS},
            synchronous=_of(
                {"method": {"enum": ["any", "first"]}, "number": {"type": "integer", "minimum": 1}},
                dataDurability={"enum": ["required", "preferred"]},
            ),
        ),
        walStorage=_SIZE,
        resources=_of({"requests": _AMOUNTS, "limits": _AMOUNTS}),
        affinity=_of(
            {"enablePodAntiAffinity": {"type": "boolean"}},
            topologyKey=_TEXT,
            podAntiAffinityType={"enum": ["preferred", "required"]},
        ),
    ),
}
OTHERS: Final = {
    "ScaledObject": "keda.sh/v1alpha1",
    "TriggerAuthentication": "keda.sh/v1alpha1",
    "Cluster": "postgresql.cnpg.io/v1",
}
POD_MONITOR: Final = _of(
    {
        "selector": _of({"matchLabels": _TEXTS}),
        "podMetricsEndpoints": {
            "type": "array",
            "items": _of(
                {"port": _TEXT, "path": _TEXT, "interval": {"type": "string", "pattern": "^[0-9]+s$"}},
                authorization=_of({"credentials": _of({"name": _TEXT, "key": _TEXT})}),
            ),
        },
    }
)
PAGE: Final = ROOT / "docs/operations/kubernetes.md"


@pytest.fixture(scope="module", params=[*DATABASES, *WORKERS])
def made(request: pytest.FixtureRequest) -> list[Manifest]:
    return build(FOLDER / request.param)


@pytest.fixture(scope="module", params=DATABASES)
def service(request: pytest.FixtureRequest) -> list[Manifest]:
    return build(FOLDER / request.param)


def one(made: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = [it for it in made if (it["kind"], it["metadata"]["name"]) == (kind, name)]
    return found


def pods(made: list[Manifest]) -> dict[str, Manifest]:
    found = [(it["metadata"]["name"], pod) for it in made if (pod := pod_of(it)) is not None]
    assert len(dict(found)) == len(found), "two of a name are hard to tell apart"
    return dict(found)


def labels_of_pods(made: list[Manifest]) -> list[dict[str, str]]:
    found = []
    for it in made:
        if pod_of(it) is not None:
            spec = it["spec"]["jobTemplate"]["spec"] if it["kind"] == "CronJob" else it["spec"]
            found.append(spec["template"]["metadata"]["labels"])
    return found


def secrets_of(pod: Manifest) -> set[tuple[str, str]]:
    every = (env for container in pod["containers"] for env in container.get("env", []))
    refs = (env["valueFrom"]["secretKeyRef"] for env in every if "valueFrom" in env)
    return {(ref["name"], ref["key"]) for ref in refs}


def test_kubernetes_takes_all_of_it(made: list[Manifest]) -> None:
    for it in made:
        if it["kind"] in OTHERS:
            assert it["apiVersion"] == OTHERS[it["kind"]]
            jsonschema.validate(it["spec"], SPECS[it["kind"]])
        else:
            kubernetes_validate.validate(it, VERSION, strict=True)


def test_every_file_is_used() -> None:
    used = {folder / name for folder in _plans() for name in documents(folder / "kustomization.yaml")[0]["resources"]}
    files = {path for path in FOLDER.rglob("*.yaml") if path.name != "kustomization.yaml"}
    assert files - used == set()


def _plans() -> list[Path]:
    return [path.parent for path in FOLDER.rglob("kustomization.yaml")]


def test_pods_are_as_the_restricted_standard_wants_them(made: list[Manifest]) -> None:
    assert pods(made)
    for name, pod in pods(made).items():
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
            assert ":" in container["image"], "which one?"
            assert "latest" not in container["image"]


def test_secrets_are_named_and_not_told(made: list[Manifest]) -> None:
    assert [it for it in made if it["kind"] == "Secret"] == []
    assert {name for pod in pods(made).values() for name, _ in secrets_of(pod)} <= SECRETS
    for pod in pods(made).values():
        for env in (env for container in pod["containers"] for env in container.get("env", [])):
            assert "value" not in env or not re.search(r"KEY|PASSWORD|SECRET|DATABASE", env["name"]), env


def test_names_lead_somewhere(made: list[Manifest]) -> None:
    maps = {it["metadata"]["name"] for it in made if it["kind"] == "ConfigMap"}
    there = labels_of_pods(made)
    for pod in pods(made).values():
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume} <= maps
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert {ref["configMapRef"]["name"] for ref in container.get("envFrom", [])} <= maps
    for it in made:
        wanted = {}
        if it["kind"] in ("PodDisruptionBudget", "Deployment"):
            wanted = it["spec"]["selector"]["matchLabels"]
        elif it["kind"] == "Service":
            wanted = it["spec"]["selector"]
        elif it["kind"] == "NetworkPolicy" and "cnpg.io/cluster" not in it["spec"]["podSelector"]["matchLabels"]:
            wanted = it["spec"]["podSelector"]["matchLabels"]
        assert any(wanted.items() <= labels.items() for labels in there), it["metadata"]["name"]
        if it["kind"] == "ScaledObject":
            one(made, "Deployment", it["spec"]["scaleTargetRef"]["name"])
            keys = {other["metadata"]["name"] for other in made if other["kind"] == "TriggerAuthentication"}
            asked = [
                trigger["authenticationRef"] for trigger in it["spec"]["triggers"] if "authenticationRef" in trigger
            ]
            assert {ref["name"] for ref in asked} <= keys


def test_probes_ask_what_the_routes_tell(service: list[Manifest]) -> None:
    deployment = one(service, "Deployment", "holdfast")
    [container] = pods(service)["holdfast"]["containers"]
    probes = {name: container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
    paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
    assert paths == {"startup": "/healthz", "readiness": "/readyz", "liveness": "/healthz"}
    assert set(paths.values()) <= set(document()["paths"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {probe["httpGet"]["port"] for probe in probes.values()} <= set(ports)
    assert probes["readiness"]["timeoutSeconds"] > READY_SECONDS
    assert str(ports["http"]) == image(ROOT / "Dockerfile").environ["HOLDFAST_PORT"]
    [port] = one(service, "Service", "holdfast")["spec"]["ports"]
    assert port["targetPort"] in ports
    assert deployment["spec"]["replicas"] > one(service, "PodDisruptionBudget", "holdfast")["spec"]["maxUnavailable"]


def test_a_pod_has_the_time_that_its_stop_takes(service: list[Manifest]) -> None:
    settings = Settings.from_env(one(service, "ConfigMap", "holdfast-settings")["data"])
    pod = pods(service)["holdfast"]
    pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= pause + settings.stop_seconds + 5


def test_who_talks_to_the_database_has_its_address_and_may(service: list[Manifest]) -> None:
    addresses = {name: secrets_of(pod) for name, pod in pods(service).items()}
    cluster = [it["metadata"]["name"] for it in service if it["kind"] == "Cluster"]
    address = (f"{cluster[0]}-app", "uri") if cluster else ("holdfast-database", "url")
    assert addresses == {
        "holdfast": {address, ("holdfast-keys", "api-keys")},
        "holdfast-migrate": {address},
        "holdfast-sweeps": {address},
        "holdfast-reaper": {("holdfast-reaper", "key")},
        "holdfast-archive-reaper": {("holdfast-reaper", "key")},
    }
    policy = one(service, "NetworkPolicy", "holdfast-database")["spec"]
    [rule] = policy["egress"]
    assert [port["port"] for port in rule["ports"]] == [5432]
    assert policy["podSelector"]["matchExpressions"][0]["values"] == ["api", "migration", "reaper"]


def test_its_reaper_does_what_that_of_compose_does(service: list[Manifest]) -> None:
    [ours] = pods(service)["holdfast-sweeps"]["containers"]
    [compose] = documents(ROOT / "docker-compose.yml")
    theirs = compose["services"]["reaper"]
    assert (ours["command"], ours["args"]) == (theirs["entrypoint"], theirs["command"])
    check = ours["readinessProbe"]["exec"]["command"][-1]
    assert theirs["healthcheck"]["test"][-1].replace("$$", "$") == check
    python, *words = image(ROOT / "Dockerfile").command[:-1]
    assert f"if {python} {' '.join(words)} reap; then" in ours["args"][0]


def test_cronjobs_call_reapers_that_there_are(service: list[Manifest]) -> None:
    script = one(service, "ConfigMap", "holdfast-reap")["data"]["reap.sh"]
    assert "/api/admin/$reaper-reaper/run" in script
    called = []
    for it in service:
        if it["kind"] == "CronJob":
            [container] = (pod_of(it) or {})["containers"]
            assert container["command"] == ["sh", "-eu", "/reap/reap.sh"]
            called += container["args"]
    assert sorted(called) == ["archive", "delete", "expiry"]
    assert {f"/api/admin/{name}-reaper/run" for name in called} <= set(document()["paths"])


def test_the_cluster_has_the_settings_of_the_manual() -> None:
    made = build(FOLDER / "overlays/cloudnative-pg")
    spec = one(made, "Cluster", "holdfast-postgres")["spec"]
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
    triggers = _triggers("workers/keda-metrics-api")
    asked = [trigger["metadata"] for trigger in triggers]
    assert [one["valueLocation"] for one in asked] == ["depth", "oldest_claimable_age_ms"]
    for one in asked:
        assert shown[one["valueLocation"]]["type"] == "integer", "a scaler takes no null"
        assert re.fullmatch(r"http://holdfast\.holdfast\.svc:8080/v0/topics/mail/scale", one["url"])
        assert float(one["targetValue"]) > 0
    assert "/v0/topics/{topic}/scale" in document()["paths"]
    told = {f"holdfast_{family.name}" for family in vars(catalogue).values() if isinstance(family, catalogue.Family)}
    for trigger in _triggers("workers/keda-prometheus"):
        names = set(re.findall(r"holdfast_\w+", trigger["metadata"]["query"]))
        assert names
        assert names <= told
    assert any(trigger["metricType"] == "AverageValue" for trigger in triggers), "or its fallback is not taken"


def test_prometheus_finds_the_pods_and_the_alerts_know_their_job(service: list[Manifest]) -> None:
    monitor = one(build(FOLDER / "monitoring"), "PodMonitor", "holdfast")
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    jsonschema.validate(monitor["spec"], POD_MONITOR)
    wanted = monitor["spec"]["selector"]["matchLabels"]
    deployment = one(service, "Deployment", "holdfast")
    assert monitor["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert wanted.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    [container] = pods(service)["holdfast"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert endpoint["path"] in document()["paths"]
    assert f"| `{endpoint['authorization']['credentials']['name']}` | `key` |" in PAGE.read_text()
    job = f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}"
    matchers = re.findall(r'up\{job=~"([^"]+)"', (ROOT / "deploy/prometheus/rules/holdfast-service.yml").read_text())
    assert [bool(re.fullmatch(matcher, job)) for matcher in matchers] == [True, True]


def _triggers(folder: str) -> list[Manifest]:
    triggers: list[Manifest] = one(build(FOLDER / folder), "ScaledObject", "mail-worker")["spec"]["triggers"]
    return triggers
