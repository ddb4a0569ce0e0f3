"""F28: the machine of the service and that of the database can't hear each other, and nobody is told: packets are lost,
connections do not end. The service is in a network namespace of its own, and the link to the database goes down."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.base.db import programs
from app.base.db.embedded import EmbeddedPostgres
from app.settings import Settings
from holdfast import AsyncClient, HoldfastError
from holdfast.models import TopicConfig
from tests.processes import until
from tools.bench.bench import say
from tools.chaos.herd.flock import Flock
from tools.chaos.herd.outage import BEFORE, LEAST, SHARE, WITHIN, capacity, drive, drivers, flocks, recovered
from tools.chaos.herd.verdict import Found, Verdict
from tools.chaos.system import ROOT

CLIENTS: Final = 40
UP_SECONDS: Final = 60
LOCK_SECONDS: Final = 15.0  # until nothing is locked for who is not heard of any more
LEFT_SECONDS: Final = 60.0  # until no session of before is there any more
WRITING: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'holdfast' AND state <> 'idle' AND backend_xid IS NOT NULL
"""
SESSIONS: Final = "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'"


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each phase."""

    capacity: float = 8
    warm: float = 4
    base: float = 10
    silence: float = 30
    after: float = 50


QUICK: Final = Times(6, 1, 3, 6, 10)


def missing() -> str:
    """What it lacks here; nothing where it can be played."""
    if os.geteuid() != 0:
        return "it makes a network namespace, which takes root"
    return "" if shutil.which("ip") else "it needs `ip`, of iproute2"


@dataclass(frozen=True, slots=True)
class Link:
    """A pair of interfaces, the one here and the one in the namespace, with an address each."""

    here: str
    there: str
    address: str
    other: str

    def down(self) -> None:
        ip("link", "set", self.here, "down")

    def up(self) -> None:
        ip("link", "set", self.here, "up")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def apart() -> Iterator[tuple[str, Link, Link]]:
    """A network namespace, the link from it to the database, and the one to its clients."""
    mark = secrets.token_hex(3)
    name, net = f"hf-{mark}", f"10.{200 + secrets.randbelow(50)}.{secrets.randbelow(250)}"
    links = [Link(f"hf{n}{mark}", f"hg{n}{mark}", f"{net}.{n * 4 + 1}", f"{net}.{n * 4 + 2}") for n in (0, 1)]
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        for link in links:
            ip("link", "add", link.here, "type", "veth", "peer", "name", link.there, "netns", name)
            ip("addr", "add", f"{link.address}/30", "dev", link.here)
            ip("-n", name, "addr", "add", f"{link.other}/30", "dev", link.there)
            ip("-n", name, "link", "set", link.there, "up")
            link.up()
        yield name, links[0], links[1]
    finally:
        ip("netns", "del", name)  # and the links with it


@dataclass(frozen=True, slots=True)
class Stand:
    """A service that reaches its database over `link`."""

    postgres: EmbeddedPostgres
    url: str
    link: Link

    async def ask(self, query: str) -> list[int]:
        db = await asyncpg.connect(self.postgres.url)
        try:
            return [int(row[0]) for row in await db.fetch(query)]
        finally:
            db.terminate()


@asynccontextmanager
async def standing() -> AsyncIterator[Stand]:
    """Start everything, and end it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-silence-") as made, apart() as (name, to_database, to_clients):
        folder = Path(made)
        folder.chmod(0o755)
        before = programs.SETTINGS["listen_addresses"]
        programs.SETTINGS["listen_addresses"] = f"{before},{to_database.address}"
        postgres = EmbeddedPostgres(folder / "postgres")
        service = None
        try:
            parts = urlsplit(await asyncio.to_thread(postgres.start))
            with (postgres.cluster.data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {to_database.other}/32 scram-sha-256\n")
            db = await asyncpg.connect(postgres.url)
            await db.execute("SELECT pg_reload_conf()")
            db.terminate()
            login = parts.netloc.rpartition("@")[0]
            url = urlunsplit(parts._replace(netloc=f"{login}@{to_database.address}:{parts.port}"))
            service = _serve(name, to_clients.other, url, folder)
            yield Stand(postgres, await asyncio.to_thread(_up, service, folder), to_database)
        finally:
            programs.SETTINGS["listen_addresses"] = before
            if service is not None:
                service.terminate()
                with suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(service.wait, 20)
                service.kill()
            await asyncio.to_thread(postgres.stop)


def _serve(namespace: str, host: str, database: str, folder: Path) -> subprocess.Popen[bytes]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    mine = {
        "HOLDFAST_HOST": host,
        "HOLDFAST_PORT": "0",
        "HOLDFAST_ALLOW_INSECURE_NO_AUTH": "1",
        "HOLDFAST_DATABASE_URL": database,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'sdk/src'}",
    }
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "app", "serve"]
        return subprocess.Popen(command, cwd=ROOT, env=clean | mine, stdout=out, stderr=err)


