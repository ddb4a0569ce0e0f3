"""What the scenarios are played on: a PostgreSQL that can be taken down, and the service as operators start it."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.base.db.embedded import EmbeddedPostgres
from tests.launch import Service, call, services
from tools.bench.bench import Load, T, run_load
from tools.bench.scenarios.steady import Nothing


@dataclass(frozen=True, slots=True)
class Stand:
    """A running service on an own PostgreSQL with fsync on. Loads run in a process of their own."""

    postgres: EmbeddedPostgres
    service: Service
    url: str
    generators: ProcessPoolExecutor

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    async def queue(self, name: str) -> None:
        """A new durable queue."""
        await asyncio.to_thread(call, f"{self.url}/v0/topics/{name}", "PUT", {"type": "queue", "durable": True})

    async def left(self, name: str) -> int:
        """Jobs in a queue."""
        found: dict[str, Any] = await asyncio.to_thread(call, f"{self.url}/v0/topics/{name}")
        return int(found["count"])

    async def drive(self, load: Load[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.generators, run_load, load)


@asynccontextmanager
async def standing() -> AsyncIterator[Stand]:
    """Start everything, and end it."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-scenarios-")))
        folder.chmod(0o755)
        postgres = EmbeddedPostgres(folder / "postgres")
        stack.push_async_callback(asyncio.to_thread, postgres.stop)
        database = await asyncio.to_thread(postgres.start)
        serve = stack.enter_context(services(folder))
        service = serve(DATABASE_URL=database)
        url = await asyncio.to_thread(service.up)
        generators = stack.enter_context(ProcessPoolExecutor(1, multiprocessing.get_context("spawn")))
        stand = Stand(postgres, service, url, generators)
        await stand.drive(Nothing())
        yield stand
