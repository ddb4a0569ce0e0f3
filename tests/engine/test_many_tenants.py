"""Many tenants, most of them idle: what a claim asks is bounded, and nothing is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

import pytest

from app.base.db.pool import Pools
from app.kernel.claim import limits
from app.kernel.claim.fairness import REST_SECONDS
from app.kernel.claim.marks import CHEAP_SHARE
from app.kernel.model import Batch, Lane
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start, parked
from tests.engine.test_fairness import FOUND, by_tenant, jobs_of, late_job, until_claimed
from tests.queue.calls import until


async def ever_seen(machine: Machine, queue: Policy, tenants: int) -> None:
    """Lanes of so many tenants, t1 and on, that had jobs once."""
    lanes = "INSERT INTO holdfast.lanes (topic, tenant, priority) SELECT $1, 't' || n, 0 FROM generate_series(1, $2) n"
    async with machine.pools.rest.acquire() as db:
        await db.execute(lanes, queue.topic.name, tenants)


async def pause(machine: Machine, queue: Policy, tenants: list[str]) -> Policy:
    async with machine.pools.rest.acquire() as db:
        await db.execute("UPDATE holdfast.topics SET paused_tenants = $2 WHERE name = $1", queue.topic.name, tenants)
    machine.policies.forget(queue.topic.name)
    return await machine.policies.queue(queue.topic.name)


async def until_floor(machine: Machine, queue: Policy, least: int) -> None:
    """Use the topic until no job lies below a position, of whatever tenant, and hardly any is remembered by itself."""

    async def raised() -> bool:
        machine.engine.marks.note_move(queue.topic)  # as if the topic were used
        assert await machine.claim(queue, 1) == []
        await asyncio.sleep(0.05)
        cursor = machine.engine.marks.of(queue.topic)
        return cursor.floor[0] >= least and len(cursor.marks) <= 10

    await until(raised, "the floor is raised")


@pytest.mark.parametrize("slow", [False, True])
async def test_an_empty_claim_sends_few_statements_however_many_are_idle(
    slow: bool, machine: Machine, queue: Policy
) -> None:
    """Also with a database that is slower than tenants rest."""

    def statements() -> int:
        return machine.log.count("claim") + machine.log.count("working")

    await ever_seen(machine, queue, 300 if slow else 10_000)
    if slow:
        machine.log.before |= dict.fromkeys(("claim", "working"), partial(asyncio.sleep, REST_SECONDS + 0.2))
    for n in range(1, 4):
        assert await machine.claim(queue, 1, tenants=["t1", "t2"] if slow and n == 2 else None) == []
        assert statements() <= 2 * n
        await asyncio.sleep(REST_SECONDS + 0.05)  # they have rested


async def test_lanes_are_gone_through_again_only_where_something_changed(machine: Machine, make: Make) -> None:
    """Also where some are paused, or asked in another order."""
    queue = await make(priority_order="lowest_first")
    await ever_seen(machine, queue, 1_000)
    queue = await pause(machine, queue, ["t9"])
    lanes, seen = machine.engine.lanes, list[Sequence[Lane]]()
    for _ in range(3):
        seen.append(lanes.running(queue, await lanes.of(machine.pools.hot, queue.topic)))
        lanes.forget(queue.topic.id)
    assert all(one is seen[0] for one in seen)
    assert len(seen[0]) == 999
    await machine.enqueue(queue, jobs_of("one more", 1))
    assert len(lanes.running(queue, await lanes.of(machine.pools.hot, queue.topic))) == 1_000


@FOUND
async def test_one_of_many_that_gets_a_job_is_found(
    seconds: float, machine: Machine, start: Start, queue: Policy
) -> None:
    """Its own process's at once; another's soon, for who asks again and again and for who waits."""
    await ever_seen(machine, queue, 5_000)
    assert await machine.claim(queue, 1) == []
    await machine.enqueue(queue, jobs_of("t77", 1))
    assert by_tenant(await machine.claim(queue, 5)) == {"t77": 1}
    other = start()
    for tenant in ("t4000", "quite new"):
        await other.enqueue(queue, jobs_of(tenant, 1))
        assert by_tenant(await until_claimed(machine, queue, seconds=seconds)) == {tenant: 1}
    waiting = asyncio.create_task(machine.claim(queue, 5, wait=30))
    await parked(machine, queue, 1)
    await other.enqueue(queue, jobs_of("t4001", 1))
    assert by_tenant(await asyncio.wait_for(waiting, seconds)) == {"t4001": 1}
    # While others are busy.
    await machine.enqueue(queue, jobs_of("t1", 5_000))
    assert by_tenant(await machine.claim(queue, 5)) == {"t1": 5}
    await other.enqueue(queue, jobs_of("t3000", 1))
    while "t3000" not in by_tenant(jobs := await machine.claim(queue, 2)):
        assert jobs, "it was not found"


@pytest.mark.slow
async def test_delays_and_ended_leases_of_many_come_on_time(machine: Machine, start: Start, queue: Policy) -> None:
    """What another process knows of, too: the look before saw it coming."""
    await ever_seen(machine, queue, 2_000)
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
    assert max(found.values()) < 1.0, found


async def test_what_was_long_empty_is_not_remembered_and_loses_nothing(
    machine: Machine, start: Start, queue: Policy
) -> None:
    """Marks of 600 tenants go, once a floor does for all of them; what comes back later is found."""
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 600, tenants=[f"n{n}" for n in range(600)]))
    later, *rest = await machine.claim(queue, 1_000)
    await machine.ack(queue, rest)
    await until_floor(machine, queue, 600)
    await start().nack(queue, [later])
    assert [job.seq for job in await until_claimed(machine, queue)] == [later.seq]


async def test_a_job_whose_transaction_was_open_all_the_while_is_not_below_the_floor(
    pools: Pools, machine: Machine, queue: Policy
) -> None:
    """Its position was drawn before looks and claims that found nothing; it commits after them."""
    await ever_seen(machine, queue, 500)
    await machine.enqueue(queue, jobs_of("t1", 1))
    async with pools.rest.acquire() as db, db.transaction():
        late = await late_job(db, queue, "t400")
        await machine.enqueue(queue, jobs_of("t2", 20))
        began = time.monotonic()
        while time.monotonic() < began + 1.5:  # looks and ticks of the marks
            await machine.claim(queue, 1)
            await asyncio.sleep(0.05)
    assert machine.engine.marks.of(queue.topic).floor[0] < late
    found = set[int]()
    while late not in found:
        found |= {job.seq for job in await until_claimed(machine, queue)}


async def test_the_jobs_of_a_tenant_that_was_paused_meanwhile_are_not_below_the_floor(
    machine: Machine, queue: Policy
) -> None:
    await ever_seen(machine, queue, 500)
    await machine.enqueue(queue, jobs_of("t9", 1))
    await until_floor(machine, await pause(machine, queue, ["t9"]), 1)
    assert by_tenant(await until_claimed(machine, await pause(machine, queue, []))) == {"t9": 1}


# Looks before large claims


async def until_cheap(machine: Machine, queue: Policy) -> None:
    """Wait until the next large claim may look."""

    async def cheap() -> bool:
        return machine.engine.marks.can_look_cheaply(queue.topic)

    await until(cheap, "a look is cheap")


async def test_a_large_claim_looks_who_of_those_that_rest_has_something(
    machine: Machine, start: Start, queue: Policy
) -> None:
    """All are out within two claims of a thousand, and nobody said that they were there."""
    small = {f"t{n}": 10 for n in range(1, 101)}
    await ever_seen(machine, queue, len(small))
    await machine.enqueue(queue, jobs_of("large", 5_000))
    assert by_tenant(await machine.claim(queue, 1_000)) == {"large": 1_000}
    await start().enqueue(queue, Batch(payloads=[b"1"] * 1_000, tenants=list[str | None](small) * 10))
    await until_cheap(machine, queue)
    jobs = await machine.claim(queue, 1_000) + await machine.claim(queue, 1_000)
    assert len(jobs) == 2_000
    assert {tenant: n for tenant, n in by_tenant(jobs).items() if tenant != "large"} == small


async def test_looks_before_large_claims_have_a_bounded_share_of_the_time(machine: Machine, queue: Policy) -> None:
    await ever_seen(machine, queue, 100)
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


async def test_a_look_before_a_large_claim_holds_nothing_up(machine: Machine, queue: Policy) -> None:
    await ever_seen(machine, queue, 100)
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
    pools: Pools, machine: Machine, make: Make
) -> None:
    """Else each would be a transaction that counts, one at a time."""
    queue = await make(tenant_limits={"few": 1})
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
