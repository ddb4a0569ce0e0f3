"""Groups of settlements: whose error is whose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.errors import Unavailable
from app.kernel.claim.consumer import Return
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import held


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
    machine: Machine, topic: str, full: str, make_queue: Callable[..., Awaitable[Policy]]
) -> None:
    queue = await make_queue(topic, max_deliveries=2, dead_letter=full)
    await machine.enqueue(queue, 2)
    first, second = await machine.claim(queue, 2)
    nack = machine.engine.settlements.nack
    assert await nack(queue, [held(first)], [Return()]) == {0}
    [last] = await machine.claim(queue, 1)
    assert (last.seq, last.deliveries) == (first.seq, 2)

    # One group: the first has had its last delivery, the second has not.
    answers = await asyncio.gather(
        nack(queue, [held(last)], [Return()]), nack(queue, [held(second)], [Return()]), return_exceptions=True
    )
    assert isinstance(answers[0], Unavailable), answers
    assert answers[1] == {0}
    assert [job.seq for job in await machine.claim(queue, 10)] == [second.seq]
