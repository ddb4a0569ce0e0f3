"""A job is never in two places, nor in none: each verb that moves jobs out or back is cut off before each of its
statements, and somebody else goes on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from app.base.db.pool import Pools, open_pools
from app.errors import HoldfastError
from app.features.dead_letters.failures import FailureReader
from app.features.jobs.operations import Canary, OperationRequest, OperationState
from app.features.jobs.redrives import Redrives, Tempo
from app.kernel.audit.trail import SERVICE
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.model import Job
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.engine.crashes import Life, mortal
from tests.engine.machines import Machine
from tests.engine.test_redrives import BY, ended, fail, story, wanted
from tests.queue.calls import Session, held, lease_ended, take, until
from tests.queue.tallies import tallied

MakeQueue = Callable[..., Awaitable[Policy]]
Verb = Callable[[Machine], Awaitable[object]]
JOBS = 3
MOST_POINTS = 60
# Where jobs are, by the seqs that they had at first: rows in the two topics, records of a log, and acknowledged ones.
PLACES = """
SELECT id, count(*) AS places FROM (
    SELECT coalesce(first_seq, seq) AS id FROM holdfast.jobs WHERE topic_id = ANY ($1)
    UNION ALL SELECT (metadata ->> '$dead_letter_src_seq')::bigint FROM holdfast.records WHERE topic_id = ANY ($1)
    UNION ALL SELECT seq FROM holdfast.lease_events WHERE topic_id = ANY ($1) AND event = 'acked'
) x GROUP BY id ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class World:
    """A queue whose jobs have one delivery, where its dead letters go, a process that lives on, and who looks."""

    queue: Policy
    dead: Policy
    other: Machine
    observer: Session

    @property
    def ids(self) -> list[int]:
        return [self.queue.topic.id, self.dead.topic.id]

    async def whole(self) -> None:
        """Each job is in one place, and counts say so."""
        rows = await self.observer.fetch(PLACES, self.ids)
        assert [tuple(row) for row in rows] == [(seq, 1) for seq in range(1, JOBS + 1)]
        for policy in (self.queue, self.dead):
            if policy.config.type.value == "queue":
                assert await tallied(self.observer, policy)

    async def out(self) -> int:
        """How many dead letters there are."""
        count: int = await self.observer.fetchval(
            "SELECT count(*) FROM holdfast.jobs WHERE topic = $1", self.dead.topic.name
        )
        return count

    async def events(self, event: str) -> list[int]:
        """Of which jobs the queue's ledger has it, once for each time."""
        rows = await self.observer.fetch(
            "SELECT seq FROM holdfast.lease_events WHERE topic_id = $1 AND event::text = $2 ORDER BY seq",
            self.queue.topic.id,
            event,
        )
        return [row["seq"] for row in rows]


@dataclass(frozen=True, slots=True)
class Crashes:
    """Makes worlds, and processes that die in them at each of their points in turn. `died`: before which statements."""

    url: str
    pools: Pools
    world: Callable[..., Awaitable[World]]
    died: list[str] = field(default_factory=list)

    async def points(self, *, log: bool = False) -> AsyncIterator[tuple[World, Callable[..., Awaitable[None]]]]:
        """A fresh world for each point, and what runs a verb up to there; at last one where it runs to its end."""
        for left in itertools.count():
            assert left < MOST_POINTS, self.died
            life = Life(left, self.pools.rest)
            yield await self.world(left, log=log), partial(self._cut, life)
            if life.died_before is None:
                return
            self.died.append(life.died_before)

    async def _cut(self, life: Life, verb: Verb, before: Callable[[str], Awaitable[None]] | None = None) -> None:
        life.before = before
        own = await open_pools(self.url, hot=4, rest=4, prepared_statements=True)
        process = mortal(own, life)
        process.engine.core(Redrives).tempo = replace(Tempo(), batch=2, look=0.1, retry=0.01, dead=0.0)
        running, dying = asyncio.ensure_future(verb(process)), asyncio.create_task(life.dying.wait())
        await asyncio.wait({running, dying}, return_when=asyncio.FIRST_COMPLETED)
        process.engine.stop()
        with contextlib.suppress(asyncpg.PostgresError, HoldfastError):
            await running
        dying.cancel()
        await process.engine.drain()
        await life.end()
        for pool in (own.hot, own.hot_async, own.rest):
            pool.terminate()


@pytest.fixture
async def observer(connect: Callable[[], Awaitable[Session]]) -> Session:
    return await connect()


@pytest.fixture
async def crashes(
    database_url: str, pools: Pools, make_queue: MakeQueue, machine: Machine, observer: Session
) -> Crashes:
    other = machine
    other.engine.core(Redrives).tempo = replace(Tempo(), batch=2, look=0.01, dead=0.0)

    async def world(number: int, *, log: bool = False) -> World:
        name = f"crash-{uuid4().hex[:8]}.{number}"
        if log:
            await store.put(pools.rest, f"{name}.dead", resolve(f"{name}.dead", AskedSettings(type="log")))
            dead = await other.policies.get(f"{name}.dead")
        else:
            dead = await make_queue(f"{name}.dead")
        return World(await make_queue(name, max_deliveries=1, dead_letter=dead.topic.name), dead, other, observer)

    return Crashes(database_url, pools, world)


