"""The set-up of a run: a PostgreSQL with fsync on, the service in a process of its own, and the core beside it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from app.db import schema
from app.db.embedded import EmbeddedPostgres
from app.db.pool import Pools, open_pools
from app.topics import store
from app.topics.config import Asked, Policy, resolve


@dataclass(frozen=True, slots=True)
class Bench:
    """A running service on `port`, and pools to the same database for driving the statements alone."""

    port: int
    url: str
    pools: Pools
    payload: int  # bytes

    async def queue(self, name: str) -> Policy:
        """A new durable queue."""
        await store.put(self.pools.rest, name, resolve(name, Asked(type="queue", durable=True)))
        policy = await store.get(self.pools.rest, name)
        assert policy is not None
        return policy


@asynccontextmanager
async def running(payload: int, url: str | None) -> AsyncIterator[Bench]:
    """Start everything; on `url`, or on an embedded PostgreSQL of its own with fsync on."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        postgres = None if url else EmbeddedPostgres(Path(folder))
        database = url or ""
        if postgres is not None:
            database = await asyncio.to_thread(postgres.start)
        try:
            if await schema.check(database):
                await schema.upgrade(database)
            with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
                port: int = listener.getsockname()[1]
                life, held = os.pipe()
                command = [sys.executable, "-m", "tests.benchmarks.server", database, str(listener.fileno()), str(life)]
                server = subprocess.Popen(command, pass_fds=(listener.fileno(), life))
                pools = await open_pools(database, hot=4, rest=2, prepared_statements=True)
                try:
                    await asyncio.to_thread(_answers, port)
                    yield Bench(port, database, pools, payload)
                finally:
                    await pools.close(5)
                    server.terminate()
                    await asyncio.to_thread(server.wait, 20)
                    os.close(held)
                    os.close(life)
        finally:
            if postgres is not None:
                await asyncio.to_thread(postgres.stop)


def _answers(port: int) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
