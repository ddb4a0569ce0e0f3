"""Watches by the thousand, and readers that don't keep up."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from app.features.logs.watches import Watches
from app.http import sse as events
from tests.api.dialect import Body, Topic, eventually
from tests.api.events import HEARTBEAT, frames_of_a_second
from tests.api.process import Process
from tests.api.raw import Raw, get, raw
from tests.api.watches import made, watching

if TYPE_CHECKING:
    import asyncpg

    from tests.conftest import Running

    Connect = Callable[[], Awaitable[asyncpg.Connection[asyncpg.Record]]]

BLOCKED = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"
STREAMS = 1_000
BYTES_A_STREAM = 64 * 1024


@pytest.fixture
async def log(http: httpx.AsyncClient, topic: str) -> Topic:
    made = Topic(http, topic)
    await made.put(type="log")
    return made


async def opened(url: str, watch: Body, stack: contextlib.AsyncExitStack, receive_bytes: int = 0) -> Raw:
    """A watch's stream on a socket of its own, once it has begun."""
    stream = await stack.enter_async_context(raw(url, receive_bytes=receive_bytes))
    await stream.send(get(watch["stream_url"], "connection: close"))
    await stream.reader.readuntil(b": hb\n\n")
    return stream


async def records(stream: Raw) -> AsyncIterator[Body]:
    """Its record events, as they come."""
    while line := await stream.reader.readline():
        if line.startswith(b'data: {"topic"') and b'"records"' in line:
            yield json.loads(line[6:])


@pytest.mark.alone
@pytest.mark.slow
async def test_a_thousand_streams_in_one_process_each_have_every_record(process: Process, topic: str) -> None:
    url = await asyncio.to_thread(process.url)
    server = process.server()
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, contextlib.AsyncExitStack() as stack:
        log = Topic(http, topic)
        await log.put(type="log")
        await log.append({"data": 0})
        async with watching(http, await made(http, log)) as first:
            assert await first.records(1) == [0]  # what is made with the first use of anything
        before = server.memory_info().rss

        async def one(gate: asyncio.Semaphore) -> Raw:
            async with gate:
                return await opened(url, await made(http, log), stack)

        gate = asyncio.Semaphore(20)
        streams = await asyncio.gather(*(one(gate) for _ in range(STREAMS)))

        async def read(stream: Raw) -> list[object]:
            found: list[object] = []
            async for told in records(stream):
                found += [record["data"] for record in told["records"]]
                if len(found) == 4:
                    break
            return found

        reading = [asyncio.create_task(read(stream)) for stream in streams]
        for i in (1, 2, 3):
            await log.append({"data": i})
        async with asyncio.timeout(60):
            assert await asyncio.gather(*reading) == [[0, 1, 2, 3]] * STREAMS
        assert server.memory_info().rss <= before + STREAMS * BYTES_A_STREAM


async def left(service: Running, wid: str) -> bool:
    return wid not in service.context.core(Watches)._open


async def test_who_waits_is_told_where_it_stands_and_stays_there(log: Topic, service: Running) -> None:
    """Nobody is woken by a write that can be told at once, nor by one that is left out. On a machine that stands still
    somebody may read for themselves, so it may take more than one try."""
    for trial in range(3):
        each = Topic(log.http, f"{log.name}-{trial}")
        await each.put(type="log")
        watches = [await made(log.http, each, **options) for options in ({}, {}, {"limit": 3}, {"node": "n"})]
        stayed = await told_five(each, service, watches)
        for watch in watches:
            await eventually(lambda: left(service, watch["wid"]))  # noqa: B023  (it is awaited here)
            async with watching(log.http, watch) as again:
                await again.event("caught-up")  # and nothing before it: where it stood is known
        if stayed:
            return
    raise AssertionError("somebody was woken each time")


async def told_five(log: Topic, service: Running, watches: list[Body]) -> bool:
    """Five records, told one by one; whether those who wait have stayed where they were."""
    readers = service.context.engine.readers
    topic_id = (await service.context.policies.get(log.name)).topic.id

    async def all_wait() -> bool:
        return readers.waiting_for(log.name) == len(watches)

    async with contextlib.AsyncExitStack() as stack:
        streams = [await opened(service.url, watch, stack) for watch in watches]
        await eventually(all_wait)
        where = set(readers._topics[topic_id].parked)
        for seq in range(1, 6):
            await log.append({"data": seq, "node": "n" if seq == 3 else "m"})
            for stream in streams:
                if seq == 3 and stream is streams[-1]:
                    continue
                told = await anext(records(stream))
                assert [record["$seq"] for record in told["records"]] == [seq]
                assert (told["from_seq"], told["to_seq"]) == (seq - 1, seq)
        return set(readers._topics[topic_id].parked) == where


