"""Callers share statements, and each gets what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import asyncpg
import pytest

from app.kernel.claim.consumer import Return
from app.kernel.model import Batch
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, held

MakeQueue = Callable[..., Awaitable[Policy]]
CALLERS = 64


async def test_sixty_four_callers_share_a_few_statements(machine: Machine, queue: Policy) -> None:
    log = machine.log
    seqs = await asyncio.gather(*(machine.enqueue(queue) for _ in range(CALLERS)))
    assert sorted(seq for (seq,) in seqs) == list(range(1, CALLERS + 1))
    assert log.count("enqueue") <= 2

    claimed = await asyncio.gather(*(machine.claim(queue, node=f"n{n}") for n in range(CALLERS)))
    jobs = [job for (job,) in claimed]
    assert sorted(job.seq for job in jobs) == list(range(1, CALLERS + 1))
    assert log.count("claim") <= 2

    verbs = machine.engine.settlements
    extended = await asyncio.gather(*(verbs.extend(queue, [held(job, f"n{n}")], 60_000) for n, job in enumerate(jobs)))
    assert [list(done) for done in extended] == [[0]] * CALLERS
    assert log.count("extend") <= 2

    half = CALLERS // 2
    returned = await asyncio.gather(*(verbs.nack(queue, [held(job)], [Return()]) for job in jobs[:half]))
    assert returned == [{0}] * half
    assert log.count("nack") <= 2

    acked = await asyncio.gather(*(verbs.ack(queue, [held(job)]) for job in jobs))
    assert acked == [set()] * half + [{0}] * half
    assert log.count("ack") <= 2


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
    shown = [(jobs[seq].payload, jobs[seq].tag, jobs[seq].metadata) for part in seqs for seq in part]
    assert shown == [
        (b"0", None, None),
        (b"1", "one", None),
        (b"2", "two", None),
        (b"3", None, '{"k":3}'),
        (b"4", None, None),
        (b"5", None, None),
    ]
    assert [jobs_of[0] for jobs_of in jobs.items()][:2] == [seqs[1][0], seqs[3][1]], "priority first"


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
    jobs = await machine.claim(queue, 10)
    assert [job.seq for job in jobs] == one + two
    assert b"bad" not in {job.payload for job in jobs}
    assert b"x" not in {job.payload for job in jobs}, "half of a batch is there"


async def test_a_claimer_that_the_database_refuses_fails_alone(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 4)
    calls = [machine.claim(queue, 2), machine.claim(queue, 2, node="a\0b"), machine.claim(queue, 2)]
    one, refused, two = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(refused, asyncpg.PostgresError)
    assert isinstance(one, list)
    assert isinstance(two, list)
    assert sorted(job.seq for job in one + two) == [1, 2, 3, 4]


async def test_one_job_named_by_two_callers_goes_to_one(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue)
    (job,) = await machine.claim(queue)
    verbs = machine.engine.settlements
    assert sorted(await asyncio.gather(*(verbs.ack(queue, [held(job)]) for _ in range(3))), key=len) == [
        set(),
        set(),
        {0},
    ]


async def test_one_job_named_twice_by_one_caller_counts_once(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 2)
    first, second = await machine.claim(queue, 2)
    verbs = machine.engine.settlements
    twice = [held(first), held(second), held(first)]
    assert len(await verbs.extend(queue, twice, 60_000)) >= 2
    done = await verbs.ack(queue, twice)
    assert 1 in done
    assert len(done) == 2


async def test_a_greedy_cohort_serves_the_first_come_first(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 10)
    shares = await asyncio.gather(*(machine.claim(queue, 6, node=str(n)) for n in range(3)))
    assert [[job.seq for job in share] for share in shares] == [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10], []]
    assert machine.log.count("claim") == 1


async def test_a_cohort_with_a_window_shares_in_turn(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, claim_jitter_ms=30)
    await machine.enqueue(queue, batch(10))
    shares = await asyncio.gather(*(machine.claim(queue, most, node=str(most)) for most in (6, 1, 6)))
    assert [[job.seq for job in share] for share in shares] == [[1, 4, 6, 8, 10], [2], [3, 5, 7, 9]]
    assert machine.log.count("claim") == 1


async def test_each_of_a_cohort_has_its_own_node_and_lease(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 4)
    (short,), (long,) = await asyncio.gather(
        machine.claim(queue, node="short", lease_ms=1_000), machine.claim(queue, node="long", lease_ms=3_600_000)
    )
    assert machine.log.count("claim") == 1
    assert 3_590_000 < long.deadline_ms - short.deadline_ms < 3_610_000
    verbs = machine.engine.settlements
    assert await verbs.ack(queue, [held(short, "long")]) == set()
    assert await verbs.ack(queue, [held(short, "short"), held(long, "long")]) == {0, 1}
