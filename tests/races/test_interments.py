"""Jobs that become records of a log for dead letters, while somebody else has them in hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from asyncpg.pgproto.pgproto import UUID

from app.base.db.pool import Pools
from app.kernel.claim import consumer
from app.kernel.logs import log
from app.kernel.logs.log import Ask
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import LogMove, Spent
from app.kernel.topics import store
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.queue.calls import Session, batch, events, held, put, row, take
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]


@pytest.fixture
async def dead(topic: str, pools: Pools, policies: Policies) -> Policy:
    """A log for dead letters."""
    name = f"{topic}.dead"
    await store.put(pools.rest, name, resolve(name, AskedSettings(type="log")))
    return await policies.get(name)


async def inter(db: Session, queue: Policy, spent: list[Spent], dead: Policy) -> LogMove:
    async with db.transaction():
        return await exits.move_to_log(db, queue.topic, queue.budget, spent, dead.topic, limits=dead.log_limits)


async def came_from(db: Session, dead: Policy) -> list[int]:
    read = await log.read(db, dead.topic, Ask(), 0)
    assert read is not None
    return list(read[1].seqs)


@pytest.mark.parametrize("rival", ["heartbeat", "ack", "inter"])
async def test_a_job_is_in_one_place_whoever_comes_first(
    rival: str, topic: str, make_queue: MakeQueue, dead: Policy, rivals: Rivals
) -> None:
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)
    spent = [Spent(job.seq, UUID(job.lease), "no use")]

    async with rivals.first():
        if rival == "heartbeat":
            assert await consumer.extend(rivals.one, queue.topic, [held(job)], [60_000])
        elif rival == "ack":
            assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}
        else:
            assert await inter(rivals.one, queue, spent, dead) == LogMove({0}, set())
        late = await rivals.behind(inter(rivals.other, queue, spent, dead))

    assert await late == LogMove({0} if rival == "heartbeat" else set(), set())
    assert await row(rivals.one, queue, job.seq) is None
    assert len(await came_from(rivals.one, dead)) == (0 if rival == "ack" else 1)
    ended = {"heartbeat": ["extended", "dead_lettered"], "ack": ["acked"], "inter": ["dead_lettered"]}[rival]
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", *ended]


async def test_a_deleted_log_takes_no_job_with_it(
    topic: str, make_queue: MakeQueue, dead: Policy, rivals: Rivals
) -> None:
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)
    await rivals.one.execute("SELECT holdfast.drop_topic_sequence($1)", dead.topic.id)
    await rivals.one.execute("DELETE FROM holdfast.topics WHERE id = $1", dead.topic.id)
    await rivals.one.execute("DELETE FROM holdfast.log_state WHERE topic_id = $1", dead.topic.id)
    with pytest.raises(log.Gone):
        await inter(rivals.other, queue, [Spent(job.seq, UUID(job.lease))], dead)
    assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}
