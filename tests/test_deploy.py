"""What deploy/ and docker-compose.yml say, as far as it can be looked at without a container engine."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from app.base.keys import Scope
from app.settings import PREFIX, Settings
from tests.deployment import ROOT, environ, instructions

COMPOSE = ROOT / "docker-compose.yml"
SPARK = ROOT / "deploy/spark/Dockerfile"
DOCKERFILES = [ROOT / "Dockerfile", *sorted((ROOT / "deploy").rglob("Dockerfile"))]
SECRETS = {
    "POSTGRES_PASSWORD": "0123abc",
    "HOLDFAST_ADMIN_KEY": "4567def",
    "HOLDFAST_METRICS_KEY": "89abc",
    "GRAFANA_PASSWORD": "x",
}
Parsed = dict[str, Any]


def parsed(text: str) -> Parsed:
    found: Parsed = YAML(typ="safe").load(text)
    return found


def interpolated() -> Parsed:
    """The compose file as Compose reads it with these secrets."""

    def value(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        return SECRETS.get(name) or (re.sub(PLACE, value, default) if default else "")

    return parsed(re.sub(PLACE, value, COMPOSE.read_text()).replace("$$", "$"))


PLACE = re.compile(r"(?<!\$)\$\{(?P<name>[A-Z_]+)(?::-(?P<default>(?:[^{}]|\$\{\w+\})*)|:\?[^}]*)?\}")


@pytest.fixture(scope="module")
def services() -> Parsed:
    found: Parsed = interpolated()["services"]
    return found


def test_compose_is_as_its_specification_says() -> None:
    checker = str(Path(sys.executable).with_name("check-jsonschema"))
    ran = subprocess.run(
        [checker, "--builtin-schema", "vendor.compose-spec", str(COMPOSE)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_service_is_bounded_looked_at_and_out_of_reach(services: Parsed) -> None:
    assert set(services) == {
        *("postgres", "redis", "migrate", "api-1", "api-2", "nginx", "reaper", "prometheus", "grafana", "dashboards"),
        *("spark-master", "spark-worker", "spark"),
    }
    for name, service in services.items():
        assert service["deploy"]["resources"]["limits"], f"{name} has no limits"
        assert "healthcheck" in service or "restart" not in service, f"nobody sees whether {name} works"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} listens to everybody"


def test_what_services_name_is_there(services: Parsed) -> None:
    whole = interpolated()
    for name, service in services.items():
        assert ("networks" in service) != ("network_mode" in service), name
        for network in service.get("networks", ()):
            assert network in whole["networks"], name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in whole["volumes"], (name, volume)
        assert set(service.get("secrets", [])) <= set(whole["secrets"])
        for other, how in service.get("depends_on", {}).items():
            assert other in services
            assert how["condition"] != "service_healthy" or "healthcheck" in services[other]


def test_no_password_has_a_default() -> None:
    found = re.findall(r"\$\{([A-Z_]*(?:PASSWORD|SECRET|KEY)[^}]*)\}?", COMPOSE.read_text())
    assert {value.split(":")[0] for value in found} >= set(SECRETS)
    for value in found:
        assert re.fullmatch(r"[A-Z_]+(:\?.+|:-\$\{[A-Z_]+)?", value), value


def test_the_manual_makes_every_secret(tmp_path: Path) -> None:
    page = (ROOT / "docs/operations/deployment.md").read_text()
    [command] = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    subprocess.run(["bash", "-euc", command], cwd=tmp_path, check=True)
    made = dict(line.split("=") for line in (tmp_path / ".env").read_text().splitlines())
    assert set(made) == set(SECRETS)
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in made.values())
    assert len(set(made.values())) == len(made)
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600


def test_the_service_would_start_with_these_settings(services: Parsed) -> None:
    ours = {name: service for name, service in services.items() if service.get("image") == "holdfast"}
    assert set(ours) == {"migrate", "api-1", "api-2", "reaper"}
    for name, service in ours.items():
        assert service["read_only"], name
        assert "/tmp" in service["tmpfs"]
        assert service["cap_drop"] == ["ALL"]
        variables = environ() | service["environment"]
        settings = Settings.from_env({key: value for key, value in variables.items() if key.startswith(PREFIX)})
        assert settings.database_url is not None
        assert settings.database_url.get_secret_value() == "postgresql://holdfast:0123abc@postgres/holdfast"
        if name.startswith("api"):
            admin, metrics = settings.api_keys
            assert (admin.scopes, metrics.scopes) == (Scope.READ | Scope.WRITE | Scope.DELETE | Scope.ADMIN, Scope.READ)
            assert settings.trusted_proxies == services["nginx"]["networks"]["front"]["ipv4_address"]
            assert int(service["stop_grace_period"].removesuffix("s")) > settings.stop_seconds
            assert service["ulimits"]["nofile"] > settings.max_connections


def test_nginx_has_the_file_that_is_tested_with_the_addresses_of_the_processes(
    services: Parsed, tmp_path: Path
) -> None:
    nginx = services["nginx"]
    script = nginx["command"][0]
    front = nginx["environment"]["FRONT_NET"]
    run, _, rest = script.partition("/etc/nginx/holdfast.conf > /etc/nginx/conf.d/holdfast.conf;")
    assert rest.strip().startswith("exec nginx")
    command = f"{run} {ROOT / 'deploy/nginx/holdfast.conf'}"
    made = subprocess.run(["sh", "-ec", command], env={"FRONT_NET": front}, capture_output=True, text=True, check=True)
    servers = re.findall(r"^\s*server (\S+?):(\d+)", made.stdout, re.MULTILINE)
    assert servers == [(services[name]["networks"]["front"]["ipv4_address"], "8080") for name in ("api-1", "api-2")]
    [subnet] = [one["subnet"] for one in interpolated()["networks"]["front"]["ipam"]["config"]]
    assert all(ipaddress.ip_address(address) in ipaddress.ip_network(subnet) for address, _ in servers)
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
    if program is None and os.environ.get("HOLDFAST_TEST_ALLOW_MISSING"):
        pytest.skip("no nginx")
    assert program is not None
    (tmp_path / "site.conf").write_text(made.stdout.replace("listen 80;", "listen 127.0.0.1:18080;"))
    main = (ROOT / "deploy/nginx/nginx.conf").read_text()
    for path, ours in (("/etc/nginx/conf.d/holdfast.conf", "site.conf"), ("/run/nginx.pid", "pid")):
        assert path in main
        main = main.replace(path, str(tmp_path / ours))
    (tmp_path / "nginx.conf").write_text(main)
    checked = subprocess.run(
        [program, "-t", "-q", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr


def test_prometheus_asks_each_process_and_grafana_asks_prometheus(services: Parsed) -> None:
    config = parsed((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    [job] = [one for one in config["scrape_configs"] if one["job_name"] == "holdfast"]
    assert job["static_configs"][0]["targets"] == ["api-1:8080", "api-2:8080"]
    [secret] = services["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    assert "read_only" not in services["prometheus"]
    [source] = parsed((ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert set(services["grafana"]["networks"]) & set(services["prometheus"]["networks"])


def test_a_dockerfile_copies_what_there_is_and_ends_as_nobody_special() -> None:
    wanted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines(), "a secret or data would be sent to the builder"
    assert len(DOCKERFILES) == 2
    for path in DOCKERFILES:
        sources = [one.split()[0] for one in instructions(path, "COPY") if not one.startswith("--from=")]
        assert sources
        for source in sources:
            assert (ROOT / source).exists()
            assert any(source == one or source.startswith(f"{one}/") for one in wanted), source
        assert instructions(path, "USER") == ["10001"]
        assert any("useradd --uid 10001 " in one for one in instructions(path, "RUN"))
    assert "COPY app" not in SPARK.read_text(), "the service's code is not Spark's business"
