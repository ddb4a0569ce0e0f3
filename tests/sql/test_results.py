"""complete with a result: it is kept, or goes, with the user's transaction."""

from __future__ import annotations

import asyncpg
import pytest

from app.kernel.model import Job
from app.kernel.settle import results
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, events, put, take
from tests.queue.tallies import tallied
from tests.sql.conftest import Db
from tests.sql.test_functions import ENDED, token


async def _complete(sql: Db, policy: Policy, job: Job, result: str | None) -> None:
    await sql.execute("SELECT holdfast.complete($1, $2)", token(policy, job), result)


async def test_it_goes_with_the_transaction(sql: Db, db: Session, queue: Policy, job: Job) -> None:
    transaction = sql.transaction()
    await transaction.start()
    await _complete(sql, queue, job, '{"n": 1}')
    await transaction.rollback()
    assert await results.find(db, queue.topic, job.seq) is None
    await _complete(sql, queue, job, '{"n": 1}')
    found = await results.find(db, queue.topic, job.seq)
    assert found is not None
    assert found.result == '{"n": 1}'
    assert found.kept
    assert found.expires_ms == pytest.approx(found.completed_ms + 86_400_000, abs=1)
    assert await events(db, queue, job.seq) == ["enqueued", "claimed", "acked"]
    assert await tallied(db, queue)


async def test_completing_again_with_the_same_lease_says_nothing(
    sql: Db,
    db: Session,
    queue: Policy,
    job: Job,
) -> None:
    for result in ("1", "2"):
        await _complete(sql, queue, job, result)
    found = await results.find(db, queue.topic, job.seq)
    assert found is not None
    assert found.result == "1"
    with pytest.raises(ENDED):
        await _complete(sql, queue, job, None)


async def test_without_one_none_is_kept(sql: Db, db: Session, queue: Policy) -> None:
    await put(db, queue, batch(2))
    for one, result in zip(await take(db, queue, 2), (None, "null"), strict=True):
        await _complete(sql, queue, one, result)
        assert await results.find(db, queue.topic, one.seq) is None
        with pytest.raises(ENDED):
            await _complete(sql, queue, one, result)


@pytest.mark.parametrize("bad", ['"' + "x" * 1024 * 1024 + '"', "[" * 129 + "]" * 129, '"\\u0000"'])
async def test_what_could_not_be_shown_is_refused(
    sql: Db,
    db: Session,
    queue: Policy,
    job: Job,
    bad: str,
) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await _complete(sql, queue, job, bad)
    assert await events(db, queue, job.seq) == ["enqueued", "claimed"]
