"""Tenants: named claims take from those alone, others share fairly, by weight and by what jobs take; limits hold."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

import pytest

from app.base.db.pool import Pools
from app.features.jobs.changes import Changes
from app.kernel.claim import fairness
from app.kernel.claim.consumer import Return
from app.kernel.model import Batch, Connection, Job
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start, parked
from tests.queue.calls import PATIENCE, held, lease_ended, until

LARGE = 4_000


def jobs_of(tenant: str, count: int, **columns: object) -> Batch:
    return Batch(payloads=[b"1"] * count, tenants=[tenant] * count, **columns)  # type: ignore[arg-type]


def by_tenant(jobs: Sequence[Job]) -> Counter[str]:
    return Counter(job.tenant for job in jobs)


async def fill(machine: Machine, queue: Policy, counts: dict[str, int]) -> None:
    for tenant, count in counts.items():
        if count:
            await machine.enqueue(queue, jobs_of(tenant, count))


# That what another process does is found, and how soon: docs/semantics.md, section 4, says within a second.
FOUND = pytest.mark.parametrize("seconds", [PATIENCE, pytest.param(1.5, marks=pytest.mark.slow, id="soon")])


async def until_claimed(machine: Machine, queue: Policy, most: int = 10, seconds: float = PATIENCE) -> list[Job]:
    """Ask again and again, until there is something."""
    found: list[Job] = []

    async def claimed() -> bool:
        found.extend(await machine.claim(queue, most))
        return bool(found)

    await until(claimed, "it is found", seconds)
    return found


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
    assert all(job.seq > 120 for job in jobs if job.tenant == "b"), "the higher priority of b came second"


async def test_who_has_work_gets_what_others_leave_and_owes_nothing_for_it(machine: Machine, queue: Policy) -> None:
    await fill(machine, queue, {"a": 400, "c": 1})
    assert by_tenant(await machine.claim(queue, 100)) == {"a": 99, "c": 1}
    assert by_tenant(await machine.claim(queue, 100)) == {"a": 100}
    await fill(machine, queue, {"b": 400})
    for _ in range(3):
        assert by_tenant(await machine.claim(queue, 50)) == {"a": 25, "b": 25}


async def test_weights(machine: Machine, make: Make) -> None:
    queue = await make(tenant_weights={"heavy": 3})
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
        await machine.ack(queue, [job for job in jobs if job.tenant == "quick"])
        await asyncio.sleep(0.05)  # the work of the slow ones
        await machine.ack(queue, [job for job in jobs if job.tenant == "slow"])
    got = by_tenant(await machine.claim(queue, 100))
    assert got["quick"] > 2 * got["slow"] > 0


async def test_a_named_claim_takes_from_those_alone(machine: Machine, queue: Policy) -> None:
    await fill(machine, queue, {"a": 5, "b": 5, "c": 5, "": 5})
    assert by_tenant(await machine.claim(queue, 10, tenants=["c"])) == {"c": 5}
    assert by_tenant(await machine.claim(queue, 6, tenants=["a", "b", "nobody"])) == {"a": 3, "b": 3}
    assert await machine.claim(queue, 6, tenants=["c", "nobody"]) == []
    assert by_tenant(await machine.claim(queue, 100)) == {"a": 2, "b": 2, "": 5}
    await fill(machine, queue, {"a": 50, "b": 50})
    at_once = await asyncio.gather(*(machine.claim(queue, 10, tenants=[tenant]) for tenant in "ab" * 5))
    assert [by_tenant(jobs) for jobs in at_once] == [{tenant: 10} for tenant in "ab" * 5]


async def test_who_waits_for_a_tenant_is_woken_for_it_alone(machine: Machine, queue: Policy) -> None:
    await fill(machine, queue, {"a": 1, "b": 1})
    assert len(await machine.claim(queue, 2)) == 2
    over = asyncio.Event()

    async def until_over() -> None:
        await over.wait()

    machine.log.before["probe"] = until_over  # a look wakes all, since it doesn't say whose job it saw
    for_b = asyncio.create_task(machine.claim(queue, 5, wait=30, tenants=["b"]))
    for_all = asyncio.create_task(machine.claim(queue, 5, wait=30))
    await parked(machine, queue, 2)
    claims = machine.log.count("claim")
    await fill(machine, queue, {"a": 2})
    assert by_tenant(await for_all) == {"a": 2}
    asked = [arguments[1] for arguments in machine.log.arguments("claim")[claims:]]
    assert asked, "who waited for all was woken"
    assert ["b"] not in asked, "who waits for b asks for b alone, and was woken for a"
    await parked(machine, queue, 1)
    await fill(machine, queue, {"b": 1})
    assert by_tenant(await for_b) == {"b": 1}
    over.set()


async def test_many_tenants_are_gone_through_in_turn(machine: Machine, start: Start, queue: Policy) -> None:
    """More than one statement asks; and a claim from another process finds all, though it asks for few at a time."""
    names = [f"t{n}" for n in range(700)]
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 700, tenants=list(names)))
    other, found = start(), Counter[str]()
    while jobs := await other.claim(queue, 50):
        found += by_tenant(jobs)
    assert found == Counter(names)
    assert len(other.log.arguments("claim")[0][1]) < 700, "a claim of few jobs asks few tenants"
    # What appears in one that had nothing is found, whoever put it there; one's own, or what is returned, at once.
    await machine.enqueue(queue, jobs_of(names[345], 1))
    assert by_tenant(await until_claimed(other, queue)) == {names[345]: 1}
    await other.enqueue(queue, jobs_of(names[5], 1))
    own = await other.claim(queue, 50)
    await other.nack(queue, own)
    assert [job.seq for job in await other.claim(queue, 50)] == [own[0].seq]


async def test_jobs_that_come_late_under_a_cursor_are_found(pools: Pools, machine: Machine, queue: Policy) -> None:
    """An enqueue that commits after later ones were claimed: its tenant's sweep finds it."""
    await fill(machine, queue, {"a": 1, "b": 1, "c": 1})
    async with pools.rest.acquire() as db, db.transaction():
        late = await late_job(db, queue, "b")
        await fill(machine, queue, {"a": 50, "b": 1})
        while await machine.claim(queue, 10):
            pass
    assert [job.seq for job in await until_claimed(machine, queue)] == [late]