async def test_a_stream_beats_only_while_it_is_quiet(log: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.logs.v0_watch.HEARTBEATS_MS", (300, 60_000))
    async with watching(log.http, await made(log.http, log, heartbeat_ms=1)) as stream:
        await stream.event("caught-up")
        frames = await frames_of_a_second(stream, log)
        assert [frame.data["to_seq"] for frame in frames if frame.text != HEARTBEAT][-1] == 10


async def test_what_changes_while_it_is_read_is_looked_for_again(
    log: Topic, service: Running, connect: Connect
) -> None:
    readers = service.context.engine.readers
    topic_id = (await service.context.policies.get(log.name)).topic.id
    db, observer = await connect(), await connect()

    def waiting() -> set[object]:
        return set(readers._topics[topic_id].parked) if topic_id in readers._topics else set()

    async def waits() -> bool:
        return len(waiting()) == 1

    async def read_is_sent() -> bool:
        return bool(await observer.fetchval(BLOCKED, db.get_server_pid()))

    async def looked_again() -> bool:
        return len(waiting()) == 1 and waiting() != where

    async with contextlib.AsyncExitStack() as stack:
        await opened(service.url, await made(log.http, log, heartbeat_ms=60_000), stack)
        await eventually(waits)
        where = waiting()
        async with db.transaction():
            await db.execute("LOCK TABLE holdfast.records IN ACCESS EXCLUSIVE MODE")
            readers.wake(topic_id)
            await eventually(read_is_sent)
            readers.wake(topic_id)
        await eventually(looked_again, 30)  # sooner than it beats


async def test_in_a_storm_of_writes_each_has_every_record_once_and_in_order(log: Topic, service: Running) -> None:
    """Told where they wait, or woken, or behind: some read frames of three records, some take their time."""
    watchers, writers, each = 8, 4, 20
    watches = [await made(log.http, log, limit=3 if i % 3 == 0 else 256) for i in range(watchers)]

    async def read(stream: Raw, lazy: bool) -> list[int]:
        seqs: list[int] = []
        async for told in records(stream):
            assert told["from_seq"] == len(seqs)
            seqs += [record["$seq"] for record in told["records"]]
            assert told["to_seq"] == len(seqs)
            if lazy:
                await asyncio.sleep(0.01)
            if len(seqs) >= writers * each:
                break
        return seqs

    async def write() -> None:
        for i in range(each):
            await log.append({"data": i})

    async with contextlib.AsyncExitStack() as stack:
        streams = [await opened(service.url, watch, stack) for watch in watches]
        reading = [asyncio.create_task(read(stream, i % 4 == 0)) for i, stream in enumerate(streams)]
        await asyncio.gather(*(write() for _ in range(writers)))
        async with asyncio.timeout(60):
            assert await asyncio.gather(*reading) == [list(range(1, writers * each + 1))] * watchers


async def test_a_reader_that_takes_nothing_is_dropped_and_told_why(
    log: Topic, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it in this process is bounded, and others are not kept waiting."""
    monkeypatch.setattr(events, "SEND_SECONDS", 0.5)
    count = 150
    small = {"limit": 1, "max_batch_bytes": 1}
    slow, fast = await made(log.http, log, **small), await made(log.http, log, **small)
    async with contextlib.AsyncExitStack() as stack:
        sleeper = await opened(service.url, slow, stack, receive_bytes=4096)
        sleeper.writer.transport.pause_reading()  # type: ignore[attr-defined]
        reader = await opened(service.url, fast, stack)
        for _ in range(count // 50):
            await log.append(*({"data": "x" * 60_000} for _ in range(50)))
        told = records(reader)
        assert [(await anext(told))["to_seq"] for _ in range(count)] == list(range(1, count + 1))
        await eventually(lambda: left(service, slow["wid"]), 30)
        sleeper.writer.transport.resume_reading()  # type: ignore[attr-defined]
        rest = await sleeper.closed()
        [error] = [frame for frame in rest.split(b"\n\n") if b"event: error" in frame]
        last = json.loads(error.partition(b"data: ")[2])
        assert (last["code"], last["error"]) == (408, "slow_reader")
        assert rest.count(b"event: record") < count
    # It goes on where it was when it comes back.
    async with watching(log.http, slow) as again:
        frame = await again.event("record")
        assert frame.data["from_seq"] <= rest.count(b"event: record") + 1
