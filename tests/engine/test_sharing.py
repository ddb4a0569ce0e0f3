"""Callers share statements, and each gets what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.errors import Unavailable
from app.kernel.claim.consumer import Return
from app.kernel.model import Batch
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make
from tests.queue.calls import batch, held

CALLERS = 64


async def test_sixty_four_callers_share_a_few_statements(machine: Machine, queue: Policy) -> None:
    seqs = await asyncio.gather(*(machine.enqueue(queue) for _ in range(CALLERS)))
    assert sorted(seq for (seq,) in seqs) == list(range(1, CALLERS + 1))
    claimed = await asyncio.gather(*(machine.claim(queue, node=f"n{n}") for n in range(CALLERS)))
    jobs = [job for (job,) in claimed]
    assert sorted(job.seq for job in jobs) == list(range(1, CALLERS + 1))

    verbs = machine.engine.settlements
    extended = await asyncio.gather(*(verbs.extend(queue, [held(job, f"n{n}")], 60_000) for n, job in enumerate(jobs)))
    assert [list(done) for done in extended] == [[0]] * CALLERS
    half = CALLERS // 2
    returned = await asyncio.gather(*(verbs.nack(queue, [held(job)], [Return()]) for job in jobs[:half]))
    assert returned == [{0}] * half
    acked = await asyncio.gather(*(verbs.ack(queue, [held(job)]) for job in jobs))
    assert acked == [set()] * half + [{0}] * half
    assert {verb: machine.log.count(verb) <= 2 for verb in ("enqueue", "claim", "extend", "nack", "ack")} == (
        dict.fromkeys(("enqueue", "claim", "extend", "nack", "ack"), True)
    )


async def test_callers_one_after_the_other_wait_for_nobody(machine: Machine, queue: Policy) -> None:
    for _ in range(5):
        await machine.enqueue(queue)
        await machine.claim(queue)
    assert (machine.log.count("enqueue"), machine.log.count("claim")) == (5, 5)


async def test_each_caller_gets_the_seqs_of_its_own_records(machine: Machine, queue: Policy) -> None:
    """Batches of different shapes: columns that one has and another lacks are filled up between them."""
    batches = [
        Batch(payloads=[b"0"]),
        Batch(payloads=[b"1", b"2"], tags=["one", "two"], priorities=[3, None]),
        Batch(payloads=[b"3"], metadata=['{"k":3}'], producers=["p3"]),
        Batch(payloads=[b"4", b"5"], priorities=[None, 3]),
    ]
    seqs = await asyncio.gather(*(machine.enqueue(queue, one) for one in batches))
    assert machine.log.count("enqueue") == 1
    assert [len(part) for part in seqs] == [1, 2, 1, 2]
    jobs = {job.seq: job for job in await machine.claim(queue, 10)}
    assert list(jobs)[:2] == [seqs[1][0], seqs[3][1]], "priority first"
    assert [(jobs[seq].payload, jobs[seq].tag, jobs[seq].metadata) for part in seqs for seq in part] == [
        (b"0", None, None),
        (b"1", "one", None),
        (b"2", "two", None),
        (b"3", None, '{"k":3}'),
        (b"4", None, None),
        (b"5", None, None),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        Batch(payloads=[b"x", b"bad"], tags=[None, "a\0b"]),
        Batch(payloads=[b"bad"], metadata=["{"]),
        Batch(payloads=[b"bad"], priorities=[40_000]),
        Batch(payloads=[b"bad"], max_deliveries=[20_000]),
        Batch(payloads=[b"bad"], run_ats=[datetime(2026, 1, 1, tzinfo=UTC)], delays_ms=[2**63]),
    ],
    ids=["text", "json", "priority", "check", "delay"],
)
async def test_what_the_database_refuses_fails_alone(bad: Batch, machine: Machine, queue: Policy) -> None:
    calls = [machine.enqueue(queue), machine.enqueue(queue, bad), machine.enqueue(queue, 2)]
    one, refused, two = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(refused, asyncpg.PostgresError)
    assert isinstance(one, list)
    assert isinstance(two, list)
    assert [job.seq for job in await machine.claim(queue, 10)] == one + two, "nothing of a refused batch is there"


async def test_a_claimer_that_the_database_refuses_fails_alone(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 4)
    calls = [machine.claim(queue, 2), machine.claim(queue, 2, node="a\0b"), machine.claim(queue, 2)]
    one, refused, two = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(refused, asyncpg.PostgresError)
    assert isinstance(one, list)
    assert isinstance(two, list)
    assert sorted(job.seq for job in one + two) == [1, 2, 3, 4]


@pytest.fixture
async def full(pools: Pools, topic: str) -> AsyncIterator[str]:
    """The name of a dead-letter topic that takes no job, as on a disk that is full."""
    name = f"{topic}.full"
    await pools.rest.execute("""
        CREATE FUNCTION public.no_room() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE = 'no room'; END $$
    """)
    await pools.rest.execute(f"""
        CREATE TRIGGER no_room BEFORE INSERT ON holdfast.jobs FOR EACH ROW
        WHEN (NEW.topic = '{name}') EXECUTE FUNCTION public.no_room()
    """)
    yield name
    await pools.rest.execute("DROP FUNCTION public.no_room CASCADE")


async def test_who_can_not_be_dead_lettered_does_not_spoil_the_nacks_of_others(
    machine: Machine, make: Make, full: str
) -> None:
    queue = await make(max_deliveries=2, dead_letter=full)
    await machine.enqueue(queue, 2)
    first, second = await machine.claim(queue, 2)
    await machine.nack(queue, [first])
    [last] = await machine.claim(queue, 1)
    assert (last.seq, last.deliveries) == (first.seq, 2)
    nack = machine.engine.settlements.nack
    # One group: the first has had its last delivery, the second has not.
    answers = await asyncio.gather(
        nack(queue, [held(last)], [Return()]), nack(queue, [held(second)], [Return()]), return_exceptions=True
    )
    assert isinstance(answers[0], Unavailable), answers
    assert answers[1] == {0}
    assert [job.seq for job in await machine.claim(queue, 10)] == [second.seq]


async def test_one_job_that_is_named_several_times_counts_once(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 3)
    once, first, second = await machine.claim(queue, 3)
    verbs = machine.engine.settlements
    by_three = await asyncio.gather(*(verbs.ack(queue, [held(once)]) for _ in range(3)))
    assert sorted(by_three, key=len) == [set(), set(), {0}]
    twice = [held(first), held(second), held(first)]
    assert len(await verbs.extend(queue, twice, 60_000)) >= 2
    done = await verbs.ack(queue, twice)
    assert 1 in done
    assert len(done) == 2


async def test_a_cohort_serves_the_first_come_first_or_in_turn_where_it_has_a_window(
    machine: Machine, queue: Policy, make: Make
) -> None:
    await machine.enqueue(queue, 10)
    shares = await asyncio.gather(*(machine.claim(queue, 6, node=str(n)) for n in range(3)))
    assert [[job.seq for job in share] for share in shares] == [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10], []]
    even = await make(".even", claim_jitter_ms=30)
    await machine.enqueue(even, batch(10))
    shares = await asyncio.gather(*(machine.claim(even, most, node=str(most)) for most in (6, 1, 6)))
    assert [[job.seq for job in share] for share in shares] == [[1, 4, 6, 8, 10], [2], [3, 5, 7, 9]]
    assert machine.log.count("claim") == 2


async def test_each_of_a_cohort_has_its_own_node_and_lease(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 4)
    (short,), (long,) = await asyncio.gather(
        machine.claim(queue, node="short", lease_ms=1_000), machine.claim(queue, node="long", lease_ms=3_600_000)
    )
    assert machine.log.count("claim") == 1
    assert long.deadline_ms - short.deadline_ms == pytest.approx(3_599_000, abs=10_000)
    verbs = machine.engine.settlements
    assert await verbs.ack(queue, [held(short, "long")]) == set()
    assert await verbs.ack(queue, [held(long, "long")]) == {0}