async def claimed(world: World, lease_ms: int = 60_000) -> list[Job]:
    await world.other.enqueue(world.queue, JOBS)
    jobs = await world.other.claim(world.queue, JOBS, lease_ms=lease_ms)
    assert len(jobs) == JOBS
    return jobs


async def killed(world: World) -> None:
    await fail(world.other, world.queue, await claimed(world), lambda job: f"no use: {job.seq}")
    assert await world.out() == JOBS


@pytest.mark.parametrize("log", [False, True], ids=["queue", "log"])
async def test_the_last_nack_moves_a_job_or_does_not(crashes: Crashes, log: bool) -> None:
    async for world, cut in crashes.points(log=log):
        jobs = await claimed(world)
        back = [Return(error="no use") for _ in jobs]

        async def nack(
            machine: Machine, world: World = world, jobs: list[Job] = jobs, back: list[Return] = back
        ) -> None:
            await machine.engine.settlements.nack(world.queue, [held(job) for job in jobs], back)

        await cut(nack)
        await world.whole()
        await nack(world.other)
        await world.whole()
        assert await world.events("dead_lettered") == list(range(1, JOBS + 1))
    assert set(crashes.died) >= ({"nack", "append_records", "inter", "commit"} if log else {"nack", "bury"})


@pytest.mark.parametrize("log", [False, True], ids=["queue", "log"])
async def test_a_silent_death_moves_a_job_or_does_not(crashes: Crashes, log: bool) -> None:
    async for world, cut in crashes.points(log=log):
        await lease_ended(world.observer, world.queue, (await claimed(world, lease_ms=100))[-1])

        async def sweep(machine: Machine, world: World = world) -> None:
            await machine.engine.exits.exhaust_all(world.queue)

        await cut(sweep)
        await world.whole()
        await sweep(world.other)
        await world.whole()
        assert await world.events("dead_lettered") == list(range(1, JOBS + 1))
    assert set(crashes.died) >= ({"exhausted", "append_records", "inter", "commit"} if log else {"exhausted", "bury"})


async def test_a_requeue_of_single_jobs(crashes: Crashes) -> None:
    async for world, cut in crashes.points():
        await killed(world)

        async def requeue(machine: Machine, world: World = world) -> None:
            dead = world.dead.topic
            await machine.engine.core(Redrives).requeue((dead.name, dead.id), list(range(1, JOBS + 1)))

        await cut(requeue)
        await world.whole()
        await requeue(world.other)
        await world.whole()
        assert await world.events("requeued") == list(range(1, JOBS + 1))
    assert "requeue" in crashes.died


async def taken_over(world: World, which: UUID) -> None:
    """Another process looks for what was left behind, until it has ended."""

    async def over() -> bool:
        await world.other.engine.core(Redrives).adopt()
        ended: bool = await world.observer.fetchval(
            "SELECT ended_at IS NOT NULL FROM holdfast.operations WHERE id = $1", which
        )
        return ended

    await until(over, "it is gone on with")


async def operation(world: World) -> UUID | None:
    which: UUID | None = await world.observer.fetchval(
        "SELECT id FROM holdfast.operations WHERE topic_id = $1", world.queue.topic.id
    )
    return which


@pytest.mark.parametrize("how", ["filter", "seqs"])
async def test_a_requeue_of_many(crashes: Crashes, how: str) -> None:
    async for world, cut in crashes.points():
        await killed(world)
        given: dict[str, object] = {"error": "no use"} if how == "filter" else {"seqs": list(range(1, JOBS + 1))}
        asked = wanted(world.queue, world.dead, **given)

        async def run(machine: Machine, asked: OperationRequest = asked) -> None:
            await machine.engine.core(Redrives).begin(asked, BY)
            await machine.engine.core(Redrives).drain()

        await cut(run)
        await world.whole()
        requeued = await world.events("requeued")
        which = await operation(world)
        if which is None:
            assert requeued == []
            assert await story(crashes.pools, world.queue) == []
            continue
        assert await world.observer.fetchval("SELECT requeued FROM holdfast.operations WHERE id = $1", which) == len(
            requeued
        )
        await taken_over(world, which)
        await world.whole()
        assert await world.events("requeued") == list(range(1, JOBS + 1))
        assert [action for action, _, _ in await story(crashes.pools, world.queue)] == [
            "requeue.started",
            "requeue.ended",
        ]
    assert set(crashes.died) >= {
        "begin_operation",
        "record",
        "hold_operation",
        "requeue",
        "advance_operation",
        "end_operation",
    }
    assert "find_dead" in crashes.died if how == "filter" else "find_out" in crashes.died
    assert crashes.died.count("commit") >= 3


