"""What can go wrong, by name. Each inflicts one fault, for as long as that takes, and returns when it is over; nobody
helps the service up."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import asyncpg

from tests.processes import until
from tools.chaos.crew import Crew
from tools.chaos.proxy import Proxy
from tools.chaos.system import APIS, System, signalled


@dataclass(slots=True)
class Stage:
    """Where faults happen."""

    system: System
    crew: Crew
    dice: random.Random


Fault = Callable[[Stage], Awaitable[None]]
GONE: Final = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)


async def kill_postgres(stage: Stage) -> None:
    """The postmaster is killed; its children end when they notice."""
    pid = await asyncio.to_thread(until, lambda: stage.system.postgres.alive() and stage.system.postgres.pid)
    signalled(pid or None, signal.SIGKILL)


async def kill_backend(stage: Stage) -> None:
    """One backend is killed: PostgreSQL ends all others and recovers."""
    backends = await asyncio.to_thread(stage.system.backends)
    if backends:
        signalled(stage.dice.choice(backends), signal.SIGKILL)


async def terminate_backends(stage: Stage) -> None:
    """Two sessions a second are ended, for three seconds."""
    async with session(stage) as database:
        for _ in range(6):
            await database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast' "
                "ORDER BY random() LIMIT 1"
            )
            await asyncio.sleep(0.5)


async def kill_api(stage: Stage) -> None:
    """One process of the service is killed."""
    api = stage.system.apis[stage.dice.choice(APIS)]
    signalled(await asyncio.to_thread(api.pid), signal.SIGKILL)


async def freeze_api(stage: Stage) -> None:
    """One process of the service stands still for 1 to 5 seconds."""
    api = stage.system.apis[stage.dice.choice(APIS)]
    with frozen(await asyncio.to_thread(api.pid)):
        await asyncio.sleep(stage.dice.uniform(1, 5))


async def kill_worker(stage: Stage) -> None:
    """A worker of the SDK is killed."""
    signalled(stage.dice.choice(stage.crew.members).pid, signal.SIGKILL)


async def freeze_worker(stage: Stage) -> None:
    """A worker of the SDK stands still for 1 to 5 seconds: longer than its leases, at times."""
    with frozen(stage.dice.choice(stage.crew.members).pid):
        await asyncio.sleep(stage.dice.uniform(1, 5))


async def kill_redis(stage: Stage) -> None:
    """Redis is killed."""
    await asyncio.to_thread(stage.system.redis.kill)


async def swallow_answers(stage: Stage) -> None:
    """Of what the service answers, a part is lost: it was done, and the client does not know."""
    await _swallowing(stage, list(stage.system.web.values()))


async def swallow_commits(stage: Stage) -> None:
    """Of what the database answers, a part is lost: it was committed, and the service does not know."""
    await _swallowing(stage, list(stage.system.database.values()))


async def cut_web(stage: Stage) -> None:
    """One way to the service lets nothing through for three seconds, not even the end of a connection."""
    await _cut(stage.system.web[stage.dice.choice(APIS)])


async def cut_database(stage: Stage) -> None:
    """One way to the database, likewise."""
    await _cut(stage.system.database[stage.dice.choice(APIS)])


async def slow_links(stage: Stage) -> None:
    """Every piece of data takes up to 50 ms longer, both ways, for three seconds."""
    with ExitStack() as stack:
        for proxy in stage.system.proxies:
            stack.enter_context(proxy.delaying(0.05))
        await asyncio.sleep(3)


async def swizzle(stage: Stage) -> None:
    """All links are clogged one by one, and unclogged in another order."""
    proxies = stage.system.proxies
    stage.dice.shuffle(proxies)
    clogged: list[Proxy] = []
    try:
        for proxy in proxies:
            proxy.clog()
            clogged.append(proxy)
            await asyncio.sleep(stage.dice.uniform(0.1, 0.4))
    finally:
        stage.dice.shuffle(clogged)
        for proxy in clogged:
            proxy.unclog()
            await asyncio.sleep(stage.dice.uniform(0.05, 0.2))


async def hold_snapshot(stage: Stage) -> None:
    """A REPEATABLE READ transaction looks at the jobs, and stays for three to five seconds."""
    async with session(stage) as database, database.transaction(isolation="repeatable_read"):
        await database.fetchval("SELECT count(*) FROM holdfast.jobs")
        await asyncio.sleep(stage.dice.uniform(3, 5))


async def lock_table(stage: Stage) -> None:
    """The table of jobs is locked for two seconds."""
    async with session(stage) as database, database.transaction():
        await database.execute("SET LOCAL lock_timeout = '2s'")
        await database.execute("LOCK TABLE holdfast.jobs IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(2)


async def migrate(stage: Stage) -> None:
    """An index is built and dropped concurrently, and a column comes and goes, as migrations do it."""
    async with session(stage) as database:
        await database.execute("SET statement_timeout = '20s'")
        await database.execute("DROP INDEX CONCURRENTLY IF EXISTS holdfast.chaos")
        await database.execute("CREATE INDEX CONCURRENTLY chaos ON holdfast.jobs (topic_id, seq, state)")
        await database.execute("DROP INDEX CONCURRENTLY holdfast.chaos")
        for change in ("ADD COLUMN IF NOT EXISTS chaos integer", "DROP COLUMN IF EXISTS chaos"):
            for _ in range(20):
                with suppress(asyncpg.LockNotAvailableError):
                    await database.execute(f"SET lock_timeout = '200ms'; ALTER TABLE holdfast.jobs {change}")
                    break
                await asyncio.sleep(stage.dice.uniform(0.05, 0.2))


async def maintain(stage: Stage) -> None:
    """ANALYZE while there is little, VACUUM, and ANALYZE again."""
    async with session(stage) as database:
        await database.execute("ANALYZE holdfast.jobs")
        await database.execute("VACUUM (ANALYZE) holdfast.jobs")


async def jump_clock(stage: Stage) -> None:
    """The clock of a worker, or of one process of the service, jumps by up to an hour, and back."""
    clocks = [member.clock for member in stage.crew.members] + [api.clock for api in stage.system.apis.values()]
    clock = stage.dice.choice(clocks)
    for _ in range(4):
        clock.set(stage.dice.choice((-3600.0, -30.0, -2.0, 2.0, 30.0, 3600.0)))
        await asyncio.sleep(0.7)
    clock.set(0.0)


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        kill_postgres, kill_backend, terminate_backends, kill_api, freeze_api, kill_worker, freeze_worker, kill_redis,
        swallow_answers, swallow_commits, cut_web, cut_database, slow_links, swizzle, hold_snapshot, lock_table,
        migrate, maintain, jump_clock,
    )
}  # fmt: skip


@asynccontextmanager
async def session(stage: Stage) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session of the database. Another fault may end it, or keep it from being opened: GONE."""
    database = await stage.system.connect()
    try:
        yield database
    finally:
        database.terminate()


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """It stands still, and goes on."""
    signalled(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        signalled(pid, signal.SIGCONT)


async def _swallowing(stage: Stage, proxies: list[Proxy]) -> None:
    with ExitStack() as stack:
        for proxy in proxies:
            stack.enter_context(proxy.swallowing(0.2))
        await asyncio.sleep(stage.dice.uniform(2, 3))


async def _cut(proxy: Proxy) -> None:
    with proxy.clogged():
        await asyncio.sleep(3)
        proxy.cut()
