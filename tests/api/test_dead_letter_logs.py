"""Dead letters of a queue that go to a log: a record each. docs/semantics.md, section 2."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Body, Topic, eventually

if TYPE_CHECKING:
    import asyncpg

    from tests.api.conftest import Serve

    Session = asyncpg.Connection[asyncpg.Record]


@pytest.fixture
async def db(connect: Callable[[], Awaitable[Session]]) -> Session:
    return await connect()


@pytest.fixture
async def dead(queue: Topic) -> Topic:
    """A log for dead letters, which the queue names."""
    made = Topic(queue.http, f"{queue.name}.dead")
    await made.put(type="log")
    await queue.put(max_deliveries=1, dead_letter=made.name)
    return made


async def records(log: Topic) -> list[Body]:
    found: list[Body] = (await log.post("diff", include_tags=True, limit=1000))["records"]
    return found


async def is_gone(queue: Topic, dead_lettered: int) -> None:
    state = await queue.state()
    counted = (state["count"], state["bytes"], state["queue"])
    assert counted == (0, 0, {"ready": 0, "in_flight": 0, "dead_lettered": dead_lettered})


@pytest.mark.parametrize("durable", [True, False])
async def test_a_nacked_job_becomes_a_record(queue: Topic, dead: Topic, durable: bool) -> None:
    await queue.put(max_deliveries=1, dead_letter=dead.name, durable=durable)
    data: Body = {"type": "transcode", "at": [1.5, None]}
    await queue.append(
        {"data": data, "tag": "clip", "node": "web", "meta": {"trace": "z9"}},
        {"data": "a\nb", "content_type": "text/plain"},
        {"data": {"$base64": "/wA="}},
    )
    waiting = asyncio.create_task(dead.post("diff", wait_ms=10_000))
    await queue.claim(max=3)
    answer = await queue.nack("n", [1, 2, 3])
    assert (answer["nacked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (3, [], 0, 0)
    assert len((await waiting)["records"]) == 3, "who waits at the log gets them"
    first, second, third = await records(dead)
    came_from = {"$dead_letter_from": queue.name, "$dead_letter_deliveries": "1"}
    assert (first["$seq"], first["data"], first["$tag"], first["$node"]) == (1, data, "clip", "web")
    assert first["meta"] == {"trace": "z9", **came_from, "$dead_letter_src_seq": "1"}
    # Other payloads become the JSON that readers are shown.
    assert (second["$seq"], second["data"], second["meta"]) == (2, "a\nb", {**came_from, "$dead_letter_src_seq": "2"})
    assert (third["data"], "$tag" in second) == ({"$base64": "/wA="}, False)
    await is_gone(queue, 3)
    state = await dead.state()
    assert (state["type"], state["count"], state["head_seq"]) == ("log", 3, 3)


@pytest.mark.parametrize("then", ["log", "queue", "gone"])
async def test_the_log_is_replaced_by_another_process(queue: Topic, dead: Topic, serve: Serve, then: str) -> None:
    """Which this process is not told of: it finds out."""
    await queue.add(2)
    other = await serve()
    async with httpx.AsyncClient(base_url=other.url) as http:
        elsewhere = dead.through(http)
        await queue.nack("n", [(await queue.take())["$seq"]])
        assert len(await records(dead)) == 1
        await elsewhere.drop()
        if then != "gone":
            await elsewhere.put(type=then)
        await queue.nack("n", [(await queue.take())["$seq"]])
        await is_gone(queue, 2)
        state = await elsewhere.state()
        assert (state["type"], state["count"]) == ("log" if then == "log" else "queue", 1)
    await other.stop()


async def test_caps_evict_the_oldest_dead_letters(queue: Topic, dead: Topic) -> None:
    await dead.put(type="log", cap_records=2)
    await queue.add(5)
    await queue.nack("n", [job["$seq"] for job in (await queue.claim(max=5))["claimed"]])
    found = await records(dead)
    assert [record["data"] for record in found] == [4, 5]
    meta = f'{{"$dead_letter_from": "{queue.name}", "$dead_letter_src_seq": "4", "$dead_letter_deliveries": "1"}}'
    assert (await dead.state())["bytes"] == 2 * (1 + len(meta)), "data and meta, as the table has them"
    await is_gone(queue, 5)


async def test_what_is_too_old_is_not_read(queue: Topic, dead: Topic) -> None:
    """Its age as a record counts from the move: the job's own age is not in it."""
    await dead.put(type="log", ttl_ms=1_500)
    await queue.add(1)
    job = await queue.take()
    await asyncio.sleep(1.55)
    await queue.nack("n", [job["$seq"]])
    assert len(await records(dead)) == 1

    async def outlived() -> bool:
        return not await records(dead)

    await eventually(outlived)


async def test_a_full_log_that_refuses_loses_no_job(queue: Topic, dead: Topic, db: Session) -> None:
    """Those that fit become records, the others fail in place, with the reason; and the ledger says so."""
    await dead.put(type="log", cap_records=2, discard="reject")
    await queue.add(5)
    await queue.claim(max=4)
    answer = await queue.nack("n", [1, 2, 3, 4], errors=["a", "b", "boom", None])
    assert (answer["nacked"], answer["ready"], answer["in_flight"]) == (4, 1, 0)
    assert [record["data"] for record in await records(dead)] == [1, 2]
    kept = await db.fetch(
        "SELECT seq, state::text, last_error FROM holdfast.jobs WHERE topic = $1 AND seq < 5 ORDER BY seq", queue.name
    )
    full = f"The dead-letter log {dead.name} is full"
    assert [tuple(row) for row in kept] == [(3, "failed", f"{full}: boom"), (4, "failed", full)]
    ledger = await db.fetch(
        "SELECT seq, event::text, detail FROM holdfast.lease_events WHERE topic = $1 AND node = 'n' ORDER BY at, seq",
        queue.name,
    )
    assert [tuple(row) for row in ledger if row["event"] != "claimed"] == [
        (1, "dead_lettered", "a"),
        (2, "dead_lettered", "b"),
        (3, "failed", f"{full}: boom"),
        (4, "failed", full),
    ]
    tallied = await db.fetchrow(
        "SELECT sum(ready) AS ready, sum(leased) AS leased, sum(scheduled) AS scheduled, sum(bytes) AS bytes "
        "FROM holdfast.tallies y JOIN holdfast.topics t ON t.id = y.topic_id WHERE t.name = $1",
        queue.name,
    )
    assert tallied is not None
    assert tuple(tallied) == (1, 0, 0, 1)


async def test_large_dead_letters_move_in_several_transactions(queue: Topic, dead: Topic, db: Session) -> None:
    large = "x" * (1024 * 1024 - 100)
    await queue.append(*({"data": large} for _ in range(12)))
    claimed = (await queue.claim(max=12))["claimed"]
    assert (await queue.nack("n", [job["$seq"] for job in claimed]))["nacked"] == 12
    moved = await db.fetch("SELECT DISTINCT xmin::text FROM holdfast.records WHERE topic = $1", dead.name)
    assert (len(moved), (await dead.state())["count"]) == (2, 12)
    await is_gone(queue, 12)


async def test_a_topic_that_is_made_as_a_log_after_it_was_named(queue: Topic) -> None:
    dead = Topic(queue.http, f"{queue.name}.later")
    await queue.put(max_deliveries=1, dead_letter=dead.name)
    await queue.add(1)
    await dead.put(type="log")
    await queue.nack("n", [(await queue.take())["$seq"]])
    assert [record["data"] for record in await records(dead)] == [1]
