"""Tenants: named claims take from those alone, others share fairly, by weight and by what jobs take; limits hold."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest

from app.base.db.pool import Pools
from app.features.jobs.changes import Changes
from app.kernel.claim.consumer import Return
from app.kernel.model import Batch, Job
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, parked
from tests.queue.calls import held, lease_ended, until

MakeQueue = Callable[..., Awaitable[Policy]]
Start = Callable[[], Machine]
LARGE = 20_000


def jobs_of(tenant: str, count: int, **columns: object) -> Batch:
    return Batch(payloads=[b"1"] * count, tenants=[tenant] * count, **columns)  # type: ignore[arg-type]


def by_tenant(jobs: Sequence[Job]) -> Counter[str]:
    return Counter(job.tenant for job in jobs)


async def fill(machine: Machine, queue: Policy, counts: dict[str, int]) -> None:
    for tenant, count in counts.items():
        for begin in range(0, count, 10_000):
            await machine.enqueue(queue, jobs_of(tenant, min(count - begin, 10_000)))


async def ack(machine: Machine, queue: Policy, jobs: Sequence[Job]) -> None:
    assert len(await machine.engine.settlements.ack(queue, [held(job) for job in jobs])) == len(jobs)


@pytest.mark.parametrize("through", ["the process that enqueued", "another process"])
async def test_a_large_tenant_does_not_keep_small_ones_waiting(
    through: str, machine: Machine, start: Start, queue: Policy
) -> None:
    small = {f"small {n}": 10 for n in range(100)}
    await fill(machine, queue, {"large": LARGE} | small)
    claimer = machine if through == "the process that enqueued" else start()
    jobs = await claimer.claim(queue, 1_000) + await claimer.claim(queue, 1_000)
    assert len(jobs) == 2_000, "what the small ones leave, the large one gets"
    assert {tenant: n for tenant, n in by_tenant(jobs).items() if tenant != "large"} == small


async def test_a_high_priority_counts_within_its_tenant(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, jobs_of("a", 100, priorities=[9] * 100))
    await machine.enqueue(queue, jobs_of("b", 40, priorities=[0] * 20 + [5] * 20))
    jobs = await machine.claim(queue, 40)
    assert by_tenant(jobs) == {"a": 20, "b": 20}
    first = await machine.claim(queue, 1, tenants=["b"])
    assert len(first) == 1
    assert all(job.seq > 120 for job in jobs if job.tenant == "b"), "the higher priority of b came second"


async def test_who_has_work_gets_what_others_leave_and_owes_nothing_for_it(machine: Machine, queue: Policy) -> None:
    await fill(machine, queue, {"a": 400, "b": 0, "c": 1})
    assert by_tenant(await machine.claim(queue, 100)) == {"a": 99, "c": 1}
    assert by_tenant(await machine.claim(queue, 100)) == {"a": 100}
    await fill(machine, queue, {"b": 400})
    for _ in range(3):
        assert by_tenant(await machine.claim(queue, 50)) == {"a": 25, "b": 25}


async def test_weights(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, tenant_weights={"heavy": 3})
    await fill(machine, queue, {"heavy": 200, "light": 200})
    assert by_tenant(await machine.claim(queue, 100)) == {"heavy": 75, "light": 25}
    ones = [(await machine.claim(queue))[0].tenant for _ in range(40)]
    assert Counter(ones) == {"heavy": 30, "light": 10}
    assert "light" in ones[:8], "it is not put off to the end"


async def test_slow_jobs_are_charged_by_the_time_they_take(machine: Machine, queue: Policy) -> None:
    """What a tenant gets is time, as it was measured from claim to ack."""
    await fill(machine, queue, {"slow": 400, "quick": 400})
    for _ in range(8):
        jobs = await machine.claim(queue, 10)
        await ack(machine, queue, [job for job in jobs if job.tenant == "quick"])
        await asyncio.sleep(0.05)  # the work of the slow ones
        await ack(machine, queue, [job for job in jobs if job.tenant == "slow"])
    got = by_tenant(await machine.claim(queue, 100))
    assert got["quick"] > 2 * got["slow"] > 0


async def test_a_named_claim_takes_from_those_alone(machine: Machine, queue: Policy) -> None:
    await fill(machine, queue, {"a": 5, "b": 5, "c": 5, "": 5})
    assert by_tenant(await machine.claim(queue, 10, tenants=["c"])) == {"c": 5}
    assert by_tenant(await machine.claim(queue, 6, tenants=["a", "b", "nobody"])) == {"a": 3, "b": 3}
    assert await machine.claim(queue, 6, tenants=["c", "nobody"]) == []
    assert by_tenant(await machine.claim(queue, 100)) == {"a": 2, "b": 2, "": 5}


async def test_named_claims_at_once_don_t_mix(machine: Machine, queue: Policy) -> None:
    await fill(machine, queue, {"a": 50, "b": 50})
    claims = [machine.claim(queue, 10, tenants=[tenant]) for tenant in "ab" * 5]
    for tenant, jobs in zip("ab" * 5, await asyncio.gather(*claims), strict=True):
        assert by_tenant(jobs) == {tenant: 10}


async def test_who_waits_for_a_tenant_is_woken_for_it_alone(machine: Machine, queue: Policy) -> None:
    await fill(machine, queue, {"a": 1, "b": 1})
    assert len(await machine.claim(queue, 2)) == 2
    over = asyncio.Event()

    async def until_over() -> None:
        await over.wait()

    machine.log.before["probe"] = until_over  # a look wakes all, since it doesn't say whose job it saw
    for_b = asyncio.create_task(machine.claim(queue, 5, wait=10, tenants=["b"]))
    for_all = asyncio.create_task(machine.claim(queue, 5, wait=10))
    await parked(machine, queue, 2)
    claims = machine.log.count("claim")
    await fill(machine, queue, {"a": 2})
    assert by_tenant(await for_all) == {"a": 2}
    asked = [arguments[1] for arguments in machine.log.arguments("claim")[claims:]]
    assert asked, "who waited for all was woken"
    assert ["b"] not in asked, "who waits for b asks for b alone, and was woken for a"
    await parked(machine, queue, 1)
    began = time.monotonic()
    await fill(machine, queue, {"b": 1})
    assert by_tenant(await for_b) == {"b": 1}
    assert time.monotonic() - began < 0.3, "its own process's job was not taken at once"
    over.set()


async def test_many_tenants_are_gone_through_in_turn(machine: Machine, start: Start, queue: Policy) -> None:
    """More than one statement asks; and a claim from another process finds all, though it asks for few at a time."""
    names = [f"t{n}" for n in range(700)]
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 700, tenants=list(names)))
    other, found = start(), Counter[str]()
    while jobs := await other.claim(queue, 50):
        found += by_tenant(jobs)
    assert found == Counter(names)
    # What appears in one that had nothing is found within a second, whoever put it there.
    late = names[345]
    await machine.enqueue(queue, jobs_of(late, 1))
    began = time.monotonic()
    while not (jobs := await other.claim(queue, 50)):
        assert time.monotonic() - began < 1.0, "it was not found"
        await asyncio.sleep(0.01)
    assert by_tenant(jobs) == {late: 1}
    # One's own is found at once, and so is what is returned.
    await other.enqueue(queue, jobs_of(names[5], 1))
    (own,) = await other.claim(queue, 50)
    await other.engine.settlements.nack(queue, [held(own)], [Return()])
    assert [job.seq for job in await other.claim(queue, 50)] == [own.seq]


async def test_a_claim_of_few_jobs_asks_few_tenants(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 700, tenants=[f"t{n}" for n in range(700)]))
    await machine.claim(queue, 1)
    [arguments] = machine.log.arguments("claim")
    assert len(arguments[1]) <= 32


async def test_jobs_that_come_late_under_a_cursor_are_found(pools: Pools, machine: Machine, queue: Policy) -> None:
    """An enqueue that commits after later ones were claimed: its tenant's sweep finds it within a second."""
    await fill(machine, queue, {"a": 1, "b": 1, "c": 1})
    async with pools.rest.acquire() as db:
        transaction = db.transaction()
        await transaction.start()
        [late] = await db.fetchval("SELECT array_agg(nextval($1::oid::regclass))", queue.topic.sequence)
        await db.execute(
            "INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, visible_at, created_at,"
            " updated_at, payload) VALUES ($1, $2, $3, $3, 'ready', 'b', now(), now(), now(), '1')",
            queue.topic.name,
            queue.topic.id,
            late,
        )
        await fill(machine, queue, {"a": 50, "b": 1})
        while await machine.claim(queue, 10):
            pass
        await transaction.commit()
    began = time.monotonic()
    while not (jobs := await machine.claim(queue, 10)):
        assert time.monotonic() - began < 1.0, "it was not found"
        await asyncio.sleep(0.01)
    assert [job.seq for job in jobs] == [late]


