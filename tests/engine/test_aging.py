"""Jobs that have waited for long overtake better ones of their tenant, and nobody else's: docs/order.md, aging."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.kernel.claim.ordering import LOOK_SECONDS, OVERTAKE_SHARE
from app.kernel.model import Batch, Job, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.engine.test_fairness import by_tenant, jobs_of
from tests.engine.test_ordering import ack, nack, seqs
from tests.queue.calls import batch, put

MakeQueue = Callable[..., Awaitable[Policy]]
AGING = 100  # ms
EARLY = 0.05  # seconds: what went by before the clock of a test was started
SLACK = 0.05  # seconds: a claim, on a machine that does other things as well


class Saturated:
    """A topic whose jobs of priority `high` are never all claimed: each that is taken is followed by another."""

    def __init__(self, machine: Machine, queue: Policy, high: int = 9) -> None:
        self.machine = machine
        self.queue = queue
        self.high = high
        self.taken: list[int] = []  # by priority

    async def fill(self, jobs: int = 20) -> None:
        await self.machine.enqueue(self.queue, batch(jobs, priorities=[self.high] * jobs, tags=[str(self.high)] * jobs))

    async def step(self, most: int = 1) -> list[Job]:
        """Claim, and put as many of the high ones back as came."""
        jobs = await self.machine.claim(self.queue, most)
        assert len(jobs) == most
        await ack(self.machine, self.queue, jobs)
        if high := sum(job.tag == str(self.high) for job in jobs):
            await self.fill(high)
        return jobs

    async def until(self, seq: Seq, most: int = 1, give_up: float = 10.0) -> float:
        """Claim until this job comes: after how many seconds."""
        began = time.monotonic()
        self.steps = [began]  # when each of them ended
        while seq not in seqs(await self.step(most)):
            self.steps.append(time.monotonic())
            assert self.steps[-1] < began + give_up, "it starves"
        return time.monotonic() - began

    async def waits(self, seq: Seq, due: float, most: int = 1, *, early: float = EARLY) -> None:
        """Claim until this job comes: not before so many seconds, and as soon after as docs/order.md promises: a look,
        and then four jobs."""
        waited = await self.until(seq, most)
        claims = min(-(-OVERTAKE_SHARE // most), len(self.steps))
        turn = self.steps[0] + waited - self.steps[-claims]
        assert due - early < waited < due + LOOK_SECONDS + turn + SLACK


@pytest.mark.parametrize("most", [1, 10])
@pytest.mark.parametrize("low", [0, 5])
async def test_the_lowest_job_waits_a_step_for_each_priority_above_it(
    low: int, most: int, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    load = Saturated(machine, await make_queue(topic, aging_ms=AGING))
    await load.fill()
    (seq,) = await machine.enqueue(load.queue, batch(1, priorities=[low]))
    await load.waits(seq, (9 - low) * AGING / 1000, most)


async def test_where_low_ones_come_first_high_ones_age(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    load = Saturated(machine, await make_queue(topic, aging_ms=AGING, priority_order="lowest_first"), high=0)
    await load.fill()
    (seq,) = await machine.enqueue(load.queue, batch(1, priorities=[3]))
    await load.waits(seq, 3 * AGING / 1000)


async def test_without_aging_the_lowest_job_starves(machine: Machine, queue: Policy) -> None:
    load = Saturated(machine, queue)
    await load.fill()
    (seq,) = await machine.enqueue(queue)
    with pytest.raises(AssertionError, match="it starves"):
        await load.until(seq, give_up=1.0)


async def test_returned_jobs_age_as_well(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    load = Saturated(machine, await make_queue(topic, aging_ms=20))
    (seq,) = await machine.enqueue(load.queue)
    await nack(machine, load.queue, *await machine.claim(load.queue))
    await load.fill()
    await load.waits(seq, 0.18, early=0.18)


@pytest.mark.parametrize("most", [1, 8])
async def test_a_crowd_that_has_aged_takes_no_more_than_its_share(
    most: int, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    load = Saturated(machine, await make_queue(topic, aging_ms=1))
    low = await machine.enqueue(load.queue, 500)
    await load.fill(40)
    await load.until(low[0], most)
    taken = [job.seq in low for _ in range(200 // most) for job in await load.step(most)]
    assert taken.count(True) == pytest.approx(200 / OVERTAKE_SHARE, abs=most)


async def test_several_that_have_aged_take_turns(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    """A deep backlog of the lowest does not keep those between waiting, nor the other way round."""
    load = Saturated(machine, await make_queue(topic, aging_ms=1))
    low = await machine.enqueue(load.queue, 300)
    middle = await machine.enqueue(load.queue, batch(300, priorities=[5] * 300))
    await load.fill()
    for crowd in (low, middle):
        while not set(crowd) & set(seqs(await load.step())):
            pass
    taken = [seq for _ in range(80) for seq in seqs(await load.step())]
    for crowd in (low, middle):
        assert sum(seq in crowd for seq in taken) == pytest.approx(80 / OVERTAKE_SHARE / 2, abs=3)


async def test_what_turned_up_below_the_cursor_ages_as_well(
    machine: Machine, topic: str, make_queue: MakeQueue, pools: Pools
) -> None:
    """A saturated lane keeps sweeps from reaching the lower ones: the look at ages begins at the low marks."""
    load = Saturated(machine, await make_queue(topic, aging_ms=20))
    await machine.enqueue(load.queue)
    async with pools.rest.acquire() as db, db.transaction():
        (seq,) = await put(db, load.queue, batch())
        await machine.enqueue(load.queue, 5)
        assert len(await machine.claim(load.queue, 6)) == 6  # the cursor of the low lane is beyond it
        await load.fill()
    await load.waits(seq, 0.18, early=0.18)


async def test_a_topic_with_one_priority_in_use_asks_now_and_then_only(
    machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    load = Saturated(machine, await make_queue(topic, aging_ms=1))
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

    async def fill(self, old: int = 200, *tenants: str) -> None:
        for tenant in tenants:
            await self.machine.enqueue(self.queue, jobs_of(tenant, old))
        for tenant in tenants:
            await self.machine.enqueue(self.queue, high(tenant, 40))
        await asyncio.sleep(LOOK_SECONDS)  # the only way to grow old, and for the next look to be due

    async def step(self, most: int = 1, *named: str) -> list[Job]:
        """Claim, and put as many of the high ones back as came."""
        policy = await self.machine.policies.queue(self.queue.topic.name)  # as a route does: a tenant may be paused
        jobs = await self.machine.claim(policy, most, tenants=named or None)
        await ack(self.machine, self.queue, jobs)
        for tenant, count in Counter(job.tenant for job in jobs if job.tag).items():
            await self.machine.enqueue(self.queue, high(tenant, count))
        return jobs


@pytest.fixture
async def aging(machine: Machine, topic: str, make_queue: MakeQueue) -> Tenants:
    return Tenants(machine, await make_queue(topic, aging_ms=1))


async def test_old_jobs_do_not_overtake_those_of_other_tenants(aging: Tenants) -> None:
    """A tenant comes before a priority: two that ask for as much get as much, however old the jobs of one are."""
    machine, queue = aging.machine, aging.queue
    await machine.enqueue(queue, jobs_of("old", 400))
    await asyncio.sleep(0.05)  # the only way to grow old
    await machine.enqueue(queue, high("urgent", 400))
    got = Counter[str]()
    for _ in range(40):
        got += by_tenant(await machine.claim(queue, 8))
    assert got == {"old": 160, "urgent": 160}


@pytest.mark.parametrize("most", [1, 8])
async def test_what_overtakes_is_charged_to_its_tenant(most: int, aging: Tenants) -> None:
    """Each tenant has its share of the jobs, and old ones a quarter of that."""
    machine, queue = aging.machine, aging.queue
    await aging.fill(200, "aged")
    await machine.enqueue(queue, high("aged", 200))
    await machine.enqueue(queue, high("young", 200))
    # Not acked: then shares would be of the time that those took.
    jobs = [job for _ in range(160 // most) for job in await machine.claim(queue, most)]
    got = Counter((job.tenant, job.tag) for job in jobs)
    assert got["young", "9"] == pytest.approx(80, abs=1)
    assert got["aged", None] == pytest.approx(80 / OVERTAKE_SHARE, abs=2)


async def test_a_claim_of_one_tenant_gets_no_others_old_jobs(aging: Tenants) -> None:
    await aging.fill(50, "a", "b")
    assert len(await aging.step(8)) == 8  # it has looked at all of them
    assert len(aging.machine.engine.marks.of(aging.queue.topic).ages.overtaking) == 2
    for tenant in "abab":
        jobs = await aging.step(8, tenant)
        assert by_tenant(jobs) == {tenant: 8}
        assert 1 <= sum(job.tag is None for job in jobs) <= 3


async def test_claims_of_one_tenant_hide_nothing_of_the_others(aging: Tenants) -> None:
    """Whoever looks next looks for all."""
    await aging.fill(50, "a", "b")
    ages = aging.machine.engine.marks.of(aging.queue.topic).ages
    assert len(await aging.step(1, "b")) == 1
    assert set(ages.overtaking) == {"a", "b"}
    assert any(job.tag is None for job in await aging.step(8, "a"))


@pytest.mark.parametrize("tenants", [["a"], ["a", "b"]], ids=["one", "two"])
async def test_old_jobs_of_a_paused_tenant_stay(tenants: list[str], aging: Tenants, pools: Pools) -> None:
    machine, queue = aging.machine, aging.queue
    await aging.fill(50, *tenants)
    assert any(job.tag is None for job in await aging.step(8))
    async with pools.rest.acquire() as db:
        await db.execute("UPDATE holdfast.topics SET paused_tenants = '{a}' WHERE name = $1", queue.topic.name)
    machine.policies.forget(queue.topic.name)
    for _ in range(4):
        assert "a" not in by_tenant(await aging.step(8))


async def test_a_paused_tenant_keeps_no_others_old_jobs_waiting(aging: Tenants, pools: Pools) -> None:
    await aging.fill(50, "a", "b")
    async with pools.rest.acquire() as db:
        await db.execute("UPDATE holdfast.topics SET paused_tenants = '{a}' WHERE name = $1", aging.queue.topic.name)
    aging.machine.policies.forget(aging.queue.topic.name)
    old = 0
    for _ in range(40):
        await aging.machine.enqueue(aging.queue, jobs_of("a", 1))
        (job,) = await aging.step(1)
        assert job.tenant == "b"
        old += job.tag is None
    assert old == pytest.approx(40 / OVERTAKE_SHARE, abs=1)


@pytest.mark.parametrize("order", ["front", "back"])
async def test_old_jobs_of_a_tenant_with_a_limit_overtake_within_it(
    order: str, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    # What a tenant gets is time, and jobs of a are held for long.
    settings = {"tenant_limits": {"a": 3}, "tenant_weights": {"a": 1000}}
    queue = await make_queue(topic, aging_ms=1, retry_order=order, **settings)
    load = Tenants(machine, queue)
    await load.fill(50, "a", "b")
    kept: list[Job] = []
    got = Counter[str | None]()
    give_up = time.monotonic() + 10
    while got.total() < 40:
        assert time.monotonic() < give_up
        jobs = await machine.claim(queue, 4)
        await ack(machine, queue, [job for job in jobs if job.tenant == "b"])
        mine = [job for job in jobs if job.tenant == "a"]
        kept += mine
        got += Counter(job.tag for job in mine)
        assert len(kept) <= 3, "the limit"
        for tenant, count in by_tenant([job for job in jobs if job.tag]).items():
            await machine.enqueue(queue, high(tenant, count))
        if len(kept) == 3:
            await ack(machine, queue, [kept.pop(0)])
    assert got[None] == pytest.approx(40 / OVERTAKE_SHARE, abs=2)


async def test_a_limit_that_was_just_set_holds_for_old_jobs(aging: Tenants, make_queue: MakeQueue) -> None:
    machine, queue = aging.machine, aging.queue
    await aging.fill(50, "a", "b")
    assert by_tenant(await machine.claim(queue, 8)) == {"a": 4, "b": 4}
    limited = await make_queue(queue.topic.name, aging_ms=1, tenant_limits={"a": 5})
    assert by_tenant(await machine.claim(limited, 16)) == {"a": 1, "b": 15}
    for _ in range(4):
        assert by_tenant(await machine.claim(limited, 4)) == {"b": 4}


async def test_a_limit_holds_for_old_jobs_of_a_tenant_that_rested(
    start: Callable[[], Machine], machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    """It was at its limit; what another process freed is not heard of, and found in the end."""
    queue = await make_queue(topic, aging_ms=1, tenant_limits={"a": 2})
    await Tenants(machine, queue).fill(50, "a")
    kept = await machine.claim(queue, 20)
    assert len(kept) == 2
    assert await machine.claim(queue, 20) == []
    await ack(start(), queue, kept[:1])
    give_up = time.monotonic() + 3
    while not (jobs := await machine.claim(queue, 20)):
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)
    assert len(jobs) == 1


async def test_a_tenant_that_may_have_nothing_keeps_no_others_old_jobs_waiting(
    aging: Tenants, make_queue: MakeQueue
) -> None:
    """Single jobs go to who is furthest behind: not to who is at its limit, though it is heard of all the time."""
    machine, name = aging.machine, aging.queue.topic.name
    aging.queue = await make_queue(name, aging_ms=1, tenant_limits={"full": 1})
    await machine.enqueue(aging.queue, jobs_of("full", 1))
    assert len(await machine.claim(aging.queue)) == 1
    await aging.fill(50, "full", "b")
    old = 0
    for _ in range(16):
        await machine.enqueue(aging.queue, jobs_of("full", 1))
        old += sum(job.tag is None for job in await aging.step(1))
    assert old == pytest.approx(16 / OVERTAKE_SHARE, abs=1)


async def test_what_is_returned_ages_where_it_goes_to_the_end(
    machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, aging_ms=20, retry_order="back", tenant_limits={"a": 10})
    load = Tenants(machine, queue)
    made = await machine.enqueue(queue, jobs_of("a", 2))
    first, second = sorted(await machine.claim(queue, 2), key=lambda job: job.seq)
    await nack(machine, queue, second)
    await nack(machine, queue, first)
    await machine.enqueue(queue, high("a", 20))
    await machine.enqueue(queue, high("b", 20))
    came: list[Seq] = []
    give_up = time.monotonic() + 3
    while len(came) < 2:
        assert time.monotonic() < give_up, "they starve"
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
