"""Many tenants, most of them idle: what a claim asks is bounded, and nothing is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from app.base.db.pool import Pools
from app.kernel.claim import limits
from app.kernel.claim.consumer import Return
from app.kernel.claim.fairness import REST_SECONDS
from app.kernel.claim.marks import CHEAP_SHARE
from app.kernel.model import Batch, Lane
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, parked
from tests.engine.test_fairness import by_tenant, jobs_of
from tests.queue.calls import held

Start = Callable[[], Machine]
MakeQueue = Callable[..., Awaitable[Policy]]
FOUND_SECONDS = 1.0  # docs/semantics.md, section 4


async def ever_seen(pools: Pools, queue: Policy, tenants: int) -> None:
    """Lanes of so many tenants, t1 and on, that had jobs once."""
    async with pools.rest.acquire() as db:
        await db.execute(
            "INSERT INTO holdfast.lanes (topic, tenant, priority) SELECT $1, 't' || n, 0 FROM generate_series(1, $2) n",
            queue.topic.name,
            tenants,
        )


def statements(machine: Machine) -> int:
    return machine.log.count("claim") + machine.log.count("working")


@pytest.mark.parametrize("tenants", [300, 10_000, 20_000])
async def test_an_empty_claim_sends_few_statements_however_many_are_idle(
    tenants: int, pools: Pools, machine: Machine, queue: Policy
) -> None:
    await ever_seen(pools, queue, tenants)
    async with asyncio.timeout(10):
        assert await machine.claim(queue, 1) == []
        assert statements(machine) <= 2
        for n in range(2, 5):
            await asyncio.sleep(0.45)  # they have rested
            assert await machine.claim(queue, 1) == []
            assert statements(machine) <= 2 * n


@pytest.mark.parametrize("tenants", [2, 300])
async def test_an_empty_claim_returns_from_a_database_that_is_slower_than_tenants_rest(
    tenants: int, pools: Pools, machine: Machine, queue: Policy
) -> None:
    await ever_seen(pools, queue, tenants)

    async def slow() -> None:
        await asyncio.sleep(REST_SECONDS + 0.2)

    machine.log.before |= {"claim": slow, "working": slow}
    async with asyncio.timeout(10):
        assert await machine.claim(queue, 1) == []
        assert await machine.claim(queue, 1, tenants=["t1", "t2"]) == []
    assert statements(machine) <= 4


async def test_lanes_are_gone_through_again_only_where_something_changed(
    pools: Pools, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    """Also where some are paused, or asked in another order."""
    queue = await make_queue(topic, priority_order="lowest_first")
    await ever_seen(pools, queue, 1_000)
    await pause(pools, machine, queue, ["t9"])
    queue = await machine.policies.queue(topic)
    lanes, seen = machine.engine.lanes, list[Sequence[Lane]]()
    for _ in range(3):
        seen.append(lanes.running(queue, await lanes.of(machine.pools.hot, queue.topic)))
        lanes.forget(queue.topic.id)
    assert all(one is seen[0] for one in seen)
    assert len(seen[0]) == 999
    await machine.enqueue(queue, jobs_of("one more", 1))
    assert len(lanes.running(queue, await lanes.of(machine.pools.hot, queue.topic))) == 1_000


async def test_one_of_many_that_gets_a_job_is_found(
    pools: Pools, machine: Machine, start: Start, queue: Policy
) -> None:
    """Its own process's at once; another's within a second, for who asks again and again and for who waits."""
    await ever_seen(pools, queue, 5_000)
    assert await machine.claim(queue, 1) == []
    await machine.enqueue(queue, jobs_of("t77", 1))
    assert by_tenant(await machine.claim(queue, 5)) == {"t77": 1}
    other = start()
    for tenant in ("t4000", "quite new"):
        await other.enqueue(queue, jobs_of(tenant, 1))
        began = time.monotonic()
        while not (jobs := await machine.claim(queue, 5)):
            assert time.monotonic() - began < FOUND_SECONDS, f"{tenant} was not found"
            await asyncio.sleep(0.005)
        assert by_tenant(jobs) == {tenant: 1}
    waiting = asyncio.create_task(machine.claim(queue, 5, wait=10))
    await parked(machine, queue, 1)
    began = time.monotonic()
    await other.enqueue(queue, jobs_of("t4001", 1))
    assert by_tenant(await waiting) == {"t4001": 1}
    assert time.monotonic() - began < FOUND_SECONDS


async def test_one_of_many_is_found_while_others_are_busy(
    pools: Pools, machine: Machine, start: Start, queue: Policy
) -> None:
    await ever_seen(pools, queue, 5_000)
    await machine.enqueue(queue, jobs_of("t1", 5_000))
    assert by_tenant(await machine.claim(queue, 5)) == {"t1": 5}
    await start().enqueue(queue, jobs_of("t3000", 1))
    began = time.monotonic()
    while "t3000" not in by_tenant(await machine.claim(queue, 2)):
        assert time.monotonic() - began < FOUND_SECONDS, "it was not found"


async def test_delays_and_ended_leases_of_many_come_on_time(
    pools: Pools, machine: Machine, start: Start, queue: Policy
) -> None:
    """What another process knows of, too: the look before saw it coming."""
    await ever_seen(pools, queue, 2_000)
    other = start()
    await other.enqueue(queue, jobs_of("t5", 1, delays_ms=[600]))
    await other.enqueue(queue, jobs_of("t6", 1))
    (leased,) = await other.claim(queue, 1, lease_ms=650)
    assert leased.tenant == "t6"
    began, found = time.monotonic(), dict[str, float]()
    while len(found) < 2:
        for job in await machine.claim(queue, 5):
            found[job.tenant] = time.monotonic() - began
        assert time.monotonic() - began < 3
        await asyncio.sleep(0.005)
    assert max(found.values()) < 0.75, found


async def test_what_was_long_empty_is_not_remembered_and_loses_nothing(
    pools: Pools, machine: Machine, start: Start, queue: Policy
) -> None:
    """Marks of 600 tenants go, once a floor does for all of them; what comes back later is found."""
    names = [f"n{n}" for n in range(600)]
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 600, tenants=list(names)))
    jobs = await machine.claim(queue, 1_000)
    assert len(jobs) == 600
    later, *rest = sorted(jobs, key=lambda job: job.seq)
    assert len(await machine.engine.settlements.ack(queue, [held(job) for job in rest])) == 599
    cursor = machine.engine.marks.of(queue.topic)
    began = time.monotonic()
    while len(cursor.marks) > 10:
        assert time.monotonic() - began < 10, f"{len(cursor.marks)} are remembered"
        machine.engine.marks.note_move(queue.topic)  # as if the topic were used
        assert await machine.claim(queue, 1) == []
        await asyncio.sleep(0.05)
    assert cursor.floor[0] >= 600
    await start().engine.settlements.nack(queue, [held(later)], [Return()])
    began = time.monotonic()
    while not (back := await machine.claim(queue, 5)):
        assert time.monotonic() - began < FOUND_SECONDS, "what was returned was not found"
        await asyncio.sleep(0.005)
    assert [job.seq for job in back] == [later.seq]


async def test_a_job_whose_transaction_was_open_all_the_while_is_not_below_the_floor(
    pools: Pools, machine: Machine, queue: Policy
) -> None:
    """Its position was drawn before looks and claims that found nothing; it commits after them."""
    await ever_seen(pools, queue, 500)
    await machine.enqueue(queue, jobs_of("t1", 1))
    async with pools.rest.acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        late = await db.fetchval("SELECT nextval($1::oid::regclass)", queue.topic.sequence)
        await db.execute(
            "INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, visible_at, created_at,"
            " updated_at, payload) VALUES ($1, $2, $3, $3, 'ready', 't400', now(), now(), now(), '1')",
            queue.topic.name,
            queue.topic.id,
            late,
        )
        await machine.enqueue(queue, jobs_of("t2", 20))
        began = time.monotonic()
        while time.monotonic() < began + 1.5:  # looks and ticks of the marks
            await machine.claim(queue, 1)
            await asyncio.sleep(0.05)
        await transaction.commit()
    assert machine.engine.marks.of(queue.topic).floor[0] < late
    began, found = time.monotonic(), set[int]()
    while late not in found:
        assert time.monotonic() - began < FOUND_SECONDS, "it was not found"
        found |= {job.seq for job in await machine.claim(queue, 1)}
        await asyncio.sleep(0.005)


async def test_the_jobs_of_a_tenant_that_was_paused_meanwhile_are_not_below_the_floor(
    pools: Pools, machine: Machine, queue: Policy
) -> None:
    await ever_seen(pools, queue, 500)
    await machine.enqueue(queue, jobs_of("t9", 1))
    await pause(pools, machine, queue, ["t9"])
    cursor, began = machine.engine.marks.of(queue.topic), time.monotonic()
    while cursor.floor[0] < 1:
        assert time.monotonic() - began < 10
        machine.engine.marks.note_move(queue.topic)
        assert await machine.claim(await machine.policies.queue(queue.topic.name), 1) == []
        await asyncio.sleep(0.05)
    await pause(pools, machine, queue, [])
    began = time.monotonic()
    while not (jobs := await machine.claim(await machine.policies.queue(queue.topic.name), 5)):
        assert time.monotonic() - began < FOUND_SECONDS
        await asyncio.sleep(0.005)
    assert by_tenant(jobs) == {"t9": 1}


async def pause(pools: Pools, machine: Machine, queue: Policy, tenants: list[str]) -> None:
    async with pools.rest.acquire() as db:
        await db.execute("UPDATE holdfast.topics SET paused_tenants = $2 WHERE name = $1", queue.topic.name, tenants)
    machine.policies.forget(queue.topic.name)


async def test_a_large_claim_looks_who_of_those_that_rest_has_something(
    pools: Pools, machine: Machine, start: Start, queue: Policy
) -> None:
    """All are out within two claims of a thousand, and nobody said that they were there."""
    small = {f"t{n}": 10 for n in range(1, 101)}
    await ever_seen(pools, queue, len(small))
    await machine.enqueue(queue, jobs_of("large", 5_000))
    assert by_tenant(await machine.claim(queue, 1_000)) == {"large": 1_000}
    await start().enqueue(queue, Batch(payloads=[b"1"] * 1_000, tenants=list[str | None](small) * 10))
    await until_cheap(machine, queue)
    jobs = await machine.claim(queue, 1_000) + await machine.claim(queue, 1_000)
    assert len(jobs) == 2_000
    assert {tenant: n for tenant, n in by_tenant(jobs).items() if tenant != "large"} == small


async def test_looks_before_large_claims_have_a_bounded_share_of_the_time(
    pools: Pools, machine: Machine, queue: Policy
) -> None:
    await ever_seen(pools, queue, 100)
    await machine.enqueue(queue, jobs_of("large", 2_000))
    machine.log.before["working"] = partial(asyncio.sleep, 0.02)
    began = time.monotonic()
    for _ in range(20):
        assert len(await machine.claim(queue, 100)) == 100
    looks = machine.log.count("working")
    assert 1 <= looks <= 1 + (time.monotonic() - began) * CHEAP_SHARE / 0.02
    await machine.enqueue(queue, jobs_of("large", 50))
    await until_cheap(machine, queue)
    assert len(await machine.claim(queue, 50)) == 50
    assert machine.log.count("working") == looks, "a claim of few looked"


async def test_a_look_before_a_large_claim_holds_nothing_up(pools: Pools, machine: Machine, queue: Policy) -> None:
    await ever_seen(pools, queue, 100)
    await machine.enqueue(queue, jobs_of("large", 300))
    over = asyncio.Event()

    async def until_over() -> None:
        await over.wait()
        raise OSError("the connection was lost")

    machine.log.before["working"] = until_over
    for _ in range(2):
        assert len(await machine.claim(queue, 100)) == 100
    over.set()
    await machine.engine.marks.drain()
    assert len(await machine.claim(queue, 100)) == 100
    assert machine.log.count("working") == 1


async def test_a_look_before_a_large_claim_does_not_ask_who_is_at_its_limit(
    pools: Pools, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    """Else each would be a transaction that counts, one at a time."""
    queue = await make_queue(topic, tenant_limits={"few": 1})
    await machine.enqueue(queue, jobs_of("few", 2))
    await machine.enqueue(queue, jobs_of("large", 2_000))
    assert by_tenant(await machine.claim(queue, 100)) == {"few": 1, "large": 99}
    assert len(await machine.claim(queue, 100)) == 100  # which finds it at its limit
    looks = machine.log.count("working")
    async with pools.rest.acquire() as db, db.transaction():
        await limits.tenants_left(db, queue.topic, {"few": 1})  # whoever else counts waits
        await until_cheap(machine, queue)
        assert by_tenant(await machine.claim(queue, 100)) == {"large": 100}
    assert machine.log.count("working") == looks + 1


async def until_cheap(machine: Machine, queue: Policy) -> None:
    """Wait until the next large claim may look."""
    async with asyncio.timeout(10):
        while not machine.engine.marks.can_look_cheaply(queue.topic):
            await asyncio.sleep(0.001)
