"""Three servers of one cluster, as docs/operations/postgres.md advises: a primary whose commits wait for one of two
standbys, and a service whose URL names all three."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.base.db.embedded import EmbeddedPostgres
from app.base.db.programs import Launcher, system_account
from tests.processes import children, lives, until
from tools.chaos.proxy import Proxy
from tools.chaos.system import TICK, System, signalled

NAMES: Final = ("a", "b", "c")
CONNECTIONS: Final = 120
COPY_SECONDS: Final = 120
PROMOTE_SECONDS: Final = 60
READY_SECONDS: Final = 60.0
SYNCHRONOUS: Final = f"ANY 1 ({', '.join(NAMES)})"
# How far a standby has come: what it has on its disk, replayed or not.
PLACE: Final = "SELECT pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')::bigint"
STREAMING: Final = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'quorum'"


class Trio(System):
    """`postgres` is the primary of the moment. What was lost is made anew as a standby of it, by itself."""

    def __init__(self, folder: Path, root: Path, dice: random.Random) -> None:
        super().__init__(folder, root, dice)
        self.servers = {name: EmbeddedPostgres(folder / name, connections=CONNECTIONS) for name in NAMES}
        self.primary = "a"
        self.postgres = self.servers[self.primary]
        self.ports: dict[str, int] = {}
        # Between each service and each server, by the server.
        self.links: dict[str, list[Proxy]] = {name: [] for name in NAMES}
        self.database = {}
        self.busy = asyncio.Lock()  # whoever changes which server is what
        self._silent = ""  # the server whose machine is away
        self._dice = dice

    @property
    def data(self) -> list[Path]:
        return [self.folder / name for name in NAMES]

    @property
    def proxies(self) -> list[Proxy]:
        return [*self.web.values(), *(proxy for links in self.links.values() for proxy in links)]

    def silence(self) -> None:
        """Nothing goes to the primary or comes from it, not even the end of a connection, until `whole`."""
        self._silent = self.primary
        for link in self.links[self._silent]:
            link.clog()

    def give_up(self) -> None:
        """What goes there ends. New connections hang as before."""
        for link in self.links[self._silent]:
            link.cut()

    async def whole(self) -> None:
        """Make anew what is away, and wait until both standbys stream, so that one may be lost."""

        async def streaming() -> int:
            database = await self.connect()
            try:
                return int(await database.fetchval(STREAMING))
            finally:
                database.terminate()

        silent, self._silent = self._silent, ""
        for link in self.links.get(silent, ()):
            link.unclog()
        async with asyncio.timeout(READY_SECONDS + COPY_SECONDS):
            while self.busy.locked() or await streaming() < len(NAMES) - 1:
                await asyncio.sleep(0.1)

    async def lose(self) -> None:
        """Kill the primary, with all that it runs: it can't come back as one."""
        pid = self.postgres.pid
        assert pid is not None
        backends = children(pid, "")
        signalled(pid, signal.SIGKILL)
        for backend in backends:
            signalled(backend, signal.SIGKILL)
        await asyncio.to_thread(until, lambda: not any(lives(one) for one in (pid, *backends)))

    async def promote(self) -> None:
        """Make a primary of the standby that has the most, and have the other one follow it."""
        left = [name for name in NAMES if name != self.primary]
        places = {name: int(await self._ask(name, PLACE)) for name in left}
        chosen = max(left, key=lambda name: places[name])
        [other] = [name for name in left if name != chosen]
        await self._ask(chosen, f"SELECT pg_promote(true, {PROMOTE_SECONDS})")
        await self._follow(other, chosen)
        self.primary, self.postgres = chosen, self.servers[chosen]

    async def _start_database(self) -> None:
        await asyncio.to_thread(self.postgres.start)
        self.ports[self.primary] = urlsplit(self.postgres.url).port or 0
        for name in NAMES[1:]:
            await self._renew(name)
        for name in NAMES:
            await self._set(name, "synchronous_standby_names", SYNCHRONOUS)

    async def _database_of(self, name: str) -> str:
        parts = urlsplit(self.postgres.url)
        hosts = []
        for server in NAMES:
            link = Proxy(f"database {server} of {name}", self._dice)
            hosts.append(f"127.0.0.1:{await link.open(self.ports[server])}")
            self.links[server].append(link)
        login = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{login}@{','.join(hosts)}", query="target_session_attrs=read-write"))

    async def _keep(self) -> None:
        """Redis is started again, and a server that was lost is made anew once there is another primary."""
        while True:
            await asyncio.sleep(TICK)
            if self.redis.process is not None and self.redis.process.poll() is not None:
                self.redis.start()
            for name in NAMES:
                if (
                    name not in {self.primary, self._silent}
                    and not self.busy.locked()
                    and not self.servers[name].alive()
                ):
                    async with self.busy:
                        await self._renew(name)
                        await self._set(name, "synchronous_standby_names", SYNCHRONOUS)

    async def stop(self) -> list[int]:
        codes = await super().stop()
        for name in NAMES:
            if name != self.primary:
                await asyncio.to_thread(self.servers[name].stop, 5)
        return codes

    def database_log(self) -> str:
        logs = [self.servers[name].cluster.log for name in self.ports]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    async def _renew(self, name: str) -> None:
        """A standby of the primary, of nothing."""
        folder = self.folder / name
        server = self.servers[name]
        await asyncio.to_thread(server.stop, 1)
        await asyncio.to_thread(copy, self.postgres, folder, self._conninfo(name, self.primary))
        await asyncio.to_thread(server.start)
        self.ports.setdefault(name, urlsplit(server.url).port or 0)
        assert self.ports[name] == urlsplit(server.url).port, "who knows the address keeps it"

    async def _follow(self, name: str, primary: str) -> None:
        await self._set(name, "primary_conninfo", self._conninfo(name, primary))

    def _conninfo(self, name: str, primary: str) -> str:
        parts = urlsplit(self.servers[primary].url)
        return (
            f"host={parts.hostname} port={parts.port} user={parts.username} password={parts.password} "
            f"application_name={name}"
        )

    async def _set(self, name: str, setting: str, value: str) -> None:
        await self._ask(name, f"ALTER SYSTEM SET {setting} = '{value}'")
        await self._ask(name, "SELECT pg_reload_conf()")

    async def _ask(self, name: str, statement: str) -> Any:
        database = await asyncpg.connect(self.servers[name].url, timeout=30, command_timeout=90)
        try:
            return await database.fetchval(statement)
        finally:
            database.terminate()


def copy(primary: EmbeddedPostgres, folder: Path, conninfo: str) -> None:
    """A copy of a running server in this folder, that follows it as a standby once it is started."""
    folder.mkdir(exist_ok=True)
    data = folder / primary.cluster.data.name
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(0o700)
    password = folder / primary.cluster.password.name
    shutil.copy(primary.cluster.password, password)
    launcher = Launcher()
    own(data)
    own(password)
    command: list[str | Path] = [primary.cluster.programs.bindir / "pg_basebackup", "-D", data, "-d", primary.url]
    backup = launcher.program([*command, "-c", "fast"], subprocess.PIPE)
    words = backup.communicate(timeout=COPY_SECONDS)[0]
    launcher.close()
    assert backup.returncode == 0, words
    with (data / "postgresql.auto.conf").open("a") as file:
        file.write(f"primary_conninfo = '{conninfo}'\n")
    signal_file = data / "standby.signal"
    signal_file.touch(0o600)
    own(signal_file)


def own(path: Path) -> None:
    """By the account that runs PostgreSQL."""
    account = system_account()
    if account.uid is not None and account.gid is not None:
        os.chown(path, account.uid, account.gid)