async def test_a_limit_holds_over_claims_acks_and_ended_leases(
    pools: Pools, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, tenant_limits={"a": 3})
    await fill(machine, queue, {"a": 20, "b": 20})
    jobs = await machine.claim(queue, 20)
    assert by_tenant(jobs) == {"a": 3, "b": 17}
    assert by_tenant(await machine.claim(queue, 20)) == {"b": 3}
    assert await machine.claim(queue, 20) == []
    await ack(machine, queue, [job for job in jobs if job.tenant == "a"][:2])
    assert by_tenant(await machine.claim(queue, 20)) == {"a": 2}
    last = next(job for job in jobs if job.tenant == "a" and job.seq == max(j.seq for j in jobs if j.tenant == "a"))
    await machine.engine.settlements.extend(queue, [held(last)], 100)
    async with pools.rest.acquire() as db:
        await lease_ended(db, queue, last)
    assert len(await machine.claim(queue, 20, tenants=["a"])) == 1, "an ended lease counts no more"


async def test_a_claim_that_waits_at_a_limit_goes_on_with_an_ack(
    machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, tenant_limits={"a": 1})
    await fill(machine, queue, {"a": 2})
    [job] = await machine.claim(queue, 5)
    waiting = asyncio.create_task(machine.claim(queue, 5, wait=10))
    await parked(machine, queue, 1)
    began = time.monotonic()
    await ack(machine, queue, [job])
    assert by_tenant(await waiting) == {"a": 1}
    assert time.monotonic() - began < 0.3


