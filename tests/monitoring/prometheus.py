"""Debian's Prometheus, which scrapes a service each second and judges by the rules of deploy/."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.api.dialect import eventually
from tests.monitoring.sources import RULES
from tests.programs import free_port, program

Samples = list[dict[str, Any]]


class Prometheus:
    """Its HTTP API."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, query: str) -> Samples:
        """The samples that a query has now. Fails the test where Prometheus does not take it."""
        answer = (await self._http.post("/api/v1/query", data={"query": query})).json()
        assert answer["status"] == "success", (query, answer)
        samples: Samples = answer["data"]["result"]
        return samples

    async def rules(self) -> Samples:
        """Every rule, as it was judged last."""
        groups = (await self._http.get("/api/v1/rules")).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    async def until(self, query: str) -> None:
        """Wait until a query has a sample."""

        async def found() -> bool:
            return bool(await self.ask(query))

        await eventually(found, 120)


@asynccontextmanager
async def prometheus(folder: Path, url: str, key: str) -> AsyncIterator[Prometheus]:
    """It runs, with its data in this folder, and asks the service at this address with this key."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in RULES],
        "scrape_configs": [
            {
                "job_name": "holdfast",
                "authorization": {"credentials": key},
                "static_configs": [{"targets": [urlsplit(url).netloc]}],
            }
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    log = folder / "log"
    options = {"config.file": "prometheus.yml", "storage.tsdb.path": "data", "web.listen-address": f"127.0.0.1:{port}"}
    command = [program("prometheus"), *(f"--{name}={value}" for name, value in options.items()), "--log.level=warn"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:

            async def ready() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    return (await http.get("/-/ready")).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(ready, 30)
            yield Prometheus(http)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
