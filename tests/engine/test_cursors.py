"""Claims begin at cursors, and yet nothing that turns up below them is missed: each way in which something can."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.errors import Unavailable
from app.kernel.claim import consumer, cursors
from app.kernel.claim.consumer import ClaimResult, Return, Slots
from app.kernel.claim.cursors import Cursor, Mark
from app.kernel.claim.walk import Claimer
from app.kernel.engine import Engine
from app.kernel.enqueue import producer
from app.kernel.model import Batch, Job, Lane, Reach, Topic
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import Policy
from tests.queue.calls import PATIENCE, Session, held, put

Connect = Callable[[], Awaitable[Session]]

SOON = 2.0  # seconds: docs/semantics.md, section 4, says one; twice that for a machine that does other things as well
WHOLE = [Reach(Lane("", 0))]
INSERT = "INSERT INTO holdfast.inbox (topic, payload_text) VALUES ($1, '\"late\"')"


class Flow:
    """A topic in use: jobs go in and out all the time, so that the engine's cursors move. Notes what it was given."""

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self.engine = engine
        self.policy = policy
        self.given: set[bytes] = set()
        self._tasks = [asyncio.create_task(self._produce()), asyncio.create_task(self._consume())]

    async def _produce(self) -> None:
        for i in itertools.count():
            with contextlib.suppress(Unavailable):
                payloads = [b'"flow %d.%d"' % (i, j) for j in range(5)]
                await self.engine.enqueues.enqueue(self.policy, Batch(payloads), 50)
            await asyncio.sleep(0.002)

    async def _consume(self) -> None:
        while True:
            try:
                jobs = await self.engine.claims.claim(Claimer(self.policy, "flow", 10, 30_000), 1)
            except Unavailable:
                continue
            self.given.update(job.payload for job in jobs)
            # A claim that a test keeps open holds the rows, too, that it found to be leased meanwhile: acks of those
            # wait until their patience ends. The service's own claims are over at once.
            with contextlib.suppress(Unavailable):
                await self.engine.settlements.ack(self.policy, [held(job, "flow") for job in jobs])

    async def warm(self) -> None:
        """Go on until the low mark has moved well on."""
        before = self.mark().low
        await self.until(lambda: self.mark().low > before + 20)

    async def pass_by(self, seq: int = 0, jobs: int = 50) -> None:
        """Go on until claims begin well beyond here, and beyond a job."""
        before = max(self.mark().after, seq)
        await self.until(lambda: self.mark().after > before + jobs)

    async def pass_time(self, seconds: float) -> None:
        """Go on until claims look for due jobs from so much later on."""
        before = self.mark().due
        await self.until(lambda: self.mark().due > before + seconds * 1_000_000)

    async def until(self, fact: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Go on until this is so."""
        end = time.monotonic() + patience
        while not fact():
            for task in self._tasks:
                if task.done():
                    task.result()
            assert time.monotonic() < end, self.mark()
            await asyncio.sleep(0.01)

    def mark(self) -> Mark:
        """The marks of the lane that it uses."""
        return self.engine.marks.of(self.policy.topic).marks.get(Lane("", 0), Mark())

    async def gives(self, *payloads: bytes, within: float = PATIENCE) -> None:
        """Go on until all of these were given out."""
        await self.until(lambda: all(payload in self.given for payload in payloads), within)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def flow(pools: Pools, queue: Policy) -> AsyncIterator[Flow]:
    engine = Engine(pools, Policies(pools.rest), max_waiting=1_000)
    flow = Flow(engine, queue)
    await flow.warm()
    yield flow
    await flow.stop()
    engine.stop()
    await engine.drain()


async def _claim_elsewhere(db: Session, policy: Policy, lease_ms: int = 60_000) -> Job:
    """Another process claims one job, from the start of the lane; waits for one."""
    while True:
        slots = Slots([0], ["elsewhere"], [lease_ms])
        claimed = await consumer.claim(db, policy.topic, policy.budget, WHOLE, slots)
        if claimed.jobs[0]:
            return claimed.jobs[0][0]


@pytest.mark.parametrize(
    ("jobs", "patience"), [(1, PATIENCE), pytest.param(1, SOON, marks=pytest.mark.slow), (500, PATIENCE)]
)
async def test_jobs_that_are_committed_late(flow: Flow, connect: Connect, jobs: int, patience: float) -> None:
    db, payloads = await connect(), [b'"late %d"' % i for i in range(jobs)]
    async with db.transaction():
        await producer.enqueue(db, flow.policy.topic, Batch(list(payloads)), ttl_ms=0)
        await flow.pass_by(jobs=jobs + 50)
    await flow.gives(*payloads, within=patience)


async def test_a_job_of_a_sql_user_who_commits_late(flow: Flow, database_url: str, connect: Connect) -> None:
    """Whoever it is, and by whatever program: its locks are seen."""
    role = f"sql_{secrets.token_hex(4)}"
    owner = await connect()
    await owner.execute(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA holdfast TO {role}")
    await owner.execute(f"GRANT INSERT ON holdfast.inbox TO {role}")
    db = await asyncpg.connect(database_url, server_settings={"role": role, "application_name": "a script"})
    try:
        async with db.transaction():
            await db.execute(INSERT, flow.policy.topic.name)
            await flow.pass_by(jobs=500)
        await flow.gives(b'"late"')
    finally:
        db.terminate()
        await owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_prepared_transaction_that_is_committed_late(flow: Flow, connect: Connect) -> None:
    db, other = await connect(), await connect()
    if int(await db.fetchval("SHOW max_prepared_transactions")) == 0:
        pytest.skip("this server has max_prepared_transactions = 0")
    name = secrets.token_hex(8)
    await db.execute("BEGIN")
    await db.execute(INSERT, flow.policy.topic.name)
    await flow.pass_by()
    await db.execute(f"PREPARE TRANSACTION '{name}'")
    await flow.pass_by(jobs=1_000)  # far enough for the low mark to follow, if nothing held it
    await other.execute(f"COMMIT PREPARED '{name}'")
    await flow.gives(b'"late"')


async def test_a_delayed_job_whose_transaction_outlasts_its_delay(flow: Flow, connect: Connect) -> None:
    db = await connect()
    async with db.transaction():
        await producer.enqueue(db, flow.policy.topic, Batch([b'"late"'], delays_ms=[50]), ttl_ms=0)
        await flow.pass_time(0.4)
    await flow.gives(b'"late"')


@pytest.mark.parametrize("end", ["rolled back", "killed"])
async def test_a_claim_elsewhere_that_comes_to_nothing(flow: Flow, connect: Connect, end: str) -> None:
    db, killer = await connect(), await connect()
    transaction = db.transaction()
    await transaction.start()
    job = await _claim_elsewhere(db, flow.policy)
    await flow.pass_by(job.seq)
    if end == "rolled back":
        await transaction.rollback()
    else:
        await killer.fetchval("SELECT pg_terminate_backend($1)", db.get_server_pid())
    await flow.gives(job.payload)


@pytest.mark.parametrize("end", ["a nack", "a nack that commits late", "silence"])
async def test_a_lease_elsewhere_that_ends(flow: Flow, connect: Connect, end: str) -> None:
    db = await connect()
    job = await _claim_elsewhere(db, flow.policy, lease_ms=100 if end == "silence" else 60_000)
    if end != "silence":
        async with db.transaction():
            await consumer.nack(db, flow.policy.topic, flow.policy.budget, [held(job, "elsewhere")], [Return()])
            if end == "a nack that commits late":
                await flow.pass_time(0.7)
    await flow.gives(job.payload)


async def test_a_gap_of_twenty_thousand_positions(flow: Flow, connect: Connect) -> None:
    db = await connect()
    transaction = db.transaction()
    await transaction.start()
    await producer.enqueue(db, flow.policy.topic, Batch([b"0"] * 20_000), ttl_ms=0)
    await transaction.rollback()
    await flow.engine.enqueues.enqueue(flow.policy, Batch([b'"behind"']), 10)
    await flow.gives(b'"behind"')


async def test_a_backup_that_is_restored(flow: Flow, connect: Connect) -> None:
    """The same topic, with fewer seqs drawn and jobs at positions that claims had passed; nobody stays connected."""
    db = await connect()
    topic = flow.policy.topic
    await flow.stop()
    async with db.transaction():
        await db.execute("DELETE FROM holdfast.jobs WHERE topic = $1", topic.name)
        await db.execute("SELECT setval($1::oid::regclass, 1, false)", topic.sequence)
        await producer.enqueue(db, topic, Batch([b'"restored"']), ttl_ms=0)
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'holdfast'"
        )
    again = Flow(flow.engine, flow.policy)
    await again.gives(b'"restored"')
    await again.stop()


async def test_a_standby_that_takes_over(flow: Flow, connect: Connect) -> None:
    """A sequence that was drawn less far than it was seen to be is another database's."""
    db = await connect()
    await flow.stop()
    before = flow.engine.marks.of(flow.policy.topic).epoch
    await db.execute("SELECT setval($1::oid::regclass, 1, false)", flow.policy.topic.sequence)
    await flow.engine.marks.tick([flow.engine.marks.of(flow.policy.topic)])
    assert flow.engine.marks.of(flow.policy.topic).epoch > before


def test_a_clock_that_is_set_back_is_noticed() -> None:
    """What is written then lies below the marks."""
    cursor = Cursor(Topic("t", 1, 1))
    lanes = [Lane("", 0)]
    noon = 1_800_000_000_000_000
    cursor.learn(cursor.plan(lanes), ClaimResult([[]], False, False, {}, 0, noon), 1, 0.001)
    assert cursor.marks[lanes[0]].due > noon - 1_000_000
    cursor.learn(cursor.plan(lanes), ClaimResult([[]], False, False, {}, 0, noon - 1_000_000), 1, 0.001)
    assert cursor.marks[lanes[0]].due > noon - 1_000_000, "a little: sweeps from the low mark reach below"
    cursor.learn(cursor.plan(lanes), ClaimResult([[]], False, False, {}, 0, noon - 3_600_000_000), 1, 0.001)
    assert cursor.plan(lanes).reaches == [Reach(lanes[0], 0, 0)]


def test_a_sweep_that_was_held_up_puts_off_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are paced by what they cost, which a busy machine, a lock or the first plan of a statement is not."""
    now = 100.0
    monkeypatch.setattr(cursors, "time", SimpleNamespace(monotonic=lambda: now))
    cursor, lanes = Cursor(Topic("t", 1, 1)), [Lane("", 0)]

    def sweeps_after(seconds: float, took: float) -> bool:
        nonlocal now
        now += seconds
        plan = cursor.plan(lanes)
        cursor.learn(plan, ClaimResult([[]], False, False, {}, 0, 1_000_000), 1, took)
        return plan.sweeps

    soon = 1.01 * cursors.SWEEP_SECONDS
    assert sweeps_after(0, took=1.0)
    assert sweeps_after(soon, took=0.001)
    assert sweeps_after(soon, took=1.0)
    assert sweeps_after(soon, took=1.0)  # of which two make a cost
    assert not sweeps_after(soon, took=0.001)
    assert not sweeps_after(0.9 * 1.0 / cursors.SWEEP_SHARE - soon, took=0.001)
    assert sweeps_after(0.2 * 1.0 / cursors.SWEEP_SHARE, took=1.0)


@pytest.mark.parametrize("writes", [False, True])
async def test_the_low_mark_is_held_by_a_writer_that_does_not_end_and_by_no_reader(
    flow: Flow, connect: Connect, writes: bool
) -> None:
    """Marks rise beside an old snapshot, and claims don't walk over what it keeps."""
    db = await connect()
    async with db.transaction(isolation="repeatable_read"):
        if writes:
            seq = (await producer.enqueue(db, flow.policy.topic, Batch([b'"late"']), ttl_ms=0))[0]
            await flow.pass_by(jobs=300)
            assert flow.mark().low < seq
        else:
            await db.fetchval("SELECT count(*) FROM holdfast.topics")
            await flow.warm()


async def test_a_new_lane_is_found_beside_a_busy_one(flow: Flow, connect: Connect) -> None:
    await put(await connect(), flow.policy, Batch([b'"other"'], priorities=[7]))
    await flow.gives(b'"other"')
