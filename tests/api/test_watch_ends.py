"""How streams of watches end, and where their clients go on: on this process or another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg
import httpx
import pytest

from app.features.logs import store
from app.features.logs.store import Options, WatchPlace
from app.features.logs.v0_watch import _position
from app.features.logs.watches import Watches
from tests.api.dialect import Body, Topic, eventually, refused
from tests.api.events import Frame
from tests.api.keyring import Services, bearer, client, make
from tests.api.watches import event_id, made, position, watching

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.api.process import Process
    from tests.conftest import Running

    Connect = Callable[[], Awaitable[asyncpg.Connection[asyncpg.Record]]]


@pytest.fixture
async def log(http: httpx.AsyncClient, topic: str) -> Topic:
    """A log with every default."""
    log = Topic(http, topic)
    await log.put(type="log")
    return log


@pytest.fixture(scope="module")
async def elsewhere(serve: Serve) -> Running:
    """Another process of the same service."""
    return await serve()


async def seen(log: Topic, connect: Connect, wid: str) -> int:
    """How far a watch was told, as PostgreSQL has it."""
    db = await connect()
    seq: int = await db.fetchval(
        "SELECT (places -> $2 ->> 1)::bigint FROM holdfast.watches WHERE wid = $1", wid, log.name
    )
    return seq


async def test_a_client_goes_on_where_it_was_and_may_go_back_but_not_ahead(log: Topic) -> None:
    watch = await made(log.http, log)
    await log.append(*({"data": i} for i in range(1, 6)))
    async with watching(log.http, watch) as stream:
        await stream.records(5)
        await stream.event("caught-up")
    await log.append({"data": 6})
    async with watching(log.http, watch) as stream:
        assert await stream.records(1) == [6]
    for last in (3, 5):
        async with watching(log.http, watch, event_id(**{log.name: last, "unknown": 1})) as stream:
            assert await stream.records(6 - last) == list(range(last + 1, 7))
            await stream.event("caught-up")
    await log.append({"data": 7}, {"data": 8})
    async with watching(log.http, watch, event_id(**{log.name: 7})) as stream:
        assert await stream.records(2) == [7, 8]


async def test_a_client_goes_on_at_another_process(log: Topic, elsewhere: Running) -> None:
    """Batches go to one process while the client comes and goes between the two: none is missing, none is out of
    order, and what comes twice is what it went back to."""
    watch = await made(log.http, log, limit=3)
    last: str | None = None
    had = 0
    async with client(elsewhere) as there:
        for round_ in range(1, 5):
            await log.append(*({"data": n} for n in range(10 * (round_ - 1), 10 * round_)))
            async with watching(there if round_ % 2 else log.http, watch, last) as stream:
                fresh: list[int] = []
                while not fresh or fresh[-1] < 10 * round_ - 5:  # leaves before it has read all
                    frame = await stream.next()
                    if frame.fields["event"] == "record":
                        fresh += [record["data"] for record in frame.data["records"]]
                        last = frame.fields["id"]
            assert fresh == list(range(fresh[0], fresh[-1] + 1))
            assert fresh[0] <= had, "one is missing"
            had = max(had, fresh[-1] + 1)
        async with watching(there, watch, last) as stream:
            left: list[int] = []
            while not left or left[-1] < 39:
                frame = await stream.next()
                if frame.fields["event"] == "record":
                    left += [record["data"] for record in frame.data["records"]]
            assert left == list(range(left[0], 40))
            assert left[0] <= had, "one is missing"


async def test_a_process_that_dies_takes_no_record_with_it(log: Topic, connect: Connect, process: Process) -> None:
    """It can't save how far it came. So the next goes on from what was saved before: some come twice, none never."""
    watch = await made(log.http, log)
    url = await asyncio.to_thread(process.url)
    async with httpx.AsyncClient(base_url=url, timeout=35) as there, watching(there, watch) as stream:
        await log.append({"data": 1}, {"data": 2})
        await stream.records(2)

        async def saved() -> bool:
            return await seen(log, connect, watch["wid"]) == 2

        await eventually(saved, 30)  # every few seconds
        await log.append({"data": 3})
        await stream.records(1)
        process.server().kill()
        await log.append({"data": 4})
    async with watching(log.http, watch, event_id(**{log.name: 3})) as stream:
        found = await stream.records(2 if await seen(log, connect, watch["wid"]) == 2 else 1)
        assert found in ([3, 4], [4])


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_second_connection_takes_the_watch_over(log: Topic, elsewhere: Running, where: str) -> None:
    watch = await made(log.http, log)
    async with client(elsewhere) as there, watching(log.http, watch) as first:
        await first.event("caught-up")
        async with watching(log.http if where == "here" else there, watch) as second:
            error = await first.error()
            assert (error["code"], error["error"]) == (409, "watch_taken")
            assert await first.frame() is None
            await log.append({"data": 1})
            assert await second.records(1) == [1]


async def test_who_takes_a_watch_over_is_not_told_again_what_was_not_saved_yet(log: Topic, topic: str) -> None:
    other = Topic(log.http, f"{topic}.other")
    await other.put(type="log")
    watch = await made(log.http, log, other)
    async with watching(log.http, watch) as first:
        for _ in range(2):
            await first.event("caught-up")
        await log.drop()
        await first.event("topic-deleted")
        async with watching(log.http, watch) as second:
            assert (await second.event("caught-up")).data["topic"] == other.name
            await other.append({"data": 1})
            assert await second.records(1, other) == [1]