async def let_go(machine: Machine, queue: Policy, how: str, job: Job) -> None:
    """End a lease, so that its job can't be claimed again for now."""
    settle, one = machine.engine.settlements, [held(job)]
    if how == "fail":
        assert await settle.fail(queue, one, ["no"]) == {0}
    elif how == "nack, with a delay":
        assert await settle.nack(queue, one, [Return(60_000)]) == {0}
    elif how == "nack, out of deliveries":
        assert await settle.nack(queue, one, [Return()]) == {0}
    elif how == "cancelled, then returned":
        await machine.engine.core(Changes).cancel(queue, [job.seq])
        assert await settle.nack(queue, one, [Return()]) == {0}
    elif how == "deleted by key":
        assert await machine.engine.exits.delete_key(queue, "a", "the key") == 1
    else:
        await ack(machine, queue, [job])


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    "how",
    [
        "ack",
        "fail",
        "nack, with a delay",
        "nack, out of deliveries",
        "cancelled, then returned",
        "deleted by key",
    ],
)
async def test_whatever_ends_a_lease_makes_room_at_once(
    how: str, waits: bool, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    deliveries = 1 if how == "nack, out of deliveries" else 0
    queue = await make_queue(topic, tenant_limits={"a": 1}, max_deliveries=deliveries, dead_letter=f"{topic}.dead")
    await machine.enqueue(queue, jobs_of("a", 2, keys=["the key", None]))
    await fill(machine, queue, {"b": 1})
    jobs = await machine.claim(queue, 5)
    assert by_tenant(jobs) == {"a": 1, "b": 1}
    assert await machine.claim(queue, 5) == []
    waiting = asyncio.create_task(machine.claim(queue, 5, wait=10)) if waits else None
    if waits:
        await parked(machine, queue, 1)
    began = time.monotonic()
    await let_go(machine, queue, how, next(job for job in jobs if job.tenant == "a"))
    assert by_tenant(await waiting if waiting else await machine.claim(queue, 5)) == {"a": 1}
    assert time.monotonic() - began < 0.3, "found by a look, not by what ended"


async def test_room_that_is_made_while_it_is_counted_is_seen(
    machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    """A claim finds a tenant at its limit; the job is failed before the tenant is put to rest."""
    queue = await make_queue(topic, tenant_limits={"a": 1})
    await fill(machine, queue, {"a": 2, "b": 1})
    jobs = await machine.claim(queue, 5)
    tenants = machine.engine.fairness.of(queue.topic.id)
    tenants.heard(["a"])
    turn = tenants.turn(5)
    await let_go(machine, queue, "fail", next(job for job in jobs if job.tenant == "a"))
    assert "a" not in {one.name for one in tenants.share(turn, 5, {"a": 0}, {}).tenants}, "as it was counted"
    assert by_tenant(await machine.claim(queue, 5)) == {"a": 1}


async def test_what_comes_due_is_not_late_among_tenants(machine: Machine, queue: Policy) -> None:
    """Delays and ended leases that this process knows of, while other tenants keep claims full."""
    await fill(machine, queue, {"a": 1, "busy": 5_000})
    while "a" not in by_tenant(await machine.claim(queue, 2)):
        pass
    for lasts in (0.2, 0.15):
        began = time.monotonic()
        await machine.enqueue(queue, jobs_of("a", 1, delays_ms=[int(lasts * 1000)]))
        while "a" not in by_tenant(jobs := await machine.claim(queue, 2, lease_ms=100)):
            await asyncio.sleep(0.002)
        assert time.monotonic() - began < lasts + 0.15
        began = time.monotonic()
        while "a" not in by_tenant(jobs := await machine.claim(queue, 2)):
            await asyncio.sleep(0.002)
        assert time.monotonic() - began < 0.1 + 0.15
        await ack(machine, queue, [job for job in jobs if job.tenant == "a"])


@pytest.mark.parametrize("tenants", [["a"], None])
async def test_who_asks_again_and_again_gets_what_comes_due_at_once(
    tenants: list[str] | None, machine: Machine, start: Start, queue: Policy
) -> None:
    """Another process's delay, of which this one knows nothing: nobody has anything, so all are asked."""
    await fill(machine, queue, {"a": 1, "b": 1})
    await ack(machine, queue, await machine.claim(queue, 2))
    began = time.monotonic()
    await start().enqueue(queue, jobs_of("a", 1, delays_ms=[150]))
    while not await machine.claim(queue, 2, tenants=tenants):
        await asyncio.sleep(0.002)
    assert time.monotonic() - began < 0.15 + 0.15


async def test_spent_jobs_of_many_tenants_cost_one_statement(
    pools: Pools, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 200, tenants=[f"t{n}" for n in range(200)]))
    spent = await machine.claim(queue, 200, lease_ms=100)
    assert len(spent) == 200
    await lease_ended(pools.rest, queue, spent[-1])
    assert await machine.claim(queue, 1) == []
    assert machine.log.count("exhausted") <= 10, "one for each lane"
    async with pools.rest.acquire() as db:
        left = await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1 AND state <> 'failed'", topic)
    assert left == 0


async def test_claims_of_two_processes_together_keep_to_a_limit(
    pools: Pools, start: Start, topic: str, make_queue: MakeQueue
) -> None:
    """Both have counted, or would have: the second waits until the first has committed, and counts then."""
    queue = await make_queue(topic, tenant_limits={"a": 5})
    one, other = start(), start()
    await fill(one, queue, {"a": 50, "b": 50})
    async with pools.rest.acquire() as db, pools.rest.acquire() as watcher:
        transaction = db.transaction()
        await transaction.start()
        # A claim that has taken the lock, and not committed yet.
        await db.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.tenants ' || $1::integer, 0))", queue.topic.id
        )
        claims = [asyncio.create_task(machine.claim(queue, 10)) for machine in (one, other)]

        async def both_wait() -> bool:
            waiting: int = await watcher.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND pid <> pg_backend_pid() "
                "AND query LIKE '%holdfast.tenants%' AND datname = current_database()"
            )
            return waiting == 2

        await until(both_wait, "both claims wait for the lock")
        await transaction.commit()
    jobs = [job for claim in claims for job in await claim]
    assert len(jobs) == 20
    assert by_tenant(jobs)["a"] == 5
