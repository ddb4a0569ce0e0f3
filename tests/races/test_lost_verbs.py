"""A verb that waits for another one on the same job: a good lease's verb is not lost, and a bad one's has no effect.

A statement locks the newest version of a row, but finds what it changes as its snapshot has it. So what it waited for
is locked and not changed, and the verb has to run again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from asyncpg.pgproto.pgproto import UUID

from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.model import Connection, HeldJob
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Spent
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, events, held, put, take
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]


async def _ack(db: Connection, policy: Policy, holder: HeldJob) -> bool:
    return await consumer.ack(db, policy.topic, [holder]) == {0}


async def _nack(db: Connection, policy: Policy, holder: HeldJob) -> bool:
    returned = await consumer.nack(db, policy.topic, policy.budget, [holder], [Return(delay_ms=60_000)])
    return returned.done == {0}


async def _extend(db: Connection, policy: Policy, holder: HeldJob) -> bool:
    return list(await consumer.extend(db, policy.topic, [holder], [60_000])) == [0]


VERBS = {"ack": _ack, "nack": _nack, "extend": _extend}
LOGGED = {"ack": "acked", "nack": "released", "extend": "extended"}


@pytest.mark.parametrize("verb", VERBS)
async def test_named_by_node_it_waits_for_a_heartbeat_and_is_done(verb: str, queue: Policy, rivals: Rivals) -> None:
    """By the lease: test_serial.py."""
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)
    holder = HeldJob(job.seq, None, "worker")

    async with rivals.first():
        assert await _extend(rivals.one, queue, held(job))
        late = await rivals.behind(VERBS[verb](rivals.other, queue, holder))

    assert await late, "the verb of a good lease was lost"
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "extended", LOGGED[verb]]


async def test_only_what_met_the_heartbeat_runs_again(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(5))
    jobs = await take(rivals.one, queue, 5)

    async with rivals.first():
        await consumer.extend(rivals.one, queue.topic, [held(jobs[1]), held(jobs[3])], [60_000, 60_000])
        late = await rivals.behind(consumer.ack(rivals.other, queue.topic, [held(job) for job in jobs]))

    assert await late == {0, 1, 2, 3, 4}
    for job in jobs:
        assert (await events(rivals.one, queue, job.seq)).count("acked") == 1


async def test_a_burial_that_meets_a_heartbeat_changes_nothing_and_can_run_again(
    topic: str, make_queue: MakeQueue, rivals: Rivals
) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    dead = await make_queue(f"{topic}.dead")
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)
    spent = [Spent(job.seq, UUID(job.lease), "no use")]
    async with rivals.first():
        assert await _extend(rivals.one, queue, held(job))
        late = await rivals.behind(
            exits.move_to_dead_letters(rivals.other, queue.topic, queue.budget, spent, dead.topic)
        )
    assert await late == set()
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "extended"]
    assert len(await take(rivals.one, dead)) == 0, "it was in two places"
    assert await exits.move_to_dead_letters(rivals.other, queue.topic, queue.budget, spent, dead.topic) == {0}
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "extended", "dead_lettered"]


@pytest.mark.parametrize("on_exhausted", ["dead_letter", "fail"])
async def test_the_last_nack_that_meets_a_heartbeat_takes_the_job_out(
    on_exhausted: str,
    topic: str,
    make_queue: MakeQueue,
    machine: Machine,
    rivals: Rivals,
) -> None:
    """The heartbeat comes between the nack's two statements: the one that finds the job spent, and its way out."""
    names = {"dead_letter": f"{topic}.dead"} if on_exhausted == "dead_letter" else {}
    queue = await make_queue(topic, max_deliveries=1, on_exhausted=on_exhausted, **names)
    await machine.enqueue(queue)
    (job,) = await machine.claim(queue)
    way = {"dead_letter": "bury", "fail": "fail"}[on_exhausted]

    heartbeat = rivals.one.transaction()

    async def beat() -> None:
        del machine.log.before[way]
        await heartbeat.start()
        assert await _extend(rivals.one, queue, held(job))

    machine.log.before[way] = beat
    late = await rivals.behind(machine.engine.settlements.nack(queue, [held(job)], [Return(error="no use")]))
    await heartbeat.commit()

    assert await late == {0}
    last = {"dead_letter": "dead_lettered", "fail": "failed"}[on_exhausted]
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "extended", last]
    assert machine.log.count(way) == 2
