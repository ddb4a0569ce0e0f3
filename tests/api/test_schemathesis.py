"""Requests that schemathesis makes from the OpenAPI document, good and bad ones, sent to the service as a process.

Its seed is fixed, so a run is like the one before it. HOLDFAST_TEST_EXAMPLES=1000 makes it look for longer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.launch import services

HERE = Path(__file__).parent
EXAMPLES = os.environ.get("HOLDFAST_TEST_EXAMPLES", "15")
SEED = os.environ.get("HOLDFAST_TEST_SEED", "1")


@pytest.mark.timeout(900)
async def test_the_service_is_as_its_description_says(
    new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    config = tmp_path / "schemathesis.toml"
    hooks = HERE / "schemathesis_hooks.py"
    config.write_text((HERE / "schemathesis.toml").read_text().replace("HOOKS", str(hooks)))
    with services(tmp_path) as start:
        service = start(DATABASE_URL=await new_database(), API_KEYS="k")
        topic = f"{service.up()}/v0/topics/mail"  # which the examples name
        headers = {"authorization": "Bearer k"}
        httpx.put(topic, json={"type": "queue"}, headers=headers).raise_for_status()
        httpx.post(topic, json={"records": [{"data": 1}] * 100}, headers=headers).raise_for_status()
        command = [str(Path(sys.executable).with_name("st")), f"--config-file={config}", "run"]
        command += [f"{service.up()}/openapi.json", f"--seed={SEED}", f"--max-examples={EXAMPLES}", "--no-color"]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        report = ran.stdout + ran.stderr
        assert ran.returncode == 0, report
        assert "ERROR" not in service.words, service.words
