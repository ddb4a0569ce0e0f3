"""A change of the table's schema and a claim, whoever has the table first."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from app.kernel.claim import consumer
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, held, put, take
from tests.races.rivals import Rivals

CHANGE = "ALTER TABLE holdfast.jobs ADD CONSTRAINT of_a_test CHECK (seq > 0) NOT VALID"  # takes the whole table


@pytest.fixture
async def change(rivals: Rivals) -> AsyncIterator[str]:
    yield CHANGE
    await rivals.observer.execute("ALTER TABLE holdfast.jobs DROP CONSTRAINT IF EXISTS of_a_test")


async def test_what_waits_behind_a_change_of_the_table_goes_on_when_that_gives_up(
    change: str, queue: Policy, rivals: Rivals
) -> None:
    """Who waits for the whole table has everybody wait behind it: a change must give up soon, and try again."""
    await put(rivals.one, queue, batch(2))
    async with rivals.first():
        (first,) = await take(rivals.one, queue)
        await rivals.other.execute("SET lock_timeout = '1s'")
        changing = await rivals.behind(rivals.other.execute(change))

        (second,) = await take(rivals.observer, queue)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await changing
    assert second.seq != first.seq
    await rivals.other.execute(change)
    assert await consumer.ack(rivals.one, queue.topic, [held(first), held(second)]) == {0, 1}


@pytest.mark.parametrize("commits", [True, False])
async def test_a_claim_that_waits_for_a_change_of_the_table_is_done(
    commits: bool, change: str, queue: Policy, rivals: Rivals
) -> None:
    """With a plan made anew where it was committed."""
    await put(rivals.other, queue, batch(3))
    assert len(await take(rivals.other, queue)) == 1, "it is prepared"
    async with rivals.first(commits=commits):
        await rivals.one.execute(change)
        late = await rivals.behind(_take(rivals.other, queue))
    assert await late == [2, 3]


async def _take(db: Session, queue: Policy) -> list[int]:
    return [job.seq for job in await take(db, queue, 2)]
