"""A job is never in two places, nor in none: each verb that moves jobs out or back is cut off before each of its
statements, and somebody else goes on. Quickly before some of them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from app.base.db.pool import Pools, open_pools
from app.errors import HoldfastError
from app.features.dead_letters.failures import FailureReader
from app.features.jobs.operations import Canary, OperationState
from app.features.jobs.redrives import Redrives, Tempo
from app.kernel.audit.trail import SERVICE
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.model import Job
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.engine.crashes import Life, mortal
from tests.engine.machines import Machine, Make, Start
from tests.engine.test_redrives import BY, ended, fail, story, wanted
from tests.queue.calls import Session, held, lease_ended, take, until
from tests.queue.tallies import tallied

Verb = Callable[[Machine], Awaitable[object]]
JOBS = 3
ALL = list(range(1, JOBS + 1))
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

    async def whole(self) -> None:
        """Each job is in one place, and counts say so."""
        rows = await self.observer.fetch(PLACES, [self.queue.topic.id, self.dead.topic.id])
        assert [tuple(row) for row in rows] == [(seq, 1) for seq in ALL]
        for policy in (self.queue, self.dead):
            if policy.config.type.value == "queue":
                assert await tallied(self.observer, policy)

    async def out(self) -> int:
        """How many dead letters there are."""
        count: int = await self.observer.fetchval(
            "SELECT count(*) FROM holdfast.jobs WHERE topic = $1", self.dead.topic.name
        )
        return count

    async def events(self, event: str, policy: Policy | None = None) -> list[int]:
        """Of which jobs the ledger has it, once for each time."""
        rows = await self.observer.fetch(
            "SELECT seq FROM holdfast.lease_events WHERE topic_id = $1 AND event::text = $2 ORDER BY seq",
            *((policy or self.queue).topic.id, event),
        )
        return [row["seq"] for row in rows]

    async def operation(self) -> UUID | None:
        which: UUID | None = await self.observer.fetchval(
            "SELECT id FROM holdfast.operations WHERE topic_id = $1", self.queue.topic.id
        )
        return which

    async def taken_over(self, which: UUID) -> None:
        """Another process looks for operations that were left behind, until this one has ended."""

        async def over() -> bool:
            await self.other.engine.core(Redrives).adopt()
            found = await self.other.engine.core(Redrives).read(which)
            return found is not None and found.ended_at is not None

        await until(over, "it is gone on with")


@dataclass(frozen=True, slots=True)
class Crashes:
    """Makes worlds, and processes that die in them at their points in turn, or at every `step`th."""

    url: str
    pools: Pools
    world: Callable[..., Awaitable[World]]
    step: int
    died: list[str] = field(default_factory=list)

    async def points(self, *, log: bool = False) -> AsyncIterator[tuple[World, Callable[..., Awaitable[None]]]]:
        """A fresh world for each point, and what runs a verb up to there; at last one where it runs to its end."""
        for left in itertools.count(self.step - 1, self.step):
            assert left < MOST_POINTS, self.died
            life = Life(left, self.pools.rest)
            yield await self.world(left, log=log), partial(self._cut, life)
            if life.died_before is None:
                return
            self.died.append(life.died_before)

    def met(self, names: Collection[str]) -> bool:
        """Whether processes died before each of these statements, where they died at each point."""
        return self.step > 1 or set(self.died) >= set(names)

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
async def world(
    pools: Pools, make_queue: Make, machine: Machine, connect: Callable[[], Awaitable[Session]]
) -> Callable[..., Awaitable[World]]:
    machine.engine.core(Redrives).tempo = replace(Tempo(), batch=2, look=0.01, dead=0.0)
    observer = await connect()

    async def make(number: int, *, log: bool = False) -> World:
        name = f"crash-{uuid4().hex[:8]}.{number}"
        dead = f"{name}.dead"
        await store.put(pools.rest, dead, resolve(dead, AskedSettings(type="log" if log else "queue")))
        queue = await make_queue(name, max_deliveries=1, dead_letter=dead)
        return World(queue, await machine.policies.get(dead), machine, observer)

    return make


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow, id="every"), pytest.param(5, id="some")])
def crashes(
    request: pytest.FixtureRequest, database_url: str, pools: Pools, world: Callable[..., Awaitable[World]]
) -> Crashes:
    return Crashes(database_url, pools, world, request.param)


async def claimed(world: World, lease_ms: int = 60_000) -> list[Job]:
    await world.other.enqueue(world.queue, JOBS)
    jobs = await world.other.claim(world.queue, JOBS, lease_ms=lease_ms)
    assert len(jobs) == JOBS
    return jobs


async def silent(world: World) -> list[Job]:
    jobs = await claimed(world, 100)
    await lease_ended(world.observer, world.queue, jobs[-1])
    return jobs


async def killed(world: World) -> list[Job]:
    jobs = await claimed(world)
    await fail(world.other, world.queue, jobs, lambda job: f"no use: {job.seq}")
    assert await world.out() == JOBS
    return jobs


async def nack(world: World, jobs: list[Job], machine: Machine) -> None:
    back = [Return(error="no use")] * JOBS
    await machine.engine.settlements.nack(world.queue, [held(job) for job in jobs], back)


async def sweep(world: World, _jobs: list[Job], machine: Machine) -> None:
    await machine.engine.exits.remove_all_exhausted(world.queue)


async def requeue(world: World, _jobs: list[Job], machine: Machine) -> None:
    await machine.engine.core(Redrives).requeue((world.dead.topic.name, world.dead.topic.id), ALL)


class Move(NamedTuple):
    """A verb that moves jobs, what it is sent after, the event that tells of it, and statements that it sends."""

    before: Callable[[World], Awaitable[list[Job]]]
    verb: Callable[[World, list[Job], Machine], Awaitable[None]]
    event: str
    sends: set[str]
    log: bool = False


INTO_LOG = {"append_records", "inter", "commit"}
MOVES = {
    "the last nack": Move(claimed, nack, "dead_lettered", {"nack", "bury"}),
    "the last nack, into a log": Move(claimed, nack, "dead_lettered", {"nack"} | INTO_LOG, log=True),
    "a silent death": Move(silent, sweep, "dead_lettered", {"exhausted", "bury"}),
    "a silent death, into a log": Move(silent, sweep, "dead_lettered", {"exhausted"} | INTO_LOG, log=True),
    "a requeue": Move(killed, requeue, "requeued", {"requeue"}),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
async def test_a_verb_moves_a_job_or_does_not(move: Move, crashes: Crashes) -> None:
    async for world, cut in crashes.points(log=move.log):
        jobs = await move.before(world)
        await cut(partial(move.verb, world, jobs))
        await world.whole()
        await move.verb(world, jobs, world.other)
        await world.whole()
        assert await world.events(move.event) == ALL
    assert crashes.met(move.sends)


async def run(world: World, asked: dict[str, object], machine: Machine) -> None:
    """Begin a requeue of many, and go on with it to its end."""
    redrives = machine.engine.core(Redrives)
    await redrives.begin(wanted(world.queue, world.dead, **asked), BY)
    await redrives.drain()


@pytest.mark.parametrize(
    ("asked", "found_by"), [({"error": "no use"}, "find_dead"), ({"seqs": ALL}, "find_out")], ids=["filter", "seqs"]
)
async def test_a_requeue_of_many(crashes: Crashes, asked: dict[str, object], found_by: str) -> None:
    async for world, cut in crashes.points():
        await killed(world)
        await cut(partial(run, world, asked))
        await world.whole()
        requeued = await world.events("requeued")
        which = await world.operation()
        if which is None:
            assert requeued == []
            assert await story(crashes.pools, world.queue) == []
            continue
        found = await world.other.engine.core(Redrives).read(which)
        assert found is not None
        assert found.requeued == len(requeued)
        await world.taken_over(which)
        await world.whole()
        assert await world.events("requeued") == ALL
        told = [action for action, _, _ in await story(crashes.pools, world.queue)]
        assert told == ["requeue.started", "requeue.ended"]
    assert crashes.met(["begin_operation", "record", "hold_operation", "requeue", "advance_operation", found_by])
    assert crashes.met(["end_operation", "commit"])


@contextlib.asynccontextmanager
async def worker(world: World, db: Session, go: asyncio.Event) -> AsyncIterator[None]:
    """Somebody works on the queue meanwhile, from `go` on, and all goes well."""

    async def work() -> None:
        await go.wait()
        while True:
            jobs = await take(db, world.queue, 10)
            await consumer.ack(db, world.queue.topic, [held(job) for job in jobs])
            await asyncio.sleep(0.005)

    async def over() -> bool:
        left = "SELECT 1 FROM holdfast.jobs WHERE topic = $1"
        return await world.observer.fetchval(left, world.queue.topic.name) is None

    working = asyncio.create_task(work())
    try:
        yield
        await until(over, "all is worked on")
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_canary(crashes: Crashes, connect: Callable[[], Awaitable[Session]]) -> None:
    """Whoever goes on with it knows the first ones, and waits for those. It looks twice: before they have ended, and
    after."""

    async def two_are_done(world: World) -> bool:
        return len(await world.events("acked")) == 2

    async def before(world: World, go: asyncio.Event, looks: list[str], what: str) -> None:
        if what == "canary":
            looks.append(what)
        if len(looks) == 2 and not go.is_set():
            go.set()
            await until(partial(two_are_done, world), "the first ones have ended")

    async for world, cut in crashes.points():
        await killed(world)
        go, looks = asyncio.Event(), list[str]()
        async with worker(world, await connect(), go):
            await cut(partial(run, world, {"canary": Canary(2, 0, 60_000)}), partial(before, world, go, looks))
            go.set()
            await world.whole()
            which = await world.operation()
            if which is None:
                assert await world.out() == JOBS
                continue
            await world.taken_over(which)
        await world.whole()
        for event in ("requeued", "acked"):
            assert await world.events(event) == ALL
        found = await world.other.engine.core(Redrives).read(which)
        assert found is not None
        assert (found.state, found.requeued, len(found.first)) == (OperationState.DONE, JOBS, 2)
    assert crashes.met(["advance_operation", "canary", "requeue", "end_operation", "commit"])


async def test_a_cancellation(crashes: Crashes) -> None:
    """It is asked for and told, or neither; and asked for again, it is told once."""

    async def cancel(which: UUID, machine: Machine) -> None:
        await machine.engine.core(Redrives).cancel(which, BY)

    async for world, cut in crashes.points():
        await killed(world)
        redrives = world.other.engine.core(Redrives)
        which, _ = await redrives.begin(wanted(world.queue, world.dead, rate=1), BY)
        await cut(partial(cancel, which))
        found = await redrives.read(which)
        assert found is not None
        told = [action for action, _, _ in await story(crashes.pools, world.queue)]
        assert ("requeue.cancelled" in told) == found.cancelled
        await cancel(which, world.other)
        assert (await ended(world.other, which)).state is OperationState.CANCELLED
        await world.whole()
        told = [action for action, _, _ in await story(crashes.pools, world.queue)]
        assert told == ["requeue.started", "requeue.cancelled", "requeue.ended"]
    assert crashes.met(["cancel_operation", "read_operation", "record", "commit"])


async def test_a_takeover(crashes: Crashes, start: Start) -> None:
    """Who took over dies too, wherever it is by then."""

    async def adopt(machine: Machine) -> None:
        await machine.engine.core(Redrives).adopt()
        await machine.engine.core(Redrives).drain()

    async for world, cut in crashes.points():
        await killed(world)
        first = start()
        which, _ = await first.engine.core(Redrives).begin(wanted(world.queue, world.dead), BY)
        first.engine.stop()
        await first.engine.core(Redrives).drain()
        await cut(adopt)
        await world.whole()
        await world.taken_over(which)
        await world.whole()
        assert await world.events("requeued") == ALL
    assert crashes.met(["adopt_operations", "hold_operation", "requeue", "advance_operation", "end_operation"])


async def test_a_purge_of_a_cluster(crashes: Crashes) -> None:
    async def purge(world: World, cluster: str, machine: Machine) -> None:
        await machine.engine.core(FailureReader).purge(world.queue, cluster, SERVICE)

    async for world, cut in crashes.points():
        await killed(world)
        [kind] = (await world.other.engine.core(FailureReader).read(world.queue, None, 10)).clusters
        await cut(partial(purge, world, kind.cluster))
        assert await world.out() == JOBS - len(await world.events("deleted", world.dead))
        await purge(world, kind.cluster, world.other)
        assert await world.out() == 0
        assert await tallied(world.observer, world.dead)
    assert crashes.met(["purge_cluster"])
