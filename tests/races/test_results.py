"""Two acks under one lease: whoever waits for its twin's commit is told that the job is completed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.kernel.claim import consumer
from app.kernel.model import Connection
from app.kernel.settle.results import Keep, Progress
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, events, held, put, take
from tests.queue.tallies import tallied
from tests.races.rivals import Rivals

KEEP = Keep(60_000)


async def _kept(db: Connection, policy: Policy) -> list[str]:
    rows = await db.fetch("SELECT result::text FROM holdfast.results WHERE topic_id = $1 ORDER BY 1", policy.topic.id)
    return [row["result"] for row in rows]


@pytest.mark.parametrize("commits", [True, False])
async def test_the_twin_of_an_ack_waits_and_finds_the_job_completed_or_completes_it(
    commits: bool, queue: Policy, rivals: Rivals, start: Callable[[], Machine]
) -> None:
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)
    async with rivals.first(commits=commits):
        assert await consumer.ack(rivals.one, queue.topic, [held(job)], results=["1"], keep=KEEP) == {0}
        late = await rivals.behind(start().engine.settlements.ack(queue, [held(job)], ["2"]))
    assert await late == {0}
    assert await _kept(rivals.one, queue) == ["1" if commits else "2"]
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "acked"]
    assert await tallied(rivals.one, queue)


async def test_an_ack_with_a_result_waits_for_a_heartbeat_and_is_done(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)

    async with rivals.first():
        said = [Progress(50, "half")]
        assert list(await consumer.extend(rivals.one, queue.topic, [held(job)], [60_000], progress=said)) == [0]
        late = await rivals.behind(consumer.ack(rivals.other, queue.topic, [held(job)], results=["1"], keep=KEEP))

    assert await late == {0}, "the ack of a good lease was lost"
    assert await _kept(rivals.one, queue) == ["1"]


async def test_progress_waits_for_a_heartbeat_and_is_said(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)

    async with rivals.first():
        assert list(await consumer.extend(rivals.one, queue.topic, [held(job)], [60_000])) == [0]
        said = [Progress(70, "more")]
        late = await rivals.behind(consumer.extend(rivals.other, queue.topic, [held(job)], [60_000], progress=said))

    assert list(await late) == [0]
    found = await rivals.one.fetchrow(
        "SELECT progress, progress_note FROM holdfast.jobs WHERE topic = $1 AND progress_lease = lease_id",
        queue.topic.name,
    )
    assert found is not None
    assert tuple(found) == (70, "more")


async def test_acks_of_one_topic_with_and_without_results_share_a_statement(
    queue: Policy, rivals: Rivals, start: Callable[[], Machine], make_queue: Callable[..., Awaitable[Policy]]
) -> None:
    await put(rivals.one, queue, batch(3))
    jobs = await take(rivals.one, queue, 3)
    acks = start().engine.settlements
    answers = await asyncio.gather(
        acks.ack(queue, [held(jobs[2])]), acks.ack(queue, [held(jobs[1]), held(jobs[0])], ["1", None])
    )
    assert list(answers) == [{0}, {0, 1}]
    assert await _kept(rivals.one, queue) == ["1"]
    assert await tallied(rivals.one, queue)
