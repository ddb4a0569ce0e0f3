"""A log as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from spark.errors import Mistake
from tests.queue.calls import Session
from tests.spark.queries import Query

Connect = Callable[[], Awaitable[Session]]


async def append(http: httpx.AsyncClient, log: str, *numbers: int) -> None:
    records = [{"data": n, "meta": {"n": n}} for n in numbers]
    (await http.post(f"/v0/topics/{log}", json={"records": records})).raise_for_status()


@pytest.fixture
async def log(http: httpx.AsyncClient, topic: str) -> str:
    (await http.put(f"/v0/topics/{topic}", json={"type": "log"})).raise_for_status()
    return topic


def stream(dsn: str, log: str, **options: str) -> Query:
    return Query(dsn, table="records", topic=log, **options)


async def test_records_of_many_producers_once_each_over_restarts(
    http: httpx.AsyncClient, database_url: str, log: str
) -> None:
    query = stream(database_url, log, rows_per_batch="40", partitions="2", page="7")
    await asyncio.to_thread(query.drain)

    async def produce(producer: int) -> None:
        for n in range(20):
            await append(http, log, *range(producer * 1000 + n * 5, producer * 1000 + n * 5 + 5))

    producers = asyncio.gather(*(produce(producer) for producer in range(12)))
    for n in range(20):
        is_lost = n % 5 == 2
        await asyncio.to_thread(query.batch, commits=not is_lost)
        if is_lost:
            query.restart()
    await producers
    await asyncio.to_thread(query.drain)
    assert query.seqs() == list(range(1, 1201))
    assert max(query.batches) <= 40
    assert sorted(int(row["payload"]) for row in query.rows) == sorted(
        p * 1000 + n for p in range(12) for n in range(100)
    )


async def test_a_record_waits_for_the_append_before_it(connect: Connect, database_url: str, log: str) -> None:
    """Appends are serialised up to their commit: what is visible has no gap that will be filled."""
    query = stream(database_url, log)
    query.drain()
    slow, fast = await connect(), await connect()
    topic_id = await slow.fetchval("SELECT id FROM holdfast.topics WHERE name = $1", log)
    call = """SELECT head_seq FROM holdfast.append_records(
        $1, $2, ARRAY['1'::bytea], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::json], ARRAY[1], ARRAY[1::bigint],
        ARRAY[NULL::text], 0, 0, false, 0, 0)"""
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute(call, log, topic_id)
    rival = asyncio.create_task(fast.execute(call, log, topic_id))
    pid = fast.get_server_pid()
    while not await (await connect()).fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid):
        await asyncio.sleep(0.01)
    query.drain()
    assert query.seqs() == []
    await transaction.commit()
    await rival
    query.drain()
    assert query.seqs() == [1, 2]


async def test_it_starts_where_it_is_told(
    http: httpx.AsyncClient, connect: Connect, database_url: str, log: str
) -> None:
    await append(http, log, 1, 2, 3)
    between = await (await connect()).fetchval("SELECT clock_timestamp()")
    await append(http, log, 4, 5)
    queries = [stream(database_url, log, starting=one) for one in ("earliest", "2", between.isoformat(), "latest")]
    for query in queries:
        query.drain()
    await append(http, log, 6)
    for query in queries:
        query.drain()
    assert [query.seqs() for query in queries] == [[1, 2, 3, 4, 5, 6], [2, 3, 4, 5, 6], [4, 5, 6], [6]]


async def test_records_that_caps_took_are_an_error_unless_they_may_lack_and_a_log_that_was_made_anew_is_another(
    http: httpx.AsyncClient, database_url: str, log: str
) -> None:
    await append(http, log, 1)
    query, careless = stream(database_url, log), stream(database_url, log, lost="skip")
    query.drain()
    careless.drain()
    (await http.put(f"/v0/topics/{log}", json={"type": "log", "cap_records": 3})).raise_for_status()
    await append(http, log, *range(10))
    with pytest.raises(Mistake, match="removed by age or caps"):
        query.batch()
    careless.drain()
    assert careless.seqs() == [9, 10, 11]

    (await http.delete(f"/v0/topics/{log}")).raise_for_status()
    (await http.put(f"/v0/topics/{log}", json={"type": "log"})).raise_for_status()
    await append(http, log, 1, 2)
    with pytest.raises(Mistake, match="created again"):
        query.batch()
