"""Requests that schemathesis makes from the OpenAPI document, good and bad ones, sent to the service as a process.

Its seed is fixed, so a run is like the one before it. HOLDFAST_TEST_EXAMPLES=1000 makes it look for longer.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.launch import services

HERE = Path(__file__).parent
EXAMPLES = int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "0"))  # 0: as many as each test says
SEED = os.environ.get("HOLDFAST_TEST_SEED", "1")
TIMEOUT = 60 * max(15, EXAMPLES)  # seconds


KEYS = "k,reads:read,mails::mail"
# A job's way by its links: from an enqueue to its end.
OF_JOBS = (
    r"^(/v0/topics/\{topic\}(/(claim|ack|nack|extend|jobs/\{seq\}))?|/api/messages(/dequeue|/\{id\}(/(ack|extend))?)?)$"
)


async def run(url: str, folder: Path, key: str, *options: str, **environment: str) -> str:
    """What schemathesis says of a service in which nothing was amiss."""
    config = folder / "schemathesis.toml"
    text = (HERE / "schemathesis.toml").read_text().replace("HOOKS", str(HERE / "schemathesis_hooks.py"))
    config.write_text(text.replace("Bearer k", f"Bearer {key}"))
    with services(folder) as start:
        service = start(DATABASE_URL=url, API_KEYS=KEYS, BCRYPT_COST="10")
        topic = f"{service.up()}/v0/topics/mail"  # which the examples name
        headers = {"authorization": "Bearer k"}
        httpx.put(topic, json={"type": "queue"}, headers=headers).raise_for_status()
        httpx.post(topic, json={"records": [{"data": 1}] * 100}, headers=headers).raise_for_status()
        command = [str(Path(sys.executable).with_name("st")), f"--config-file={config}", "run"]
        command += [f"{service.up()}/openapi.json", f"--seed={SEED}", "--no-color", *options]
        ran = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, env=os.environ | environment, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "ERROR" not in service.words, service.words
        return ran.stdout


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(
    ("phases", "examples"), [("examples,fuzzing", 5), pytest.param("coverage,fuzzing", 20, marks=pytest.mark.slow)]
)
async def test_the_service_is_as_its_description_says(
    new_database: Callable[[], Awaitable[str]], tmp_path: Path, phases: str, examples: int
) -> None:
    options = (f"--phases={phases}", f"--max-examples={EXAMPLES or examples}")
    await run(await new_database(), tmp_path, "k", *options)


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(
    ("key", "examples"),
    [("k", 5), *(pytest.param(key, 3, marks=pytest.mark.slow) for key in ("reads:read", "mails::mail"))],
)
async def test_it_is_so_all_the_way_of_a_job(
    new_database: Callable[[], Awaitable[str]], tmp_path: Path, key: str, examples: int
) -> None:
    """By keys that may do everything, only read, and everything in some topics."""
    count = EXAMPLES if key == "k" else EXAMPLES // 5
    options = ("--phases=stateful", f"--max-examples={count or examples}", f"--include-path-regex={OF_JOBS}")
    said = await run(await new_database(), tmp_path, key.partition(":")[0], *options, HOLDFAST_TEST_TOPIC="mail")
    [covered] = re.findall(r"API Links: +(\d+) covered", said)
    assert int(covered) > 2 or key != "k", said
