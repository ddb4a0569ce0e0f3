"""Everything at once: producers, claimers, heartbeats, zombies, deaths and sweeps, and a history that is checked.

HOLDFAST_TEST_STORM_SECONDS: how long (20). HOLDFAST_TEST_SEED: the dice of an earlier run; the timing is another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import asyncpg
import pytest
from asyncpg.pgproto.pgproto import UUID

from app.base.db.pool import Pools, open_pools
from app.features.upkeep import sweeps
from app.kernel.claim.consumer import Return
from app.kernel.claim.walk import Claimer
from app.kernel.counts import inspector
from app.kernel.engine import Engine
from app.kernel.model import Batch, HeldJob, Job, Topic
from app.kernel.topics import store
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.queue.calls import Session
from tests.races.history import CLOCKS_US, KEPT, Call, Delivery, Enqueued, Event, History, check

SECONDS: Final = float(os.environ.get("HOLDFAST_TEST_STORM_SECONDS", "20"))
ENGINES: Final = 3
CONNECTIONS: Final = 5  # of each engine
PRODUCERS: Final = 3
CLAIMERS: Final = 24
MOST_LIVE: Final = 600  # with a deep backlog what comes back too soon would wait behind it unseen
DRAIN_SECONDS: Final = 30.0
# Leases that run out and go to the dead letters, those that fail, and a cohort that shares evenly for ever.
TOPICS: Final[dict[str, dict[str, object]]] = {
    "mortal": {"max_deliveries": 3, "dead_letter": "mortal.dead"},
    "mortal.dead": {},
    "failing": {"max_deliveries": 3, "on_exhausted": "fail"},
    "even": {"claim_jitter_ms": 3},
}
WEIGHTS: Final = (6, 2, 2, 2)

pytestmark = pytest.mark.alone


@dataclass(slots=True)
class Storm:
    """The clients. They reach any engine with any call, as behind a load balancer."""

    engines: list[tuple[Engine, Pools]]
    policies: dict[str, Policy]
    url: str
    dice: random.Random
    ahead_us: int  # the database's clock before ours
    history: History = field(default_factory=History)
    left: int = 0  # callers who were not there any more for their answer
    live: int = 0
    over: bool = False
    held: set[asyncio.Task[None]] = field(default_factory=set)

    def now(self) -> int:
        return time.time_ns() // 1_000 + self.ahead_us

    def engine(self) -> Engine:
        return self.dice.choice(self.engines)[0]

    @contextlib.asynccontextmanager
    async def told(self, what: str) -> AsyncIterator[None]:
        """An error is something that a caller was told."""
        try:
            yield
        except Exception as error:
            self.history.errors.append(f"{what}: {error!r}")
            await asyncio.sleep(0.05)

    async def produce(self, number: int) -> None:
        """Batches: some jobs later, some only for a while, in three priorities."""
        made = 0
        while not self.over:
            await asyncio.sleep(self.dice.uniform(0, 0.03) if self.live < MOST_LIVE else 0.1)
            topic = self.dice.choices(["mortal", "failing", "even"], (6, 2, 2))[0]
            size, dice = self.dice.randint(1, 30), self.dice
            batch = Batch(
                payloads=[b'{"by":%d,"n":%d}' % (number, made + i) for i in range(size)],
                priorities=[dice.randint(0, 2) for _ in range(size)],
                delays_ms=[dice.choices([None, dice.randint(1, 500)], (9, 1))[0] for _ in range(size)],
                ttls_ms=[dice.choices([None, dice.randint(20, 600)], (19, 1))[0] for _ in range(size)],
            )
            made += size
            async with self.told("enqueue"):
                seqs = await self.engine().enqueues.enqueue(self.policies[topic], batch, size * 20)
                self.history.enqueued += [
                    Enqueued(topic, seq, payload, (ttl or 0) * 1_000)
                    for seq, payload, ttl in zip(seqs, batch.payloads, batch.ttls_ms, strict=True)
                ]

    async def consume(self, number: int) -> None:
        """Claim, and let the jobs meet their fates, while the next claim is under way."""
        while not self.over:
            topic = self.dice.choices(list(TOPICS), WEIGHTS)[0]
            async with self.told("claim"):
                jobs = await self.claim(topic, f"n{number}", self.dice.randint(1, 20), self.dice.randint(100, 400))
                if jobs:
                    task = asyncio.create_task(self.meet(topic, jobs))
                    self.held.add(task)
                    task.add_done_callback(self.held.discard)

    async def claim(self, topic: str, node: str, most: int, lease_ms: int, *, stays: bool = False) -> list[Job]:
        """One claim in six is left before its answer is there, or before it is read."""
        policy, engine, sent = self.policies[topic], self.engine(), self.now()
        wait = 0 if stays else self.dice.choice([0, 0.02, 0.1])
        claiming = asyncio.create_task(engine.claims.claim(Claimer(policy, node, most, lease_ms), wait))
        leaves = 0.5 if stays else self.dice.random()
        if leaves < 0.1:
            await asyncio.wait([claiming], timeout=self.dice.uniform(0, 0.012))
            claiming.cancel()
        try:
            jobs = await claiming
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if this is not None and this.cancelling():
                raise  # it is the storm that is cancelled
            self.left += 1
            return []
        if jobs and leaves > 0.94:
            self.left += 1
            await engine.settlements.give_back(policy, node, jobs)
            return []
        answered = self.now()
        for job in jobs:
            origin = (job.original_topic, job.original_seq or 0) if job.original_topic else None
            seen = (job.deliveries, job.deadline_ms, sent, answered, job.payload, origin)
            self.history.deliveries.append(Delivery(topic, job.seq, job.lease, *seen))
        return jobs

    async def meet(self, topic: str, jobs: Sequence[Job]) -> None:
        """What becomes of a batch, in parts. What is in no part dies silently."""
        fates: list[tuple[int, Callable[[str, list[Job]], Awaitable[None]]]] = [
            (45, self.work),
            (15, self.work_with_heartbeats),
            (10, self.give_up),
            (10, self.come_back),
            (8, self.cut_fine),
            (4, self.say_two_things),
            (8, self.die),
        ]
        parts: dict[int, list[Job]] = {}
        for job in self.dice.sample(jobs, len(jobs)):
            fate = self.dice.choices(range(len(fates)), [weight for weight, _ in fates])[0]
            parts.setdefault(fate, []).append(job)
        await asyncio.gather(*(fates[fate][1](topic, part) for fate, part in parts.items()))

    async def work(self, topic: str, jobs: list[Job]) -> None:
        await asyncio.sleep(self.dice.uniform(0, 0.06))
        await self.call("ack", topic, jobs)

    async def work_with_heartbeats(self, topic: str, jobs: list[Job]) -> None:
        """Heartbeats go on while the verb that ends the lease is under way."""
        settled = asyncio.Event()
        beats = asyncio.create_task(self.beat(topic, jobs, settled))
        await asyncio.sleep(self.dice.uniform(0.01, 0.3))
        await self.call(self.dice.choice(["ack", "ack", "ack", "nack"]), topic, jobs)
        settled.set()
        await beats

    async def beat(self, topic: str, jobs: list[Job], settled: asyncio.Event) -> None:
        while not settled.is_set():
            await self.call("extend", topic, jobs)
            await asyncio.sleep(self.dice.uniform(0, 0.01))

    async def give_up(self, topic: str, jobs: list[Job]) -> None:
        await asyncio.sleep(self.dice.uniform(0, 0.03))
        await self.call("nack", topic, jobs, delay_ms=self.dice.choice([0, 0, self.dice.randint(1, 300)]))

    async def come_back(self, topic: str, jobs: list[Job]) -> None:
        """A zombie: its leases have ended, and it does not know."""
        await asyncio.sleep((max(job.deadline_ms for job in jobs) * 1_000 - self.now()) / 1e6)
        await asyncio.sleep(self.dice.uniform(0, 0.3))
        for verb in self.dice.sample(["ack", "nack", "extend"], 3):
            await self.call(verb, topic, jobs)

    async def cut_fine(self, topic: str, jobs: list[Job]) -> None:
        """At the last moment, or just after it."""
        ends = min(job.deadline_ms for job in jobs) * 1_000 - self.now()
        await asyncio.sleep(max(0.0, ends / 1e6 + self.dice.uniform(-0.015, 0.003)))
        await self.call(self.dice.choice(["ack", "nack", "extend"]), topic, jobs)

    async def say_two_things(self, topic: str, jobs: list[Job]) -> None:
        await asyncio.gather(*(self.call(verb, topic, jobs) for verb in self.dice.sample(["ack", "nack", "ack"], 2)))

    async def die(self, _topic: str, _jobs: list[Job]) -> None:
        """Silently."""

    async def call(self, verb: str, topic: str, jobs: Sequence[Job], *, delay_ms: int = 0) -> None:
        """One verb for some jobs, by their leases, and what was answered."""
        policy, verbs, sent = self.policies[topic], self.engine().settlements, self.now()
        held = [HeldJob(job.seq, UUID(job.lease), None) for job in jobs]
        async with self.told(verb):
            deadlines: dict[int, int] = {}
            if verb == "ack":
                done = await verbs.ack(policy, held)
            elif verb == "nack":
                done = await verbs.nack(policy, held, [Return(delay_ms, "it did not work")] * len(held))
            else:
                deadlines = await verbs.extend(policy, held, self.dice.randint(100, 400))
                done = set(deadlines)
            answered = self.now()
            self.history.calls += [
                Call(verb, topic, job.seq, job.lease, sent, answered, i in done, deadlines.get(i, 0))
                for i, job in enumerate(jobs)
            ]

    async def sweep(self) -> None:
        while not self.over:
            async with self.told("sweep"):
                for engine, pools in self.dice.sample(self.engines, 2):
                    await asyncio.gather(sweeps.expiry(pools, engine), sweeps.exhaustion(pools, engine))
            await asyncio.sleep(0.2)

    async def hold_a_snapshot(self) -> None:
        """A reader for whom everything that dies must be kept, seconds at a time."""
        reader = await asyncpg.connect(self.url)
        while not self.over:
            async with reader.transaction(isolation="repeatable_read", readonly=True):
                await reader.fetchval("SELECT count(*) FROM holdfast.jobs")
                end = time.monotonic() + self.dice.uniform(2, 6)
                while not self.over and time.monotonic() < end:
                    await asyncio.sleep(0.1)
        await reader.close()

    async def look(self, observer: Session) -> None:
        while not self.over:
            self.live = await living(observer)
            await asyncio.sleep(0.1)

    async def rage(self, observer: Session) -> None:
        """For SECONDS; at the end every client has been answered."""
        async with asyncio.TaskGroup() as group:
            for number in range(PRODUCERS):
                group.create_task(self.produce(number))
            for number in range(CLAIMERS):
                group.create_task(self.consume(number))
            for other in (self.sweep(), self.hold_a_snapshot(), self.look(observer)):
                group.create_task(other)
            await asyncio.sleep(SECONDS)
            self.over = True
        while self.held:
            await asyncio.gather(*self.held)

    async def drain(self, observer: Session) -> None:
        """Work on what is left, as it comes: delays pass, leases end, the last die and are dead letters."""
        end = time.monotonic() + DRAIN_SECONDS
        while left := await living(observer):
            assert time.monotonic() < end, f"{left} jobs are there that nobody is handed"
            for topic in TOPICS:
                async with self.told("drain"):
                    if jobs := await self.claim(topic, "last", 200, 10_000, stays=True):
                        await self.call("ack", topic, jobs)
            for engine, pools in self.engines:
                await sweeps.expiry(pools, engine)
            await asyncio.sleep(0.02)


async def test_a_storm_leaves_a_history_as_promised(
    new_database: Callable[[], Awaitable[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED") or secrets.randbelow(2**32))
    with capsys.disabled():
        print(f"\na storm of {SECONDS:.0f} s, seed {seed}", flush=True)
    url = await new_database()
    observer = await asyncpg.connect(url)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(observer.close)
        engines = [await start(url, stack) for _ in range(ENGINES)]
        for name, settings in TOPICS.items():
            asked = AskedSettings(**{"type": "queue", "durable": True, **settings})
            await store.put(engines[0][1].rest, name, resolve(name, asked))
        known = Policies(engines[0][1].rest)
        policies = {name: await known.queue(name) for name in TOPICS}
        storm = Storm(engines, policies, url, random.Random(seed), await ahead(observer))
        await storm.rage(observer)
        drained = time.monotonic()
        await storm.drain(observer)
        drained = time.monotonic() - drained
    history = await read(url, storm.history)
    deadlocks = await ask(url, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    began = time.monotonic()
    faults = check(history)
    sums = numbers(history)
    with capsys.disabled():
        print(f"{sums}\n{storm.left} callers left; {deadlocks} deadlocks, all tried again; drained in {drained:.1f} s")
        print(f"checked in {time.monotonic() - began:.1f} s: {len(faults)} violations", flush=True)
    assert faults[:20] == [], f"{len(faults)} violations, seed {seed}"
    assert [state for _, _, state in history.left if state not in KEPT] == []
    counted = await ask(url, "SELECT sum(dead_lettered)::bigint FROM holdfast.tallies")
    assert counted == sum(event.event == "dead_lettered" for event in history.events)
    assert await miscounted(url) == {}
    met = {event.event for event in history.events} | {(call.verb, call.done) for call in history.calls}
    every = {(verb, done) for verb in ("ack", "nack", "extend") for done in (True, False)}
    missing = {"acked", "released", "extended", "dead_lettered", "failed", "expired", *every} - met
    assert missing == set(), "the storm met none of these"


async def miscounted(url: str) -> dict[str, int]:
    """Topics whose tallies differ from their jobs, and by how many."""
    db = await asyncpg.connect(url)
    try:
        async with db.transaction():
            off = {}
            for row in await db.fetch("SELECT name, id FROM holdfast.topics"):
                off[row["name"]] = await inspector.reconcile(db, Topic(row["name"], row["id"], 0))
            return {name: jobs for name, jobs in off.items() if jobs}
    finally:
        await db.close()


async def start(url: str, stack: contextlib.AsyncExitStack) -> tuple[Engine, Pools]:
    """An engine as a process of its own has it: with its own connections, knowing nothing."""
    pools = await open_pools(url, hot=CONNECTIONS, rest=2, prepared_statements=True)
    engine = Engine(pools, Policies(pools.rest), max_waiting=10_000)
    stack.push_async_callback(pools.close, 5)
    stack.push_async_callback(engine.drain)
    stack.callback(engine.stop)
    return engine, pools


async def ahead(observer: Session) -> int:
    """The database's clock less ours, in µs: of many looks the one that was answered soonest."""
    looks = []
    for _ in range(50):
        before = time.time_ns() // 1_000
        there = await observer.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        after = time.time_ns() // 1_000
        looks.append((after - before, there - (before + after) // 2))
    took, difference = min(looks)
    assert took / 2 < CLOCKS_US, f"the database is {took / 2} µs away: too far for the rules on deadlines"
    return int(difference)


async def living(observer: Session) -> int:
    count: int = await observer.fetchval(
        "SELECT count(*) FROM holdfast.jobs WHERE state::text <> ALL ($1::text[])", sorted(KEPT)
    )
    return count


async def ask(url: str, query: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(query) or 0)
    finally:
        await connection.close()


async def read(url: str, history: History) -> History:
    """Add what the database knows."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "holdfast"})
    try:
        rows = await connection.fetch("""
            SELECT topic, seq, (extract(epoch FROM at) * 1000000)::bigint AS at, event::text, deliveries,
                   replace(lease_id::text, '-', '') AS lease, (extract(epoch FROM until) * 1000000)::bigint AS until,
                   detail
            FROM lease_events ORDER BY at
        """)
        history.events += [Event(*row) for row in rows]
        history.left += [tuple(row) for row in await connection.fetch("SELECT topic, seq, state::text FROM jobs")]
    finally:
        await connection.close()
    history.limits |= {name: int(str(settings.get("max_deliveries", 0))) for name, settings in TOPICS.items()}
    return history


def numbers(history: History) -> str:
    """What was met, in numbers."""
    events = Counter(event.event for event in history.events)
    calls = Counter(f"{call.verb} {'done' if call.done else 'skipped'}" for call in history.calls)
    lines = [f"{len(history.enqueued)} jobs, {len(history.deliveries)} deliveries, {len(history.events)} events"]
    return "\n".join([*lines, *(", ".join(f"{k} {n}" for k, n in sorted(c.items())) for c in (events, calls))])
