"""More calls at once than may wait for one verb of one topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.messages import client
from tests.api.messages.client import Messages

if TYPE_CHECKING:
    import asyncpg

    from tests.api.conftest import Serve

    Connect = Callable[[], Awaitable[asyncpg.Connection[asyncpg.Record]]]

BLOCKED = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"


@pytest.mark.parametrize("key", [None, "k"])
async def test_one_too_many_is_refused_and_nothing_of_it_done(
    key: str | None, topic: str, serve: Serve, connect: Connect
) -> None:
    """Two wait for the first, whose statement waits for the log; nobody waits without a bound."""
    crowded = await serve(max_waiting=2)
    db, observer = await connect(), await connect()  # in a transaction, who is connected is seen as at the first look
    async with httpx.AsyncClient(base_url=crowded.url, timeout=30) as http:
        log = Topic(http, topic)
        await log.put(type="log")
        holder = db.transaction()
        await holder.start()
        await db.fetchval("SELECT holdfast.lock_log(name, id) FROM holdfast.topics WHERE name = $1", topic)
        pid = db.get_server_pid()
        group = crowded.context.engine.logs.group

        async def first_is_sent() -> bool:
            assert not sent[0].done(), sent[0].result().text
            return bool(await observer.fetchval(BLOCKED, pid))

        async def others_wait() -> bool:
            return group.waiting() == 2

        sent = [asyncio.create_task(http.post(log.path, json={"records": [{"data": 0}]}))]
        await eventually(first_is_sent)
        sent += [asyncio.create_task(http.post(log.path, json={"records": [{"data": i}]})) for i in (1, 2)]
        await eventually(others_wait)
        body = {"records": [{"data": "late"}]} | ({} if key is None else {"idempotency_key": key})
        late = await http.post(log.path, json=body)
        assert refused(late, 429, "throttled")["detail"] == {"limit": "waiting", "max": 2}
        assert late.headers["retry-after"] == "1"
        await holder.rollback()
        for answer in await asyncio.gather(*sent):
            accepted(answer)
        assert sorted(record["data"] for record in (await log.post("diff"))["records"]) == [0, 1, 2]
        accepted(await http.post(log.path, json=body))


async def test_the_same_in_the_messages_dialect_and_of_an_ack(topic: str, serve: Serve, connect: Connect) -> None:
    """Each dialect has its own word for it. What was let in is answered with its counts, however many ask for those."""
    crowded = await serve(max_waiting=2)
    db, observer = await connect(), await connect()
    async with httpx.AsyncClient(base_url=crowded.url, timeout=30) as http:
        queue = Topic(http, topic)
        await queue.put()
        ids = [await Messages(http, topic).put() for _ in range(4)]
        jobs = (await queue.claim(max=4))["claimed"]
        holder = db.transaction()
        await holder.start()
        await db.fetch("SELECT 1 FROM holdfast.jobs WHERE topic = $1 FOR UPDATE", topic)
        pid = db.get_server_pid()

        def ack(job: Body) -> asyncio.Task[httpx.Response]:
            return asyncio.create_task(http.post(f"{queue.path}/ack", json={"node": "n", "seqs": [job["$seq"]]}))

        async def first_is_sent() -> bool:
            return bool(await observer.fetchval(BLOCKED, pid))

        async def others_wait() -> bool:
            return sum(group.waiting() for group in crowded.context.engine.settlements.groups()["ack"]) == 2

        sent = [ack(jobs[0])]
        await eventually(first_is_sent)
        sent += [ack(jobs[1]), ack(jobs[2])]
        await eventually(others_wait)
        assert refused(await ack(jobs[3]), 429, "throttled")["detail"] == {"limit": "waiting", "max": 2}
        late = await http.post(f"/api/messages/{ids[3]}/ack")
        client.refused(late, 503, "not_ready")
        assert late.headers["retry-after"] == "1"
        await holder.rollback()
        for answer in await asyncio.gather(*sent):
            assert accepted(answer)["acked"] == 1
        for answer in await asyncio.gather(*(http.get(queue.path) for _ in range(20))):
            assert accepted(answer)["queue"] == {"ready": 0, "in_flight": 1, "dead_lettered": 0}
        assert accepted(await ack(jobs[3]))["acked"] == 1