@contextlib.asynccontextmanager
async def worker(world: World, db: Session, go: asyncio.Event) -> AsyncIterator[None]:
    """Somebody works on the queue meanwhile, from `go` on, and all goes well."""

    async def work() -> None:
        await go.wait()
        while True:
            jobs = await take(db, world.queue, 10)
            await consumer.ack(db, world.queue.topic, [held(job) for job in jobs])
            await asyncio.sleep(0.005)

    working = asyncio.create_task(work())
    try:
        yield
        async with asyncio.timeout(10):
            while await world.observer.fetchval("SELECT 1 FROM holdfast.jobs WHERE topic = $1", world.queue.topic.name):
                await asyncio.sleep(0.005)
    finally:
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working


async def test_a_canary(crashes: Crashes, connect: Callable[[], Awaitable[Session]]) -> None:
    """Whoever goes on with it knows the first ones, and waits for those. It looks twice: before they have ended, and
    after."""
    async for world, cut in crashes.points():
        await killed(world)
        go, looks = asyncio.Event(), itertools.count(1)

        async def run(machine: Machine, world: World = world) -> None:
            asked = wanted(world.queue, world.dead, canary=Canary(2, 0, 60_000))
            await machine.engine.core(Redrives).begin(asked, BY)
            await machine.engine.core(Redrives).drain()

        async def done(world: World = world) -> bool:
            return len(await world.events("acked")) == 2

        async def before(
            what: str,
            go: asyncio.Event = go,
            looks: Iterator[int] = looks,
            done: Callable[[], Awaitable[bool]] = done,
        ) -> None:
            if what == "canary" and next(looks) == 2:
                go.set()
                await until(done, "the first ones have ended")

        async with worker(world, await connect(), go):
            await cut(run, before)
            go.set()
            await world.whole()
            which = await operation(world)
            if which is None:
                assert await world.out() == JOBS
                continue
            await taken_over(world, which)
        await world.whole()
        for event in ("requeued", "acked"):
            assert await world.events(event) == list(range(1, JOBS + 1))
        found = await world.other.engine.core(Redrives).read(which)
        assert found is not None
        assert (found.state, found.requeued, len(found.first)) == (OperationState.DONE, JOBS, 2)
    assert crashes.died.count("canary") == 2
    assert set(crashes.died) >= {"advance_operation", "requeue", "end_operation", "commit"}


async def test_a_cancellation(crashes: Crashes) -> None:
    """It is asked for and told, or neither; and asked for again, it is told once."""
    async for world, cut in crashes.points():
        await killed(world)
        redrives = world.other.engine.core(Redrives)
        which, _ = await redrives.begin(wanted(world.queue, world.dead, rate=1), BY)

        async def cancel(machine: Machine, which: UUID = which) -> None:
            await machine.engine.core(Redrives).cancel(which, BY)

        await cut(cancel)
        found = await redrives.read(which)
        assert found is not None
        told = [action for action, _, _ in await story(crashes.pools, world.queue)]
        assert ("requeue.cancelled" in told) == found.cancelled
        await cancel(world.other)
        assert (await ended(world.other, which)).state is OperationState.CANCELLED
        await world.whole()
        told = [action for action, _, _ in await story(crashes.pools, world.queue)]
        assert told == ["requeue.started", "requeue.cancelled", "requeue.ended"]
    assert set(crashes.died) >= {"cancel_operation", "read_operation", "record", "commit"}


async def test_a_takeover(crashes: Crashes, start: Callable[..., Machine]) -> None:
    """Who took over dies too, wherever it is by then."""
    async for world, cut in crashes.points():
        await killed(world)
        first = start()
        which, _ = await first.engine.core(Redrives).begin(wanted(world.queue, world.dead), BY)
        first.engine.stop()
        await first.engine.core(Redrives).drain()

        async def adopt(machine: Machine) -> None:
            await machine.engine.core(Redrives).adopt()
            await machine.engine.core(Redrives).drain()

        await cut(adopt)
        await world.whole()
        await taken_over(world, which)
        await world.whole()
        assert await world.events("requeued") == list(range(1, JOBS + 1))
    assert set(crashes.died) >= {"adopt_operations", "hold_operation", "requeue", "advance_operation", "end_operation"}


async def test_a_purge_of_a_cluster(crashes: Crashes) -> None:
    async for world, cut in crashes.points():
        await killed(world)
        [kind] = (await world.other.engine.core(FailureReader).read(world.queue, None, 10)).clusters

        async def purge(machine: Machine, world: World = world, cluster: str = kind.cluster) -> None:
            await machine.engine.core(FailureReader).purge(world.queue, cluster, SERVICE)

        await cut(purge)
        deleted = await world.observer.fetchval(
            "SELECT count(*) FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'deleted'", world.dead.topic.id
        )
        assert await world.out() == JOBS - deleted
        assert await tallied(world.observer, world.dead)
        await purge(world.other)
        assert await world.out() == 0
        assert await tallied(world.observer, world.dead)
    assert "purge_cluster" in crashes.died
