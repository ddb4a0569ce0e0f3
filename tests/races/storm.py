"""Clients that do everything at once, well and badly, and write down what they ask and are answered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, Final

import asyncpg

from app.errors import Throttled
from app.kernel.claim.consumer import Return
from app.kernel.claim.walk import Claimer
from app.kernel.engine import Engine
from app.kernel.model import Batch, Job
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.history.database import ledger
from tests.queue.calls import Session, held
from tools.chaos import record
from tools.history.history import Claim, Delivery, Enqueue, History, Outcome, Row, Settlement, Surprise, Verb

CLOCKS_MS: Final = 3.0
LIVE: Final = "state NOT IN ('failed', 'expired')"


@cache
def payload(id: int) -> bytes:
    return json.dumps(record.payload(id)).encode()


@dataclass(slots=True)
class Storm:
    """The clients. They reach any engine with any call, as behind a load balancer."""

    machines: list[Machine]
    policies: dict[str, Policy]
    dice: random.Random
    ahead_ms: float  # the database's clock before ours
    history: History = field(default_factory=lambda: History(patience=inf, skew=CLOCKS_MS))
    left: int = 0  # callers who were not there any more for their answer
    throttled: int = 0
    over: bool = False
    held: set[asyncio.Task[None]] = field(default_factory=set)
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def now(self) -> float:
        return time.time() * 1000 + self.ahead_ms

    def lease_ms(self) -> int:
        """Most are short; some last while the machine stands still."""
        return self.dice.choice([self.dice.randint(100, 400)] * 4 + [self.dice.randint(1000, 2500)])

    def engine(self) -> Engine:
        return self.dice.choice(self.machines).engine

    @contextlib.asynccontextmanager
    async def told(self, what: str) -> AsyncIterator[None]:
        """An error is something that a caller was told."""
        try:
            yield
        except Throttled:
            self.throttled += 1
        except Exception as error:
            self.history.surprises.append(Surprise(f"{what}: {error!r}"))
            await asyncio.sleep(0.05)

    async def enqueue(self, topic: str, size: int, **columns: list[Any]) -> None:
        ids = tuple(itertools.islice(self._ids, size))
        batch = Batch(payloads=[payload(id) for id in ids], **columns)
        sent = self.now()
        async with self.told("enqueue"):
            seqs = await self.engine().enqueues.enqueue(self.policies[topic], batch, sum(map(len, batch.payloads)))
            groups, keys, ttls = (tuple(columns.get(name, ())) for name in ("groups", "keys", "ttls_ms"))
            of = tuple(ttl or 0 for ttl in ttls)
            self.history.enqueues.append(
                Enqueue(ids, sent, self.now(), Outcome.DONE, tuple(seqs), topic, False, groups, keys, of)
            )

    async def consume(self, topics: dict[str, int], node: str) -> None:
        """Claim, and let the jobs meet their fates, while the next claim is under way."""
        while not self.over:
            topic = self.dice.choices(list(topics), list(topics.values()))[0]
            async with self.told("claim"):
                jobs = await self.claim(topic, node, self.dice.randint(1, 20), self.lease_ms())
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
        jobs: list[Job] = []
        gone = False
        if leaves < 0.1:
            await asyncio.wait([claiming], timeout=self.dice.uniform(0, 0.012))
            gone = claiming.cancel()
        try:
            jobs = await claiming
            gone = False
        except asyncio.CancelledError:
            if not gone:
                raise  # it is the storm that is cancelled
        if jobs and leaves > 0.94:
            await engine.settlements.give_back(policy, node, jobs)
            gone, jobs = True, []
        self.left += gone
        answered = self.now()
        outcome = Outcome.IN_DOUBT if gone else Outcome.DONE
        self.history.claims.append(Claim(sent, answered, outcome, topic))
        for job in jobs:
            id = json.loads(job.payload)["id"]
            origin = (job.original_topic, job.original_seq or 0) if job.original_topic else None
            seen = (job.deadline_ms, lease_ms, sent, answered, job.payload == payload(id), topic, origin)
            self.history.deliveries.append(Delivery(id, job.seq, job.lease, job.deliveries, *seen))
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
        await self.settle(Verb.ACK, topic, jobs)

    async def work_with_heartbeats(self, topic: str, jobs: list[Job]) -> None:
        """Heartbeats go on while the verb that ends the lease is under way."""
        settled = asyncio.Event()
        beats = asyncio.create_task(self.beat(topic, jobs, settled))
        await asyncio.sleep(self.dice.uniform(0.01, 0.3))
        await self.settle(self.dice.choice([Verb.ACK, Verb.ACK, Verb.ACK, Verb.NACK]), topic, jobs)
        settled.set()
        await beats

    async def beat(self, topic: str, jobs: list[Job], settled: asyncio.Event) -> None:
        while not settled.is_set():
            await self.settle(Verb.EXTEND, topic, jobs)
            await asyncio.sleep(self.dice.uniform(0, 0.01))

    async def give_up(self, topic: str, jobs: list[Job]) -> None:
        await asyncio.sleep(self.dice.uniform(0, 0.03))
        await self.settle(Verb.NACK, topic, jobs, delay_ms=self.dice.choice([0, 0, self.dice.randint(1, 300)]))

    async def come_back(self, topic: str, jobs: list[Job]) -> None:
        """A zombie: its leases have ended, and it does not know."""
        await asyncio.sleep((max(job.deadline_ms for job in jobs) - self.now()) / 1000)
        await asyncio.sleep(self.dice.uniform(0, 0.3))
        for verb in self.dice.sample([Verb.ACK, Verb.NACK, Verb.EXTEND], 3):
            await self.settle(verb, topic, jobs)

    async def cut_fine(self, topic: str, jobs: list[Job]) -> None:
        """At the last moment, or just after it."""
        ends = min(job.deadline_ms for job in jobs) - self.now()
        await asyncio.sleep(max(0.0, ends / 1000 + self.dice.uniform(-0.015, 0.003)))
        await self.settle(self.dice.choice([Verb.ACK, Verb.NACK, Verb.EXTEND]), topic, jobs)

    async def say_two_things(self, topic: str, jobs: list[Job]) -> None:
        verbs = self.dice.sample([Verb.ACK, Verb.NACK, Verb.ACK], 2)
        await asyncio.gather(*(self.settle(verb, topic, jobs) for verb in verbs))

    async def die(self, _topic: str, _jobs: list[Job]) -> None:
        """Silently."""

    async def settle(self, verb: Verb, topic: str, jobs: Sequence[Job], *, delay_ms: int = 0) -> None:
        """One verb for some jobs, by their leases, and what was answered."""
        policy, verbs, lease_ms, sent = (
            self.policies[topic], self.engine().settlements, self.lease_ms(), self.now(),
        )  # fmt: skip
        named = [held(job) for job in jobs]
        async with self.told(verb.value):
            deadlines: dict[int, int] = {}
            if verb is Verb.ACK:
                done = await verbs.ack(policy, named)
            elif verb is Verb.NACK:
                done = await verbs.nack(policy, named, [Return(delay_ms, "it did not work")] * len(named))
            else:
                deadlines = await verbs.extend(policy, named, lease_ms)
                done = set(deadlines)
            answered = self.now()
            for i, job in enumerate(jobs):
                outcome = Outcome.DONE if i in done else Outcome.REFUSED
                when = (sent, answered, outcome, deadlines.get(i, 0), topic, lease_ms, delay_ms)
                self.history.settlements.append(Settlement(verb, job.seq, job.lease, *when))


async def ahead(observer: Session) -> float:
    """The database's clock less ours, in ms: of many looks the one that was answered soonest."""
    looks = []
    for _ in range(50):
        before = time.time() * 1000
        there = float(await observer.fetchval("SELECT extract(epoch FROM clock_timestamp()) * 1000"))
        after = time.time() * 1000
        looks.append((after - before, there - (before + after) / 2))
    took, difference = min(looks)
    assert took / 2 < CLOCKS_MS, f"the database is {took / 2} ms away: too far for the rules on deadlines"
    return difference


async def living(observer: Session, topics: Sequence[str]) -> int:
    query = f"SELECT count(*) FROM holdfast.jobs WHERE topic = ANY ($1) AND {LIVE}"
    return int(await observer.fetchval(query, topics))


async def read(url: str, history: History) -> None:
    """Add what the database knows."""
    connection = await asyncpg.connect(url)
    try:
        history.events += await ledger(connection)
        jobs = await connection.fetch("SELECT topic, seq, state::text AS state, payload FROM holdfast.jobs")
        history.rows += [Row(job["topic"], job["seq"], job["state"], json.loads(job["payload"])["id"]) for job in jobs]
    finally:
        await connection.close()
