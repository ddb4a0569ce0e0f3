"""Jobs that have waited for long overtake better ones of their tenant, and nobody else's: docs/order.md, aging."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise

import pytest

from app.base.db.pool import Pools
from app.kernel.claim.ordering import LOOK_SECONDS, OVERTAKE_SHARE
from app.kernel.model import Batch, Job, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start
from tests.engine.test_fairness import by_tenant, jobs_of, until_claimed
from tests.engine.test_ordering import seqs
from tests.queue.calls import batch, put

AGING = 100  # ms
EARLY = 0.05  # seconds: what went by before the clock of a test was started
SLACK = 0.05  # seconds: a claim, on a machine that does other things as well


class Saturated:
    """A topic whose jobs of priority `high` are never all claimed: each that is taken is followed by another."""

    def __init__(self, machine: Machine, queue: Policy, high: int = 9) -> None:
        self.machine = machine
        self.queue = queue
        self.high = high

    async def fill(self, jobs: int = 20) -> None:
        await self.machine.enqueue(self.queue, batch(jobs, priorities=[self.high] * jobs, tags=["high"] * jobs))

    async def step(self, most: int = 1) -> list[Job]:
        """Claim, and put as many of the high ones back as came."""
        jobs = await self.machine.claim(self.queue, most)
        assert len(jobs) == most
        await self.machine.ack(self.queue, jobs)
        if high := sum(job.tag == "high" for job in jobs):
            await self.fill(high)
        return jobs

    async def waits(self, seq: Seq, due: float, most: int = 1, *, early: float = EARLY, patience: float = 30.0) -> None:
        """Claim until this job comes: not before so many seconds, and as soon after as docs/order.md promises, which is
        a look and four jobs; but for a moment in which the machine stood still."""
        steps = [time.monotonic()]
        while seq not in seqs(await self.step(most)):
            steps.append(time.monotonic())
            assert steps[-1] < steps[0] + patience, "it starves"
        steps.append(time.monotonic())
        turn = steps[-1] - steps[-1 - min(-(-OVERTAKE_SHARE // most), len(steps) - 1)]
        longest = max(after - before for before, after in pairwise(steps))
        assert due - early < steps[-1] - steps[0] < due + LOOK_SECONDS + turn + longest + SLACK


@pytest.mark.parametrize(("low", "most"), [(0, 1), (5, 10)])
async def test_the_lowest_job_waits_a_step_for_each_priority_above_it(
    low: int, most: int, machine: Machine, make: Make
) -> None:
    load = Saturated(machine, await make(aging_ms=AGING))
    await load.fill()
    (seq,) = await machine.enqueue(load.queue, batch(1, priorities=[low]))
    await load.waits(seq, (9 - low) * AGING / 1000, most)


async def test_where_low_ones_come_first_high_ones_age(machine: Machine, make: Make) -> None:
    load = Saturated(machine, await make(aging_ms=AGING, priority_order="lowest_first"), high=0)
    await load.fill()
    (seq,) = await machine.enqueue(load.queue, batch(1, priorities=[3]))
    await load.waits(seq, 3 * AGING / 1000)


async def test_without_aging_the_lowest_job_starves(machine: Machine, queue: Policy) -> None:
    load = Saturated(machine, queue)
    await load.fill()
    (seq,) = await machine.enqueue(queue)
    with pytest.raises(AssertionError, match="it starves"):
        await load.waits(seq, 0, patience=0.7)


async def test_returned_jobs_age_as_well(machine: Machine, make: Make) -> None:
    load = Saturated(machine, await make(aging_ms=20))
    (seq,) = await machine.enqueue(load.queue)
    await machine.nack(load.queue, await machine.claim(load.queue))
    await load.fill()
    await load.waits(seq, 0.18, early=0.18)


async def test_what_turned_up_below_the_cursor_ages_as_well(machine: Machine, make: Make, pools: Pools) -> None:
    """A saturated lane keeps sweeps from reaching the lower ones: the look at ages begins at the low marks."""
    load = Saturated(machine, await make(aging_ms=20))
    await machine.enqueue(load.queue)
    async with pools.rest.acquire() as db, db.transaction():
        (seq,) = await put(db, load.queue, batch())
        await machine.enqueue(load.queue, 5)
        assert len(await machine.claim(load.queue, 6)) == 6  # the cursor of the low lane is beyond it
        await load.fill()
    await load.waits(seq, 0.18, early=0.18)


@pytest.mark.parametrize("most", [1, 8])
async def test_a_crowd_that_has_aged_takes_no_more_than_its_share(most: int, machine: Machine, make: Make) -> None:
    load = Saturated(machine, await make(aging_ms=1))
    low = await machine.enqueue(load.queue, 500)
    await load.fill(40)
    await load.waits(low[0], 0, most, early=1)
    taken = [job.seq in low for _ in range(200 // most) for job in await load.step(most)]
    assert taken.count(True) == pytest.approx(200 / OVERTAKE_SHARE, abs=most)


async def test_several_that_have_aged_take_turns(machine: Machine, make: Make) -> None:
    """A deep backlog of the lowest does not keep those between waiting, nor the other way round."""
    load = Saturated(machine, await make(aging_ms=1))
    low = await machine.enqueue(load.queue, 300)
    middle = await machine.enqueue(load.queue, batch(300, priorities=[5] * 300))
    await load.fill()
    for crowd in (low, middle):
        while not set(crowd) & set(seqs(await load.step())):
            pass
    taken = [seq for _ in range(80) for seq in seqs(await load.step())]
    for crowd in (low, middle):
        assert sum(seq in crowd for seq in taken) == pytest.approx(80 / OVERTAKE_SHARE / 2, abs=3)


async def test_a_topic_with_one_priority_in_use_asks_now_and_then_only(machine: Machine, make: Make) -> None:
    load = Saturated(machine, await make(aging_ms=1))
    await load.fill()
    began = time.monotonic()
    for _ in range(50):
        await load.step()
    assert machine.log.count("claim") == 50
    assert machine.log.count("heads") <= 2 * (time.monotonic() - began) / 0.1 + 10  # those of the marks are among them


# with tenants


def high(tenant: str, count: int) -> Batch:
    return jobs_of(tenant, count, priorities=[9] * count, tags=["9"] * count)


class Tenants:
    """Tenants with a crowd of old jobs of priority 0, and jobs of priority 9 that are never all claimed."""

    def __init__(self, machine: Machine, queue: Policy) -> None:
        self.machine = machine
        self.queue = queue

    async def fill(self, *tenants: str, old: int = 50) -> None:
        for tenant in tenants:
            await self.machine.enqueue(self.queue, jobs_of(tenant, old))
        for tenant in tenants:
            await self.machine.enqueue(self.queue, high(tenant, 40))
        await asyncio.sleep(LOOK_SECONDS)  # the only way to grow old, and for the next look to be due

    async def step(self, most: int = 1, *named: str) -> list[Job]:
        """Claim, and put as many of the high ones back as came."""
        policy = await self.machine.policies.queue(self.queue.topic.name)  # as a route does: a tenant may be paused
        jobs = await self.machine.claim(policy, most, tenants=named or None)
        await self.machine.ack(self.queue, jobs)
        for tenant, count in Counter(job.tenant for job in jobs if job.tag).items():
            await self.machine.enqueue(self.queue, high(tenant, count))
        return jobs

    async def old_ones_overtake_while_there_is_more_of(self, other: str, steps: int) -> None:
        """The old jobs of tenant b have their share, though another tenant can't have any."""
        old = 0
        for _ in range(steps):
            await self.machine.enqueue(self.queue, jobs_of(other, 1))
            (job,) = await self.step(1)
            assert job.tenant == "b"
            old += job.tag is None
        assert old == pytest.approx(steps / OVERTAKE_SHARE, abs=1)


