"""moto's own suite against the endpoint, from its sdist: what does not pass is in docs/sqs.md, with the reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.launch import services
from tests.sdk.test_wheel import uv

ROOT = Path(__file__).parents[2]
VERSION = "5.2.5"
ACCOUNT = "123456789012"


@pytest.mark.slow
@pytest.mark.index
@pytest.mark.timeout(600)
async def test_motos_suite(new_database: Callable[[], Awaitable[str]], tmp_path: Path) -> None:
    python = tmp_path / "env/bin/python"
    uv("venv", "--quiet", "--seed", "--python", sys.executable, tmp_path / "env")
    uv("pip", "install", "--quiet", "--python", python, f"moto[server]=={VERSION}", "pytest", "freezegun", "setuptools")
    fetch: list[str | Path] = [
        python,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        f"moto=={VERSION}",
    ]
    subprocess.run(fetch, cwd=tmp_path, check=True, timeout=200)
    with tarfile.open(tmp_path / f"moto-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))}
    with services(tmp_path) as start:
        url = start(DATABASE_URL=await new_database(), SQS_ACCOUNT=ACCOUNT).up()
        ran = subprocess.run(
            [python, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", *modules()],
            cwd=tmp_path / f"moto-{VERSION}",
            env=environ
            | {"TEST_SERVER_MODE": "true", "TEST_SERVER_MODE_ENDPOINT": url, "MOTO_CALL_RESET_API": "false"}
            | {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
    failed = set(re.findall(r"^FAILED \S+::(\w+)", ran.stdout, re.MULTILINE))
    page = (ROOT / "docs/sqs.md").read_text()
    known = set(re.findall(r"^\| `(test_\w+)` \|", page, re.MULTILINE))
    # Its port is in the addresses that this one expects.
    assert failed - {"test_get_queue_with_prefix"} == known, ran.stdout[-4000:]
    passed = int(re.search(r"(\d+) passed", ran.stdout)[1])  # type: ignore[index]
    assert passed + 1 == int(re.search(r"(\d+) of \d+ pass", page)[1])  # type: ignore[index]


def modules() -> list[str]:
    """Those that need nothing but SQS."""
    return ["tests/test_sqs/test_sqs.py", "tests/test_sqs/test_sqs_message_attributes.py"]