def _up(service: subprocess.Popen[bytes], folder: Path) -> str:
    def printed() -> str | None:
        assert service.poll() is None, (folder / "err").read_text()
        found = re.search(r"is running on (\S+) ", (folder / "out").read_text())
        return found and found.group(1)

    return until(printed, UP_SECONDS) or ""


async def play(times: Times) -> Verdict:
    """All of it."""
    with drivers() as pool:
        async with standing() as stand, AsyncClient(stand.url) as client:
            for name in ("capacity", "zombies"):
                await client.topic(name).put(TopicConfig(type="queue", durable=True))
            most = await capacity(stand.url, "capacity", pool, times.capacity, CLIENTS)
            say(f"{CLIENTS} clients: {most:.0f} jobs a second at most, {SHARE * most:.0f} asked for")
            begins = time.monotonic() + BEFORE
            seconds = times.warm + times.base + times.silence + WITHIN + times.after
            whole = Flock(stand.url, "zombies", "zombies", begins, begins + seconds, CLIENTS, CLIENTS / (SHARE * most))
            running = asyncio.create_task(drive(pool, flocks(whole)))
            changing = asyncio.create_task(_change(client))
            down = begins + times.warm + times.base
            await asyncio.sleep(down - time.monotonic())
            stand.link.down()
            old = set(await stand.ask(SESSIONS))
            locked = await _until_free(stand, down, times.silence)
            await asyncio.sleep(down + times.silence - time.monotonic())
            stand.link.up()
            up = time.monotonic()
            gone = await _until_gone(stand, old, up)
            changing.cancel()
            course = await running
            sessions = len(await stand.ask(SESSIONS))
            left = (await client.topic("zombies").get()).count
    before = course.acks(begins + times.warm, down)
    after = course.acks(up + WITHIN, begins + seconds)
    back = recovered(course, LEAST * before, up, begins + seconds)
    found = [
        Found("seconds until no transaction of an unheard session writes", locked, most=LOCK_SECONDS),
        Found("seconds until 95 % of the rate before is there again", back, most=WITHIN),
        Found("the rate afterwards, of that before", after / before, least=LEAST),
        Found("seconds until no session of before is left", gone, most=LEFT_SECONDS),
        Found("sessions in the end", float(sessions), most=float(Settings.from_env({}).connections)),
        Found("jobs left", float(left), most=0),
    ]
    notes = {"jobs a second before": before, "afterwards": after, "sessions before": float(len(old))}
    return Verdict("zombie_connections", found, notes | {"calls given up": float(course.failed)})


async def _change(client: AsyncClient) -> None:
    """Change a topic's settings again and again: a transaction of several statements each."""
    lease = 1000
    while True:
        lease += 1
        with suppress(HoldfastError):
            await client.topic("settings").put(TopicConfig(type="queue", durable=True, lease_ms=lease))
        await asyncio.sleep(0.01)


async def _until_free(stand: Stand, since: float, seconds: float) -> float | None:
    """When nothing is written any more by who can't be heard, and stays so for two seconds."""
    free = None
    while time.monotonic() < since + seconds:
        if (await stand.ask(WRITING))[0]:
            free = None
        elif free is None:
            free = time.monotonic()
        elif time.monotonic() > free + 2:
            return free - since
        await asyncio.sleep(0.1)
    return None


async def _until_gone(stand: Stand, old: set[int], since: float) -> float | None:
    while time.monotonic() < since + LEFT_SECONDS:
        if not old & set(await stand.ask(SESSIONS)):
            return time.monotonic() - since
        await asyncio.sleep(0.5)
    return None