async def test_a_stopping_service_says_so_and_the_client_goes_on_elsewhere(log: Topic, serve: Serve) -> None:
    stopping = await serve()
    await log.append({"data": 1})
    watch = await made(log.http, log)
    async with client(stopping) as there, watching(there, watch) as stream:
        assert await stream.records(1) == [1]
        await stream.event("caught-up")
        ended = asyncio.create_task(stopping.stop())
        error = await stream.error()
        assert (error["code"], error["error"]) == (503, "shutting_down")
        assert await stream.frame() is None
        await ended
    await log.append({"data": 2})
    async with watching(log.http, watch) as stream:
        assert await stream.records(1) == [2]  # how far it came was saved


async def test_a_watch_that_nobody_comes_for_ends(log: Topic, connect: Connect, service: Running) -> None:
    db, pool = await connect(), service.context.pools.rest
    kept = await made(log.http, log)
    options = Options((), 1, 1, 1_000, tags=False, metadata=False, data=True)
    wid = await store.make(pool, "", options, {}, ttl_ms=100)

    async def over() -> bool:
        return bool(await db.fetchval("SELECT expires_at < now() FROM holdfast.watches WHERE wid = $1", wid))

    await eventually(over)
    refused(await log.http.get(f"/v0/watch/{wid}"), 404, "not_found")
    assert await db.fetchval("SELECT count(*) FROM holdfast.watches WHERE wid = $1", wid) == 1
    await store.sweep(pool, 1_000)
    wids = {row["wid"] for row in await db.fetch("SELECT wid FROM holdfast.watches")}
    assert (wid in wids, kept["wid"] in wids) == (False, True)


async def test_a_watch_is_bound_to_the_key_that_made_it(
    serve: Serve, new_database: Callable[[], Awaitable[str]]
) -> None:
    services = await Services.make(serve, new_database)
    guarded = await services.start(api_keys="root")
    async with client(guarded, "root") as root, client(guarded) as nobody:
        log, foreign = Topic(root, "mine.log"), Topic(root, "foreign")
        await log.put(type="log")
        await foreign.put(type="log")
        key, other = await make(root, "a", ["read"], prefixes=["mine."]), await make(root, "b", ["read"])
        body: Body = {"topics": {"mine.log": {}, "foreign": {}}}
        error = refused(await nobody.post("/v0/watch", json=body, headers=bearer(key["secret"])), 403, "forbidden")
        assert error["detail"] == {"topic": "foreign"}
        async with client(guarded, key["secret"]) as http:
            watch = await made(http, log)
        async with watching(nobody, watch, token=key["secret"]) as stream:  # a browser's EventSource
            await stream.event("caught-up")
            for headers in ({}, bearer(other["secret"])):
                refused(await nobody.get(watch["stream_url"], headers=headers), 401, "unauthorized")
            await log.append({"data": 1})
            assert await stream.records(1) == [1]  # who may not have it takes nothing over
            rotated = (await root.post(f"/v0/keys/{key['id']}/rotate", json={})).json()
        async with watching(nobody, watch, token=rotated["secret"]) as stream:  # is the same key
            await log.append({"data": 2})
            assert await stream.records(1) == [2]
            await root.delete(f"/v0/keys/{key['id']}")
            error = await stream.error()
            assert (error["code"], error["error"]) == (401, "unauthorized")
            assert await stream.frame() is None


def test_an_id_that_would_be_long_has_the_topics_told_last() -> None:
    """What was sent of the others has arrived long since; and a header has an end."""
    places = {f"topic-{i:03}-{'x' * 200}": WatchPlace(i, i) for i in range(256)}
    name = next(iter(places))
    line = _position(places, name, 77)
    shown = position(Frame(line.decode(), 0.0))
    assert len(line) < 8_192
    assert shown[name] == 77
    assert list(shown)[:-1] == list(places)[-len(shown) + 1 :]


async def test_going_back_to_what_is_lost_is_too_old(log: Topic) -> None:
    await log.put(type="log", cap_records=2)
    watch = await made(log.http, log)
    for i in range(4):
        await log.append({"data": i})
    async with watching(log.http, watch) as stream:
        await stream.event("tombstone")
        await stream.records(2)
        await stream.event("caught-up")
    async with watching(log.http, watch, event_id(**{log.name: 1})) as stream:
        lost = (await stream.event("tombstone")).data
        assert (lost["reason"], lost["gap_from"], lost["gap_to"]) == ("from_seq_too_old", 2, 2)
        assert await stream.records(2) == [2, 3]


async def test_too_many_streams(serve: Serve, log: Topic) -> None:
    small = await serve(max_streams=1)
    async with client(small) as http:
        watch, other = await made(http, log), await made(http, log)
        async with watching(http, watch) as stream:
            await stream.event("caught-up")
            answer = await http.get(other["stream_url"])
            refused(answer, 429, "throttled")
            assert answer.headers["retry-after"] == "1"

        async def free() -> bool:
            return small.context.core(Watches).count() == 0

        await eventually(free)
        async with watching(http, other) as stream:
            await stream.event("caught-up")
