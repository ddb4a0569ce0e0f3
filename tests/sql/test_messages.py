"""The view of messages: read-only, with the columns and states of the messages dialect, by the database's clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import asyncpg
import httpx
import pytest

from app.kernel.settle import exit_rows as exits
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, lease_ended, outlived, put, take
from tests.sql.conftest import Db

MakeQueue = Callable[..., Awaitable[Policy]]
COLUMNS = [
    *("id", "topic", "payload", "metadata", "key", "status", "retry_count", "max_retries", "last_error"),
    *("visibility_timeout", "expires_at", "original_topic", "dlq_moved_at", "created_at", "updated_at"),
]


async def test_it_says_what_the_dialect_says(sql: Db, http: httpx.AsyncClient, topic: str) -> None:
    prepared = await sql.prepare("SELECT * FROM holdfast.messages")
    assert [column.name for column in prepared.get_attributes()] == COLUMNS
    await http.put(f"/api/topic-configs/{topic}", json={"max_retries": 2})
    for n in range(3):
        body = {"topic": topic, "payload": str(n), "key": str(n), "metadata": {"n": str(n)}, "ttl_seconds": 3600}
        assert (await http.post("/api/messages", json=body)).is_success
    for _ in range(2):  # one comes into the dead letters
        [job] = (await http.post("/api/messages/dequeue", json={"topic": topic})).json()["messages"]
        await http.post(f"/api/messages/{job['id']}/nack", json={"error": "no"})
    await http.post("/api/messages/dequeue", json={"topic": topic})
    seen = 0
    for name in (topic, f"{topic}.dlq"):
        shown = (await http.get("/api/messages", params={"topic": name})).json()["items"]
        rows = await sql.fetch("SELECT * FROM holdfast.messages WHERE topic = $1", name)
        by_id = {str(found["id"]): found for found in rows}
        assert by_id.keys() == {one["id"] for one in shown}
        for one in shown:
            found = by_id[one["id"]]
            for column in COLUMNS[1:]:
                value = found[column]
                if column == "payload":
                    assert value.decode() == one["payload"]
                elif isinstance(value, datetime):
                    assert abs(value - datetime.fromisoformat(one[column])).total_seconds() < 0.002
                elif column != "metadata":
                    assert value == one.get(column), column
            seen += 1
    assert seen == 3


async def test_states_are_by_the_clock(sql: Db, db: Session, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic)

    async def states() -> list[tuple[str, int, bool]]:
        rows = await sql.fetch("SELECT * FROM holdfast.messages WHERE topic = $1 ORDER BY id", topic)
        return [(r["status"], r["retry_count"], r["visibility_timeout"] is not None) for r in rows]

    await put(db, queue, batch(2, ttls_ms=[None, 1_500]))
    assert await states() == [("pending", 0, False), ("pending", 0, False)]
    [job] = await take(db, queue, 1, lease_ms=100)
    assert (await states())[0] in (("processing", 0, True), ("pending", 1, False))
    await lease_ended(db, queue, job)
    await outlived(db, queue)
    assert await states() == [("pending", 1, False), ("expired", 0, False)]
    await exits.expire(db, topic, 10)
    assert (await states())[1][0] == "expired"


async def test_nothing_is_written_through_it(db: Session) -> None:
    """Not even by the owner."""
    for statement in (
        "INSERT INTO holdfast.messages (topic, payload) VALUES ('a', 'b')",
        "UPDATE holdfast.messages SET payload = 'x'",
        "DELETE FROM holdfast.messages",
    ):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
            await db.execute(statement)


async def test_a_topics_messages_are_found_by_index(db: Session, topic: str) -> None:
    plan = await db.fetch("EXPLAIN SELECT * FROM holdfast.messages WHERE topic = $1", topic)
    text = "\n".join(line[0] for line in plan)
    assert "on jobs j" in text
    assert "Index Cond: (topic = " in text
