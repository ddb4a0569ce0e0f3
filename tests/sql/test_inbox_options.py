"""Groups, dedupe ids and webhooks of what is inserted into the inbox."""

from __future__ import annotations

import asyncpg
import pytest

from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, take
from tests.queue.tallies import tallied
from tests.sql.conftest import Db
from tests.sql.test_inbox import Columns, MakeQueue, insert


async def test_groups_go_one_by_one(sql: Db, db: Session, topic: str, make_queue: MakeQueue) -> None:
    fifo = await make_queue(topic + ".fifo")
    insert_all = 'INSERT INTO holdfast.inbox (topic, "group", payload_text) SELECT $1, g, n FROM unnest($2::text[]) '
    await sql.execute(insert_all + "WITH ORDINALITY u(g, n)", fifo.topic.name, ["a", "b", "a"])
    await sql.execute(insert_all + "WITH ORDINALITY u(g, n)", fifo.topic.name, ["a"])  # its payload's hash is known
    jobs = await take(db, fifo, 9)
    assert sorted((job.payload, job.group) for job in jobs) == [(b"1", "a"), (b"2", "b")]
    assert await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", fifo.topic.name) == 3
    with pytest.raises(asyncpg.CheckViolationError, match=r"names that end in .fifo ask for a group"):
        await insert(sql, fifo.topic.name)
    assert await tallied(db, fifo)


async def test_dedupe_ids_count_within_the_window(sql: Db, db: Session, topic: str, make_queue: MakeQueue) -> None:
    queue, forgets = await make_queue(topic), await make_queue(topic + "-0", dedupe_window_ms=0)
    for one in (queue, forgets):
        for n in range(3):
            await insert(sql, one.topic.name, dedupe_id=f"id{n // 2}", payload_text=str(n), tenant="acme")
    assert [job.payload for job in await take(db, queue, 9)] == [b"0", b"2"]
    assert len(await take(db, forgets, 9)) == 3
    assert await tallied(db, queue)


@pytest.mark.parametrize("columns", [{}, {"key": "k"}, {"group": "g"}, {"dedupe_id": "d"}])
async def test_a_webhook_is_its_jobs(sql: Db, db: Session, queue: Policy, columns: Columns) -> None:
    for path in ("first", "second"):
        await insert(sql, queue.topic.name, webhook=f"https://example.org/{path}?a=b", **columns)
    found = await db.fetch("SELECT webhook FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", queue.topic.name)
    paths = {"key": ["second"], "dedupe_id": ["first"]}.get(next(iter(columns), ""), ["first", "second"])
    assert [row["webhook"] for row in found] == [f"https://example.org/{path}?a=b" for path in paths]
