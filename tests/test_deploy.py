"""What deploy/ and docker-compose.yml say, as far as it can be looked at without a container engine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILES = sorted((ROOT / "deploy").rglob("Dockerfile"))


def test_compose_is_as_its_specification_says() -> None:
    checker = str(Path(sys.executable).with_name("check-jsonschema"))
    ran = subprocess.run(
        [checker, "--builtin-schema", "vendor.compose-spec", str(COMPOSE)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_service_is_bounded_looked_at_and_out_of_reach() -> None:
    services = YAML(typ="safe").load(COMPOSE)["services"]
    assert {"postgres", "redis", "spark-master", "spark-worker"} <= set(services)
    for name, service in services.items():
        assert service["deploy"]["resources"]["limits"], f"{name} has no limits"
        assert "healthcheck" in service or "restart" not in service, f"nobody sees whether {name} works"
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} listens to everybody"


def test_no_password_has_a_default() -> None:
    for value in re.findall(r"\$\{([A-Z_]*(?:PASSWORD|SECRET|KEY)[^}]*)\}?", COMPOSE.read_text()):
        assert re.fullmatch(r"[A-Z_]+(:\?.+|:-\$\{[A-Z_]+)?", value), value


def test_a_dockerfile_copies_what_there_is_and_ends_as_nobody_special() -> None:
    assert DOCKERFILES
    for path in DOCKERFILES:
        lines = path.read_text().splitlines()
        sources = [line.split()[1] for line in lines if line.startswith("COPY ")]
        assert sources
        assert [source for source in sources if not (ROOT / source).exists()] == []
        allowed = (ROOT / ".dockerignore").read_text().splitlines()
        assert [
            source for source in sources if not any(source.startswith(one[1:]) for one in allowed if one[0] == "!")
        ] == []
        assert [line for line in lines if line.startswith("USER ")] == ["USER 10001"]
        assert not [line for line in lines if line.startswith("COPY app")], "the service's code is not Spark's business"
