"""What is put under stress: a PostgreSQL that flushes, a Redis, two processes of the service, and a proxy before each
way in. Whatever dies is started again at once, as a supervisor does."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.base.db.embedded import EmbeddedPostgres
from tests.processes import children, until
from tests.topics.test_bus import Redis
from tools.chaos.proxy import Proxy

ROOT: Final = Path(__file__).parents[2]
APIS: Final = ("a", "b")
UP_SECONDS: Final = 90
TICK: Final = 0.02


class Api:
    """One `serve`, of the tree at `root`."""

    def __init__(self, name: str, folder: Path, root: Path, settings: Mapping[str, str]) -> None:
        self.name = name
        self.clock = Clock(folder / f"clock-{name}")
        self._out, self.log = folder / f"serve-{name}.out", folder / f"serve-{name}.err"
        with self._out.open("wb") as out, self.log.open("wb") as err:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "app", "serve"],
                cwd=root,
                env=environment(root, self.clock) | {"HOLDFAST_PORT": "0", **settings},
                stdout=out,
                stderr=err,
            )

    def port(self) -> int:
        """Where it answers, once it does."""

        def printed() -> int:
            assert self.supervisor.poll() is None, self.words()
            found = re.search(r"is running on http://\S+:(\d+) ", self._out.read_text())
            return int(found.group(1)) if found else 0

        return until(printed, UP_SECONDS, or_show=self.words)

    def words(self) -> str:
        """The end of what it said."""
        return self.log.read_text()[-4000:]

    def pid(self) -> int | None:
        """Of the process that answers; None while there is none."""
        return next(iter(children(self.supervisor.pid, "app _server")), None)

    def stop(self) -> int:
        self.supervisor.terminate()
        try:
            return self.supervisor.wait(30)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            self.supervisor.kill()
            self.supervisor.wait()


class Clock:
    """What a process that is started with `environment` takes for the time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0.0)

    def set(self, seconds: float) -> None:
        """Ahead by so many, or behind."""
        with os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
            file.write(struct.pack("d", seconds))


class System:
    """All of it. `root` is the tree whose service is run."""

    def __init__(self, folder: Path, root: Path, dice: random.Random) -> None:
        self.folder = folder
        self.root = root
        self.redis = Redis()
        self.web = {name: Proxy(f"web {name}", dice) for name in APIS}
        self.database = {name: Proxy(f"database {name}", dice) for name in APIS}
        self.apis: dict[str, Api] = {}
        self.postgres = EmbeddedPostgres(folder / "data", connections=120)
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._start_database()
        self.redis.start()
        for name in APIS:  # one after the other: the first one migrates
            settings = {
                "HOLDFAST_DATABASE_URL": await self._database_of(name),
                "HOLDFAST_REDIS_URL": self.redis.url,
                "HOLDFAST_DATA_DIR": str(self.folder / "unused"),
            }
            self.apis[name] = Api(name, self.folder, self.root, settings)
            await self.web[name].open(await asyncio.to_thread(self.apis[name].port))
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> list[int]:
        """The exit codes of the services."""
        if self._keeping is not None:
            self._keeping.cancel()
        codes = await asyncio.gather(*(asyncio.to_thread(api.stop) for api in self.apis.values()))
        for proxy in self.proxies:
            await proxy.close()
        if self.redis.process is not None:
            self.redis.kill()
        await asyncio.to_thread(self.postgres.stop, 5)
        return codes

    async def _start_database(self) -> None:
        await asyncio.to_thread(self.postgres.start)

    async def _database_of(self, name: str) -> str:
        """The URL by which a service finds it."""
        parts = urlsplit(self.postgres.url)
        port = await self.database[name].open(parts.port or 0)
        login = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))

    @property
    def data(self) -> list[Path]:
        """The folders of the database."""
        return [self.folder / "data"]

    @property
    def proxies(self) -> list[Proxy]:
        return [*self.web.values(), *self.database.values()]

    @property
    def urls(self) -> list[str]:
        """Where clients find the service: through the proxies."""
        return [f"http://127.0.0.1:{self.web[name].port}" for name in APIS]

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """A session of the database, past the proxies."""
        return await asyncpg.connect(self.postgres.url, timeout=30, command_timeout=60)

    def backends(self) -> list[int]:
        """The processes of the database that serve clients."""
        return [] if self.postgres.pid is None else children(self.postgres.pid, "holdfast 127.0.0.1")

    def database_log(self) -> str:
        return self.postgres.cluster.log.read_text(errors="replace")

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if not self.postgres.alive():
                await asyncio.to_thread(self.postgres.restart)
            if self.redis.process is not None and self.redis.process.poll() is not None:
                self.redis.start()


def environment(root: Path, clock: Clock) -> dict[str, str]:
    """Of a process of the tree at `root`, which goes by this clock."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    path = os.pathsep.join(map(str, (root, root / "sdk/src", Path(__file__).parent / "clock")))
    return clean | {"PYTHONPATH": path, "CHAOS_CLOCK": str(clock.path)}


def signalled(pid: int | None, kind: signal.Signals) -> bool:
    """Whether there was a process to hear it."""
    with suppress(ProcessLookupError):
        if pid is not None:
            os.kill(pid, kind)
            return True
    return False
