"""Everything at once: producers, claimers, heartbeats, zombies, deaths and sweeps, and a history that is checked.

HOLDFAST_TEST_STORM_SECONDS: how long (10). HOLDFAST_TEST_SEED: the dice of an earlier run; the timing is another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import asyncpg
import pytest

from app.base.db.pool import open_pools
from app.base.outages import LOST_RACE
from app.features.jobs.changes import Changes
from app.features.jobs.requeues import requeue
from app.features.upkeep import sweeps
from app.kernel.counts import inspector
from app.kernel.logs.log import TagMatch
from app.kernel.model import Seq
from app.kernel.topics import store
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.engine.machines import Machine, new_machine
from tests.queue.calls import Session, until
from tests.races.storm import Storm, ahead, living, read
from tools.history.checker import check
from tools.history.history import End, History, Topic, Verb

SECONDS: Final = float(os.environ.get("HOLDFAST_TEST_STORM_SECONDS", "10"))
LONGEST_SECONDS: Final = 60.0  # a slow machine goes on until everything that the storm is about has happened
ENGINES: Final = 3
CONNECTIONS: Final = 5  # of each engine
PRODUCERS: Final = 4
MOST_LIVE: Final = 600  # with a deep backlog what comes back too soon would wait behind it unseen
GROUPS: Final = [f"g{n}" for n in range(50)]
RETURNING: Final = 10  # groups whose dead letters come back: of those, no order is asked for
USUAL: Final = {"acked", "released", "extended", "dead_lettered", "expired"}
OF_GROUPS: Final = {"unblocked", "deleted", "requeued", "cancelled", "throttled"}

pytestmark = pytest.mark.alone


@dataclass(frozen=True, slots=True)
class Plan:
    """The topics with their settings; out of which jobs are claimed, how often; how many claim; what must happen."""

    topics: Mapping[str, dict[str, object]]
    weights: Mapping[str, int]
    claimers: int
    wanted: set[str]
    grouped: bool = False
    keyed: bool = False
    # Deadlocks, all of them tried again: a claim waits, for all its SKIP LOCKED, for a row of which somebody locks a
    # newer version than it has seen (docs/adr/0025); and deletions lock by seq, producers by key. With groups: none.
    most_lost: float = 0.0


PLANS: Final = {
    # Leases that run out and go to the dead letters, those that fail, and a cohort that shares evenly for ever.
    "plain": Plan(
        {
            "mortal": {"max_deliveries": 3, "dead_letter": "mortal.dead"},
            "mortal.dead": {},
            "failing": {"max_deliveries": 3, "on_exhausted": "fail"},
            "even": {"claim_jitter_ms": 3},
        },
        {"mortal": 6, "mortal.dead": 2, "failing": 2, "even": 2},
        claimers=24,
        wanted=USUAL | {"failed"},
        most_lost=float("inf"),
    ),
    # There is not always room; dead letters are requeued; jobs are deleted and cancelled.
    "groups": Plan(
        {"jobs": {"max_deliveries": 3, "dead_letter": "dead", "max_depth": 40}, "dead": {}},
        {"jobs": 1},
        claimers=8,
        wanted=USUAL | OF_GROUPS,
        grouped=True,
    ),
    # With keys fewer jobs wait: a pending one is updated.
    "keys": Plan(
        {"jobs": {"max_deliveries": 3, "dead_letter": "dead", "max_depth": 30}, "dead": {}},
        {"jobs": 1},
        claimers=8,
        wanted=USUAL | OF_GROUPS | {"updated", "superseded"},
        grouped=True,
        keyed=True,
        most_lost=10,
    ),
}


@dataclass(slots=True)
class Weather:
    """A storm of one plan."""

    plan: Plan
    storm: Storm
    live: int = 0
    made: list[int] = field(default_factory=list)

    def columns(self, producer: int, size: int) -> dict[str, list[Any]]:
        """Some jobs later, some only for a while, in three priorities; in groups, and with keys: own ones, whose order
        the producer knows, and shared ones."""
        dice = self.storm.dice
        columns: dict[str, list[Any]] = {
            "priorities": [dice.randint(0, 2) for _ in range(size)],
            "delays_ms": [dice.choices([None, dice.randint(1, 500)], (9, 1))[0] for _ in range(size)],
            "ttls_ms": [dice.choices([None, dice.randint(20, 600)], (19, 1))[0] for _ in range(size)],
        }
        if self.plan.grouped:
            columns["groups"] = [dice.choice([*GROUPS, None]) for _ in range(size)]
            columns["tags"] = [dice.choice([None, None, None, "x"]) for _ in range(size)]
        if self.plan.keyed:
            shared = ["s1", *(f"s{dice.randrange(20)}" for _ in range(2))]
            columns["keys"] = [
                dice.choice([None, f"{group}.k", f"{group}.l"]) if group
                else dice.choice([f"own{producer}.{dice.randrange(5)}", None, *shared])
                for group in columns["groups"]
            ]  # fmt: skip
        return columns

    async def produce(self, number: int) -> None:
        storm = self.storm
        names = {topic: weight for topic, weight in self.plan.weights.items() if "dead" not in topic}
        while not storm.over:
            await asyncio.sleep(storm.dice.uniform(0, 0.03) if self.live < MOST_LIVE else 0.1)
            topic = storm.dice.choices(list(names), list(names.values()))[0]
            size = storm.dice.randint(1, 8 if self.plan.grouped else 30)
            await storm.enqueue(topic, size, **self.columns(number, size))

    async def sweep(self) -> None:
        while not self.storm.over:
            async with self.storm.told("sweep"):
                for machine in self.storm.dice.sample(self.storm.machines, 2):
                    await asyncio.gather(
                        sweeps.expiry(machine.pools, machine.engine), sweeps.exhaustion(machine.pools, machine.engine)
                    )
                if self.plan.grouped:
                    await self.interfere(self.storm.dice.choice(self.storm.machines))
            await asyncio.sleep(0.05 if self.plan.grouped else 0.2)

    async def interfere(self, machine: Machine) -> None:
        """Operators: they delete, cancel and requeue."""
        queue, dead, dice = self.storm.policies["jobs"], self.storm.policies["dead"], self.storm.dice
        await machine.engine.logs.delete_jobs(queue, None, TagMatch(tag="x"))
        await machine.engine.groups.sweep()
        seqs = [seq for one in self.storm.history.enqueues[-20:] for seq in one.seqs if dice.random() < 0.05]
        await machine.engine.core(Changes).cancel(queue, [Seq(seq) for seq in sorted(set(seqs))])
        if self.plan.keyed:
            await sweeps.supersede(machine.pools, machine.engine)
            await machine.engine.exits.delete_key(queue, "", dice.choice(["s1", f"{dice.choice(GROUPS)}.k"]))
        async with machine.pools.rest.acquire() as db:
            rows = await db.fetch(
                "SELECT seq FROM holdfast.jobs WHERE topic = 'dead' AND grp = ANY ($1) ORDER BY seq LIMIT 20",
                GROUPS[:RETURNING],
            )
            await requeue(db, (dead.topic.name, dead.topic.id), [row["seq"] for row in rows], ttl_ms=0)

    async def hold_a_snapshot(self, url: str) -> None:
        """A reader for whom everything that dies must be kept, seconds at a time."""
        reader = await asyncpg.connect(url)
        while not self.storm.over:
            async with reader.transaction(isolation="repeatable_read", readonly=True):
                await reader.fetchval("SELECT count(*) FROM holdfast.jobs")
                end = time.monotonic() + self.storm.dice.uniform(2, 6)
                while not self.storm.over and time.monotonic() < end:
                    await asyncio.sleep(0.1)
        await reader.close()

    async def last(self, observer: Session, seconds: float) -> None:
        """Blow for so long, and on until the ledger tells all that is wanted."""
        end = time.monotonic() + seconds
        missing = self.plan.wanted
        while time.monotonic() < end or missing:
            assert time.monotonic() < end + LONGEST_SECONDS, f"the storm met none of {missing}"
            self.live = await living(observer, list(self.plan.topics))
            if time.monotonic() > end:
                rows = await observer.fetch("SELECT DISTINCT event::text FROM holdfast.lease_events")
                throttled = {"throttled"} if self.storm.throttled else set()
                missing = self.plan.wanted - {row[0] for row in rows} - throttled
            await asyncio.sleep(0.1)
        self.storm.over = True

    async def rage(self, observer: Session, url: str, seconds: float) -> None:
        """At the end every client has been answered."""
        async with asyncio.TaskGroup() as group:
            for number in range(PRODUCERS):
                group.create_task(self.produce(number))
            for number in range(self.plan.claimers):
                group.create_task(self.storm.consume(dict(self.plan.weights), f"n{number}"))
            for other in (self.sweep(), self.hold_a_snapshot(url), self.last(observer, seconds)):
                group.create_task(other)
        while self.storm.held:
            await asyncio.gather(*self.storm.held)

    async def drained(self, observer: Session) -> bool:
        """Work on what is left, as it comes: delays pass, leases end, the last die and are dead letters."""
        for topic in self.plan.weights:
            async with self.storm.told("drain"):
                if jobs := await self.storm.claim(topic, "last", 200, 10_000, stays=True):
                    await self.storm.settle(Verb.ACK, topic, jobs)
        for machine in self.storm.machines:
            await sweeps.expiry(machine.pools, machine.engine)
            await machine.engine.groups.sweep()
        return await living(observer, list(self.plan.weights)) == 0


@pytest.mark.parametrize("plan", PLANS)
async def test_a_storm_leaves_a_history_as_promised(plan: str, new_database: Callable[[], Awaitable[str]]) -> None:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", "11"))
    await blow(PLANS[plan], seed, SECONDS, await new_database())


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
async def test_a_longer_one_of_any_seed(plan: str, new_database: Callable[[], Awaitable[str]]) -> None:
    await blow(PLANS[plan], secrets.randbelow(2**32), 3 * SECONDS, await new_database())


async def blow(plan: Plan, seed: int, seconds: float, url: str) -> None:
    print(f"a storm of {seconds:.0f} s, seed {seed}")
    observer = await asyncpg.connect(url)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(observer.close)
        machines = [await start(url, stack) for _ in range(ENGINES)]
        known = Policies(machines[0].pools.rest)
        policies: dict[str, Policy] = {}
        for name, settings in plan.topics.items():
            asked = AskedSettings(**{"type": "queue", "durable": True, **settings})
            await store.put(machines[0].pools.rest, name, resolve(name, asked))
            policies[name] = await known.queue(name)
        storm = Storm(machines, policies, random.Random(seed), await ahead(observer))
        storm.history.topics += [Topic(name, max_deliveries=most(one)) for name, one in plan.topics.items()]
        weather = Weather(plan, storm)
        await weather.rage(observer, url, seconds)
        await until(lambda: weather.drained(observer), "every job comes out")
        groups = await observer.fetchval("SELECT count(*) FROM holdfast.groups")
        storm.history.ends.append(End(left={"groups": groups}))
        for policy in policies.values():
            assert await inspector.reconcile(observer, policy.topic) == 0, "tallies differ from the jobs"
        lost = [error for machine in machines for error in machine.log.refused]
        dead = await observer.fetchval("SELECT sum(dead_lettered)::bigint FROM holdfast.tallies")
    await read(url, storm.history)
    print(numbers(storm.history), f"\n{storm.left} callers left; {len(lost)} lost races", flush=True)
    faults = check(storm.history)
    assert not faults, "\n".join([f"{len(faults)} violations, seed {seed}", *faults[:20]])
    assert [error for error in lost if not isinstance(error, LOST_RACE)] == []
    assert len(lost) <= plan.most_lost
    met = {(call.verb, call.outcome.value) for call in storm.history.settlements}
    assert len(met) == 6, "the storm met verbs of three kinds, done and refused"
    if not plan.grouped:
        assert dead == sum(event.event == "dead_lettered" for event in storm.history.events)


def most(settings: Mapping[str, object]) -> int:
    return int(str(settings.get("max_deliveries", 0)))


async def start(url: str, stack: contextlib.AsyncExitStack) -> Machine:
    """An engine as a process of its own has it: with its own connections, knowing nothing."""
    pools = await open_pools(url, hot=CONNECTIONS, rest=2, prepared_statements=True)
    machine = new_machine(pools)
    stack.push_async_callback(pools.close, 5)
    stack.push_async_callback(machine.engine.drain)
    stack.callback(machine.engine.stop)
    return machine


def numbers(history: History) -> str:
    """What was met, in numbers."""
    events = Counter(event.event for event in history.events)
    calls = Counter(f"{call.verb.value} {call.outcome.value}" for call in history.settlements)
    lines = [f"{len(history.deliveries)} deliveries, {len(history.events)} events"]
    return "\n".join([*lines, *(", ".join(f"{k} {n}" for k, n in sorted(c.items())) for c in (events, calls))])
