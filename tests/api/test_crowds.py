"""More calls at once than may wait for one verb of one topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Topic, accepted, eventually, refused

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
        assert refused(late, 503, "not_ready")["detail"] == {"limit": "waiting", "max": 2}
        assert late.headers["retry-after"] == "1"
        await holder.rollback()
        for answer in await asyncio.gather(*sent):
            accepted(answer)
        assert sorted(record["data"] for record in (await log.post("diff"))["records"]) == [0, 1, 2]
        accepted(await http.post(log.path, json=body))