async def late_job(db: Connection, queue: Policy, tenant: str) -> int:
    """A job of a transaction that is still open; its seq."""
    seq: int = await db.fetchval(
        "INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, visible_at, created_at, updated_at,"
        " payload) SELECT $1, $2, n, n, 'ready', $4, now(), now(), now(), '1' FROM nextval($3::oid::regclass) n"
        " RETURNING seq",
        *(queue.topic.name, queue.topic.id, queue.topic.sequence, tenant),
    )
    return seq


async def test_a_limit_holds_over_claims_acks_and_ended_leases(pools: Pools, machine: Machine, make: Make) -> None:
    queue = await make(tenant_limits={"a": 3})
    await fill(machine, queue, {"a": 20, "b": 20})
    jobs = await machine.claim(queue, 20)
    assert by_tenant(jobs) == {"a": 3, "b": 17}
    assert by_tenant(await machine.claim(queue, 20)) == {"b": 3}
    assert await machine.claim(queue, 20) == []
    first, second, last = (job for job in jobs if job.tenant == "a")
    await machine.ack(queue, [first, second])
    assert by_tenant(await machine.claim(queue, 20)) == {"a": 2}
    await machine.engine.settlements.extend(queue, [held(last)], 100)
    await lease_ended(pools.rest, queue, last)
    assert len(await machine.claim(queue, 20, tenants=["a"])) == 1, "an ended lease counts no more"


@pytest.mark.usefixtures("no_poll")
@pytest.mark.parametrize(
    ("how", "waits"),
    [
        ("ack", True),
        ("ack", False),
        ("fail", True),
        ("nack, with a delay", False),
        ("nack, out of deliveries", True),
        ("cancelled, then returned", False),
        ("deleted by key", True),
    ],
)
async def test_whatever_ends_a_lease_makes_room_at_once(
    how: str, waits: bool, machine: Machine, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fairness, "REST_SECONDS", 600.0)  # what ended says so: nobody has to look
    deliveries = 1 if how == "nack, out of deliveries" else 0
    queue = await make(tenant_limits={"a": 1}, max_deliveries=deliveries, dead_letter="dead")
    await machine.enqueue(queue, jobs_of("a", 2, keys=["the key", None]))
    await fill(machine, queue, {"b": 1})
    jobs = await machine.claim(queue, 5)
    assert by_tenant(jobs) == {"a": 1, "b": 1}
    assert await machine.claim(queue, 5) == []
    waiting = asyncio.create_task(machine.claim(queue, 5, wait=30)) if waits else None
    if waits:
        await parked(machine, queue, 1)
    ending = [job for job in jobs if job.tenant == "a"]
    if how == "ack":
        await machine.ack(queue, ending)
    elif how == "fail":
        assert await machine.engine.settlements.fail(queue, [held(ending[0])], ["no"]) == {0}
    elif how == "deleted by key":
        assert await machine.engine.exits.delete_key(queue, "a", "the key") == 1
    else:
        if how == "cancelled, then returned":
            await machine.engine.core(Changes).cancel(queue, [ending[0].seq])
        await machine.nack(queue, ending, Return(600_000 if how == "nack, with a delay" else 0))
    assert by_tenant(await waiting if waiting else await machine.claim(queue, 5)) == {"a": 1}