@pytest.fixture
async def aging(machine: Machine, make: Make) -> Tenants:
    return Tenants(machine, await make(aging_ms=1))


async def test_old_jobs_do_not_overtake_those_of_other_tenants(aging: Tenants) -> None:
    """A tenant comes before a priority: two that ask for as much get as much, however old the jobs of one are."""
    machine, queue = aging.machine, aging.queue
    await machine.enqueue(queue, jobs_of("old", 200))
    await asyncio.sleep(0.05)  # the only way to grow old
    await machine.enqueue(queue, high("urgent", 200))
    got = sum([by_tenant(await machine.claim(queue, 8)) for _ in range(20)], Counter[str]())
    assert got == {"old": 80, "urgent": 80}


@pytest.mark.parametrize("most", [1, 8])
async def test_what_overtakes_is_charged_to_its_tenant(most: int, aging: Tenants) -> None:
    """Each tenant has its share of the jobs, and old ones a quarter of that."""
    machine, queue = aging.machine, aging.queue
    await aging.fill("aged", old=200)
    await machine.enqueue(queue, high("aged", 200))
    await machine.enqueue(queue, high("young", 200))
    # Not acked: then shares would be of the time that those took.
    jobs = [job for _ in range(160 // most) for job in await machine.claim(queue, most)]
    got = Counter((job.tenant, job.tag) for job in jobs)
    assert got["young", "9"] == pytest.approx(80, abs=1)
    assert got["aged", None] == pytest.approx(80 / OVERTAKE_SHARE, abs=2)


async def test_a_claim_of_one_tenant_gets_no_others_old_jobs_and_hides_none(aging: Tenants) -> None:
    await aging.fill("a", "b")
    ages = aging.machine.engine.marks.of(aging.queue.topic).ages
    assert len(await aging.step(1, "b")) == 1
    assert set(ages.overtaking) == {"a", "b"}, "whoever looks looks for all"
    assert any(job.tag is None for job in await aging.step(8, "a"))
    for tenant in "abab":
        jobs = await aging.step(8, tenant)
        assert by_tenant(jobs) == {tenant: 8}
        assert 1 <= sum(job.tag is None for job in jobs) <= 3


@pytest.mark.parametrize("tenants", ["a", "ab"])
async def test_old_jobs_of_a_paused_tenant_stay_and_keep_no_others_waiting(tenants: str, aging: Tenants) -> None:
    machine, name = aging.machine, aging.queue.topic.name
    await aging.fill(*tenants)
    assert any(job.tag is None for job in await aging.step(8))
    async with machine.pools.rest.acquire() as db:
        await db.execute("UPDATE holdfast.topics SET paused_tenants = '{a}' WHERE name = $1", name)
    machine.policies.forget(name)
    for _ in range(4):
        assert "a" not in by_tenant(await aging.step(8))
    if "b" in tenants:
        await aging.old_ones_overtake_while_there_is_more_of("a", 40)


@pytest.mark.parametrize("order", ["front", "back"])
async def test_old_jobs_of_a_tenant_with_a_limit_overtake_within_it(order: str, machine: Machine, make: Make) -> None:
    # What a tenant gets is time, and jobs of a are held for long.
    queue = await make(aging_ms=1, retry_order=order, tenant_limits={"a": 3}, tenant_weights={"a": 1000})
    await Tenants(machine, queue).fill("a", "b")
    kept: list[Job] = []
    got = Counter[str | None]()
    for _ in range(1_000):
        jobs = await machine.claim(queue, 4)
        await machine.ack(queue, [job for job in jobs if job.tenant == "b"])
        mine = [job for job in jobs if job.tenant == "a"]
        kept += mine
        got += Counter(job.tag for job in mine)
        assert len(kept) <= 3, "the limit"
        for tenant, count in by_tenant([job for job in jobs if job.tag]).items():
            await machine.enqueue(queue, high(tenant, count))
        if len(kept) == 3:
            await machine.ack(queue, [kept.pop(0)])
        if got.total() >= 40:
            break
    assert got[None] == pytest.approx(40 / OVERTAKE_SHARE, abs=2)


async def test_a_limit_that_was_just_set_holds_for_old_jobs(aging: Tenants, make: Make) -> None:
    machine, queue = aging.machine, aging.queue
    await aging.fill("a", "b")
    assert by_tenant(await machine.claim(queue, 8)) == {"a": 4, "b": 4}
    limited = await make(aging_ms=1, tenant_limits={"a": 5})
    assert by_tenant(await machine.claim(limited, 16)) == {"a": 1, "b": 15}
    for _ in range(4):
        assert by_tenant(await machine.claim(limited, 4)) == {"b": 4}


async def test_a_limit_holds_for_old_jobs_of_a_tenant_that_rested(start: Start, machine: Machine, make: Make) -> None:
    """It was at its limit; what another process freed is not heard of, and found in the end."""
    queue = await make(aging_ms=1, tenant_limits={"a": 2})
    await Tenants(machine, queue).fill("a")
    kept = await machine.claim(queue, 20)
    assert len(kept) == 2
    assert await machine.claim(queue, 20) == []
    await start().ack(queue, kept[:1])
    assert len(await until_claimed(machine, queue, 20)) == 1


async def test_a_tenant_that_may_have_nothing_keeps_no_others_old_jobs_waiting(aging: Tenants, make: Make) -> None:
    """Single jobs go to who is furthest behind: not to who is at its limit, though it is heard of all the time."""
    aging.queue = await make(aging_ms=1, tenant_limits={"full": 1})
    aging.machine.policies.forget(aging.queue.topic.name)
    await aging.machine.enqueue(aging.queue, jobs_of("full", 1))
    assert len(await aging.machine.claim(aging.queue)) == 1
    await aging.fill("full", "b")
    await aging.old_ones_overtake_while_there_is_more_of("full", 16)


async def test_what_is_returned_ages_where_it_goes_to_the_end(machine: Machine, make: Make) -> None:
    queue = await make(aging_ms=20, retry_order="back", tenant_limits={"a": 10})
    load = Tenants(machine, queue)
    made = await machine.enqueue(queue, jobs_of("a", 2))
    first, second = await machine.claim(queue, 2)
    await machine.nack(queue, [second])
    await machine.nack(queue, [first])
    await machine.enqueue(queue, high("a", 20))
    await machine.enqueue(queue, high("b", 20))
    came: list[Seq] = []
    began = time.monotonic()
    while len(came) < 2:
        assert time.monotonic() < began + 30, "they starve"
        came += [job.seq for job in await load.step(2) if job.tag is None]
    assert came == made[::-1], "those that were returned first come first"


async def test_tenants_with_one_priority_each_are_not_looked_at(aging: Tenants) -> None:
    """Nothing of theirs can overtake: what many of them cost is nothing."""
    machine, queue = aging.machine, aging.queue
    for tenant in "abc":
        await machine.enqueue(queue, jobs_of(tenant, 5))
    await machine.enqueue(queue, high("c", 1))
    assert len(await machine.claim(queue, 8)) == 8
    assert [arguments[1] for arguments in machine.log.arguments("heads")] == [["c", "c"]]
