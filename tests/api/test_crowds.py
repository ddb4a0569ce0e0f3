"""More calls at once than may wait for one verb of one topic. Each dialect has its own word for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import httpx

from tests.api.dialect import Topic, accepted, eventually, refused
from tests.api.messages import client
from tests.api.messages.client import Messages

if TYPE_CHECKING:
    import asyncpg

    from tests.api.conftest import Serve

    Session = asyncpg.Connection[asyncpg.Record]
    Connect = Callable[[], Awaitable[Session]]

THROTTLED = {"limit": "waiting", "max": 2}


async def until_blocked(connect: Connect, holder: Session) -> None:
    """Somebody's statement waits for this session."""
    observer = await connect()  # in a transaction, who is connected is seen as at the first look
    blocked = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"

    async def fact() -> bool:
        return bool(await observer.fetchval(blocked, holder.get_server_pid()))

    await eventually(fact)


async def until_two(waiting: Callable[[], int]) -> None:
    async def fact() -> bool:
        return waiting() == 2

    await eventually(fact)


def send(call: Coroutine[Any, Any, httpx.Response]) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(call)


async def test_one_too_many_is_refused_and_nothing_of_it_done(topic: str, serve: Serve, connect: Connect) -> None:
    """Two wait for the first, whose statement waits for a lock; nobody waits without a bound."""
    crowded, db = await serve(max_waiting=2), await connect()
    async with httpx.AsyncClient(base_url=crowded.url, timeout=30) as http:
        queue = Topic(http, topic)
        await queue.put()
        ids = [await Messages(http, topic).put() for _ in range(4)]
        seqs = [job["$seq"] for job in (await queue.claim(max=4))["claimed"]]
        acks = [{"node": "n", "seqs": [seq]} for seq in seqs]
        groups = crowded.context.engine.settlements.groups()["ack"]
        async with db.transaction():
            await db.fetch("SELECT 1 FROM holdfast.jobs WHERE topic = $1 FOR UPDATE", topic)
            sent = [send(http.post(f"{queue.path}/ack", json=acks[0]))]
            await until_blocked(connect, db)
            sent += [send(http.post(f"{queue.path}/ack", json=ack)) for ack in acks[1:3]]
            await until_two(lambda: sum(group.waiting() for group in groups))
            late = await http.post(f"{queue.path}/ack", json=acks[3])
            assert refused(late, 429, "throttled")["detail"] == THROTTLED
            late = await http.post(f"/api/messages/{ids[3]}/ack")
            client.refused(late, 503, "not_ready")
            assert late.headers["retry-after"] == "1"
        assert [accepted(answer)["acked"] for answer in await asyncio.gather(*sent)] == [1, 1, 1]
        assert await queue.counts() == (0, 1)
        assert (await queue.ack("n", seqs[3:]))["acked"] == 1