async def test_room_that_is_made_while_it_is_counted_is_seen(machine: Machine, make: Make) -> None:
    """A claim finds a tenant at its limit; the job is failed before the tenant is put to rest."""
    queue = await make(tenant_limits={"a": 1})
    await fill(machine, queue, {"a": 2, "b": 1})
    jobs = await machine.claim(queue, 5)
    tenants = machine.engine.fairness.of(queue.topic.id)
    tenants.note_claimable(["a"])
    turn = tenants.turn(5)
    [first] = [held(job) for job in jobs if job.tenant == "a"]
    assert await machine.engine.settlements.fail(queue, [first], ["no"]) == {0}
    assert "a" not in {one.name for one in tenants.share(turn, 5, {"a": 0}, {}).tenants}, "as it was counted"
    assert by_tenant(await machine.claim(queue, 5)) == {"a": 1}


async def test_what_comes_due_is_not_late_among_tenants(machine: Machine, start: Start, queue: Policy) -> None:
    """Delays and ended leases, while other tenants keep claims full; or of another process, while nobody has any."""
    await fill(machine, queue, {"a": 1, "busy": 500})
    while "a" not in by_tenant(await machine.claim(queue, 2)):
        pass
    await machine.enqueue(queue, jobs_of("a", 1, delays_ms=[200]))
    for lease_ms in (100, 60_000):  # when its delay has ended, and when its lease has
        began = time.monotonic()
        while "a" not in by_tenant(await machine.claim(queue, 2, lease_ms=lease_ms)):
            assert time.monotonic() - began < 10
            await asyncio.sleep(0.02)
    while await machine.claim(queue, 100):
        pass
    await start().enqueue(queue, jobs_of("a", 1, delays_ms=[150]))
    assert by_tenant(await until_claimed(machine, queue)) == {"a": 1}


async def test_spent_jobs_of_many_tenants_cost_one_statement(pools: Pools, machine: Machine, make: Make) -> None:
    queue = await make(max_deliveries=1, on_exhausted="fail")
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 200, tenants=[f"t{n}" for n in range(200)]))
    spent = await machine.claim(queue, 200, lease_ms=100)
    await lease_ended(pools.rest, queue, spent[-1])
    assert await machine.claim(queue, 1) == []
    assert machine.log.count("exhausted") <= 10, "one for each lane"
    failed = "SELECT count(*) FROM holdfast.jobs WHERE topic = $1 AND state = 'failed'"
    assert await pools.rest.fetchval(failed, queue.topic.name) == 200


WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND pid <> pg_backend_pid()
AND query LIKE '%holdfast.tenants%' AND datname = current_database()
"""
COUNTING = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.tenants ' || $1::integer, 0))"


async def test_claims_of_two_processes_together_keep_to_a_limit(pools: Pools, start: Start, make: Make) -> None:
    """Both have counted, or would have: the second waits until the first has committed, and counts then."""
    queue = await make(tenant_limits={"a": 5})
    one, other = start(), start()
    await fill(one, queue, {"a": 50, "b": 50})
    async with pools.rest.acquire() as db, pools.rest.acquire() as watcher:

        async def both_wait() -> bool:
            return bool(await watcher.fetchval(WAITING) == 2)

        async with db.transaction():
            await db.execute(COUNTING, queue.topic.id)  # a claim that has taken the lock, and not committed yet
            claims = [asyncio.create_task(machine.claim(queue, 10)) for machine in (one, other)]
            await until(both_wait, "both claims wait for the lock")
    jobs = [job for claim in claims for job in await claim]
    assert len(jobs) == 20
    assert by_tenant(jobs)["a"] == 5


TENANTS = [f"t{n}" for n in range(20)]  # more than a pool has connections


@pytest.mark.parametrize("order", ["front", "back"])
async def test_claims_that_wait_for_their_turn_to_count_take_no_connections_from_others(
    order: str, machine: Machine, make: Make, pools: Pools
) -> None:
    """And each gets its own in the end."""
    limited = await make(tenant_limits=dict.fromkeys(TENANTS, 2), retry_order=order, durability="fsync")
    other = await make(".other", durability="fsync")
    await fill(machine, limited, dict.fromkeys(TENANTS, 3))
    await machine.enqueue(other)
    async with pools.rest.acquire() as db, pools.rest.acquire() as watcher:

        async def one_waits() -> bool:
            return bool(await watcher.fetchval(WAITING) > 0)

        async with db.transaction():
            await db.execute(COUNTING, limited.topic.id)
            claims = [asyncio.create_task(machine.claim(limited, 3, tenants=[tenant])) for tenant in TENANTS]
            await until(one_waits, "a claim waits for the lock")
            assert len(await machine.claim(other)) == 1
            assert await watcher.fetchval(WAITING) == 1
    assert [by_tenant(jobs) for jobs in await asyncio.gather(*claims)] == [{tenant: 2} for tenant in TENANTS]
