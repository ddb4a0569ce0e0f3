"""The set-up of a run: a PostgreSQL with fsync on, the service in a process of its own, load generators in others."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.request import urlopen

import asyncpg
import uvloop

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from app.base.db.pool import Pools, open_pools
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from app.serve import listener

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
START_SECONDS = 20.0


class Load(Protocol[T_co]):
    """What a load generator does. Sent to its process, so a dataclass of plain values."""

    def run(self) -> Coroutine[object, object, T_co]: ...


@dataclass(frozen=True, slots=True)
class Service:
    """A server process, as users run it."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to look: `rounds` of about `seconds` each. A quick run shows that a bar works, and says little else."""

    quick: bool
    seconds: float
    rounds: int

    def of(self, full: int, quick: int) -> int:
        """A size that a quick run can't afford."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Bench:
    """A running service, and beside it: pools as its own, for driving the core alone; `db`, a plain connection."""

    url: str
    service: Service
    pools: Pools
    db: asyncpg.Connection[asyncpg.Record]
    generators: ProcessPoolExecutor
    payload: int  # bytes of a job's data
    made: list[str]  # topics

    async def queue(self, name: str, **settings: Any) -> Policy:
        """A new durable queue; `name` is the beginning of its name."""
        name = f"{name}-{secrets.token_hex(3)}"
        self.made.append(name)
        await store.put(self.pools.rest, name, resolve(name, AskedSettings(type="queue", durable=True, **settings)))
        policy = await store.get(self.pools.rest, name, DEFAULTS)
        assert policy is not None
        return policy

    async def drive(self, load: Load[T]) -> T:
        """Run a load in a process of its own, so that its time is not the service's."""
        return await asyncio.get_running_loop().run_in_executor(self.generators, run_load, load)

    @asynccontextmanager
    async def services(self, count: int) -> AsyncIterator[list[Service]]:
        """So many further server processes, each on its own port, on the same PostgreSQL."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(serving(self.url)) for _ in range(count)]


def say(text: str) -> None:
    """Progress, for whoever looks on."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


@asynccontextmanager
async def running(payload: int, url: str | None) -> AsyncIterator[Bench]:
    """Start everything; on `url`, or on an embedded PostgreSQL of its own with fsync on."""
    async with AsyncExitStack() as stack:
        database = url
        if database is None:
            database = await stack.enter_async_context(embedded())
        if await schema.check(database):
            await schema.upgrade(database)
        service = await stack.enter_async_context(serving(database))
        pools = await open_pools(database, hot=4, rest=2, prepared_statements=True)
        stack.push_async_callback(pools.close, 5)
        db = await asyncpg.connect(database)
        stack.push_async_callback(db.close)
        generators = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
        stack.enter_context(generators)
        made: list[str] = []
        yield Bench(database, service, pools, db, generators, payload, made)
        if url is not None:  # what is somebody's is left as it was found
            for topic in made:
                await store.delete(pools.rest, topic, if_empty=False)


@asynccontextmanager
async def embedded() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        postgres = EmbeddedPostgres(Path(folder))
        try:
            yield await asyncio.to_thread(postgres.start)
        finally:
            await asyncio.to_thread(postgres.stop)


@asynccontextmanager
async def serving(database: str) -> AsyncIterator[Service]:
    """A server process on this database, whose schema is current."""
    with listener.bind("127.0.0.1", 0) as bound:
        port = listener.nearest(bound)[1]
        life, held = os.pipe()
        command = [sys.executable, "-m", "tools.bench.server", database, str(bound.fileno()), str(life)]
        server = subprocess.Popen(command, pass_fds=(bound.fileno(), life))
        try:
            await asyncio.to_thread(_answers, port)
            yield Service(port, server.pid)
        finally:
            server.terminate()
            await asyncio.to_thread(server.wait, 20)
            os.close(held)
            os.close(life)


def run_load(load: Load[T]) -> T:
    """In the process that this is called in."""
    return uvloop.run(load.run())


def _answers(port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
